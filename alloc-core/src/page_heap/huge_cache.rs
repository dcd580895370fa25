//! Wholly free huge pages, as ranges of neighbours.
//!
//! Ranges with memory behind them are kept apart from those without, so that memory which costs already is
//! used first. Neighbours of one kind and tier always form one range; the first and the last record of a range
//! know its length, and the tracker map finds them.

use super::filler::tier_bit;
use super::tracker::{ByAge, ByLinks, List, NOT_LISTED, State, Tracker, TrackerMap};

/// Lengths of ranges: each up to 32 huge pages by itself, then four classes to each doubling.
const EXACT: usize = 32;
const BINS: usize = 96;
/// How many ranges of one bin, or for an aligned run in all, are looked at for the best fit.
const PROBES: usize = 32;

/// The bin of ranges of `len` huge pages.
const fn bin_of(len: usize) -> usize {
    if len <= EXACT {
        return len - 1;
    }
    let doubling = len.ilog2() as usize;
    let quarter = (len >> (doubling - 2)) & 3;
    let bin = EXACT + (doubling - EXACT.ilog2() as usize) * 4 + quarter;
    if bin < BINS { bin } else { BINS - 1 }
}

/// Whether a range costs physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Some page of it does.
    Backed = 0,
    /// No page of it does: never touched, or purged.
    Unbacked = 1,
}

/// Which memory may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Any that is mapped.
    Any,
    /// What costs physical memory already.
    Backed,
}

/// The free ranges of huge pages.
///
/// # Safety
/// All methods require that the heap's lock is held and that `map` is the map in which the heap enters its
/// records; records stay live while they are in a range.
#[derive(Debug)]
pub(crate) struct HugeCache {
    bins: [[List<ByLinks>; BINS]; 2],
    occupied: [u128; 2],
    /// Backed ranges, the most recently freed first.
    ages: List<ByAge>,
    /// Pages with memory behind them in listed ranges.
    backed_pages: usize,
    /// Tiers whose memory is not handed out any more, a bit each.
    pub(crate) barred: u32,
}

impl HugeCache {
    pub(crate) const fn new() -> Self {
        Self {
            bins: [const { [const { List::EMPTY }; BINS] }; 2],
            occupied: [0; 2],
            ages: List::EMPTY,
            backed_pages: 0,
            barred: 0,
        }
    }

    /// Pages with memory behind them in listed ranges.
    #[inline]
    pub(crate) fn backed_pages(&self) -> usize {
        self.backed_pages
    }

    /// The backed range that has been free the longest; null when there is none.
    ///
    /// # Safety
    /// See [`HugeCache`].
    pub(crate) unsafe fn oldest_backed(&self) -> *mut Tracker {
        // SAFETY: the lock is held.
        unsafe { self.ages.tail() }
    }

    /// The backed range that became free next after `head`, a backed one; null when there is none.
    ///
    /// # Safety
    /// See [`HugeCache`].
    pub(crate) unsafe fn younger_backed(&self, head: *mut Tracker) -> *mut Tracker {
        // SAFETY: the lock is held.
        unsafe { self.ages.prev(head) }
    }

    /// Adds `len` free neighbours from `first` on, and joins them with free neighbours of the same kind.
    ///
    /// # Safety
    /// See [`HugeCache`]; the records are detached, wholly free and of one tier, and `map` has them all.
    pub(crate) unsafe fn insert<M: TrackerMap>(
        &mut self,
        map: &M,
        first: *mut Tracker,
        len: usize,
        backing: Backing,
    ) {
        // SAFETY: the caller vouches for the records.
        unsafe {
            let number = (*first).number();
            let mut backed = 0;
            for i in 0..len {
                let t = map.get(number + i);
                debug_assert!((*t).pages.used() == 0 && (*t).tier == (*first).tier);
                (*t).state = State::Free;
                (*t).donated = false;
                (*t).list = NOT_LISTED;
                backed += (*t).pages.backed_free();
            }
            if self.barred & tier_bit(&*first) != 0 {
                (*first).range_len = len as u32;
                (*map.get(number + len - 1)).range_len = len as u32;
                return;
            }
            self.backed_pages += backed;
            self.join(map, first, len, backing, false);
        }
    }

    /// Links the range, joined with its listed neighbours: those of the same kind, or of any.
    unsafe fn join<M: TrackerMap>(
        &mut self,
        map: &M,
        first: *mut Tracker,
        len: usize,
        backing: Backing,
        any: bool,
    ) {
        // SAFETY: as for `insert`; records with a range's length are the ends of listed ranges.
        unsafe {
            if self.occupied == [0; 2] {
                // No range is listed, and the neighbours' entries in the map need not be touched.
                return self.link(map, first, len, backing);
            }
            let (mut first, mut len, mut backing) = (first, len, backing);
            let number = (*first).number();
            let joins = |backing: Backing, other: *mut Tracker| {
                !other.is_null()
                    && (*other).state == State::Free
                    && (*other).tier == (*first).tier
                    && (*other).list != NOT_LISTED
                    && (any || backing_of(other) == backing)
            };
            let after = map.get(number + len);
            if joins(backing, after) {
                if backing_of(after) == Backing::Backed {
                    backing = Backing::Backed;
                }
                len += (*after).range_len as usize;
                self.unlink(after);
            }
            let last = map.get(number.wrapping_sub(1));
            if !last.is_null() && (*last).state == State::Free && (*last).tier == (*first).tier {
                let before = map.get(number - (*last).range_len as usize);
                if joins(backing, before) {
                    if backing_of(before) == Backing::Backed {
                        backing = Backing::Backed;
                    }
                    len += (*before).range_len as usize;
                    self.unlink(before);
                    first = before;
                }
            }
            self.link(map, first, len, backing);
        }
    }

    /// The best range for `len` huge pages at a multiple of `align` (a power of two), taken out: backed ones first, and
    /// no others with [`Memory::Backed`]. The records come back detached.
    ///
    /// # Safety
    /// See [`HugeCache`].
    pub(crate) unsafe fn take<M: TrackerMap>(
        &mut self,
        map: &M,
        len: usize,
        align: usize,
        memory: Memory,
    ) -> Option<*mut Tracker> {
        // SAFETY: the lock is held; listed heads are live and their ranges are in the map.
        unsafe {
            let backed = self.best(Backing::Backed, len, align);
            let (head, skip) = match memory {
                Memory::Backed => backed?,
                Memory::Any => backed.or_else(|| self.best(Backing::Unbacked, len, align))?,
            };
            let first = map.get((*head).number() + skip);
            self.cut(map, head, skip, len);
            Some(first)
        }
    }

    /// Takes `len` huge pages out of the range that begins at `head`, from `skip` on.
    ///
    /// # Safety
    /// See [`HugeCache`]; `head` is the first record of a listed range of at least `skip + len` huge pages.
    pub(crate) unsafe fn cut<M: TrackerMap>(&mut self, map: &M, head: *mut Tracker, skip: usize, len: usize) {
        // SAFETY: by the contract.
        unsafe {
            let number = (*head).number();
            let total = (*head).range_len as usize;
            debug_assert!(len > 0 && skip + len <= total);
            let backing = backing_of(head);
            let rest = total - skip - len;
            // What is left keeps its age: it takes the place of the whole range.
            let heir = if skip > 0 {
                head
            } else if rest > 0 {
                map.get(number + len)
            } else {
                core::ptr::null_mut()
            };
            self.unlink_from_bin(head);
            if backing == Backing::Backed {
                if heir.is_null() {
                    self.ages.remove(head);
                } else if heir != head {
                    self.ages.replace(head, heir);
                }
            }
            if skip > 0 {
                self.link_to_bin(map, head, skip, backing);
                if rest > 0 {
                    let tail = map.get(number + skip + len);
                    self.link_to_bin(map, tail, rest, backing);
                    if backing == Backing::Backed {
                        self.ages.push(tail);
                    }
                }
            } else if rest > 0 {
                self.link_to_bin(map, heir, rest, backing);
            }
            for i in 0..len {
                let t = map.get(number + skip + i);
                (*t).state = State::Detached;
                (*t).list = NOT_LISTED;
                self.backed_pages -= (*t).pages.backed_free();
            }
        }
    }

    /// Joins backed and unbacked neighbours, for when nothing else is left to meet a long request.
    ///
    /// # Safety
    /// See [`HugeCache`].
    pub(crate) unsafe fn join_all<M: TrackerMap>(&mut self, map: &M) {
        for bin in 0..BINS {
            let mut t = self.bins[Backing::Unbacked as usize][bin].head();
            while !t.is_null() {
                // SAFETY: listed heads are live. Joining absorbs one neighbour on each side, which is backed,
                // so `next` stays listed.
                unsafe {
                    let next = self.bins[Backing::Unbacked as usize][bin].next(t);
                    let len = (*t).range_len as usize;
                    self.unlink(t);
                    self.join(map, t, len, Backing::Unbacked, true);
                    t = next;
                }
            }
        }
    }

    /// Calls `each` with the first record of every listed range; `each` must not change the ranges.
    ///
    /// # Safety
    /// See [`HugeCache`].
    pub(crate) unsafe fn for_each(&self, mut each: impl FnMut(*mut Tracker, Backing)) {
        for (bins, backing) in self.bins.iter().zip([Backing::Backed, Backing::Unbacked]) {
            for list in bins {
                let mut t = list.head();
                while !t.is_null() {
                    each(t, backing);
                    // SAFETY: listed heads are live.
                    t = unsafe { list.next(t) };
                }
            }
        }
    }

    /// The first answer of `fits` to the first record of a range of this kind; few ranges are asked about.
    ///
    /// # Safety
    /// See [`HugeCache`]; `fits` does not change the ranges.
    pub(crate) unsafe fn find<R>(
        &self,
        backing: Backing,
        mut fits: impl FnMut(*mut Tracker) -> Option<R>,
    ) -> Option<R> {
        let mut probes = 0;
        let mut from = 0;
        while let Some(bin) = self.next_occupied(backing, from) {
            let list = &self.bins[backing as usize][bin];
            let mut t = list.head();
            while !t.is_null() {
                if probes == PROBES {
                    return None;
                }
                probes += 1;
                let found = fits(t);
                if found.is_some() {
                    return found;
                }
                // SAFETY: listed heads are live.
                t = unsafe { list.next(t) };
            }
            from = bin + 1;
        }
        None
    }

    /// Takes all ranges of barred tiers off the lists; they stay free but are not found any more.
    ///
    /// # Safety
    /// See [`HugeCache`].
    pub(crate) unsafe fn hide_barred<M: TrackerMap>(&mut self, map: &M) {
        for bin in 0..2 * BINS {
            let mut t = self.bins[bin / BINS][bin % BINS].head();
            while !t.is_null() {
                // SAFETY: listed heads are live and their ranges are in the map.
                unsafe {
                    let next = self.bins[bin / BINS][bin % BINS].next(t);
                    if self.barred & tier_bit(&*t) != 0 {
                        let (number, len) = ((*t).number(), (*t).range_len as usize);
                        self.unlink(t);
                        for i in 0..len {
                            self.backed_pages -= (*map.get(number + i)).pages.backed_free();
                        }
                    }
                    t = next;
                }
            }
        }
    }

    /// The range of this kind that fits best, and how many huge pages to skip in it for the alignment.
    unsafe fn best(&self, backing: Backing, len: usize, align: usize) -> Option<(*mut Tracker, usize)> {
        let bins = &self.bins[backing as usize];
        let mut bin = self.next_occupied(backing, bin_of(len))?;
        let mut probes = 0;
        loop {
            let mut best: Option<(*mut Tracker, usize)> = None;
            let mut t = bins[bin].head();
            while !t.is_null() && probes < PROBES {
                // SAFETY: listed heads are live; the lock is held.
                unsafe {
                    let have = (*t).range_len as usize;
                    let skip = (*t).number().next_multiple_of(align) - (*t).number();
                    if skip + len <= have && best.is_none_or(|(b, _)| have < (*b).range_len as usize) {
                        best = Some((t, skip));
                        if bin < EXACT {
                            break;
                        }
                    }
                    t = bins[bin].next(t);
                }
                probes += 1;
            }
            if best.is_some() {
                return best;
            }
            if probes >= PROBES {
                // Every range of the bins after that of len + align - 1 fits.
                probes = 0;
                bin = bin.max(bin_of(len + align - 1));
            }
            bin = self.next_occupied(backing, bin + 1)?;
        }
    }

    #[inline]
    fn next_occupied(&self, backing: Backing, from: usize) -> Option<usize> {
        if from >= BINS {
            return None;
        }
        let bits = self.occupied[backing as usize] >> from;
        (bits != 0).then(|| from + bits.trailing_zeros() as usize)
    }

    unsafe fn link<M: TrackerMap>(&mut self, map: &M, first: *mut Tracker, len: usize, backing: Backing) {
        // SAFETY: as for `insert`.
        unsafe {
            self.link_to_bin(map, first, len, backing);
            if backing == Backing::Backed {
                self.ages.push(first);
            }
        }
    }

    unsafe fn unlink(&mut self, first: *mut Tracker) {
        // SAFETY: `first` is the first record of a listed range.
        unsafe {
            if backing_of(first) == Backing::Backed {
                self.ages.remove(first);
            }
            self.unlink_from_bin(first);
        }
    }

    unsafe fn link_to_bin<M: TrackerMap>(
        &mut self,
        map: &M,
        first: *mut Tracker,
        len: usize,
        backing: Backing,
    ) {
        let bin = bin_of(len);
        // SAFETY: as for `insert`.
        unsafe {
            (*first).range_len = len as u32;
            (*map.get((*first).number() + len - 1)).range_len = len as u32;
            (*first).list = (backing as usize * BINS + bin) as u16;
            self.bins[backing as usize][bin].push(first);
        }
        self.occupied[backing as usize] |= 1 << bin;
    }

    unsafe fn unlink_from_bin(&mut self, first: *mut Tracker) {
        // SAFETY: `first` is the first record of a listed range, and `list` says of which.
        unsafe {
            let list = (*first).list as usize;
            (*first).list = NOT_LISTED;
            let (kind, bin) = (list / BINS, list % BINS);
            self.bins[kind][bin].remove(first);
            if self.bins[kind][bin].is_empty() {
                self.occupied[kind] &= !(1 << bin);
            }
        }
    }
}

/// The kind of a listed range.
///
/// # Safety
/// `first` is the first record of a listed range.
#[inline]
pub(crate) unsafe fn backing_of(first: *mut Tracker) -> Backing {
    // SAFETY: by the contract.
    let list = unsafe { (*first).list };
    debug_assert!(list != NOT_LISTED);
    if (list as usize) < BINS { Backing::Backed } else { Backing::Unbacked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_monotonic_and_within_the_table() {
        let mut last = 0;
        for len in 1..100_000 {
            let bin = bin_of(len);
            assert!(bin == last || bin == last + 1, "bin {bin} of {len} after {last}");
            last = bin;
        }
        assert_eq!(bin_of(usize::MAX >> 22), BINS - 1);
    }
}
