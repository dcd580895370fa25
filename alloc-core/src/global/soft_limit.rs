//! The soft limit: above it, memory goes back without delay and thread caches stop growing.
//!
//! It is looked at on ticks, so a burst between two ticks can pass it, and what the program itself holds can stay above it.

use super::{HEAP, start};
use crate::front::budget;
use crate::page_heap::ReleaseMode;
use core::sync::atomic::{AtomicU64, Ordering};

/// Most bytes that one tick gives back: a few milliseconds' worth at the worst.
const STEP: usize = 8 << 20;
/// Nanoseconds between two times that all transfer caches are emptied.
const EMPTY_EVERY: u64 = 100_000_000;
/// What is left of the thread caches' budget above the limit: one part in so many.
const SHARE: usize = 8;

static HITS: AtomicU64 = AtomicU64::new(0);
static LAST_EMPTIED: AtomicU64 = AtomicU64::new(0);

/// Ticks that found the heap above the limit and gave something back.
pub(super) fn hits() -> u64 {
    HITS.load(Ordering::Relaxed)
}

/// Gives memory back while the heap is above the limit. `now` is the monotonic clock in nanoseconds; the thread is inside, and
/// holds no lock.
pub(super) fn heed(now: u64) {
    let settings = start::settings();
    let Ok(limit @ 1..) = usize::try_from(settings.soft_limit) else { return };
    let over = committed().saturating_sub(limit);
    let budget = usize::try_from(settings.max_total_thread_cache_bytes).unwrap_or(usize::MAX);
    let wanted = if over == 0 { budget } else { budget / SHARE };
    if budget::total_and_claimed().0 != wanted {
        budget::set_total(wanted);
    }
    if over == 0 {
        return;
    }
    let step = over.min(STEP);
    let mut released = HEAP.release(step, ReleaseMode::Everything);
    if released < step && now.wrapping_sub(LAST_EMPTIED.load(Ordering::Relaxed)) >= EMPTY_EVERY {
        LAST_EMPTIED.store(now, Ordering::Relaxed);
        HEAP.empty_transfers();
        released += HEAP.release(step - released, ReleaseMode::Everything);
    }
    HITS.fetch_add(u64::from(released > 0), Ordering::Relaxed);
}

/// Bytes of user memory that are not given back.
fn committed() -> usize {
    HEAP.page_accounts().tiers.iter().map(|tier| tier.mapped - tier.purged).sum()
}
