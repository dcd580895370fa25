//! Caches of threads that have ended, kept whole for those that begin.
//!
//! A thread that begins with empty bins has to prove again what others have proven before it, and fetches one by one what
//! the last to end gave back one by one. So a cache is parked when its thread ends, with its objects, and the next thread
//! takes it over. What is parked is bounded in bytes, and given back when it was not taken for a second. Parked caches stay
//! in the registry, where they are counted, and where others may take from their shares of the budget.

use super::thread_cache::ThreadCache;
use super::{budget, registry};
use crate::heap::Engine;
use crate::lock::{Lock, Rank};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering;
use page_backend::{PageBackend, sys};

/// Caches that may be parked at a time.
const MOST: usize = 64;
/// The part of the budget of all caches that those parked may have as their capacity.
const PART_OF_BUDGET: usize = 8;
/// Nanoseconds after which a parked cache is given back.
const KEPT: u64 = 1_000_000_000;

static PARKED: Lock<Stack> = Lock::new(Rank::Registry, Stack { top: null_mut(), len: 0, bytes: 0 });

/// The caches, linked by `below`: what was parked last is on top, since the processor may still have it in its caches.
struct Stack {
    top: *mut ThreadCache,
    len: usize,
    /// What their bins can hold.
    bytes: usize,
}
// SAFETY: the stack owns its caches.
unsafe impl Send for Stack {}

impl Stack {
    /// Notes that a cache was unlinked. The child of a fork cannot trust its bins from now on, as those of any that is in use.
    fn unlinked(&mut self, cache: &ThreadCache) {
        self.len -= 1;
        self.bytes -= cache.cache.capacity();
        cache.inside.store(true, Ordering::Relaxed);
    }
}

/// A parked cache, which the caller owns then.
pub(super) fn take() -> Option<NonNull<ThreadCache>> {
    let mut parked = PARKED.lock();
    let top = NonNull::new(parked.top)?;
    // SAFETY: parked caches are valid, and no thread's.
    let cache = unsafe { top.as_ref() };
    parked.top = cache.below.load(Ordering::Relaxed);
    parked.unlinked(cache);
    Some(top)
}

/// Parks a cache; `false` when too much is parked already.
///
/// # Safety
/// The cache is in the registry, and its owner gives it away unless the answer is `false`.
pub(super) unsafe fn put(cache: NonNull<ThreadCache>) -> bool {
    let now = sys::clock_monotonic_coarse();
    let (budget, _) = budget::total_and_claimed();
    // SAFETY: the caller's cache is valid.
    let this = unsafe { cache.as_ref() };
    let bytes = this.cache.capacity();
    let mut parked = PARKED.lock();
    if parked.len == MOST || parked.bytes + bytes > budget / PART_OF_BUDGET {
        return false;
    }
    this.inside.store(false, Ordering::Relaxed);
    this.parked_at.store(now, Ordering::Relaxed);
    this.below.store(parked.top, Ordering::Relaxed);
    parked.top = cache.as_ptr();
    parked.len += 1;
    parked.bytes += bytes;
    true
}

/// The cache that was parked first, if that was before `limit`; the caller owns it then.
fn take_first(limit: u64) -> Option<NonNull<ThreadCache>> {
    let mut parked = PARKED.lock();
    let mut cache = NonNull::new(parked.top)?;
    let mut above: Option<NonNull<ThreadCache>> = None;
    // SAFETY: parked caches are valid, and the stack changes under the lock alone.
    unsafe {
        while let Some(below) = NonNull::new(cache.as_ref().below.load(Ordering::Relaxed)) {
            above = Some(cache);
            cache = below;
        }
        if cache.as_ref().parked_at.load(Ordering::Relaxed) > limit {
            return None;
        }
        match above {
            Some(above) => above.as_ref().below.store(null_mut(), Ordering::Relaxed),
            None => parked.top = null_mut(),
        }
        parked.unlinked(cache.as_ref());
    }
    Some(cache)
}

/// Gives back a cache that was parked too long ago; `false` when there is none. The thread is inside.
pub(crate) fn give_back_one<B: PageBackend>(engine: &Engine<B>, now: u64) -> bool {
    give_back_first(engine, now.saturating_sub(KEPT))
}

/// Gives all parked caches back. The thread is inside.
pub(crate) fn give_back_all<B: PageBackend>(engine: &Engine<B>) {
    while give_back_first(engine, u64::MAX) {}
}

fn give_back_first<B: PageBackend>(engine: &Engine<B>, limit: u64) -> bool {
    let Some(mut cache) = take_first(limit) else { return false };
    // SAFETY: the cache is ours since it was taken, and empty when it leaves.
    unsafe {
        cache.as_mut().flush_all(engine);
        registry::leave(cache);
    }
    true
}

pub(super) fn lock_for_fork() {
    PARKED.lock_for_fork();
}

/// # Safety
/// As [`Lock::unlock_after_fork`].
pub(super) unsafe fn unlock_after_fork() {
    // SAFETY: handed on to the caller.
    unsafe { PARKED.unlock_after_fork() }
}

/// In a forked child: the registry sees to all caches but the thread's own.
///
/// # Safety
/// The calling thread is the only one, and holds the lock by [`lock_for_fork`].
pub(super) unsafe fn forget_all() {
    // SAFETY: the caller holds the lock.
    *unsafe { PARKED.data_unlocked() } = Stack { top: null_mut(), len: 0, bytes: 0 };
}
