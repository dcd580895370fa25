//! Spans: runs of pages that hold objects of one size class, or one large block.
//!
//! Which objects of a span are free is a bitmap behind its record, in metadata: user memory is never read or
//! written to keep the books. A set bit is a free object.

use crate::arena::Pool;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;

/// Bits in a word of the bitmap.
const WORD_BITS: usize = u64::BITS as usize;
/// Objects that a narrow record has room for; most spans have no more.
const NARROW_OBJECTS: usize = 128;
/// Objects that any span may have.
pub(crate) const MAX_OBJECTS: usize = 1024;

/// The record of a span; its bitmap follows it in memory.
#[repr(C)]
pub(crate) struct Span {
    /// Links in the list that the span is in; guarded by that list's lock.
    pub(crate) next: *mut Span,
    pub(crate) prev: *mut Span,
    /// First byte, on a page boundary.
    pub(crate) start: *mut u8,
    /// The private heap that the span belongs to; null for the global heap.
    pub(crate) owner: *const Owner,
    /// Length in pages.
    pub(crate) pages: usize,
    /// Objects in all: 1 for a large block.
    pub(crate) objects: u16,
    /// Free objects.
    pub(crate) free: u16,
    /// Size class; 0 for a large block.
    pub(crate) class: u8,
    /// Which list of its central the span is in, guarded by the central's lock; the state of a large block.
    pub(crate) list: AtomicU8,
    /// Words of the bitmap; 0 for a large block.
    words: u8,
}

/// How to reach the private heap that a span belongs to, without knowing its backend.
pub(crate) struct Owner {
    /// The heap's engine.
    pub(crate) heap: *const (),
    /// Frees a block of that heap.
    pub(crate) free: unsafe fn(heap: *const (), block: NonNull<u8>, span: NonNull<Span>),
}

static NARROW: Pool<Span, { NARROW_OBJECTS / 8 }> = Pool::new();
static WIDE: Pool<Span, { MAX_OBJECTS / 8 }> = Pool::new();

impl Span {
    /// A record for `pages` pages at `start`, with all of its `objects` free.
    pub(crate) fn create(
        start: NonNull<u8>,
        pages: usize,
        class: u8,
        objects: usize,
        owner: *const Owner,
    ) -> Option<NonNull<Span>> {
        debug_assert!(objects <= MAX_OBJECTS && objects > 0);
        let words = if class == 0 { 0 } else { objects.div_ceil(WORD_BITS) };
        let span = if words * WORD_BITS <= NARROW_OBJECTS { NARROW.alloc() } else { WIDE.alloc() }?;
        // SAFETY: a fresh record, with room for `words` words of bitmap behind it.
        unsafe {
            span.write(Span {
                next: core::ptr::null_mut(),
                prev: core::ptr::null_mut(),
                start: start.as_ptr(),
                owner,
                pages,
                objects: objects as u16,
                free: if class == 0 { 0 } else { objects as u16 },
                class,
                list: AtomicU8::new(0),
                words: words as u8,
            });
            let bits = Self::bits(span.as_ptr());
            for word in 0..words {
                let left = objects - word * WORD_BITS;
                bits.add(word).write(if left >= WORD_BITS { u64::MAX } else { (1 << left) - 1 });
            }
        }
        Some(span)
    }

    /// Gives the record back.
    ///
    /// # Safety
    /// The record is in no list and in no page map entry, and is not used again.
    pub(crate) unsafe fn destroy(span: NonNull<Span>) {
        // SAFETY: the record is valid until it is freed here, to the pool that it came from.
        unsafe {
            if span.as_ref().words as usize * WORD_BITS <= NARROW_OBJECTS {
                NARROW.free(span);
            } else {
                WIDE.free(span);
            }
        }
    }

    /// The bitmap behind a record.
    ///
    /// # Safety
    /// `span` is a record made by `create`.
    #[inline]
    unsafe fn bits(span: *mut Span) -> *mut u64 {
        // SAFETY: the pool's records have their tail directly behind the `Span`.
        unsafe { span.add(1).cast() }
    }

    /// Asks the processor for the record and the beginning of its bitmap, which will be needed soon. Any pointer will do.
    #[inline]
    pub(crate) fn prefetch(span: *mut Span) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which reads nothing and faults at no address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(span.cast());
                _mm_prefetch::<_MM_HINT_T0>(span.wrapping_add(1).cast());
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = span;
    }

    /// Takes up to `want` free objects of `size` bytes, lowest addresses first, and returns how many.
    ///
    /// # Safety
    /// The caller holds the lock of the span's central; `out` has room for `want` pointers.
    pub(crate) unsafe fn take(span: *mut Span, size: usize, want: usize, out: *mut *mut u8) -> usize {
        let mut taken = 0;
        // SAFETY: the record is valid and exclusively ours under the central's lock; the bitmap has `words`
        // words; a set bit stands for an object inside the span.
        unsafe {
            let bits = Self::bits(span);
            let start = (*span).start;
            for word in 0..(*span).words as usize {
                let mut free = bits.add(word).read();
                while free != 0 && taken < want {
                    let index = word * WORD_BITS + free.trailing_zeros() as usize;
                    out.add(taken).write(start.add(index * size));
                    taken += 1;
                    free &= free - 1;
                }
                bits.add(word).write(free);
                if taken == want {
                    break;
                }
            }
            (*span).free -= taken as u16;
        }
        taken
    }

    /// Marks object `index` free; `false` when it is free already.
    ///
    /// # Safety
    /// The caller holds the lock of the span's central; `index < objects`.
    #[inline]
    pub(crate) unsafe fn put(span: *mut Span, index: usize) -> bool {
        // SAFETY: the record is valid and exclusively ours under the central's lock, and the index in range.
        unsafe {
            debug_assert!(index < (*span).objects as usize);
            let word = Self::bits(span).add(index / WORD_BITS);
            let bit = 1 << (index % WORD_BITS);
            let free = word.read();
            if free & bit != 0 {
                return false;
            }
            word.write(free | bit);
            (*span).free += 1;
        }
        true
    }

    /// Free objects, counted from the bitmap.
    ///
    /// # Safety
    /// As for [`take`](Self::take).
    pub(crate) unsafe fn count_free(span: *mut Span) -> usize {
        // SAFETY: the bitmap has `words` words.
        unsafe {
            let bits = Self::bits(span);
            (0..(*span).words as usize).map(|word| bits.add(word).read().count_ones() as usize).sum()
        }
    }
}

/// Locks the pools of records for a fork.
pub(crate) fn lock_pools_for_fork() {
    NARROW.lock_for_fork();
    WIDE.lock_for_fork();
}

/// Unlocks what [`lock_pools_for_fork`] locked.
///
/// # Safety
/// As [`crate::lock::Lock::unlock_after_fork`].
pub(crate) unsafe fn unlock_pools_after_fork() {
    // SAFETY: handed on to the caller.
    unsafe {
        WIDE.unlock_after_fork();
        NARROW.unlock_after_fork();
    }
}
