//! The mutex of the heap: one word, a futex behind it, a rank for the order.
//!
//! `std` and pthread mutexes can allocate or be interposed; this one does neither. Locks are taken in rising
//! rank alone; debug builds check it. Fork takes them in the same order.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use page_backend::sys;

/// The order in which locks may be nested: a thread may take a lock whose rank is above those it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Rank {
    /// The list of thread caches.
    Registry = 0,
    /// The drain of a CPU's cache.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Draining = 1,
    /// The central list of one size class; one at a time, except in fork.
    Central = 2,
    /// The list of large blocks of one heap.
    Large = 3,
    /// The page heap of one heap.
    PageHeap = 4,
    /// Growing the page map.
    PageMap = 5,
    /// A pool of type-stable records.
    Pool = 6,
    /// The metadata arena.
    Arena = 7,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// How often a waiting thread looks at the word before it sleeps: about a microsecond.
const SPINS: u32 = 100;

/// A mutex around `T`.
#[repr(C)]
pub(crate) struct Lock<T> {
    word: AtomicU32,
    rank: Rank,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives access to its data to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(rank: Rank, data: T) -> Self {
        Self { word: AtomicU32::new(FREE), rank, data: UnsafeCell::new(data) }
    }

    /// Takes the lock, waiting for it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        debug_ranks::entering(self.rank);
        self.acquire();
        Guard { lock: self }
    }

    /// Takes the lock if that needs no more than a short spin; for callers that may have interrupted the holder.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        for _ in 0..SPINS {
            if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                debug_ranks::entered_out_of_order(self.rank);
                return Some(Guard { lock: self });
            }
            core::hint::spin_loop();
        }
        None
    }

    #[inline]
    fn acquire(&self) {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.acquire_slow();
        }
    }

    #[cold]
    fn acquire_slow(&self) {
        for _ in 0..SPINS {
            core::hint::spin_loop();
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            // An error is a wake-up by another name: the loop looks at the word again.
            let _ = sys::futex_wait(&self.word, CONTENDED, None);
        }
    }

    #[inline]
    fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            sys::futex_wake(&self.word, 1);
        }
    }

    /// Takes the lock for the time of a fork, outside the check of ranks.
    pub(crate) fn lock_for_fork(&self) {
        self.acquire();
    }

    /// Gives the lock back after a fork, in the parent and in the child.
    ///
    /// # Safety
    /// This thread, or the thread that it was forked from, called `lock_for_fork`.
    pub(crate) unsafe fn unlock_after_fork(&self) {
        self.release();
    }

    /// The data, without the lock.
    ///
    /// # Safety
    /// The caller holds the lock by `lock_for_fork`, or no other thread can reach it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn data_unlocked(&self) -> &mut T {
        // SAFETY: the caller's contract gives exclusive access.
        unsafe { &mut *self.data.get() }
    }
}

/// Access to the data of a [`Lock`]; gives the lock back when dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        debug_ranks::leaving(self.lock.rank);
        self.lock.release();
    }
}

/// Held ranks are counted in four bits each in a word of the thread.
mod debug_ranks {
    use super::Rank;

    #[inline(always)]
    pub(super) fn entering(rank: Rank) {
        if cfg!(debug_assertions) {
            let held = crate::tls::held_ranks();
            let at_or_above = held >> (rank as usize * 4);
            assert!(
                at_or_above == 0,
                "lock of rank {rank:?} taken while a lock of the same or a later rank is held"
            );
            crate::tls::set_held_ranks(held + (1 << (rank as usize * 4)));
        }
    }

    /// A lock that was only tried cannot deadlock, so its order is free.
    #[inline(always)]
    pub(super) fn entered_out_of_order(rank: Rank) {
        if cfg!(debug_assertions) {
            crate::tls::set_held_ranks(crate::tls::held_ranks() + (1 << (rank as usize * 4)));
        }
    }

    #[inline(always)]
    pub(super) fn leaving(rank: Rank) {
        if cfg!(debug_assertions) {
            crate::tls::set_held_ranks(crate::tls::held_ranks() - (1 << (rank as usize * 4)));
        }
    }
}
