//! Which pages of one huge page are in use, which have memory behind them, and which are known to be zero.

use super::bits::{BITS, Bits};

/// What is known about a range that has just been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    /// Pages that had no memory behind them.
    pub(crate) unbacked: usize,
    /// Pages from the first on of which some may not read as zero; all behind them are known to.
    pub(crate) dirty: usize,
    /// Some page has been purged, so the backend must restore it before use.
    pub(crate) purged: bool,
}

impl Marked {
    /// No page.
    pub(crate) const NONE: Self = Self { unbacked: 0, dirty: 0, purged: false };

    /// Adds a part that begins `at` pages behind the first.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, part: Self) {
        self.unbacked += part.unbacked;
        if part.dirty > 0 {
            self.dirty = at + part.dirty;
        }
        self.purged |= part.purged;
    }
}

/// How a tier purges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PurgeBy {
    /// The unit in pages, a power of two of at most 256. A unit of several pages is purged again when one of its
    /// pages has been used.
    pub(crate) unit: usize,
    /// Purged pages may have memory again, behind the heap's back.
    pub(crate) again: bool,
}

/// The pages of one huge page.
///
/// Every page is used or free. A free page is *backed* when it costs physical memory, and *zero* when its
/// content is known to be zero. `purged` marks pages that the backend has to restore before use; it is kept
/// on a used page until [`take_purged`](Self::take_purged) has collected it.
#[derive(Debug)]
pub(crate) struct RangeTracker {
    used: Bits,
    unbacked: Bits,
    zero: Bits,
    purged: Bits,
    used_count: u16,
    unbacked_count: u16,
    longest: u16,
}

impl RangeTracker {
    /// A huge page fresh from a backend: all free, all zero, with memory behind it or not.
    pub(crate) const fn fresh(backed: bool) -> Self {
        Self {
            used: Bits::EMPTY,
            unbacked: if backed { Bits::EMPTY } else { Bits::FULL },
            zero: Bits::FULL,
            purged: Bits::EMPTY,
            used_count: 0,
            unbacked_count: if backed { 0 } else { BITS as u16 },
            longest: BITS as u16,
        }
    }

    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used_count as usize
    }

    #[inline]
    pub(crate) fn free(&self) -> usize {
        BITS - self.used_count as usize
    }

    /// Free pages without memory behind them.
    #[inline]
    pub(crate) fn unbacked(&self) -> usize {
        self.unbacked_count as usize
    }

    /// Free pages that cost memory.
    #[inline]
    pub(crate) fn backed_free(&self) -> usize {
        self.free() - self.unbacked()
    }

    /// The length of the longest range of free pages.
    #[inline]
    pub(crate) fn longest_free(&self) -> usize {
        self.longest as usize
    }

    /// Some free page has been purged.
    #[inline]
    pub(crate) fn has_purged(&self) -> bool {
        !self.purged.without(self.used).is_empty()
    }

    /// Whether `pos..pos + len` is free.
    #[inline]
    pub(crate) fn is_free(&self, pos: usize, len: usize) -> bool {
        self.used.and(Bits::range(pos, len)).is_empty()
    }

    /// Free pages at the end.
    #[inline]
    pub(crate) fn free_at_end(&self) -> usize {
        self.used.not().run_before(BITS)
    }

    /// Whether all of the free range `pos..pos + len` costs memory.
    #[inline]
    pub(crate) fn is_backed(&self, pos: usize, len: usize) -> bool {
        debug_assert!(self.is_free(pos, len));
        self.unbacked_count == 0 || self.unbacked.and(Bits::range(pos, len)).is_empty()
    }

    /// Whether every page of `pos..pos + len` is in use.
    #[inline]
    pub(crate) fn is_used(&self, pos: usize, len: usize) -> bool {
        self.used.contains(Bits::range(pos, len))
    }

    /// The lowest range of `len` free pages (1 to 256) that begins at a multiple of `align` (a power of two).
    #[inline]
    pub(crate) fn find(&self, len: usize, align: usize) -> Option<usize> {
        let free = self.used.not();
        // Mostly the first free range will do.
        let first = free.first()?;
        if first.is_multiple_of(align) && free.run_from(first) >= len {
            return Some(first);
        }
        free.starts_of(len).and(Bits::multiples(align)).first()
    }

    /// Takes the free range `pos..pos + len`.
    #[inline]
    pub(crate) fn mark(&mut self, pos: usize, len: usize) -> Marked {
        debug_assert!(len > 0 && self.is_free(pos, len));
        let free = self.used.not();
        let before = free.run_before(pos);
        let after = free.run_from(pos) - len;
        let range = Bits::range(pos, len);
        let unbacked = self.unbacked.and(range).count();
        let dirty = len.saturating_sub(self.zero.run_before(pos + len));
        let marked = Marked { unbacked, dirty, purged: !self.purged.and(range).is_empty() };
        self.used = self.used.or(range);
        self.unbacked = self.unbacked.without(range);
        self.zero = self.zero.without(range);
        self.used_count += len as u16;
        self.unbacked_count -= unbacked as u16;
        if before + len + after == self.longest as usize {
            let left = if before > after { before } else { after };
            // The other free ranges share what is left over, so when that is no more than this
            // one, none of them can be longer.
            self.longest =
                if left * 2 >= self.free() { left as u16 } else { self.used.not().longest_run() as u16 };
        }
        marked
    }

    /// Gives back `pos..pos + len`, whose pages now have memory behind them and unknown content.
    #[inline]
    pub(crate) fn unmark(&mut self, pos: usize, len: usize) {
        debug_assert!(len > 0 && self.is_used(pos, len));
        let range = Bits::range(pos, len);
        self.used = self.used.without(range);
        self.purged = self.purged.without(range);
        self.used_count -= len as u16;
        let free = self.used.not();
        let run = free.run_before(pos) + free.run_from(pos);
        if run > self.longest as usize {
            self.longest = run as u16;
        }
    }

    /// Gives back `pos..pos + len` after its memory has been purged; `zero` says whether it reads as zero.
    pub(crate) fn unmark_purged(&mut self, pos: usize, len: usize, zero: bool) {
        self.unmark(pos, len);
        self.note_purged(pos, len, zero);
    }

    /// Gives back `pos..pos + len`, of which no page has been touched since it was taken: those still marked as
    /// purged are unbacked as before.
    pub(crate) fn unmark_unrestored(&mut self, pos: usize, len: usize, zero: bool) {
        let purged = self.purged.and(Bits::range(pos, len));
        self.unmark(pos, len);
        self.purged = self.purged.or(purged);
        self.unbacked = self.unbacked.or(purged);
        self.unbacked_count += purged.count() as u16;
        if zero {
            self.zero = self.zero.or(purged);
        }
    }

    /// Marks `pos..pos + len` of a used range as purged again, after restoring it has failed.
    pub(crate) fn keep_purged(&mut self, pos: usize, len: usize) {
        debug_assert!(self.is_used(pos, len));
        self.purged = self.purged.or(Bits::range(pos, len));
    }

    /// Records that the free range `pos..pos + len` has been purged. Returns how many of its pages were backed.
    pub(crate) fn note_purged(&mut self, pos: usize, len: usize, zero: bool) -> usize {
        debug_assert!(self.is_free(pos, len));
        let range = Bits::range(pos, len);
        let backed = len - self.unbacked.and(range).count();
        self.unbacked = self.unbacked.or(range);
        self.purged = self.purged.or(range);
        self.zero = if zero { self.zero.or(range) } else { self.zero.without(range) };
        self.unbacked_count += backed as u16;
        backed
    }

    /// Records, on a wholly free huge page, that the pages below `end` that had not been purged are now. Those
    /// from `end` on may have been when the purge failed: their content is unknown.
    pub(crate) fn note_purged_below(&mut self, end: usize, zero: bool) {
        debug_assert!(self.used_count == 0);
        let below = Bits::range(0, end);
        let fresh = below.without(self.purged.and(self.unbacked));
        self.zero = self.zero.and(below);
        self.zero = if zero { self.zero.or(fresh) } else { self.zero.without(fresh) };
        self.purged = self.purged.or(below);
        self.unbacked = self.unbacked.or(below);
        self.unbacked_count = self.unbacked.count() as u16;
    }

    /// The next row at or above `from` of free pages that have to be purged.
    pub(crate) fn next_unpurged(&self, from: usize, by: PurgeBy) -> Option<(usize, usize)> {
        self.purgeable(by).next_run(from)
    }

    /// The next row at or above `from` of purged pages within the used range `pos..pos + len`,
    /// no longer marked as purged.
    pub(crate) fn take_purged(&mut self, pos: usize, len: usize) -> Option<(usize, usize)> {
        debug_assert!(self.is_used(pos, len));
        let row = self.purged.and(Bits::range(pos, len)).next_run(pos)?;
        self.purged = self.purged.without(Bits::range(row.0, row.1));
        Some(row)
    }

    /// The free pages that can be purged. Pages purged before are among them only where there is a reason to do
    /// it again.
    fn purgeable(&self, by: PurgeBy) -> Bits {
        let free = self.used.not();
        if by.unit == 1 && !by.again {
            return free.without(self.purged);
        }
        free.whole_units(by.unit).without(self.purged.and(self.unbacked).whole_units(by.unit))
    }

    /// Records that all free pages have memory behind them, without having been written to: the kernel gave a
    /// whole huge page when a part was touched.
    pub(crate) fn note_filled(&mut self) {
        self.unbacked = Bits::EMPTY;
        self.unbacked_count = 0;
    }

    /// The next row at or above `from` of free pages that has backed ones: position and length. Never-touched
    /// neighbours are included, for that joins rows.
    pub(crate) fn next_purgeable(&self, from: usize, by: PurgeBy) -> Option<(usize, usize)> {
        let candidates = self.purgeable(by);
        let backed = candidates.without(self.unbacked);
        let mut from = from;
        loop {
            let (pos, len) = candidates.next_run(from)?;
            if !backed.and(Bits::range(pos, len)).is_empty() {
                return Some((pos, len));
            }
            from = pos + len;
        }
    }

    /// Checks the counts against the bitmaps.
    pub(crate) fn is_consistent(&self) -> bool {
        self.used.count() == self.used()
            && self.unbacked.count() == self.unbacked()
            && self.used.not().longest_run() == self.longest_free()
            && self.used.and(self.unbacked.or(self.zero)).is_empty()
    }
}
