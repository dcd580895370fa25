//! One size class.

/// What a table knows of one class. Class 0, "no class", is all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Bytes of one object; the largest request that the class serves.
    pub size: u32,
    /// Objects of one span.
    pub objects: u16,
    /// Allocator pages of one span, 1 to 32.
    pub pages: u8,
    /// Objects moved between caches at once, 2 to 31 in the default table.
    pub batch: u8,
    /// `ceil(2^40 / size)`.
    reciprocal: u64,
}

/// Binary digits behind the point of [`Class::reciprocal`].
///
/// With `m = ceil(2^40 / size)` and `e = m * size - 2^40 < size`, `offset * m >> 40` is the exact quotient
/// as long as `offset * e < 2^40`. Offsets and sizes are at most 2^18, so the product is at most 2^36.
const SHIFT: u32 = 40;

impl Class {
    /// Class 0.
    pub const NONE: Self = Self { size: 0, objects: 0, pages: 0, batch: 0, reciprocal: 0 };

    pub(crate) const fn new(size: u32, objects: u16, pages: u8, batch: u8) -> Self {
        Self { size, objects, pages, batch, reciprocal: (1u64 << SHIFT).div_ceil(size as u64) }
    }

    /// Bytes of one span.
    #[inline(always)]
    pub const fn span_bytes(&self) -> usize {
        self.pages as usize * crate::PAGE_SIZE
    }

    /// The object that the byte at `offset` from the start of a span belongs to: `offset / size`.
    ///
    /// Exact for every `offset` up to 2^18. In the tail of a span the result is [`objects`](Self::objects).
    #[inline(always)]
    pub const fn index_of(&self, offset: u32) -> u32 {
        ((offset as u64 * self.reciprocal) >> SHIFT) as u32
    }

    /// The object that begins exactly at `offset`; `None` for interior offsets and for the tail of a span.
    #[inline(always)]
    pub const fn exact_index(&self, offset: u32) -> Option<u32> {
        let index = self.index_of(offset);
        // The product cannot exceed `offset`.
        if index.wrapping_mul(self.size) == offset && index < self.objects as u32 {
            Some(index)
        } else {
            None
        }
    }
}
