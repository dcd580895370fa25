//! Long runs made longer elsewhere: their physical memory moves, their content is not copied.

use super::PageHeap;
use super::Run;
use super::grow::Records;
use super::inner::{Give, account};
use super::tracker::{HUGE_PAGES, HUGE_SHIFT, HUGE_SIZE, State, Tracker, TrackerMap};
use crate::page_map::PAGE_MAP;
use core::ptr::NonNull;
use page_backend::{Capabilities, PageBackend, Tier};
use size_classes::PAGE_SIZE;

/// Runs of fewer whole huge pages are copied: that costs less than two system calls and the faults after them.
const LEAST: usize = 1;
/// Runs of more huge pages than a gigabyte has could need more leaves of the page map than are reserved.
const MOST: usize = 512;

impl<B: PageBackend> PageHeap<B> {
    /// Moves a run to a new place of `new_pages` pages, more than it has, by moving its whole huge pages, and the last one too
    /// if nobody else uses it; else what the run has there is copied. `None`, with nothing changed, when the backend cannot:
    /// the caller copies then.
    ///
    /// # Safety
    /// The run of `pages` pages at `ptr` was handed out by this heap and is the caller's, who does not use it again when it
    /// has moved.
    pub(crate) unsafe fn relocate(&self, ptr: NonNull<u8>, pages: usize, new_pages: usize) -> Option<Run> {
        debug_assert!(new_pages > pages);
        let mut whole = pages / HUGE_PAGES;
        let mut rest = pages % HUGE_PAGES;
        let address = ptr.as_ptr().addr();
        let number = address >> HUGE_SHIFT;
        let len = new_pages.div_ceil(HUGE_PAGES);
        // The new place must be in the page map whatever its address, so room for that is made first.
        if !(LEAST..=MOST).contains(&whole)
            || len > MOST
            || !address.is_multiple_of(HUGE_SIZE)
            || !PAGE_MAP.reserve_leaves()
        {
            return None;
        }
        let mut spare = Records::take(len - whole)?;

        // SAFETY: the run is the caller's, so its records are live and change by this thread alone.
        let (tier, mut records, unbacked, holes) = unsafe {
            let mut inner = self.inner.lock();
            let map = inner.map();
            let tier = (*map.get(number)).tier;
            let able = self.backend.capabilities(tier).contains(Capabilities::REMAP)
                && (1..whole).all(|i| (*map.get(number + i)).tier == tier)
                && (inner.hard_limit == usize::MAX || !inner.over_limit(new_pages - pages));
            if !able {
                drop(inner);
                spare.give_back();
                return None;
            }
            // Where the run will be longer than its last huge page, that can be moved as a whole.
            if rest > 0 && len > whole + 1 && is_alone(map.get(number + whole), rest, tier) {
                whole += 1;
                rest = 0;
            }
            let mut records = Records::none();
            let (mut unbacked, mut holes) = (0, false);
            for i in (0..whole).rev() {
                let t = map.get(number + i);
                debug_assert!((*t).pages.used() == (pages - i * HUGE_PAGES).min(HUGE_PAGES));
                unbacked += (*t).pages.unbacked();
                holes |= (*t).holes;
                inner.filler.remove(t);
                (*t).state = State::Detached;
                inner.detach(t);
                records.add(t);
            }
            let backed = inner.filler.backed();
            inner.decay.note_filler(backed);
            inner.in_flight += 1;
            (tier, records, unbacked, holes)
        };

        // SAFETY: the huge pages are the caller's, and nobody finds them any more.
        let moved = unsafe { self.backend.remap(ptr, whole * HUGE_SIZE, len * HUGE_SIZE, HUGE_SIZE, tier) };
        if let Ok(mapping) = moved {
            let reachable = PAGE_MAP.ensure(mapping.ptr.as_ptr().addr(), len * HUGE_SIZE);
            debug_assert!(reachable, "leaves were reserved");
        }
        let mut inner = self.inner.lock();
        inner.in_flight -= 1;
        let Ok(mapping) = moved else {
            // SAFETY: the records are ours, and the memory is where it was.
            unsafe {
                while let Some(t) = NonNull::new(records.next()) {
                    inner.attach(t.as_ptr());
                    (*t.as_ptr()).state = State::Shared;
                    inner.filler.update(t.as_ptr());
                }
            }
            drop(inner);
            spare.give_back();
            return None;
        };
        debug_assert!(mapping.len == len * HUGE_SIZE && mapping.tier == tier);
        // SAFETY: the records are ours, the mapping is the caller's, and the lock is held.
        unsafe {
            let id = inner.id;
            let account_index = account(tier);
            inner.tiers[account_index].used -= pages - rest;
            inner.used -= pages - rest;
            let fresh = (len - whole) * HUGE_PAGES;
            inner.tiers[account_index].mapped += fresh;
            inner.tiers[account_index].unbacked += len * HUGE_PAGES - unbacked;
            inner.mapped += fresh;
            inner.events.reserve_count += 1;
            inner.events.reserve_bytes += (fresh * PAGE_SIZE) as u64;
            let mut first: *mut Tracker = core::ptr::null_mut();
            for i in 0..len {
                let t = if i < whole { records.next() } else { spare.next() };
                Tracker::init(t, id, mapping.ptr.add(i * HUGE_SIZE), tier, false);
                inner.attach(t);
                if first.is_null() {
                    first = t;
                }
            }
            let map = inner.map();
            inner.occupy(&map, first, new_pages);
            // What moved was counted as committed before.
            inner.events.commit_bytes -= ((whole * HUGE_PAGES - unbacked) * PAGE_SIZE) as u64;
        }
        // The memory that was added came past the cache, which the run's growth will not empty.
        let excess = inner.excess();
        drop(inner);
        spare.give_back();
        if excess > 0 {
            self.evict(excess, false);
        }
        // Nor does it use free address space: as much of that goes as was added.
        self.unmap_unbacked(len - whole);
        if holes {
            // What the kernel was told of the old place it knows of the new one, where nothing is free.
            self.close_holes(mapping.ptr, whole * HUGE_PAGES, tier);
        }

        if rest > 0 {
            // SAFETY: the rest of the old run is still mapped, behind the part that moved, and the new run is longer.
            unsafe {
                let old = ptr.add(whole * HUGE_SIZE);
                let new = mapping.ptr.add(whole * HUGE_SIZE);
                new.copy_from_nonoverlapping(old, rest * PAGE_SIZE);
                self.inner.lock().give(old, rest, Give::Touched);
            }
        }
        Some(Run { ptr: mapping.ptr, dirty: new_pages * PAGE_SIZE })
    }
}

/// Whether a run of `tier` whose last `rest` pages are the first ones of a huge page is alone there, with nothing purged
/// behind it: purged pages are to be restored where they are.
///
/// # Safety
/// The record is live, and the heap's lock is held.
unsafe fn is_alone(t: *mut Tracker, rest: usize, tier: Tier) -> bool {
    // SAFETY: by the contract.
    unsafe { (*t).tier == tier && (*t).pages.used() == rest && !(*t).pages.has_purged() }
}
