//! Long runs of odd lengths back to back, as the regions of tcmalloc (`huge_region.h`) have them.
//!
//! A run of whole huge pages leaves the tail of its last one to shorter runs. Where memory is taken by the huge page, a tail that no
//! short run comes for is memory lost: nearly half of it with blocks of 2.1 MiB. So there the next long run begins in such a tail,
//! when the huge pages behind it are free. Elsewhere an untouched tail costs address space alone, and a block that begins
//! on a huge page can be moved without a copy: there nothing of this happens.

use super::filler::tier_bit;
use super::huge_cache::Backing;
use super::inner::{Inner, Taken};
use super::tracker::{HUGE_PAGES, State, Tracker, TrackerMap};

impl Inner {
    /// Whether a run of this length, at any page, may begin in a tail.
    #[inline]
    pub(super) fn goes_behind_tails(&self, pages: usize, align: usize) -> bool {
        self.whole != 0 && align <= 1 && !pages.is_multiple_of(HUGE_PAGES)
    }

    /// Takes a run of more than a huge page that begins in a donated tail and goes on in free huge pages of the given kind.
    /// `None` where that would save no huge page.
    ///
    /// # Safety
    /// The lock is held.
    #[cold]
    pub(super) unsafe fn take_behind_tail(&mut self, pages: usize, backing: Backing) -> Option<Taken> {
        debug_assert!(pages > HUGE_PAGES && !pages.is_multiple_of(HUGE_PAGES));
        let map = self.map();
        // SAFETY: the lock is held; listed heads and the records in the map are live.
        unsafe {
            let tail_before = |head: *mut Tracker| -> Option<(*mut Tracker, usize)> {
                let front = map.get((*head).number().wrapping_sub(1));
                if front.is_null()
                    || (*front).state != State::Shared
                    || !(*front).donated
                    || (*front).tier != (*head).tier
                {
                    return None;
                }
                let tail = (*front).pages.free_at_end();
                let fits = tail >= pages % HUGE_PAGES
                    && (pages - tail).div_ceil(HUGE_PAGES) <= (*head).range_len as usize;
                (fits && self.whole & tier_bit(&*front) != 0).then_some((front, tail))
            };
            let (head, (front, tail)) = self.cache.find(backing, |head| Some((head, tail_before(head)?)))?;

            // The tail is the run's now, whatever the run before it does.
            (*front).donated = false;
            let end = (*head).number() * HUGE_PAGES - tail;
            let (marked, holes) = self.take_behind(&map, end, pages);
            Some(Taken { ptr: (*front).page(HUGE_PAGES - tail), tier: (*front).tier, marked, holes })
        }
    }
}
