//! As `straight.rs`, where there are no caches per CPU: the threads' bins, then the slow path.

use super::{AllocSlow, FreeSlow};

/// A block of at least `size` bytes out of the cache in use; else what `S` gives.
#[inline(always)]
pub fn alloc_or<S: AllocSlow>(size: usize) -> *mut u8 {
    let object = super::alloc_fast(size);
    if object.is_null() { S::slow(size) } else { object }
}

/// Frees a block into the cache in use; else has `S` see to it.
///
/// # Safety
/// As for [`super::free`].
#[inline(always)]
pub unsafe fn free_or<S: FreeSlow>(block: *mut u8) {
    // SAFETY: handed on to the caller.
    unsafe {
        if !super::free_fast(block) {
            S::slow(block);
        }
    }
}
