//! Looking at the heap: whose a pointer is, what is where, whether everything adds up.

use super::HEAP;
use crate::arena::META;
use crate::front::{self, budget, metadata, per_cpu, registry};
use crate::page_map::PAGE_MAP;
use crate::report::{self, Fault};
use crate::side;
use crate::snapshot::{MAX_CLASSES, MAX_TIERS, Name, Snapshot};
use page_backend::{PageBackend, Tier};
use size_classes::{CLASS_COUNT, CLASSES, PAGE_SIZE};

/// Bytes that a block may be used with, at least what was asked for; 0 for null and for a pointer that is not the start of a
/// block's pages.
///
/// The pointer is looked up, never followed. For a pointer into the middle of a small block the answer is its class's size.
pub fn usable_size(block: *const u8) -> usize {
    let class = PAGE_MAP.class_of(block.addr());
    if class != 0 {
        return CLASSES.size_of(class);
    }
    match PAGE_MAP.span_of(block.addr()) {
        None => side::usable_size(block),
        Some(span) if metadata::is_mark(span) => 0,
        Some(span) => {
            // SAFETY: a span in the page map is valid.
            let span = unsafe { span.as_ref() };
            match span.class {
                0 if span.is_parked() => 0,
                0 => span.pages * PAGE_SIZE,
                class => CLASSES.size_of(class),
            }
        }
    }
}

/// Whether a pointer leads into memory that the heap has handed out pages for.
pub fn owns(block: *const u8) -> bool {
    usable_size(block) != 0
}

/// Fills `out` with what the heap holds at this moment.
///
/// Each account is consistent in itself; while other threads work, the moments at which they are taken differ.
#[cold]
#[inline(never)]
pub fn snapshot(out: &mut Snapshot) {
    out.clear();
    let Some(mut inside) = front::enter_existing() else { return };
    let mut cached = [0u64; CLASS_COUNT];
    let (mut count, mut capacity) = (0, 0);
    registry::walk(inside.cache(), |cache| {
        count += 1;
        capacity += cache.cache.capacity() as u64;
        for (class, cached) in cached.iter_mut().enumerate().skip(1) {
            *cached += cache.cache.len(class) as u64;
        }
    });
    for cache in per_cpu::caches() {
        // After the threads have become few they may still hold something, until it is given back.
        out.thread_caches.per_cpu += u64::from(per_cpu::area() != 0);
        for (class, cached) in cached.iter_mut().enumerate().skip(1) {
            *cached += cache.len(class) as u64;
        }
    }
    let (budget, claimed) = budget::total_and_claimed();
    out.thread_caches.count = count;
    out.thread_caches.budget = budget as u64;
    out.thread_caches.claimed = claimed as u64;
    let _ = capacity;
    out.class_count = CLASS_COUNT as u64;
    for (class, central) in HEAP.centrals() {
        let Some(account) = out.classes.get_mut(class as usize) else { break };
        let info = CLASSES.class(class);
        let counts = central.counts();
        account.size = u64::from(info.size);
        account.spans = counts.spans as u64;
        account.span_bytes = (counts.spans * info.span_bytes()) as u64;
        account.free_in_spans = counts.free_in_spans as u64;
        account.in_transfer_cache = counts.in_transfer as u64;
        account.in_thread_caches = cached.get(class as usize).copied().unwrap_or(0);
        let objects = counts.spans as u64 * u64::from(info.objects);
        account.live = objects
            .saturating_sub(account.free_in_spans)
            .saturating_sub(account.in_transfer_cache)
            .saturating_sub(account.in_thread_caches);
        account.waste = account.span_bytes - objects * account.size;
    }
    const { assert!(CLASS_COUNT <= MAX_CLASSES) };
    let (large, pages) = HEAP.large_counts();
    out.large.count = large as u64;
    out.large.bytes = (pages * PAGE_SIZE) as u64;
    out.metadata.mapped = META.mapped() as u64;
    out.metadata.used = META.used() as u64;
    out.errors = crate::report::counts();
    snapshot_pages(out);
}

/// Fills in what the page heap and its backend know.
#[cold]
#[inline(never)]
fn snapshot_pages(out: &mut Snapshot) {
    let backend = HEAP.pages.backend();
    let pages = HEAP.page_accounts();
    out.tier_count = backend.tiers().min(MAX_TIERS) as u64;
    for (i, account) in out.tiers.iter_mut().enumerate().take(out.tier_count as usize) {
        let tier = Tier(i as u8);
        let (bytes, usage) = (pages.tiers[i], backend.usage(tier));
        account.name = Name::new(backend.name(tier));
        account.mapped = bytes.mapped as u64;
        account.in_use = bytes.in_use as u64;
        account.free = bytes.free as u64;
        account.purged = bytes.purged as u64;
        account.huge = usage.huge as u64;
        account.locked = usage.locked as u64;
        account.pinned = usage.pinned as u64;
        account.fallbacks = usage.fallbacks;
    }
    let events = pages.events;
    out.counters.commit_count = events.commit_count;
    out.counters.commit_bytes = events.commit_bytes;
    out.counters.decommit_count = events.decommit_count;
    out.counters.decommit_bytes = events.decommit_bytes;
    out.counters.reserve_count = events.reserve_count;
    out.counters.reserve_bytes = events.reserve_bytes;
    out.counters.scavenge_count = events.scavenge_count;
    out.counters.hard_limit_hits = events.hard_limit_hits;
    out.counters.soft_limit_hits = super::soft_limit::hits();
    out.counters.failed_allocations = events.failed_allocations;
    out.counters.failed_releases = events.failed_releases;
    let settings = super::start::settings();
    out.soft_limit = settings.soft_limit;
    out.hard_limit = settings.hard_limit;
}

/// Tells of a pointer that no span is known for: nothing of the heap's, the middle of a large block, or a block that was freed
/// so long ago that its pages are free too.
#[cold]
pub(super) fn fault_without_span(block: *const u8) {
    let in_use = front::enter_without_cache().and_then(|_inside| HEAP.pages.is_in_use(block.addr()));
    report::fault(
        match in_use {
            None => Fault::Foreign,
            Some(true) => Fault::Interior,
            Some(false) => Fault::Double,
        },
        block,
    );
}

/// What [`check`] found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The spans of a size class of this many bytes.
    Class(usize),
    /// The list of large blocks.
    Large,
    /// The page heap.
    PageHeap,
}

/// Walks every list of the heap and checks it against counts, bitmaps and the page map.
///
/// # Errors
/// The first part that is not sound.
#[cold]
pub fn check() -> Result<(), CheckError> {
    let Some(_inside) = front::enter_without_cache() else { return Ok(()) };
    HEAP.check().map_err(|class| match class {
        0 => CheckError::Large,
        class => CheckError::Class(CLASSES.size_of(class)),
    })?;
    if HEAP.pages.check() { Ok(()) } else { Err(CheckError::PageHeap) }
}
