//! The page heap: runs of pages out of huge pages.
//!
//! Layer rule: above page-backend and the page map, below spans. Knows nothing of size classes or threads.
//!
//! Runs of less than a huge page are packed by the *filler* into huge pages that are in use already; longer ones take whole
//! huge pages from the *cache* of free ranges, and leave the tail of the last one to the filler. The design follows the ideas of
//! "Beyond malloc efficiency to fleet efficiency: a hugepage-aware memory allocator" (OSDI 2021).
//!
//! No lock is held across a call of the backend: pages are taken out, the call is made, and they are put back.

mod accounts;
mod bits;
mod check;
mod decay;
mod filler;
mod grow;
mod huge_cache;
mod inner;
mod range_tracker;
mod region;
mod release;
mod relocate;
mod resize;
mod restore;
#[cfg(test)]
pub(crate) mod tests;
mod tracker;
mod turn;

pub(crate) use accounts::PageAccounts;
pub(crate) use release::ReleaseMode;

use crate::lock::{Lock, Rank};
use crate::page_map::PAGE_MAP;
use crate::settings::{Delay, Settings};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use filler::tier_bit;
use huge_cache::Memory;
use inner::{Give, Inner, Taken};
use page_backend::{Capabilities, PageBackend, Tier, sys};
use size_classes::PAGE_SIZE;
use tracker::TrackerMap;
use turn::Turn;

/// Longest run, in pages: more than any address space has, and far from overflow in bytes.
const MOST_PAGES: usize = 1 << 35;
/// How often a fork waits for releases under way before it goes on without them.
const FORK_PATIENCE: usize = 10_000;

/// The part of its memory, and the fewest pages, that a heap has to gain to have grown.
const GROWTH_PART: usize = 16;
const LEAST_GROWTH: usize = (1 << 20) / PAGE_SIZE;

/// Pages handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// First byte, on a page boundary.
    pub(crate) ptr: NonNull<u8>,
    /// Bytes from the first on that may hold anything; all behind them are zero.
    pub(crate) dirty: usize,
}

/// A page heap over a backend.
pub(crate) struct PageHeap<B> {
    backend: B,
    inner: Lock<Inner>,
    /// Held by the thread that maps more.
    turn: Turn,
    /// The monotonic time before which a tick has nothing to do.
    next_tick: AtomicU64,
    /// The monotonic time of the last tick.
    last_tick: AtomicU64,
    /// Set in a forked child until the next run is taken.
    forked: AtomicBool,
}

impl<B> core::fmt::Debug for PageHeap<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PageHeap").finish_non_exhaustive()
    }
}

impl<B: PageBackend> PageHeap<B> {
    /// An empty heap; nothing is mapped before the first run.
    pub(crate) const fn new(backend: B) -> Self {
        Self {
            backend,
            inner: Lock::new(Rank::PageHeap, Inner::new()),
            turn: Turn::new(),
            next_tick: AtomicU64::new(0),
            last_tick: AtomicU64::new(0),
            forked: AtomicBool::new(false),
        }
    }

    /// The backend.
    pub(crate) fn backend(&self) -> &B {
        &self.backend
    }

    /// Takes the settings that concern pages.
    pub(crate) fn configure(&self, settings: &Settings) {
        self.set_delay(match settings.release_delay {
            Delay::Millis(millis) => u64::from(millis) * 1_000_000,
            Delay::Never => decay::NEVER,
        });
        self.set_hard_limit(match settings.hard_limit {
            0 => usize::MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        });
    }

    /// Sets how long free memory is kept, in nanoseconds: 0 gives back at once, `u64::MAX` never.
    pub(crate) fn set_delay(&self, nanos: u64) {
        self.inner.lock().decay.set_delay(nanos);
        self.next_tick.store(0, Ordering::Relaxed);
    }

    /// Sets the most bytes to hand out; `usize::MAX` for no limit.
    pub(crate) fn set_hard_limit(&self, bytes: usize) {
        self.inner.lock().hard_limit = if bytes == usize::MAX { bytes } else { bytes / PAGE_SIZE };
    }

    /// Hands out `pages` pages (at least 1) at a multiple of `align` pages, a power of two.
    ///
    /// `None` when the backend has no more memory, or the hard limit is reached.
    #[inline]
    pub(crate) fn alloc(&self, pages: usize, align: usize) -> Option<Run> {
        debug_assert!(pages > 0 && align.is_power_of_two());
        if pages > MOST_PAGES || align > MOST_PAGES {
            return None;
        }
        let taken = {
            let mut inner = self.inner.lock();
            if self.forked.load(Ordering::Relaxed) {
                self.bar_after_fork(&mut inner);
            }
            if inner.hard_limit != usize::MAX && inner.over_limit(pages) {
                return None;
            }
            // SAFETY: the lock is held.
            unsafe { inner.take(pages, align, Memory::Any) }
        };
        let taken = match taken {
            Some(taken) => taken,
            None => match self.alloc_slow(pages, align) {
                Some(taken) => taken,
                None => {
                    self.inner.lock().events.failed_allocations += 1;
                    return None;
                }
            },
        };
        self.finish(taken, pages)
    }

    /// As [`alloc`](Self::alloc), out of memory that costs already; `None`, with nothing counted, when none of it fits.
    pub(crate) fn alloc_backed(&self, pages: usize, align: usize) -> Option<Run> {
        debug_assert!(pages > 0 && align.is_power_of_two());
        if pages > MOST_PAGES || align > MOST_PAGES {
            return None;
        }
        let taken = {
            let mut inner = self.inner.lock();
            if self.forked.load(Ordering::Relaxed) || inner.used + pages > inner.hard_limit {
                return None;
            }
            // SAFETY: the lock is held.
            unsafe { inner.take(pages, align, Memory::Backed) }?
        };
        self.finish(taken, pages)
    }

    #[inline]
    fn finish(&self, taken: Taken, pages: usize) -> Option<Run> {
        if (taken.marked.unbacked > 0 || taken.marked.purged || taken.holes) && !self.ready(taken, pages) {
            return None;
        }
        Some(Run { ptr: taken.ptr, dirty: taken.marked.dirty * PAGE_SIZE })
    }

    /// Pays what is owed for pages that had no memory: restores purged ones and keeps to the hard limit.
    #[inline(never)]
    fn ready(&self, taken: Taken, pages: usize) -> bool {
        if taken.marked.purged && !self.restore(taken.ptr, pages, taken.tier) {
            return false;
        }
        if taken.holes {
            self.close_holes(taken.ptr, pages, taken.tier);
        }
        let excess = {
            let inner = self.inner.lock();
            (inner.used + inner.free_backed()).saturating_sub(inner.hard_limit)
        };
        if excess > 0 {
            self.release(excess * PAGE_SIZE, ReleaseMode::Everything);
        }
        true
    }

    /// Tells the backend that the huge pages from `ptr` on, which `pages` pages have just been taken from, have
    /// no holes any more.
    #[inline(never)]
    fn close_holes(&self, ptr: NonNull<u8>, pages: usize, tier: Tier) {
        // A tail that the pages begin in keeps its holes.
        let tail = ptr.as_ptr().addr().next_multiple_of(tracker::HUGE_SIZE) - ptr.as_ptr().addr();
        let size = (pages * PAGE_SIZE - tail).next_multiple_of(tracker::HUGE_SIZE);
        // SAFETY: the huge pages belong to this heap, on this tier.
        unsafe { self.backend.set_holes(ptr.add(tail), size, tier, false) };
    }

    /// Takes pages back: a run, or any part of one.
    ///
    /// # Safety
    /// The pages were handed out by this heap, and nothing uses them.
    #[inline]
    pub(crate) unsafe fn free(&self, ptr: NonNull<u8>, pages: usize) {
        debug_assert!(pages > 0);
        let (excess, at_once) = {
            let mut inner = self.inner.lock();
            // SAFETY: handed on to the caller; the lock is held.
            unsafe { inner.give(ptr, pages, Give::Touched) };
            (inner.excess(), inner.decay.delay() == 0)
        };
        if excess > 0 || at_once {
            self.evict(excess, at_once);
        }
    }

    /// As [`free`](Self::free), but what is then free beyond the cache's limit stays until the next free, or until it has
    /// been idle.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    pub(crate) unsafe fn free_and_keep(&self, ptr: NonNull<u8>, pages: usize) {
        debug_assert!(pages > 0);
        // SAFETY: handed on to the caller; the lock is held.
        unsafe { self.inner.lock().give(ptr, pages, Give::Touched) };
    }

    /// Whether the heap has a good part more memory than when this was last true, or than it had least since.
    pub(crate) fn has_grown(&self) -> bool {
        let mut inner = self.inner.lock();
        let backed = inner.used + inner.free_backed();
        inner.grown_from = inner.grown_from.min(backed);
        let grown = backed - inner.grown_from >= (backed / GROWTH_PART).max(LEAST_GROWTH);
        if grown {
            inner.grown_from = backed;
        }
        grown
    }

    /// Whether the page that holds `address` is handed out; `None` when it is none of this heap's.
    pub(crate) fn is_in_use(&self, address: usize) -> Option<bool> {
        let inner = self.inner.lock();
        let t = inner.map().get(address >> tracker::HUGE_SHIFT);
        if t.is_null() {
            return None;
        }
        // SAFETY: records in the map are live; the lock is held.
        Some(unsafe { !(*t).pages.is_free(address / PAGE_SIZE % tracker::HUGE_PAGES, 1) })
    }

    /// All accounts.
    pub(crate) fn accounts(&self) -> PageAccounts {
        let inner = self.inner.lock();
        PageAccounts {
            tiers: inner.tiers.map(Into::into),
            donated: inner.filler.donated() * PAGE_SIZE,
            cached_huge: inner.cache.backed_pages() * PAGE_SIZE,
            events: inner.events,
        }
    }

    /// Takes the lock for the time of a fork, when no release is under way.
    pub(crate) fn lock_for_fork(&self) {
        for _ in 0..FORK_PATIENCE {
            self.inner.lock_for_fork();
            // SAFETY: the lock is held.
            if unsafe { self.inner.data_unlocked() }.in_flight == 0 {
                return;
            }
            // SAFETY: taken above.
            unsafe { self.inner.unlock_after_fork() };
            sys::sched_yield();
        }
        // A release that takes this long, or that the fork's own thread was interrupted in, is not waited
        // for: its pages are lost to the child.
        self.inner.lock_for_fork();
    }

    /// Gives the lock back after a fork, in the parent and in the child.
    ///
    /// # Safety
    /// As [`Lock::unlock_after_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: handed on to the caller.
        unsafe { self.inner.unlock_after_fork() }
    }

    /// In a forked child, with the lock held or not: tells the backend, and sees to it that no memory is handed out
    /// any more that the fork does not copy in small pages, for it could fail at the first touch.
    pub(crate) fn after_fork_in_child(&self) {
        self.backend.after_fork_in_child();
        self.turn.reset();
        self.forked.store(true, Ordering::Relaxed);
    }

    /// The tiers, by bit, that a fork does not copy in small pages.
    fn not_copied(&self) -> u32 {
        let copied =
            |tier: &usize| self.backend.capabilities(Tier(*tier as u8)).contains(Capabilities::FORK_COPIES);
        (0..self.backend.tiers().min(32)).filter(|tier| !copied(tier)).fold(0, |bits, tier| bits | 1 << tier)
    }

    /// Whether a forked child may write to all memory that it inherits.
    pub(crate) fn fork_copies(&self) -> bool {
        self.not_copied() == 0
    }

    /// In a forked child: retires all memory of tiers that a fork does not copy in small pages; see [`PageMap::retire`].
    /// Returns whether there was any.
    ///
    /// [`PageMap::retire`]: crate::page_map::PageMap::retire
    pub(crate) fn retire_inherited(&self) -> bool {
        let barred = self.not_copied();
        let mut any = false;
        if barred != 0 {
            let inner = self.inner.lock();
            let mut t = inner.all.head();
            while !t.is_null() {
                // SAFETY: listed records are live; the lock is held.
                unsafe {
                    if tier_bit(&*t) & barred != 0 {
                        PAGE_MAP.retire((*t).base.as_ptr().addr());
                        any = true;
                    }
                    t = inner.all.next(t);
                }
            }
        }
        any
    }

    #[cold]
    fn bar_after_fork(&self, inner: &mut Inner) {
        self.forked.store(false, Ordering::Relaxed);
        let barred = self.not_copied();
        // The threads that had taken pages out are not in this process.
        inner.in_flight = 0;
        if barred != 0 {
            // SAFETY: the caller holds the lock.
            unsafe { inner.bar(barred) };
        }
    }
}

impl Inner {
    /// Whether `pages` more would be over the hard limit; counted if so.
    #[cold]
    fn over_limit(&mut self, pages: usize) -> bool {
        let over = self.used.saturating_add(pages) > self.hard_limit;
        if over {
            self.events.hard_limit_hits += 1;
        }
        over
    }

    /// Pages that the cache holds beyond its limit.
    #[inline]
    fn excess(&mut self) -> usize {
        let (cached, used) = (self.cache.backed_pages(), self.used);
        if cached == 0 { 0 } else { self.decay.excess(cached, used) }
    }
}
