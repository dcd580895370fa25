//! Free memory back to the system: on request, over the cache's limit, and over time.
//!
//! Pages are taken out under the lock, purged or unmapped without it, and put back under it. Nothing else can
//! take them meanwhile, and a call that fails puts them back as they were, their content unknown.

use super::PageHeap;
use super::filler::tier_bit;
use super::inner::{Give, account};
use super::range_tracker::PurgeBy;
use super::tracker::{HUGE_PAGES, HUGE_SHIFT, HUGE_SIZE, State, Tracker, TrackerMap};
use core::ptr::NonNull;
use page_backend::{Capabilities, PageBackend, Reason, Tier};
use size_classes::PAGE_SIZE;

/// From this many huge pages on (16 MiB) a free range is unmapped rather than purged: that returns its page
/// tables too, and the count of mappings stays low.
const UNMAP: usize = 8;
/// Most huge pages that one step of a tick releases.
const STEP: usize = 4;
/// Most free ranges of one huge page that one step purges.
const ROWS: usize = 16;
/// After so many failures of the backend a release ends.
const FAILURES: usize = 8;
/// The time that a tick may take, in nanoseconds.
const TICK_NANOS: u64 = 500_000;
/// A tick that ran out of time is followed by a pause of this many times its length.
const TICK_PAUSE: u64 = 3;

/// What a release may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseMode {
    /// Wholly free huge pages.
    WholeHugePages,
    /// Free parts of huge pages too, which breaks these up.
    Everything,
}

impl<B: PageBackend> PageHeap<B> {
    /// Gives at least `bytes` of free memory back to the system, if there are so many. Returns how many went.
    pub(crate) fn release(&self, bytes: usize, mode: ReleaseMode) -> usize {
        let want = bytes.div_ceil(PAGE_SIZE);
        let mut released = self.release_huge_pages(want, usize::MAX);
        if mode == ReleaseMode::Everything {
            while released < want {
                let Some(pages) = self.release_parts() else { break };
                released += pages;
            }
            if bytes == usize::MAX {
                // Parts may have completed huge pages. Address space of some length goes too, with its page tables.
                released += self.release_huge_pages(want, usize::MAX);
                self.unmap_free_ranges(UNMAP);
            }
        }
        if released > 0 {
            self.inner.lock().events.scavenge_count += 1;
        }
        released * PAGE_SIZE
    }

    /// Releases wholly free huge pages, at most `step` at a time, until `want` pages went.
    pub(super) fn release_huge_pages(&self, want: usize, step: usize) -> usize {
        let (mut released, mut failures) = (0, 0);
        while released < want && failures < FAILURES {
            match self.release_range((want - released).div_ceil(HUGE_PAGES).min(step)) {
                None => break,
                Some(0) => failures += 1,
                Some(pages) => released += pages,
            }
        }
        released
    }

    /// Releases up to `len` huge pages of the range that has been free the longest. Returns how many backed
    /// pages went, 0 when the backend failed; `None` when there is nothing that can go.
    #[cold]
    fn release_range(&self, len: usize) -> Option<usize> {
        // SAFETY: records are used under the lock while they are listed, and by this thread alone once cut out.
        unsafe {
            let (first, len, backed) = {
                let mut inner = self.inner.lock();
                let mut head = inner.cache.oldest_backed();
                let (mut skip, mut part) = (0, 0);
                while !head.is_null() {
                    (skip, part) = self.releasable(head);
                    if part > 0 {
                        break;
                    }
                    head = inner.cache.younger_backed(head);
                }
                if head.is_null() {
                    return None;
                }
                let unit = (self.backend.granule_of((*head).tier) / HUGE_SIZE).max(1);
                let len = len.checked_next_multiple_of(unit).unwrap_or(part).min(part);
                // The low end stays: it is what is taken first.
                skip += part - len;
                let map = inner.map();
                let number = (*head).number() + skip;
                inner.cache.cut(&map, head, skip, len);
                inner.in_flight += 1;
                let backed: usize = (0..len).map(|i| (*map.get(number + i)).pages.backed_free()).sum();
                (map.get(number), len, backed)
            };
            let caps = self.backend.capabilities((*first).tier);
            let purges = caps.contains(Capabilities::PARTIAL_PURGE);
            let (whole_skip, whole) = self.unmappable((*first).number(), len, (*first).tier);
            let can_unmap = whole_skip == 0 && whole == len;
            if can_unmap && (len >= UNMAP || !purges) && self.unmap_detached(first, len) {
                self.inner.lock().in_flight -= 1;
                return Some(backed);
            }
            let kept = if purges { self.purge_detached(first, len) } else { backed };
            if purges && kept == backed && can_unmap && len < UNMAP && self.unmap_detached(first, len) {
                self.inner.lock().in_flight -= 1;
                return Some(backed);
            }
            let mut inner = self.inner.lock();
            inner.in_flight -= 1;
            let map = inner.map();
            inner.add_free(&map, first, len);
            // A range of which nothing could go is the youngest now, so the next try takes another one.
            Some(backed - kept)
        }
    }

    /// The part of a free range that can be released: how many huge pages to skip, and how many.
    ///
    /// # Safety
    /// `head` begins a listed range; the lock is held.
    unsafe fn releasable(&self, head: *mut Tracker) -> (usize, usize) {
        // SAFETY: by the contract.
        unsafe {
            let len = (*head).range_len as usize;
            if self.backend.capabilities((*head).tier).contains(Capabilities::PARTIAL_PURGE) {
                return (0, len);
            }
            self.unmappable((*head).number(), len, (*head).tier)
        }
    }

    fn purge_by(&self, tier: Tier, again: bool) -> PurgeBy {
        PurgeBy { unit: (self.backend.granule_of(tier) / PAGE_SIZE).clamp(1, HUGE_PAGES), again }
    }

    /// Purges `len` detached, free huge pages. Returns how many of their pages are still backed.
    ///
    /// # Safety
    /// The records are this thread's, detached and of one tier; the lock is not held.
    unsafe fn purge_detached(&self, first: *mut Tracker, len: usize) -> usize {
        // SAFETY: detached records are changed by this thread alone, and under the lock.
        unsafe {
            let (base, tier) = ((*first).base, (*first).tier);
            let number = (*first).number();
            let map = super::inner::OwnTrackers((*first).owner.load(core::sync::atomic::Ordering::Relaxed));
            let zero = self.backend.capabilities(tier).contains(Capabilities::ZERO_AFTER_PURGE);
            let by = self.purge_by(tier, self.inner.lock().filling & tier_bit(&*first) != 0);
            let purge = |start: usize, end: usize| {
                start == end
                    || self
                        .backend
                        .purge(base.add(start * PAGE_SIZE), (end - start) * PAGE_SIZE, tier)
                        .is_ok()
            };
            // Rows of pages not purged yet, which may reach over several huge pages.
            let (mut start, mut end) = (0, 0);
            let mut good = len * HUGE_PAGES;
            'rows: for i in 0..len {
                let mut from = 0;
                while let Some((pos, row)) = (*map.get(number + i)).pages.next_unpurged(from, by) {
                    from = pos + row;
                    let pos = i * HUGE_PAGES + pos;
                    if pos != end {
                        if !purge(start, end) {
                            good = start;
                            break 'rows;
                        }
                        start = pos;
                    }
                    end = pos + row;
                }
            }
            if good == len * HUGE_PAGES && !purge(start, end) {
                good = start;
            }
            let mut inner = self.inner.lock();
            let mut kept = 0;
            let mut went = 0;
            for i in 0..len {
                let t = map.get(number + i);
                let good = good.saturating_sub(i * HUGE_PAGES).min(HUGE_PAGES);
                let before = (*t).pages.backed_free();
                inner.change(t, |p| p.note_purged_below(good, zero));
                went += before - (*t).pages.backed_free();
                kept += (*t).pages.backed_free();
            }
            if good < len * HUGE_PAGES {
                inner.events.failed_releases += 1;
            }
            if went > 0 {
                inner.events.decommit_count += 1;
                inner.events.decommit_bytes += (went * PAGE_SIZE) as u64;
            }
            kept
        }
    }

    /// Purges free parts of the sparsest huge page in use. Returns how many backed pages went; `None` when
    /// nothing is left to purge.
    #[cold]
    fn release_parts(&self) -> Option<usize> {
        // Positions, lengths, and how many pages of each are backed.
        let mut rows = [(0, 0, 0); ROWS];
        let mut count = 0;
        // SAFETY: the record is used under the lock; it cannot go away while the rows are marked as used.
        unsafe {
            let mut inner = self.inner.lock();
            let t = inner.filler.sparsest();
            if t.is_null() {
                return None;
            }
            let tier = (*t).tier;
            let by = self.purge_by(tier, inner.filling & tier_bit(&*t) != 0 && !(*t).holes);
            let mut from = 0;
            while let Some((pos, len)) = (*t).pages.next_purgeable(from, by) {
                if count == ROWS {
                    break;
                }
                rows[count] = (pos, len, 0);
                count += 1;
                from = pos + len;
            }
            if count == 0 {
                inner.filler.skip_release(t);
                return Some(0);
            }
            let mut held = 0;
            for (pos, len, backed) in &mut rows[..count] {
                *backed = *len - inner.change(t, |p| p.mark(*pos, *len)).unbacked;
                held += *len;
            }
            inner.tiers[account(tier)].held += held;
            let opens = !core::mem::replace(&mut (*t).holes, true);
            inner.filler.update(t);
            inner.in_flight += 1;
            drop(inner);

            let base = (*t).base;
            if opens {
                // Before the purge, for the kernel must not fill the holes behind it.
                self.backend.set_holes(base, HUGE_SIZE, tier, true);
            }
            let at = |pos: usize| -> NonNull<u8> { base.add(pos * PAGE_SIZE) };
            let mut purged = 0;
            let mut failure = None;
            for &(pos, len, _) in &rows[..count] {
                if let Err(error) = self.backend.purge(at(pos), len * PAGE_SIZE, tier) {
                    failure = Some(error.reason);
                    break;
                }
                purged += 1;
            }

            let zero = self.backend.capabilities(tier).contains(Capabilities::ZERO_AFTER_PURGE);
            let mut inner = self.inner.lock();
            inner.in_flight -= 1;
            inner.tiers[account(tier)].held -= held;
            // Pages of a unit that had been purged before still have to be restored.
            let failed = Give::Unrestored { zero: false };
            let mut went = 0;
            for (i, &(pos, len, backed)) in rows[..count].iter().enumerate() {
                went += if i < purged { backed } else { 0 };
                inner.give(at(pos), len, if i < purged { Give::Purged { zero } } else { failed });
            }
            if let Some(reason) = failure {
                inner.events.failed_releases += 1;
                if reason == Reason::Unsupported {
                    inner.filler.purgeable &= !tier_bit(&*t);
                }
                if (*t).state == State::Shared {
                    inner.filler.skip_release(t);
                }
            }
            if went > 0 {
                inner.events.decommit_count += 1;
                inner.events.decommit_bytes += (went * PAGE_SIZE) as u64;
            }
            Some(went)
        }
    }

    /// Takes pages back and gives their memory to the system at once, where the backend can do that with a part of a mapping.
    ///
    /// # Safety
    /// As for [`free`](Self::free); all pages are of one run.
    pub(crate) unsafe fn free_at_once(&self, ptr: NonNull<u8>, pages: usize) {
        let first = ptr.as_ptr().addr() >> HUGE_SHIFT;
        let last = (ptr.as_ptr().addr() + pages * PAGE_SIZE - 1) >> HUGE_SHIFT;
        // SAFETY: the pages are the caller's, so their records are live.
        let tier = unsafe { (*self.inner.lock().map().get(first)).tier };
        let caps = self.backend.capabilities(tier);
        // Where the system's pages are larger than ours, the ends of the run may share theirs with other runs.
        let unit = self.purge_by(tier, false).unit * PAGE_SIZE;
        let whole = ptr.as_ptr().addr().is_multiple_of(unit) && (pages * PAGE_SIZE).is_multiple_of(unit);
        if !whole || !caps.contains(Capabilities::PARTIAL_PURGE) {
            // SAFETY: handed on to the caller.
            return unsafe { self.free(ptr, pages) };
        }
        for number in first..=last {
            let inner = self.inner.lock();
            let t = inner.map().get(number);
            // SAFETY: as above; the record is changed under the lock.
            let (opens, base) = unsafe { (!core::mem::replace(&mut (*t).holes, true), (*t).base) };
            drop(inner);
            if opens {
                // SAFETY: the huge page is mapped as long as pages of it are in use.
                unsafe { self.backend.set_holes(base, HUGE_SIZE, tier, true) };
            }
        }
        // SAFETY: the pages are in use by the caller, who gives them away: nobody else finds them before they are back.
        unsafe {
            if self.backend.purge(ptr, pages * PAGE_SIZE, tier).is_err() {
                return self.free(ptr, pages);
            }
            let mut inner = self.inner.lock();
            let zero = caps.contains(Capabilities::ZERO_AFTER_PURGE);
            inner.give(ptr, pages, Give::Purged { zero });
            inner.events.decommit_count += 1;
            inner.events.decommit_bytes += (pages * PAGE_SIZE) as u64;
        }
    }

    /// Evicts what the cache holds over its limit; called after a free.
    #[inline(never)]
    pub(super) fn evict(&self, pages: usize, parts: bool) {
        let released = self.release(pages * PAGE_SIZE, ReleaseMode::WholeHugePages);
        self.inner.lock().decay.note_evicted(released / PAGE_SIZE);
        if parts {
            while self.release_parts().is_some() {}
        }
    }

    /// Lets time pass: `now` is the monotonic clock in nanoseconds. Releases what has been idle for the delay,
    /// for half a millisecond and one step. `true` when more is overdue: the next call should not be long in coming.
    pub(crate) fn tick(&self, now: u64) -> bool {
        self.tick_with(now, page_backend::sys::clock_monotonic)
    }

    /// As [`tick`](Self::tick), with the clock that bounds the work.
    pub(super) fn tick_with(&self, now: u64, clock: impl Fn() -> u64) -> bool {
        use core::sync::atomic::Ordering::Relaxed;
        let before = self.last_tick.swap(now, Relaxed);
        if now < self.next_tick.load(Relaxed) {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return false };
        let (cache, filler) = (inner.cache.backed_pages(), inner.filler.backed());
        let Some(epoch_end) = inner.decay.advance(now, before, cache, filler) else {
            self.next_tick.store(u64::MAX, Relaxed);
            return false;
        };
        self.next_tick.store(epoch_end, Relaxed);
        if inner.decay.due_cache == 0 && inner.decay.due_filler == 0 {
            return false;
        }
        inner.events.scavenge_count += 1;
        let (mut due_cache, mut due_filler) = (inner.decay.due_cache, inner.decay.due_filler);
        drop(inner);

        let start = clock();
        let mut spent = 0;
        while due_cache > 0 && spent < TICK_NANOS {
            match self.release_range(due_cache.div_ceil(HUGE_PAGES).min(STEP)) {
                Some(0) | None => due_cache = 0,
                Some(pages) => due_cache = due_cache.saturating_sub(pages),
            }
            spent = clock().saturating_sub(start);
        }
        while due_filler > 0 && spent < TICK_NANOS {
            match self.release_parts() {
                Some(pages) => due_filler = due_filler.saturating_sub(pages),
                None => due_filler = 0,
            }
            spent = clock().saturating_sub(start);
        }
        let mut inner = self.inner.lock();
        inner.decay.due_cache = due_cache;
        inner.decay.due_filler = due_filler;
        if inner.decay.is_overdue() {
            self.next_tick.store(0, Relaxed);
            return true;
        }
        if due_cache > 0 || due_filler > 0 {
            self.next_tick.store(epoch_end.min(now.saturating_add(spent * (TICK_PAUSE + 1))), Relaxed);
        }
        false
    }
}
