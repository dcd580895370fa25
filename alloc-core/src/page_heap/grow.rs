//! More memory from the backend, and address space back to it. All system calls are made without the lock.

use super::PageHeap;
use super::huge_cache::{Backing, Memory};
use super::inner::{Inner, Taken, account};
use super::tracker::{ByLinks, HUGE_PAGES, HUGE_SHIFT, HUGE_SIZE, List, State, Tracker, TrackerMap};
use crate::arena::Pool;
use crate::page_map::PAGE_MAP;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use page_backend::{Capabilities, Mapping, PageBackend, Tier};
use size_classes::PAGE_SIZE;

/// The records of all heaps.
pub(super) static TRACKERS: Pool<Tracker> = Pool::new();

/// The number of the next heap.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// Most huge pages that are mapped beyond the need: 64 MiB.
const MOST_GROWTH: usize = 32;
/// The same where a source of memory that is taken when it is mapped may be tried first.
const CAREFUL_GROWTH: usize = 4;
/// How often a thread waits in vain for another's mapping before it maps on its own.
const PATIENCE: usize = 2;

/// Records from the pool, not yet in any map.
pub(super) struct Records {
    list: List<ByLinks>,
}

impl Records {
    pub(super) const fn none() -> Self {
        Self { list: List::EMPTY }
    }

    /// `count` records, or none.
    pub(super) fn take(count: usize) -> Option<Self> {
        let mut records = Self::none();
        for _ in 0..count {
            let Some(t) = TRACKERS.alloc() else {
                records.give_back();
                return None;
            };
            // SAFETY: the record is ours; its links are cleared before it is listed.
            unsafe { records.add(t.as_ptr()) };
        }
        Some(records)
    }

    /// # Safety
    /// The record is in no list and nobody else's.
    pub(super) unsafe fn add(&mut self, t: *mut Tracker) {
        // SAFETY: by the contract.
        unsafe {
            Tracker::clear_links(t);
            self.list.push(t);
        }
    }

    pub(super) fn next(&mut self) -> *mut Tracker {
        let t = self.list.head();
        if !t.is_null() {
            // SAFETY: the records are ours.
            unsafe { self.list.remove(t) };
        }
        t
    }

    pub(super) fn give_back(mut self) {
        while let Some(t) = NonNull::new(self.next()) {
            // SAFETY: the record came from the pool and is in no map.
            unsafe { TRACKERS.free(t) };
        }
    }
}

impl<B: PageBackend> PageHeap<B> {
    /// Takes a run that the mapped memory could not give.
    #[inline(never)]
    pub(super) fn alloc_slow(&self, pages: usize, align: usize) -> Option<Taken> {
        let len = pages.div_ceil(HUGE_PAGES);
        let align_len = align.div_ceil(HUGE_PAGES);
        let mapped = if len == 1 && align_len <= 1 {
            self.map_in_turn(pages, align)
        } else {
            self.map_with_growth(len, align_len, pages, align)
        };
        if mapped.is_some() {
            return mapped;
        }
        // The backend has no more. Free ranges that are kept apart may do together; if not, their
        // address space may be what is missing.
        {
            let mut inner = self.inner.lock();
            let map = inner.map();
            // SAFETY: the lock is held.
            unsafe {
                inner.cache.join_all(&map);
                if let Some(taken) = inner.take(pages, align, Memory::Any) {
                    return Some(taken);
                }
            }
        }
        if self.unmap_free_ranges(1) > 0 {
            return self.map_and_take(len, align_len, pages, align);
        }
        None
    }

    /// Maps for a run of less than a huge page, or takes the run out of what another thread has mapped meanwhile.
    fn map_in_turn(&self, pages: usize, align: usize) -> Option<Taken> {
        let mut patience = PATIENCE;
        while patience > 0 {
            let turn = self.turn.take();
            // SAFETY: the lock is held.
            if let Some(taken) = unsafe { self.inner.lock().take(pages, align, Memory::Any) } {
                return Some(taken);
            }
            if turn.is_some() {
                return self.map_with_growth(1, 1, pages, align);
            }
            if !self.turn.wait() {
                patience -= 1;
            }
        }
        self.map_and_take(1, 1, pages, align)
    }

    fn map_with_growth(&self, len: usize, align_len: usize, pages: usize, align: usize) -> Option<Taken> {
        let growth = self.growth(len);
        if growth > len
            && let Some(taken) = self.map_and_take(growth, align_len, pages, align)
        {
            return Some(taken);
        }
        self.map_and_take(len, align_len, pages, align)
    }

    /// How many huge pages to map when `len` are needed.
    fn growth(&self, len: usize) -> usize {
        let (mapped, last) = {
            let inner = self.inner.lock();
            (inner.mapped, inner.last_tier)
        };
        let populated = |tier| self.backend.capabilities(tier).contains(Capabilities::POPULATED);
        let any_populated = || (0..self.backend.tiers()).any(|tier| populated(Tier(tier as u8)));
        let most = match last {
            Some(last) if populated(last) => return len,
            _ if !any_populated() => MOST_GROWTH,
            Some(_) => CAREFUL_GROWTH,
            None => return len,
        };
        len.max((mapped / HUGE_PAGES / 4).min(most))
    }

    fn map_and_take(&self, len: usize, align_len: usize, pages: usize, align: usize) -> Option<Taken> {
        let granule = self.backend.granule();
        let size = len.checked_mul(HUGE_SIZE)?.checked_next_multiple_of(granule)?;
        let align_bytes = align_len.checked_mul(HUGE_SIZE)?.max(granule);
        let mapping = self.backend.map(size, align_bytes).ok()?;
        let mut inner = self.enter(mapping)?;
        // SAFETY: the lock is held.
        unsafe { inner.take(pages, align, Memory::Any) }
    }

    /// Enters a mapping as free memory; gives it back to the backend when there is no memory for its records.
    fn enter(&self, mapping: Mapping) -> Option<crate::lock::Guard<'_, Inner>> {
        let count = mapping.len / HUGE_SIZE;
        debug_assert!(count > 0 && mapping.len.is_multiple_of(HUGE_SIZE));
        let address = mapping.ptr.as_ptr().addr();
        let records = if PAGE_MAP.ensure(address, mapping.len) { Records::take(count) } else { None };
        let Some(mut records) = records else {
            // SAFETY: the mapping is ours and unused. If this fails too, address space without memory is lost.
            let _ = unsafe { self.backend.unmap(mapping.ptr, mapping.len, mapping.tier) };
            return None;
        };
        let caps = self.backend.capabilities(mapping.tier);
        // Small processes are spared the question.
        let filling = self.inner.lock().mapped > 0 && self.backend.fills_huge_pages(mapping.tier);
        let backed = caps.contains(Capabilities::POPULATED);
        let mut inner = self.inner.lock();
        if inner.id == 0 {
            inner.id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the records are ours, the mapping is too, and the lock is held.
        unsafe {
            for i in 0..count {
                let t = records.next();
                let base = mapping.ptr.add(i * HUGE_SIZE);
                Tracker::init(t, inner.id, base, mapping.tier, backed);
                inner.attach(t);
            }
            if caps.contains(Capabilities::PARTIAL_PURGE) {
                inner.filler.purgeable |= 1 << mapping.tier.0.min(31);
            }
            if filling {
                inner.filling |= 1 << mapping.tier.0.min(31);
            }
            if filling || backed {
                inner.whole |= 1 << mapping.tier.0.min(31);
            }
            let tier = &mut inner.tiers[account(mapping.tier)];
            tier.mapped += count * HUGE_PAGES;
            if !backed {
                tier.unbacked += count * HUGE_PAGES;
            }
            inner.mapped += count * HUGE_PAGES;
            inner.last_tier = Some(mapping.tier);
            inner.events.reserve_count += 1;
            inner.events.reserve_bytes += mapping.len as u64;
            let map = inner.map();
            let first = map.get(address >> HUGE_SHIFT);
            inner.add_free(&map, first, count);
        }
        Some(inner)
    }

    /// Unmaps `len` detached huge pages from `first` on, which the caller took out under the lock (with
    /// `in_flight` raised). On failure they are attached again, still detached from the free ranges.
    ///
    /// # Safety
    /// The records are live, detached, wholly free, of this heap and one tier; the lock is not held.
    #[cold]
    pub(super) unsafe fn unmap_detached(&self, first: *mut Tracker, len: usize) -> bool {
        // SAFETY: detached records are this thread's alone, but for walks under the lock, which only read.
        unsafe {
            let (base, tier) = ((*first).base, (*first).tier);
            let mut records = Records { list: List::EMPTY };
            let mut unbacked = 0;
            {
                let mut inner = self.inner.lock();
                let map = inner.map();
                // From the end, so that the records come back in rising order.
                for i in (0..len).rev() {
                    let t = map.get((base.as_ptr().addr() >> HUGE_SHIFT) + i);
                    unbacked += (*t).pages.unbacked();
                    inner.detach(t);
                    records.add(t);
                }
            }
            let unmapped = self.backend.unmap(base, len * HUGE_SIZE, tier).is_ok();
            let mut inner = self.inner.lock();
            if !unmapped {
                while let Some(t) = NonNull::new(records.next()) {
                    inner.attach(t.as_ptr());
                }
                inner.events.failed_releases += 1;
                return false;
            }
            let pages = len * HUGE_PAGES;
            let account = &mut inner.tiers[account(tier)];
            account.mapped -= pages;
            account.unbacked -= unbacked;
            inner.mapped -= pages;
            if pages > unbacked {
                inner.events.decommit_count += 1;
                inner.events.decommit_bytes += ((pages - unbacked) * PAGE_SIZE) as u64;
            }
            drop(inner);
            records.give_back();
            true
        }
    }

    /// Unmaps free ranges of at least `least` huge pages, whatever is behind them. Returns how many huge pages went.
    #[cold]
    pub(super) fn unmap_free_ranges(&self, least: usize) -> usize {
        self.unmap_free(least, usize::MAX, true)
    }

    /// Unmaps up to `most` free huge pages without memory behind them.
    #[cold]
    pub(super) fn unmap_unbacked(&self, most: usize) {
        self.unmap_free(1, most, false);
    }

    /// Unmaps free ranges of at least `least` huge pages until `most` huge pages are gone; those with memory behind them
    /// too if `backed`. Returns how many huge pages went.
    #[cold]
    fn unmap_free(&self, least: usize, most: usize, backed: bool) -> usize {
        let mut gone = 0;
        while gone < most {
            let (first, len) = {
                let mut inner = self.inner.lock();
                let mut found: *mut Tracker = core::ptr::null_mut();
                let mut part = (0, 0);
                // SAFETY: the lock is held; listed records are live.
                unsafe {
                    inner.cache.for_each(|head, backing| {
                        if found.is_null() && (backed || backing == Backing::Unbacked) {
                            let whole =
                                self.unmappable((*head).number(), (*head).range_len as usize, (*head).tier);
                            if whole.1 >= least {
                                found = head;
                                part = whole;
                            }
                        }
                    });
                    if found.is_null() {
                        return gone;
                    }
                    let map = inner.map();
                    let unit = (self.backend.granule_of((*found).tier) / HUGE_SIZE).max(1);
                    part.1 = part.1.min((most - gone).div_ceil(unit).saturating_mul(unit));
                    inner.cache.cut(&map, found, part.0, part.1);
                    inner.in_flight += 1;
                    (map.get((*found).number() + part.0), part.1)
                }
            };
            // SAFETY: the records were cut out of a free range just now.
            unsafe {
                let unmapped = self.unmap_detached(first, len);
                let mut inner = self.inner.lock();
                inner.in_flight -= 1;
                if !unmapped {
                    let map = inner.map();
                    inner.add_free(&map, first, len);
                    return gone;
                }
                gone += len;
            }
        }
        gone
    }

    /// The part of a range of huge pages that the tier can unmap: how many to skip, and how many.
    pub(super) fn unmappable(&self, number: usize, len: usize, tier: Tier) -> (usize, usize) {
        let unit = (self.backend.granule_of(tier) / HUGE_SIZE).max(1);
        let from = number.next_multiple_of(unit);
        let to = (number + len) / unit * unit;
        if from < to { (from - number, to - from) } else { (0, 0) }
    }

    /// Maps `extra` huge pages behind a run, as free memory.
    ///
    /// # Safety
    /// `ptr` and `len` are a run of huge pages of this heap that the caller owns.
    pub(super) unsafe fn map_behind(&self, ptr: NonNull<u8>, len: usize, extra: usize, tier: Tier) -> bool {
        let unit = self.backend.granule_of(tier).max(HUGE_SIZE);
        let Some(bytes) = extra.checked_mul(HUGE_SIZE).and_then(|b| b.checked_next_multiple_of(unit)) else {
            return false;
        };
        // SAFETY: handed on to the caller.
        unsafe {
            if self.backend.grow(ptr, len * HUGE_SIZE, bytes, tier).is_err() {
                return false;
            }
            self.enter(Mapping { ptr: ptr.add(len * HUGE_SIZE), len: bytes, tier }).is_some()
        }
    }

    /// Gives everything back to the backend, whatever is still in use.
    ///
    /// # Safety
    /// Nothing of the heap is used any more, and no other thread uses the heap.
    pub(crate) unsafe fn unmap_all(&self) {
        let mut inner = self.inner.lock();
        // SAFETY: the heap ends; its records are nobody else's.
        unsafe {
            // The lists but `all` are abandoned: nothing looks at them again before they are made anew.
            while !inner.all.is_empty() {
                let t = inner.all.head();
                let (mut low, mut high) = ((*t).number(), (*t).number() + 1);
                let tier = (*t).tier;
                let unit = (self.backend.granule_of(tier) / HUGE_SIZE).max(1);
                let map = inner.map();
                let same = |number: usize| {
                    let other = map.get(number);
                    !other.is_null() && (*other).tier == tier
                };
                while same(low - 1) {
                    low -= 1;
                }
                while same(high) {
                    high += 1;
                }
                debug_assert!(low % unit == 0 && high % unit == 0);
                let base = (*map.get(low)).base;
                for number in low..high {
                    let t = map.get(number);
                    inner.detach(t);
                    TRACKERS.free(NonNull::new_unchecked(t));
                }
                // An error leaves the range mapped and lost to everyone; there is nobody to tell.
                let _ = self.backend.unmap(base, (high - low) * HUGE_SIZE, tier);
            }
            let (hard_limit, delay) = (inner.hard_limit, inner.decay.delay());
            *inner = Inner::new();
            inner.hard_limit = hard_limit;
            inner.decay.set_delay(delay);
        }
    }
}

impl Inner {
    /// Takes a run of any size from what is mapped.
    ///
    /// # Safety
    /// The lock is held.
    #[inline]
    pub(super) unsafe fn take(&mut self, pages: usize, align: usize, memory: Memory) -> Option<Taken> {
        // SAFETY: the lock is held.
        unsafe {
            if pages < HUGE_PAGES && align <= HUGE_PAGES {
                self.take_small(pages, align, memory)
            } else {
                self.take_large(pages, align, memory)
            }
        }
    }

    /// Makes a record findable.
    ///
    /// # Safety
    /// `t` is a record of this heap in no list; the map has a place for it; the lock is held.
    pub(super) unsafe fn attach(&mut self, t: *mut Tracker) {
        // SAFETY: by the contract.
        unsafe {
            debug_assert!((*t).state == State::Detached);
            (*t).owner.store(self.id, Ordering::Relaxed);
            PAGE_MAP.set_tracker((*t).base.as_ptr().addr(), t.cast());
            self.all.push(t);
        }
    }

    /// Undoes [`attach`](Self::attach).
    ///
    /// # Safety
    /// `t` is an attached record of this heap; the lock is held.
    pub(super) unsafe fn detach(&mut self, t: *mut Tracker) {
        // SAFETY: by the contract.
        unsafe {
            PAGE_MAP.set_tracker((*t).base.as_ptr().addr(), core::ptr::null_mut());
            (*t).owner.store(0, Ordering::Relaxed);
            self.all.remove(t);
        }
    }
}
