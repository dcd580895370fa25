//! The invariants of the page heap, walked.

use super::PageHeap;
use super::accounts::{TIERS, TierPages};
use super::huge_cache::{Backing, backing_of};
use super::inner::{Inner, account};
use super::tracker::{HUGE_PAGES, NOT_LISTED, State, TrackerMap};
use page_backend::PageBackend;

/// What is wrong, in words.
type Flaw = &'static str;

fn that(sound: bool, flaw: Flaw) -> Result<(), Flaw> {
    if sound { Ok(()) } else { Err(flaw) }
}

impl<B: PageBackend> PageHeap<B> {
    /// Whether every record agrees with its lists, the map and the accounts.
    pub(crate) fn check(&self) -> bool {
        self.find_flaw().is_ok()
    }

    /// As [`check`](Self::check), with the first flaw in words.
    pub(super) fn find_flaw(&self) -> Result<(), Flaw> {
        let inner = self.inner.lock();
        // SAFETY: the lock is held; listed records are live.
        unsafe {
            inner.check_records()?;
            inner.check_ranges()
        }
    }
}

impl Inner {
    unsafe fn check_records(&self) -> Result<(), Flaw> {
        let map = self.map();
        let mut tiers = [TierPages::ZERO; TIERS];
        let (mut used, mut mapped, mut backed) = (0, 0, 0);
        let mut t = self.all.head();
        while !t.is_null() {
            // SAFETY: listed records are live; the lock is held.
            unsafe {
                let record = &*t;
                let pages = &record.pages;
                that(pages.is_consistent(), "the counts of a huge page are not what its bitmaps say")?;
                that(map.get(record.number()) == t, "the map does not lead to the record")?;
                match record.state {
                    State::Detached => that(self.in_flight > 0, "a record is in no structure")?,
                    State::Free => that(pages.used() == 0, "a free huge page has used pages")?,
                    State::Shared => {
                        that(pages.used() > 0, "a wholly free huge page is with the filler")?;
                        that(
                            self.filler.is_consistent(record),
                            "the filler lists a huge page in a wrong place",
                        )?;
                        backed += record.counted_backed as usize;
                    }
                }
                let tier = &mut tiers[account(record.tier)];
                tier.mapped += HUGE_PAGES;
                tier.used += pages.used();
                tier.unbacked += pages.unbacked();
                used += pages.used();
                mapped += HUGE_PAGES;
                t = self.all.next(t);
            }
        }
        for (tier, own) in tiers.iter_mut().zip(&self.tiers) {
            tier.held = own.held;
        }
        that(backed == self.filler.backed(), "the filler has miscounted its backed pages")?;
        // What a release under way is unmapping is in the accounts still, but in no list.
        that(self.in_flight > 0 || tiers == self.tiers, "a tier's account is wrong")?;
        that(self.in_flight > 0 || (used == self.used && mapped == self.mapped), "the totals are wrong")
    }

    unsafe fn check_ranges(&self) -> Result<(), Flaw> {
        let map = self.map();
        let (mut result, mut backed) = (Ok(()), 0);
        // SAFETY: the lock is held; the ends of listed ranges are live, and the map has all between.
        unsafe {
            self.cache.for_each(|head, backing| {
                if result.is_err() {
                    return;
                }
                result = (|| {
                    let (number, len) = ((*head).number(), (*head).range_len as usize);
                    let mut pages = 0;
                    for i in 0..len {
                        let t = map.get(number + i);
                        that(!t.is_null(), "a free range has a gap")?;
                        that((*t).state == State::Free, "a free range has a huge page that is not free")?;
                        that((*t).tier == (*head).tier, "a free range crosses tiers")?;
                        pages += (*t).pages.backed_free();
                    }
                    let end = (*map.get(number + len - 1)).range_len as usize;
                    that(end == len, "the ends of a free range disagree")?;
                    that(backing == Backing::Backed || pages == 0, "an unbacked range has backed pages")?;
                    backed += pages;
                    let after = map.get(number + len);
                    let apart = after.is_null()
                        || (*after).state != State::Free
                        || (*after).tier != (*head).tier
                        || (*after).list == NOT_LISTED
                        || backing_of(after) != backing;
                    that(apart, "two free neighbours of one kind are apart")
                })();
            });
        }
        result?;
        that(backed == self.cache.backed_pages(), "the cache has miscounted its backed pages")
    }
}
