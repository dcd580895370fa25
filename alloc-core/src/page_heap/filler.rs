//! Packs runs of less than a huge page into the huge pages that are in use already.
//!
//! Huge pages are listed by their longest free range and, among equals, by how full they are, so that a run
//! goes where it destroys the least and sparse huge pages get the time to drain.

use super::tracker::{ByAge, ByLinks, HUGE_PAGES, List, NOT_LISTED, State, Tracker};
use core::ptr;

/// Classes of longest free ranges: each length up to 32 by itself, then eight to each doubling.
const LENGTHS: usize = 56;
/// Grades of fullness within a class of lengths.
const GRADES: usize = 4;
const LISTS: usize = LENGTHS * GRADES;
const WORDS: usize = LISTS.div_ceil(64);
/// Lists of huge pages with backed free pages, by used pages.
const SPARSITIES: usize = 8;
/// How many huge pages are looked into before a longer free range is taken.
const PROBES: usize = 8;

/// The class of a longest free range of `len` pages, 1 to 256.
const fn length_class(len: usize) -> usize {
    match len {
        0..=32 => len - 1,
        33..=64 => 32 + (len - 33) / 4,
        65..=128 => 40 + (len - 65) / 8,
        _ => 48 + (len - 129) / 16,
    }
}

/// The first class whose every range has at least `len` pages; `LENGTHS` when there is none.
const fn class_that_fits(len: usize) -> usize {
    if len <= 1 {
        return 0;
    }
    if len > HUGE_PAGES {
        return LENGTHS;
    }
    // The class of len - 1 may hold ranges that are too short; the class after it cannot.
    length_class(len - 1) + 1
}

/// In which order huge pages are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In use by runs of less than a huge page, with nothing purged.
    Regular,
    /// The tail of a large run: using it would keep the whole huge page when the run is freed.
    Donated,
    /// Partly purged: using it costs page faults.
    Released,
}

const KINDS: usize = 3;

/// Huge pages by kind, longest free range and fullness.
///
/// Which lists have something in them lies together and apart from the lists, so that a small heap touches few pages.
#[derive(Debug)]
struct Shelves {
    lists: [[List<ByLinks>; LISTS]; KINDS],
    occupied: [[u64; WORDS]; KINDS],
}

impl Shelves {
    const EMPTY: Self =
        Self { lists: [const { [const { List::EMPTY }; LISTS] }; KINDS], occupied: [[0; WORDS]; KINDS] };

    /// The first list of a kind with something in it at or above `from`.
    #[inline]
    fn next_occupied(&self, kind: usize, from: usize) -> Option<usize> {
        let occupied = self.occupied.get(kind)?;
        let mut word = from / 64;
        let mut bits = *occupied.get(word)? & (!0 << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// # Safety
    /// See [`Filler`].
    #[inline]
    unsafe fn push(&mut self, t: *mut Tracker, place: u16) {
        let (kind, list) = (place as usize / LISTS, place as usize % LISTS);
        // SAFETY: `t` is live and unlisted, by the caller.
        unsafe { self.lists[kind][list].push(t) };
        self.occupied[kind][list / 64] |= 1 << (list % 64);
    }

    /// # Safety
    /// See [`Filler`].
    #[inline]
    unsafe fn remove(&mut self, t: *mut Tracker, place: u16) {
        let (kind, list) = (place as usize / LISTS, place as usize % LISTS);
        // SAFETY: `t` is live and in this list, by the caller.
        unsafe { self.lists[kind][list].remove(t) };
        if self.lists[kind][list].is_empty() {
            self.occupied[kind][list / 64] &= !(1 << (list % 64));
        }
    }

    /// A huge page of a kind with `len` free pages in a row at a multiple of `align`, and their position.
    ///
    /// # Safety
    /// See [`Filler`].
    #[inline]
    unsafe fn find(&self, kind: usize, len: usize, align: usize) -> Option<(*mut Tracker, usize)> {
        let mut probes = 0;
        let mut list = self.next_occupied(kind, length_class(len) * GRADES)?;
        loop {
            let mut t = self.lists[kind][list].head();
            while !t.is_null() {
                // SAFETY: listed records are live; the caller holds the lock.
                unsafe {
                    if (*t).pages.longest_free() >= len
                        && let Some(pos) = (*t).pages.find(len, align)
                    {
                        return Some((t, pos));
                    }
                    t = self.lists[kind][list].next(t);
                }
                probes += 1;
                if probes == PROBES {
                    // From here on the first one found fits, whatever its alignment.
                    list = list.max(class_that_fits(len + align - 1) * GRADES - 1);
                    break;
                }
            }
            list = self.next_occupied(kind, list + 1)?;
        }
    }
}

/// Huge pages that are in use by runs of less than a huge page, or by the tails of large ones.
///
/// # Safety
/// All methods that take a record require that it is live and that the heap's lock is held; records stay
/// live while they are listed.
#[derive(Debug)]
pub(crate) struct Filler {
    shelves: Shelves,
    sparse: [List<ByAge>; SPARSITIES],
    /// Backed free pages on tiers that can purge parts of a huge page.
    backed: usize,
    /// Free pages in the tails of large runs.
    donated: usize,
    /// Tiers whose memory is not handed out any more, a bit each.
    pub(crate) barred: u32,
    /// Tiers that can purge parts of a huge page, a bit each.
    pub(crate) purgeable: u32,
}

impl Filler {
    pub(crate) const fn new() -> Self {
        Self {
            shelves: Shelves::EMPTY,
            sparse: [const { List::EMPTY }; SPARSITIES],
            backed: 0,
            donated: 0,
            barred: 0,
            purgeable: 0,
        }
    }

    /// Backed free pages on tiers that can purge parts of a huge page.
    #[inline]
    pub(crate) fn backed(&self) -> usize {
        self.backed
    }

    /// Free pages in the tails of large runs.
    #[inline]
    pub(crate) fn donated(&self) -> usize {
        self.donated
    }

    /// Where `len` pages (1 to 255), aligned to `align` pages (a power of two, at most 256), fit best.
    ///
    /// # Safety
    /// The heap's lock is held.
    #[inline]
    pub(crate) unsafe fn find(&self, len: usize, align: usize) -> Option<(*mut Tracker, usize)> {
        debug_assert!(len > 0 && len < HUGE_PAGES && align <= HUGE_PAGES);
        // SAFETY: the lock is held.
        (0..KINDS).find_map(|kind| unsafe { self.shelves.find(kind, len, align) })
    }

    /// Lists `t` where its pages now say, after any change of them, and when it comes from elsewhere.
    ///
    /// # Safety
    /// `t` is live, in state [`State::Shared`] with at least one used page, and the lock is held.
    #[inline]
    pub(crate) unsafe fn update(&mut self, t: *mut Tracker) {
        // SAFETY: the caller vouches for `t` and the lock.
        unsafe {
            debug_assert!((*t).state == State::Shared);
            let list = self.place(&*t);
            if list != (*t).list {
                self.unlist(t);
                if list != NOT_LISTED {
                    self.shelves.push(t, list);
                    (*t).list = list;
                }
            }
            let backed = if self.purgeable & tier_bit(&*t) != 0 { (*t).pages.backed_free() } else { 0 };
            self.count(t, backed, if (*t).donated { (*t).pages.free() } else { 0 });
            let sparsity = self.sparsity(&*t);
            if sparsity != (*t).age_list {
                self.skip_release(t);
                if sparsity != NOT_LISTED {
                    self.sparse[sparsity as usize].push(t);
                    (*t).age_list = sparsity;
                }
            }
        }
    }

    /// Takes `t` out of all lists.
    ///
    /// # Safety
    /// `t` is live, and listed here or nowhere; the lock is held.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, t: *mut Tracker) {
        // SAFETY: as the caller promises.
        unsafe {
            self.unlist(t);
            self.skip_release(t);
            self.count(t, 0, 0);
        }
    }

    #[inline]
    unsafe fn count(&mut self, t: *mut Tracker, backed: usize, donated: usize) {
        // SAFETY: `t` is live and the lock is held, by the caller.
        unsafe {
            self.backed = self.backed + backed - (*t).counted_backed as usize;
            self.donated = self.donated + donated - (*t).counted_donated as usize;
            (*t).counted_backed = backed as u16;
            (*t).counted_donated = donated as u16;
        }
    }

    #[inline]
    unsafe fn unlist(&mut self, t: *mut Tracker) {
        // SAFETY: `list` says where the live record `t` is.
        unsafe {
            let list = (*t).list;
            if list != NOT_LISTED {
                self.shelves.remove(t, list);
                (*t).list = NOT_LISTED;
            }
        }
    }

    /// Takes `t` out of the candidates for a release until its pages change: nothing of it can be purged.
    ///
    /// # Safety
    /// `t` is live, and listed here or nowhere; the lock is held.
    pub(crate) unsafe fn skip_release(&mut self, t: *mut Tracker) {
        // SAFETY: `age_list` says where the live record `t` is.
        unsafe {
            let list = (*t).age_list;
            if list != NOT_LISTED {
                self.sparse[list as usize].remove(t);
                (*t).age_list = NOT_LISTED;
            }
        }
    }

    /// The huge page with backed free pages that has the fewest used ones (in steps of 32) and has waited
    /// longest there; null when there is none.
    ///
    /// # Safety
    /// The lock is held.
    pub(crate) unsafe fn sparsest(&self) -> *mut Tracker {
        for list in &self.sparse {
            if !list.is_empty() {
                // SAFETY: the lock is held.
                return unsafe { list.tail() };
            }
        }
        ptr::null_mut()
    }

    /// Whether `t` is listed where it belongs and counted.
    pub(crate) fn is_consistent(&self, t: &Tracker) -> bool {
        t.list == self.place(t)
            && (t.age_list == NOT_LISTED || t.age_list == self.sparsity(t))
            && (t.counted_backed == 0 || t.counted_backed as usize == t.pages.backed_free())
            && t.counted_donated as usize == if t.donated { t.pages.free() } else { 0 }
    }

    #[inline]
    fn place(&self, t: &Tracker) -> u16 {
        let longest = t.pages.longest_free();
        if longest == 0 || self.barred & tier_bit(t) != 0 {
            return NOT_LISTED;
        }
        let kind = if t.pages.has_purged() {
            Kind::Released
        } else if t.donated {
            Kind::Donated
        } else {
            Kind::Regular
        };
        // Grade 0 is the fullest, so that it is found first.
        let grade = GRADES - 1 - t.pages.used().min(HUGE_PAGES - 1) / (HUGE_PAGES / GRADES);
        (kind as usize * LISTS + length_class(longest) * GRADES + grade) as u16
    }

    #[inline]
    fn sparsity(&self, t: &Tracker) -> u16 {
        if t.pages.backed_free() == 0 || self.purgeable & tier_bit(t) == 0 {
            return NOT_LISTED;
        }
        (t.pages.used() / (HUGE_PAGES / SPARSITIES)) as u16
    }
}

/// The bit of a tier in a set of tiers; tiers above 30 share one.
#[inline]
pub(crate) fn tier_bit(t: &Tracker) -> u32 {
    1 << t.tier.0.min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_monotonic_and_fit() {
        for len in 1..=HUGE_PAGES {
            assert!(length_class(len) < LENGTHS);
            assert!(len == 1 || length_class(len) >= length_class(len - 1));
            let fits = class_that_fits(len);
            for other in 1..=HUGE_PAGES {
                if length_class(other) >= fits {
                    assert!(other >= len, "class {fits} holds ranges of {other}, too short for {len}");
                }
            }
            assert!(fits <= length_class(len) + 1);
        }
        assert_eq!(class_that_fits(HUGE_PAGES + 1), LENGTHS);
    }
}
