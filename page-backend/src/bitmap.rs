//! A bitmap in borrowed memory: which granules of a buffer are in use.

use crate::error::align_up;
use core::ptr::NonNull;

/// Bits in a word.
const BITS: usize = u64::BITS as usize;

/// A bitmap whose words lie in memory that it owns but did not allocate.
#[derive(Debug)]
pub(crate) struct Bitmap {
    words: NonNull<u64>,
    count: usize,
    len: usize,
}

impl Bitmap {
    /// Words that `len` bits need.
    pub(crate) const fn words(len: usize) -> usize {
        len.div_ceil(BITS)
    }

    /// A bitmap of `len` clear bits.
    ///
    /// # Safety
    /// `words` points to `count` words, at least [`words`](Self::words)`(len)`, that are the bitmap's alone.
    pub(crate) unsafe fn new(words: NonNull<u64>, count: usize, len: usize) -> Self {
        debug_assert!(count >= Self::words(len));
        if count > 0 {
            // SAFETY: the words are ours, as the caller vouches.
            unsafe { words.write_bytes(0, count) };
        }
        Self { words, count, len }
    }

    /// How many bits there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn as_slice(&mut self) -> &mut [u64] {
        if self.count == 0 {
            return &mut [];
        }
        // SAFETY: the words are ours, as `new` was promised, and initialised since then.
        unsafe { core::slice::from_raw_parts_mut(self.words.as_ptr(), self.count) }
    }

    fn get(&mut self, bit: usize) -> bool {
        self.as_slice().get(bit / BITS).is_some_and(|word| word >> (bit % BITS) & 1 == 1)
    }

    /// Whether all of the bits `at..at + count` exist and are `value`.
    pub(crate) fn all(&mut self, at: usize, count: usize, value: bool) -> bool {
        let end = at.checked_add(count).filter(|&end| end <= self.len);
        end.is_some_and(|end| (at..end).all(|bit| self.get(bit) == value))
    }

    /// Sets the bits `at..at + count`, which exist, to `value`.
    pub(crate) fn set(&mut self, at: usize, count: usize, value: bool) {
        debug_assert!(at + count <= self.len);
        let words = self.as_slice();
        for bit in at..at + count {
            let mask = 1 << (bit % BITS);
            if let Some(word) = words.get_mut(bit / BITS) {
                *word = if value { *word | mask } else { *word & !mask };
            }
        }
    }

    /// Finds `count` clear bits that begin at one of `first`, `first + step`, ..., and sets them; `step` is a
    /// power of two.
    pub(crate) fn take_first(&mut self, count: usize, first: usize, step: usize) -> Option<usize> {
        let mut at = first;
        while at.checked_add(count)? <= self.len {
            match (at..at + count).rev().find(|&bit| self.get(bit)) {
                None => {
                    self.set(at, count, true);
                    return Some(at);
                }
                // The next start behind the last bit in the way.
                Some(taken) => at += align_up(taken + 1 - at, step)?,
            }
        }
        None
    }
}
