//! Runs made longer where they are.

use super::PageHeap;
use super::inner::{Inner, OwnTrackers};
use super::range_tracker::Marked;
use super::tracker::{HUGE_PAGES, HUGE_SHIFT, State, TrackerMap};
use core::ptr::NonNull;
use page_backend::PageBackend;
use size_classes::PAGE_SIZE;

/// What stands in the way of a run's growth.
enum Obstacle {
    /// Pages in use, or another tier's.
    Taken,
    /// Nothing is mapped from the huge page with this number on.
    Unmapped(usize),
}

impl<B: PageBackend> PageHeap<B> {
    /// Makes a run of `pages` pages longer by the `extra` pages behind it; `false` when these cannot be had. The
    /// content of the new pages is not known.
    ///
    /// # Safety
    /// The run was handed out by this heap and is the caller's.
    pub(crate) unsafe fn grow_in_place(&self, ptr: NonNull<u8>, pages: usize, extra: usize) -> bool {
        debug_assert!(pages > 0);
        if extra == 0 {
            return true;
        }
        if extra > super::MOST_PAGES {
            return false;
        }
        let start = ptr.as_ptr().addr() / PAGE_SIZE;
        let end = start + pages;
        let mut tried_backend = false;
        loop {
            let obstacle = {
                let mut inner = self.inner.lock();
                if inner.hard_limit != usize::MAX && inner.over_limit(extra) {
                    return false;
                }
                let map = inner.map();
                // SAFETY: the run is the caller's, so its records are live; the lock is held.
                unsafe {
                    let tier = (*map.get(((end - 1) * PAGE_SIZE) >> HUGE_SHIFT)).tier;
                    match inner.obstacle(&map, end, extra, tier) {
                        None => {
                            let (marked, holes) = inner.take_behind(&map, end, extra);
                            drop(inner);
                            let at = ptr.add(pages * PAGE_SIZE);
                            if holes {
                                let skip = end.next_multiple_of(HUGE_PAGES) - end;
                                self.close_holes(at.add(skip * PAGE_SIZE), extra - skip, tier);
                            }
                            return !marked.purged || self.restore(at, extra, tier);
                        }
                        Some(Obstacle::Unmapped(number)) => {
                            let last = map.get(number - 1);
                            Some((number, tier, !last.is_null() && (*last).holes))
                        }
                        Some(Obstacle::Taken) => None,
                    }
                }
            };
            let Some((number, tier, holes)) = obstacle else { return false };
            if tried_backend {
                return false;
            }
            tried_backend = true;
            // The backend extends what is wholly the run's: its huge pages up to the gap.
            let first = start.div_ceil(HUGE_PAGES);
            let need = (end + extra).div_ceil(HUGE_PAGES) - number;
            if first >= number || end.div_ceil(HUGE_PAGES) < number {
                return false;
            }
            // SAFETY: the huge pages from `first` up to `number` are mapped on this tier and in use by the run.
            let grown = unsafe {
                let base = ptr.add((first * HUGE_PAGES - start) * PAGE_SIZE);
                self.map_behind(base, number - first, need, tier)
            };
            if !grown {
                return false;
            }
            if holes {
                // SAFETY: `need` huge pages were just mapped there.
                let at = unsafe { ptr.add((number * HUGE_PAGES - start) * PAGE_SIZE) };
                self.close_holes(at, need * HUGE_PAGES, tier);
            }
        }
    }
}

impl Inner {
    /// What prevents that `extra` pages from page number `end` on are taken.
    unsafe fn obstacle(
        &self,
        map: &OwnTrackers,
        end: usize,
        extra: usize,
        tier: page_backend::Tier,
    ) -> Option<Obstacle> {
        let mut at = end;
        while at < end + extra {
            let number = at / HUGE_PAGES;
            let t = map.get(number);
            if t.is_null() {
                return Some(Obstacle::Unmapped(number));
            }
            let pos = at % HUGE_PAGES;
            let part = (end + extra - at).min(HUGE_PAGES - pos);
            // SAFETY: records in the map are live; the lock is held.
            unsafe {
                let usable = matches!((*t).state, State::Shared | State::Free);
                if !usable || (*t).tier != tier || !(*t).pages.is_free(pos, part) {
                    return Some(Obstacle::Taken);
                }
            }
            at += part;
        }
        None
    }

    /// Takes `extra` pages from page number `end` on, which nothing prevents. Tells what is known of them, and whether some
    /// free huge pages among them had holes.
    ///
    /// # Safety
    /// [`obstacle`](Self::obstacle) finds none, and the page before them is in use; the lock is held.
    pub(super) unsafe fn take_behind(
        &mut self,
        map: &OwnTrackers,
        end: usize,
        extra: usize,
    ) -> (Marked, bool) {
        let (mut sum, mut holes) = (Marked::NONE, false);
        let mut at = end;
        // SAFETY: by the contract.
        unsafe {
            while at < end + extra {
                let number = at / HUGE_PAGES;
                let t = map.get(number);
                let left = end + extra - at;
                if (*t).state == State::Free {
                    // The pages before are in use, so this is the first huge page of its range.
                    let len = left.div_ceil(HUGE_PAGES).min((*t).range_len as usize);
                    let part = left.min(len * HUGE_PAGES);
                    let before = self.cache.backed_pages();
                    self.cache.cut(map, t, 0, len);
                    self.decay.note_taken(len, before, self.cache.backed_pages());
                    let (marked, had_holes) = self.occupy(map, t, part);
                    holes |= had_holes;
                    let last = map.get(number + len - 1);
                    (*last).donated = !part.is_multiple_of(HUGE_PAGES);
                    self.filler.update(last);
                    sum.add(at - end, marked);
                    at += part;
                } else {
                    let pos = at % HUGE_PAGES;
                    let part = left.min(HUGE_PAGES - pos);
                    let marked = self.change(t, |p| p.mark(pos, part));
                    self.filler.update(t);
                    self.decay.note_filler(self.filler.backed());
                    self.committed(marked.unbacked);
                    sum.add(at - end, marked);
                    at += part;
                }
            }
        }
        (sum, holes)
    }
}
