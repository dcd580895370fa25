//! What the heap's lock guards: the filler, the free ranges and the accounts, and how pages pass between them.

use super::accounts::{Events, TIERS, TierPages};
use super::decay::Decay;
use super::filler::{Filler, tier_bit};
use super::huge_cache::{Backing, HugeCache, Memory};
use super::range_tracker::{Marked, RangeTracker};
use super::tracker::{ByAll, HUGE_PAGES, HUGE_SHIFT, List, State, Tracker, TrackerMap};
use crate::page_map::PAGE_MAP;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use page_backend::Tier;
use size_classes::PAGE_SIZE;

/// The process's page map as one heap sees it.
pub(crate) struct OwnTrackers(pub(crate) u32);

impl TrackerMap for OwnTrackers {
    #[inline]
    fn get(&self, number: usize) -> *mut Tracker {
        let t: *mut Tracker = PAGE_MAP.tracker(number << HUGE_SHIFT).cast();
        // SAFETY: records are type-stable, and `owner` is only ever accessed atomically. Only under this heap's
        // lock, which the caller holds, does a record become or cease to be this heap's.
        if t.is_null() || unsafe { (*t).owner.load(Ordering::Relaxed) } != self.0 {
            return core::ptr::null_mut();
        }
        t
    }
}

/// Pages just taken, before what is owed to them outside the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) tier: Tier,
    pub(crate) marked: Marked,
    /// The backend believes that some of the huge pages have holes; they begin a new life.
    pub(crate) holes: bool,
}

/// The guarded part of a page heap.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The number of the heap; 0 before it has mapped anything.
    pub(crate) id: u32,
    pub(crate) filler: Filler,
    pub(crate) cache: HugeCache,
    pub(crate) all: List<ByAll>,
    pub(crate) tiers: [TierPages; TIERS],
    pub(crate) events: Events,
    pub(crate) decay: Decay,
    /// Pages marked as used, on all tiers.
    pub(crate) used: usize,
    /// Pages mapped, on all tiers.
    pub(crate) mapped: usize,
    /// Threads that have taken pages out and dropped the lock for a system call.
    pub(crate) in_flight: usize,
    /// Tiers on which touching a part of a huge page takes the memory of all of it, a bit each.
    pub(crate) filling: u32,
    /// Tiers whose memory is taken by the huge page, at a touch or when it is mapped, a bit each.
    pub(crate) whole: u32,
    /// The tier of the newest mapping.
    pub(crate) last_tier: Option<Tier>,
    /// Most pages to hand out.
    pub(crate) hard_limit: usize,
    /// Pages with memory behind them from which on growth counts.
    pub(super) grown_from: usize,
}

// SAFETY: the records that the lists lead to are reached under the heap's lock alone.
unsafe impl Send for Inner {}

/// The account of a tier.
#[inline]
pub(crate) fn account(tier: Tier) -> usize {
    (tier.0 as usize).min(TIERS - 1)
}

impl Inner {
    pub(crate) const fn new() -> Self {
        Self {
            id: 0,
            filler: Filler::new(),
            cache: HugeCache::new(),
            all: List::EMPTY,
            tiers: [TierPages::ZERO; TIERS],
            events: Events::ZERO,
            decay: Decay::new(),
            used: 0,
            mapped: 0,
            in_flight: 0,
            filling: 0,
            whole: 0,
            last_tier: None,
            hard_limit: usize::MAX,
            grown_from: 0,
        }
    }

    #[inline]
    pub(crate) fn map(&self) -> OwnTrackers {
        OwnTrackers(self.id)
    }

    /// Free pages with memory behind them, those held by a release under way included.
    pub(crate) fn free_backed(&self) -> usize {
        self.tiers.iter().map(|t| t.mapped - t.used - t.unbacked + t.held).sum()
    }

    /// Changes the pages of a record and the accounts with them.
    ///
    /// # Safety
    /// `t` is live, of this heap, and not in a listed free range; the lock is held.
    #[inline]
    pub(crate) unsafe fn change<R>(
        &mut self,
        t: *mut Tracker,
        change: impl FnOnce(&mut RangeTracker) -> R,
    ) -> R {
        // SAFETY: the caller's contract gives exclusive access.
        unsafe {
            let tier = &mut self.tiers[account((*t).tier)];
            let pages = &mut (*t).pages;
            let (used, unbacked) = (pages.used(), pages.unbacked());
            let result = change(pages);
            tier.used = tier.used + pages.used() - used;
            tier.unbacked = tier.unbacked + pages.unbacked() - unbacked;
            self.used = self.used + pages.used() - used;
            result
        }
    }

    /// Counts pages taken into use that had no memory behind them.
    #[inline]
    pub(super) fn committed(&mut self, unbacked: usize) {
        if unbacked > 0 {
            self.events.commit_count += 1;
            self.events.commit_bytes += (unbacked * PAGE_SIZE) as u64;
        }
    }

    /// Takes a run of less than a huge page, with an alignment of at most one, from what is mapped.
    ///
    /// # Safety
    /// The lock is held.
    #[inline]
    pub(crate) unsafe fn take_small(&mut self, pages: usize, align: usize, memory: Memory) -> Option<Taken> {
        // SAFETY: the lock is held; the filler and the cache give live records.
        unsafe {
            let (t, pos, holes) = match self.filler.find(pages, align) {
                Some((t, pos)) if memory == Memory::Any || (*t).pages.is_backed(pos, pages) => {
                    (t, pos, false)
                }
                Some(_) => return None,
                None => {
                    let t = self.take_huge_page(memory)?;
                    (t, 0, core::mem::take(&mut (*t).holes))
                }
            };
            let marked = self.change(t, |p| p.mark(pos, pages));
            if pos == 0 && self.filling & tier_bit(&*t) != 0 {
                self.fill(t);
            }
            self.filler.update(t);
            self.decay.note_filler(self.filler.backed());
            self.committed(marked.unbacked);
            Some(Taken { ptr: (*t).page(pos), tier: (*t).tier, marked, holes })
        }
    }

    #[inline(never)]
    unsafe fn take_huge_page(&mut self, memory: Memory) -> Option<*mut Tracker> {
        // SAFETY: the lock is held.
        unsafe {
            let map = self.map();
            let before = self.cache.backed_pages();
            let t = self.cache.take(&map, 1, 1, memory)?;
            (*t).state = State::Shared;
            self.decay.note_taken(1, before, self.cache.backed_pages());
            Some(t)
        }
    }

    /// Takes a run of whole huge pages, with the tail of the last one left to the filler.
    ///
    /// # Safety
    /// The lock is held.
    pub(crate) unsafe fn take_large(&mut self, pages: usize, align: usize, memory: Memory) -> Option<Taken> {
        // SAFETY: the lock is held.
        unsafe {
            if !self.goes_behind_tails(pages, align) {
                return self.take_whole(pages, align, memory);
            }
            // Memory that costs already comes first, then as little as possible.
            let backed = self.take_behind_tail(pages, Backing::Backed);
            let backed = backed.or_else(|| self.take_whole(pages, align, Memory::Backed));
            if backed.is_some() || memory == Memory::Backed {
                return backed;
            }
            let unbacked = self.take_behind_tail(pages, Backing::Unbacked);
            unbacked.or_else(|| self.take_whole(pages, align, memory))
        }
    }

    /// As [`take_large`](Self::take_large), from the beginning of a huge page on.
    ///
    /// # Safety
    /// The lock is held.
    unsafe fn take_whole(&mut self, pages: usize, align: usize, memory: Memory) -> Option<Taken> {
        let len = pages.div_ceil(HUGE_PAGES);
        // SAFETY: the lock is held; the cache gives `len` live, detached records.
        unsafe {
            let map = self.map();
            let before = self.cache.backed_pages();
            let first = self.cache.take(&map, len, align.div_ceil(HUGE_PAGES), memory)?;
            self.decay.note_taken(len, before, self.cache.backed_pages());
            let (marked, holes) = self.occupy(&map, first, pages);
            Some(Taken { ptr: (*first).base, tier: (*first).tier, marked, holes })
        }
    }

    /// The kernel will give the whole of a huge page when its first page is touched.
    #[inline(never)]
    unsafe fn fill(&mut self, t: *mut Tracker) {
        // SAFETY: the caller holds the lock, and `t` is live.
        unsafe {
            if !(*t).holes {
                self.change(t, RangeTracker::note_filled);
            }
        }
    }

    /// Marks `pages` pages from the first one of `first` on as used, in detached records. Tells also whether some of
    /// them had holes.
    ///
    /// # Safety
    /// The records are live, detached and free; the lock is held.
    pub(crate) unsafe fn occupy(
        &mut self,
        map: &OwnTrackers,
        first: *mut Tracker,
        pages: usize,
    ) -> (Marked, bool) {
        let mut holes = false;
        let mut sum = Marked::NONE;
        // SAFETY: by the contract.
        unsafe {
            let number = (*first).number();
            let len = pages.div_ceil(HUGE_PAGES);
            for i in 0..len {
                let t = map.get(number + i);
                let part = (pages - i * HUGE_PAGES).min(HUGE_PAGES);
                let marked = self.change(t, |p| p.mark(0, part));
                sum.add(i * HUGE_PAGES, marked);
                (*t).state = State::Shared;
                (*t).donated = part < HUGE_PAGES && len > 1;
                holes |= core::mem::take(&mut (*t).holes);
                if part < HUGE_PAGES && self.filling & tier_bit(&*t) != 0 {
                    self.fill(t);
                }
                self.filler.update(t);
            }
        }
        self.committed(sum.unbacked);
        (sum, holes)
    }

    /// Takes pages back. `touched` says that they may have been written to; else those still marked as purged
    /// stay so, `zero` if purged memory of the tier reads as zero.
    ///
    /// # Safety
    /// `pages` pages from `ptr` on are used pages of this heap that nobody uses; the lock is held.
    #[inline]
    pub(crate) unsafe fn give(&mut self, ptr: NonNull<u8>, pages: usize, how: Give) {
        let address = ptr.as_ptr().addr();
        let map = self.map();
        let (mut number, mut pos, mut left) =
            (address >> HUGE_SHIFT, address / PAGE_SIZE % HUGE_PAGES, pages);
        let mut emptied: Option<(*mut Tracker, usize)> = None;
        // SAFETY: by the contract the pages have live records of this heap.
        unsafe {
            while left > 0 {
                let t = map.get(number);
                debug_assert!(!t.is_null(), "a run's huge pages have records");
                if t.is_null() {
                    return;
                }
                let part = left.min(HUGE_PAGES - pos);
                self.change(t, |p| match how {
                    Give::Touched => p.unmark(pos, part),
                    Give::Purged { zero } => p.unmark_purged(pos, part, zero),
                    Give::Unrestored { zero } => p.unmark_unrestored(pos, part, zero),
                });
                if (*t).pages.used() == 0 {
                    self.filler.remove(t);
                    (*t).state = State::Detached;
                    emptied = match emptied {
                        // A run never crosses tiers, so the emptied huge pages of one are of one kind.
                        Some((first, len)) => Some((first, len + 1)),
                        None => Some((t, 1)),
                    };
                } else {
                    if pos == 0 {
                        // A run that begins at the first page is a large one; its end was the donated tail.
                        (*t).donated = false;
                    } else if left > part {
                        // The front of a large run stays: this is its last huge page now.
                        (*t).donated = true;
                    }
                    self.filler.update(t);
                    self.close(&map, &mut emptied);
                }
                left -= part;
                number += 1;
                pos = 0;
            }
            self.close(&map, &mut emptied);
        }
    }

    unsafe fn close(&mut self, map: &OwnTrackers, emptied: &mut Option<(*mut Tracker, usize)>) {
        if let Some((first, len)) = emptied.take() {
            // SAFETY: the records are live, free, detached neighbours of one tier.
            unsafe { self.add_free(map, first, len) };
        }
    }

    /// Adds free, detached records to the free ranges, of the kind that their pages say.
    ///
    /// # Safety
    /// As for [`HugeCache::insert`].
    pub(crate) unsafe fn add_free(&mut self, map: &OwnTrackers, first: *mut Tracker, len: usize) {
        // SAFETY: by the contract.
        unsafe {
            let number = (*first).number();
            let backed = (0..len).any(|i| (*map.get(number + i)).pages.backed_free() > 0);
            self.cache.insert(map, first, len, if backed { Backing::Backed } else { Backing::Unbacked });
        }
    }

    /// Stops handing out memory of the tiers in `tiers` (a bit each).
    ///
    /// # Safety
    /// The lock is held.
    pub(crate) unsafe fn bar(&mut self, tiers: u32) {
        self.filler.barred |= tiers;
        self.cache.barred |= tiers;
        // SAFETY: listed records are live.
        unsafe {
            let mut t = self.all.head();
            while !t.is_null() {
                if (*t).state == State::Shared && tier_bit(&*t) & tiers != 0 {
                    self.filler.update(t);
                }
                t = self.all.next(t);
            }
            let map = self.map();
            self.cache.hide_barred(&map);
        }
    }
}

/// In which condition pages come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Give {
    /// They may have been written to.
    Touched,
    /// All have just been purged.
    Purged {
        /// They read as zero now.
        zero: bool,
    },
    /// None has been touched; those still marked as purged are purged.
    Unrestored {
        /// Purged memory reads as zero.
        zero: bool,
    },
}
