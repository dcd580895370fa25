//! The invariants of the page heap, walked.

use super::PageHeap;
use super::accounts::{TIERS, TierPages};
use super::huge_cache::Backing;
use super::inner::{Inner, account};
use super::tracker::{HUGE_PAGES, NOT_LISTED, State, TrackerMap};
use page_backend::PageBackend;

impl<B: PageBackend> PageHeap<B> {
    /// Whether every record agrees with its lists, the map and the accounts.
    pub(crate) fn check(&self) -> bool {
        let inner = self.inner.lock();
        // SAFETY: the lock is held; listed records are live.
        unsafe { inner.records_are_sound() && inner.ranges_are_sound() }
    }
}

impl Inner {
    unsafe fn records_are_sound(&self) -> bool {
        let map = self.map();
        let mut tiers = [TierPages::ZERO; TIERS];
        let (mut used, mut mapped, mut backed) = (0, 0, 0);
        let mut t = self.all.head();
        while !t.is_null() {
            // SAFETY: listed records are live; the lock is held.
            unsafe {
                let record = &*t;
                let free = record.pages.used() == 0;
                let sound = record.pages.is_consistent()
                    && map.get(record.number()) == t
                    && match record.state {
                        State::Detached => self.in_flight > 0,
                        State::Free => free && record.age_list == NOT_LISTED,
                        State::Shared => !free && self.filler.is_consistent(record),
                    };
                if !sound {
                    return false;
                }
                if record.state == State::Shared {
                    backed += record.counted_backed as usize;
                }
                let tier = &mut tiers[account(record.tier)];
                tier.mapped += HUGE_PAGES;
                tier.used += record.pages.used();
                tier.unbacked += record.pages.unbacked();
                used += record.pages.used();
                mapped += HUGE_PAGES;
                t = self.all.next(t);
            }
        }
        for (tier, own) in tiers.iter_mut().zip(&self.tiers) {
            tier.held = own.held;
        }
        backed == self.filler.backed()
            // What a release under way is unmapping is in the accounts still, but in no list.
            && (self.in_flight > 0 || (tiers == self.tiers && used == self.used && mapped == self.mapped))
    }

    unsafe fn ranges_are_sound(&self) -> bool {
        let map = self.map();
        let (mut sound, mut backed) = (true, 0);
        // SAFETY: the lock is held; the ends of listed ranges are live, and the map has all between.
        unsafe {
            self.cache.for_each(|head, backing| {
                let (number, len) = ((*head).number(), (*head).range_len as usize);
                let mut pages = 0;
                for i in 0..len {
                    let t = map.get(number + i);
                    if t.is_null() || (*t).state != State::Free || (*t).tier != (*head).tier {
                        sound = false;
                        return;
                    }
                    pages += (*t).pages.backed_free();
                }
                sound &= (*map.get(number + len - 1)).range_len as usize == len;
                sound &= backing == Backing::Backed || pages == 0;
                backed += pages;
                let after = map.get(number + len);
                if !after.is_null()
                    && (*after).state == State::Free
                    && (*after).tier == (*head).tier
                    && (*after).list != NOT_LISTED
                {
                    // Two neighbours of one kind would be one range.
                    sound &= super::huge_cache::backing_of(after) != backing;
                }
            });
        }
        sound && backed == self.cache.backed_pages()
    }
}
