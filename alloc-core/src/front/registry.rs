//! The list of all thread caches: threads come and go in it while others walk it.
//!
//! Changes are made under a lock; walks take none. A cache that leaves the list is retired through epochs
//! (crossbeam-epoch; Fraser, "Practical lock-freedom", 2004), so a walker that still looks at it reads a valid record. What the
//! epochs themselves allocate comes from the metadata arena; without memory for it a walk takes the lock instead, and a leaving
//! cache is reused at once only after that.

use super::cache::Cache;
use super::thread_cache::ThreadCache;
use super::{budget, metadata, parking};
use crate::arena::Pool;
use crate::lock::{Lock, Rank};
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crossbeam_epoch::{Collector, LocalHandle};

/// Caches that one attempt to steal looks at.
const STEAL_VISITS: usize = 16;
/// Up to this many caches a walk takes the lock, which is shorter than what the epochs need to begin.
const SHORT_WALK: usize = 16;

static RECORDS: Pool<MaybeUninit<ThreadCache>> = Pool::new();
static HEAD: AtomicPtr<ThreadCache> = AtomicPtr::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static CHANGES: Lock<Changes> = Lock::new(
    Rank::Registry,
    Changes { collector: None, handle: None, victim: null_mut(), orphans: null_mut() },
);

struct Changes {
    collector: Option<Collector>,
    /// Pins the epochs for whoever holds the lock.
    handle: Option<LocalHandle>,
    /// Where the next attempt to steal begins; null for the head of the list.
    victim: *mut ThreadCache,
    /// Caches that could not be retired: out of the list, and kept for the next thread.
    orphans: *mut ThreadCache,
}
// SAFETY: the handle is used by one thread at a time, under the lock, and never while it is pinned elsewhere.
unsafe impl Send for Changes {}

impl Changes {
    fn collector(&mut self) -> Option<&Collector> {
        if self.collector.is_none() {
            self.collector = metadata::with_memory(Collector::new);
        }
        self.collector.as_ref()
    }

    fn handle(&mut self) -> Option<&LocalHandle> {
        if self.handle.is_none() {
            let collector = self.collector()?.clone();
            self.handle = metadata::with_memory(|| collector.register());
        }
        self.handle.as_ref()
    }
}

/// A cache in the list: one that an ended thread has left, or a new one.
pub(crate) fn join() -> Option<NonNull<ThreadCache>> {
    if let Some(parked) = parking::take() {
        return Some(parked);
    }
    let record = take_orphan().or_else(|| RECORDS.alloc())?;
    // SAFETY: the record is fresh and ours.
    let cache = NonNull::from(ThreadCache::init(unsafe { &mut *record.as_ptr() }));
    let _changes = CHANGES.lock();
    // SAFETY: the cache was made above and is not in the list yet.
    unsafe { cache.as_ref() }.next.store(HEAD.load(Ordering::Relaxed), Ordering::Relaxed);
    HEAD.store(cache.as_ptr(), Ordering::Release);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Some(cache)
}

fn take_orphan() -> Option<NonNull<MaybeUninit<ThreadCache>>> {
    let mut changes = CHANGES.lock();
    let orphan = NonNull::new(changes.orphans)?;
    // SAFETY: orphans are valid records, linked by `next`, that nobody else reaches.
    changes.orphans = unsafe { orphan.as_ref() }.next.load(Ordering::Relaxed);
    Some(orphan.cast())
}

/// Takes a cache out of the list and retires it.
///
/// # Safety
/// The cache is in the list and empty, and its owner does not use it again.
pub(crate) unsafe fn leave(cache: NonNull<ThreadCache>) {
    // SAFETY: the owner still has the record to itself but for walkers, who never look at the handle.
    let handle = unsafe { (*cache.as_ptr()).epoch.take() };
    if handle.is_some() {
        // Dropping a handle allocates. When it cannot, the handle is forgotten; it is not pinned and holds nothing up.
        let mut handle = handle;
        metadata::with_memory(|| drop(handle.take()));
        core::mem::forget(handle);
    }
    let mut changes = CHANGES.lock();
    unlink(&mut changes, cache.as_ptr());
    let retired = changes.handle().is_some_and(|handle| {
        metadata::with_memory(|| {
            let guard = handle.pin();
            // SAFETY: the record is out of the list; walkers that may still look at it are pinned.
            unsafe { guard.defer_unchecked(move || RECORDS.free(cache.cast())) };
        })
        .is_some()
    });
    if !retired {
        // SAFETY: the record is valid.
        unsafe { cache.as_ref() }.next.store(changes.orphans, Ordering::Relaxed);
        changes.orphans = cache.as_ptr();
    }
}

/// Takes a cache out of the list; its own `next` stays, for walkers that are at it.
fn unlink(changes: &mut Changes, cache: *mut ThreadCache) {
    // SAFETY: caches in the list are valid, and the list changes under the lock alone.
    unsafe {
        let next = (*cache).next.load(Ordering::Relaxed);
        if changes.victim == cache {
            changes.victim = next;
        }
        let mut link: *const AtomicPtr<ThreadCache> = &HEAD;
        while (*link).load(Ordering::Relaxed) != cache {
            debug_assert!(!(*link).load(Ordering::Relaxed).is_null(), "a leaving cache is in the list");
            link = &raw const (*(*link).load(Ordering::Relaxed)).next;
        }
        (*link).store(next, Ordering::Release);
    }
    COUNT.fetch_sub(1, Ordering::Relaxed);
}

/// Caches in the list.
pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Calls `visit` for every cache, while threads may come and go.
///
/// `own` is the calling thread's cache, if it has one.
pub(crate) fn walk(own: Option<&mut ThreadCache>, visit: impl FnMut(&ThreadCache)) {
    let handle = own.filter(|_| count() > SHORT_WALK).and_then(|cache| {
        if cache.epoch.is_none() {
            let collector = CHANGES.lock().collector().cloned();
            cache.epoch = collector.and_then(|collector| metadata::with_memory(|| collector.register()));
        }
        cache.epoch.as_ref()
    });
    match handle.and_then(|handle| metadata::with_memory(|| handle.pin())) {
        Some(_guard) => walk_protected(visit),
        None => {
            let _changes = CHANGES.lock();
            walk_protected(visit);
        }
    }
}

fn walk_protected(mut visit: impl FnMut(&ThreadCache)) {
    let mut cache = HEAD.load(Ordering::Acquire);
    while !cache.is_null() {
        // SAFETY: the caller is pinned, or holds the lock: no cache that was in the list is reused.
        unsafe {
            visit(&*cache);
            cache = (*cache).next.load(Ordering::Acquire);
        }
    }
}

/// Takes up to `want` bytes out of other caches' shares.
pub(super) fn steal(thief: &Cache, want: usize) -> usize {
    let Some(mut changes) = CHANGES.try_lock() else { return 0 };
    let mut got = 0;
    for _ in 0..STEAL_VISITS {
        if changes.victim.is_null() {
            changes.victim = HEAD.load(Ordering::Relaxed);
        }
        // SAFETY: the list does not change while the lock is held; `unlink` keeps `victim` in it.
        let Some(victim) = (unsafe { changes.victim.as_ref() }) else { break };
        changes.victim = victim.next.load(Ordering::Relaxed);
        if !core::ptr::eq(&victim.cache, thief) {
            got += budget::take_from(&victim.cache, want - got);
        }
        if got >= want {
            break;
        }
    }
    got
}

pub(crate) fn lock_for_fork() {
    parking::lock_for_fork();
    CHANGES.lock_for_fork();
    RECORDS.lock_for_fork();
}

/// # Safety
/// As [`Lock::unlock_after_fork`].
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: handed on to the caller.
    unsafe {
        RECORDS.unlock_after_fork();
        CHANGES.unlock_after_fork();
        parking::unlock_after_fork();
    }
}

/// In a forked child: hands every cache but `own` to `bury`, and forgets the parent's epochs, which threads that are
/// gone may have pinned.
///
/// # Safety
/// The calling thread is the only one, and holds the lock by [`lock_for_fork`].
pub(crate) unsafe fn keep_own_alone(
    own: Option<NonNull<ThreadCache>>,
    mut bury: impl FnMut(NonNull<ThreadCache>),
) {
    // SAFETY: the caller holds the lock, and that of the parked caches, which are in the list.
    unsafe { parking::forget_all() };
    // SAFETY: as above.
    let changes = unsafe { CHANGES.data_unlocked() };
    core::mem::forget(changes.handle.take());
    core::mem::forget(changes.collector.take());
    changes.victim = null_mut();
    let mut cache = HEAD.load(Ordering::Relaxed);
    HEAD.store(null_mut(), Ordering::Relaxed);
    COUNT.store(0, Ordering::Relaxed);
    while let Some(this) = NonNull::new(cache) {
        // SAFETY: caches of the list are valid, and this is the only thread.
        unsafe {
            cache = this.as_ref().next.load(Ordering::Relaxed);
            core::mem::forget((*this.as_ptr()).epoch.take());
            if Some(this) == own {
                this.as_ref().next.store(null_mut(), Ordering::Relaxed);
                HEAD.store(this.as_ptr(), Ordering::Relaxed);
                COUNT.store(1, Ordering::Relaxed);
            } else {
                bury(this);
                this.as_ref().next.store(changes.orphans, Ordering::Relaxed);
                changes.orphans = this.as_ptr();
            }
        }
    }
}
