//! A set of the 256 pages of one huge page, as four words.
//!
//! Every operation works on words and never loops over pages.

/// Pages in a huge page, and so bits in a [`Bits`].
pub(crate) const BITS: usize = 256;

/// 256 bits, bit `i` being page `i` of a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits([u64; 4]);

impl Bits {
    /// No page.
    pub(crate) const EMPTY: Self = Self([0; 4]);
    /// Every page.
    pub(crate) const FULL: Self = Self([!0; 4]);

    /// The bits below `end` (at most 256).
    #[inline]
    const fn below(end: usize) -> Self {
        debug_assert!(end <= BITS);
        const fn word(end: usize, first: usize) -> u64 {
            let inside = end.saturating_sub(first);
            if inside >= 64 { !0 } else { (1 << inside) - 1 }
        }
        Self([word(end, 0), word(end, 64), word(end, 128), word(end, 192)])
    }

    /// The bits `pos..pos + len`.
    #[inline]
    pub(crate) const fn range(pos: usize, len: usize) -> Self {
        debug_assert!(pos + len <= BITS);
        Self::below(pos + len).without(Self::below(pos))
    }

    /// The bits whose index is a multiple of `align`, a power of two.
    pub(crate) const fn multiples(align: usize) -> Self {
        debug_assert!(align.is_power_of_two());
        match align {
            1 => Self::FULL,
            2 => Self([0x5555_5555_5555_5555; 4]),
            4 => Self([0x1111_1111_1111_1111; 4]),
            8 => Self([0x0101_0101_0101_0101; 4]),
            16 => Self([0x0001_0001_0001_0001; 4]),
            32 => Self([0x0000_0001_0000_0001; 4]),
            64 => Self([1; 4]),
            128 => Self([1, 0, 1, 0]),
            _ => Self([1, 0, 0, 0]),
        }
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    /// How many bits are set.
    #[inline]
    pub(crate) const fn count(self) -> usize {
        (self.0[0].count_ones() + self.0[1].count_ones() + self.0[2].count_ones() + self.0[3].count_ones())
            as usize
    }

    #[inline]
    pub(crate) const fn and(self, o: Self) -> Self {
        Self([self.0[0] & o.0[0], self.0[1] & o.0[1], self.0[2] & o.0[2], self.0[3] & o.0[3]])
    }

    #[inline]
    pub(crate) const fn or(self, o: Self) -> Self {
        Self([self.0[0] | o.0[0], self.0[1] | o.0[1], self.0[2] | o.0[2], self.0[3] | o.0[3]])
    }

    /// The bits of `self` that are not in `o`.
    #[inline]
    pub(crate) const fn without(self, o: Self) -> Self {
        Self([self.0[0] & !o.0[0], self.0[1] & !o.0[1], self.0[2] & !o.0[2], self.0[3] & !o.0[3]])
    }

    #[inline]
    pub(crate) const fn not(self) -> Self {
        Self([!self.0[0], !self.0[1], !self.0[2], !self.0[3]])
    }

    #[inline]
    pub(crate) const fn contains(self, o: Self) -> bool {
        o.without(self).is_empty()
    }

    /// Moves every bit down by `by` (1 to 255).
    #[inline]
    const fn down(self, by: usize) -> Self {
        debug_assert!(by > 0 && by < BITS);
        let x = self.0;
        let x = match by / 64 {
            0 => x,
            1 => [x[1], x[2], x[3], 0],
            2 => [x[2], x[3], 0, 0],
            _ => [x[3], 0, 0, 0],
        };
        let bits = (by % 64) as u32;
        if bits == 0 {
            return Self(x);
        }
        // One instruction a word: a shift over two words.
        let above = 64 - bits;
        Self([
            (x[0] >> bits) | (x[1] << above),
            (x[1] >> bits) | (x[2] << above),
            (x[2] >> bits) | (x[3] << above),
            x[3] >> bits,
        ])
    }

    /// Moves every bit up by `by` (below 256).
    #[inline]
    const fn up(self, by: usize) -> Self {
        let (words, bits) = (by / 64, (by % 64) as u32);
        let x = self.0;
        let mut out = [0; 4];
        let mut i = words;
        while i < 4 {
            let under = if i > words { x[i - words - 1] } else { 0 };
            out[i] = (x[i - words] << bits) | ((under >> 1) >> (63 - bits));
            i += 1;
        }
        Self(out)
    }

    /// The lowest set bit.
    #[inline]
    pub(crate) const fn first(self) -> Option<usize> {
        let mut i = 0;
        while i < 4 {
            if self.0[i] != 0 {
                return Some(i * 64 + self.0[i].trailing_zeros() as usize);
            }
            i += 1;
        }
        None
    }

    /// The bits at which `len` (1 to 256) set bits in a row begin.
    #[inline]
    pub(crate) const fn starts_of(self, len: usize) -> Self {
        debug_assert!(len >= 1 && len <= BITS);
        let (mut starts, mut have) = (self, 1);
        while have * 2 <= len {
            starts = starts.and(starts.down(have));
            have *= 2;
        }
        if have < len { starts.and(starts.down(len - have)) } else { starts }
    }

    /// How many set bits in a row begin at `pos` (below 256).
    #[inline]
    pub(crate) const fn run_from(self, pos: usize) -> usize {
        debug_assert!(pos < BITS);
        let (mut word, bit) = (pos / 64, pos % 64);
        let mut len = (self.0[word] >> bit).trailing_ones() as usize;
        if len < 64 - bit {
            return len;
        }
        word += 1;
        while word < 4 {
            let more = self.0[word].trailing_ones() as usize;
            len += more;
            if more < 64 {
                break;
            }
            word += 1;
        }
        len
    }

    /// How many set bits in a row end just below `pos` (at most 256).
    #[inline]
    pub(crate) const fn run_before(self, pos: usize) -> usize {
        debug_assert!(pos <= BITS);
        let (mut word, bit) = (pos / 64, pos % 64);
        let mut len = 0;
        if bit > 0 {
            len = (self.0[word] << (64 - bit)).leading_ones() as usize;
            if len < bit {
                return len;
            }
        }
        while word > 0 {
            word -= 1;
            let more = self.0[word].leading_ones() as usize;
            len += more;
            if more < 64 {
                break;
            }
        }
        len
    }

    /// The length of the longest row of set bits.
    pub(crate) const fn longest_run(self) -> usize {
        if self.is_empty() {
            return 0;
        }
        // rows[i] has the starts of rows of 2^i bits.
        let mut rows = [self; 9];
        let mut top = 0;
        while top < 8 {
            let next = rows[top].and(rows[top].down(1 << top));
            if next.is_empty() {
                break;
            }
            top += 1;
            rows[top] = next;
        }
        let (mut starts, mut len) = (rows[top], 1 << top);
        while top > 0 {
            top -= 1;
            if len < BITS {
                let longer = starts.and(rows[top].down(len));
                if !longer.is_empty() {
                    starts = longer;
                    len += 1 << top;
                }
            }
        }
        len
    }

    /// The first row of set bits at or above `from`: its position and length.
    #[inline]
    pub(crate) const fn next_run(self, from: usize) -> Option<(usize, usize)> {
        if from >= BITS {
            return None;
        }
        match self.without(Self::below(from)).first() {
            Some(pos) => Some((pos, self.run_from(pos))),
            None => None,
        }
    }

    /// The aligned groups of `unit` bits (a power of two, at most 256) that are wholly set.
    pub(crate) const fn whole_units(self, unit: usize) -> Self {
        let mut set = self.starts_of(unit).and(Self::multiples(unit));
        let mut have = 1;
        while have < unit {
            set = set.or(set.up(have));
            have *= 2;
        }
        set
    }
}
