//! The budget of all thread caches together, in bytes of slot capacity.
//!
//! Threads claim shares as their bins grow. When nothing is unclaimed, a thread that still grows takes a part of another's
//! share; that one gives objects back by itself at its next slow path.

use super::cache::Cache;
use super::registry;
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// Budget by default, as gperftools has it.
pub(crate) const DEFAULT: usize = 32 << 20;
/// Shares are claimed in steps of this.
const STEP: usize = 64 << 10;
/// The most that one thread may claim.
const MAX_SHARE: usize = 4 << 20;
/// What every cache may hold without a share, so that the last of many threads has a cache too, as long as the floors of all take
/// no more than half of the budget.
const FLOOR: usize = 16 << 10;

static TOTAL: AtomicUsize = AtomicUsize::new(DEFAULT);
static UNCLAIMED: AtomicIsize = AtomicIsize::new(DEFAULT as isize);

/// Sets the budget of all threads together.
pub(crate) fn set_total(bytes: usize) {
    let bytes = bytes.min(isize::MAX as usize);
    let old = TOTAL.swap(bytes, Ordering::Relaxed);
    UNCLAIMED.fetch_add(bytes as isize - old as isize, Ordering::Relaxed);
}

/// The budget, and what is claimed of it.
pub(crate) fn total_and_claimed() -> (usize, usize) {
    let total = TOTAL.load(Ordering::Relaxed);
    (total, (total as isize - UNCLAIMED.load(Ordering::Relaxed)).max(0) as usize)
}

/// Bytes that the slots of a cache may hold.
pub(super) fn allowed(cache: &Cache) -> usize {
    let fair = TOTAL.load(Ordering::Relaxed) / (2 * registry::count().max(1));
    cache.share().max(fair.min(FLOOR))
}

/// Whether `cache` may hold `more` bytes; claims or takes what it needs for that.
pub(super) fn afford(cache: &Cache, more: usize) -> bool {
    let needed = cache.capacity() + more;
    if needed <= allowed(cache) {
        return true;
    }
    let share = cache.share();
    if needed > MAX_SHARE {
        return false;
    }
    let step = (needed - share).next_multiple_of(STEP).min(MAX_SHARE - share);
    let got = if claim(step) { step } else { registry::steal(cache, needed - share) };
    cache.limit.fetch_add(got, Ordering::Relaxed);
    cache.share() >= needed
}

fn claim(bytes: usize) -> bool {
    if UNCLAIMED.fetch_sub(bytes as isize, Ordering::Relaxed) >= bytes as isize {
        return true;
    }
    UNCLAIMED.fetch_add(bytes as isize, Ordering::Relaxed);
    false
}

/// Takes up to `want` bytes of a victim's share.
pub(super) fn take_from(victim: &Cache, want: usize) -> usize {
    let mut share = victim.share();
    loop {
        let got = share.min(want);
        if got == 0 {
            return 0;
        }
        match victim.limit.compare_exchange_weak(share, share - got, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return got,
            Err(now) => share = now,
        }
    }
}

/// Gives back the part of the share that the bins no longer need.
pub(super) fn return_surplus(cache: &Cache) {
    let surplus = cache.share().saturating_sub(cache.capacity()) / STEP * STEP;
    let got = take_from(cache, surplus);
    UNCLAIMED.fetch_add(got as isize, Ordering::Relaxed);
}

/// Gives the whole share back.
pub(super) fn return_all(cache: &Cache) {
    let share = cache.limit.swap(0, Ordering::Relaxed);
    UNCLAIMED.fetch_add(share as isize, Ordering::Relaxed);
}
