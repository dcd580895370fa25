//! As `straight.rs`, where there are no caches per CPU: the threads' bins, then the slow path.

use super::{AllocSlow, FreeSlow};
use crate::front::bins::Bins;
use crate::page_map::PAGE_MAP;
use crate::tls;

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
    let class = PAGE_MAP.class_in_reach(block.addr());
    // SAFETY: the slot holds this thread's bins or a sentinel; the page map holds classes below BINS alone, and class 0, which
    // every foreign pointer has, is a bin that always misses. The rest is handed on to the caller.
    unsafe {
        if class.is_none_or(|class| !Bins::push(tls::slot(), class, block)) {
            S::slow(block);
        }
    }
}

/// Defines a function that is [`alloc_or`].
#[doc(hidden)]
#[macro_export]
macro_rules! define_alloc {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $result:ty, $slow:ty) => {
        $(#[$attribute])*
        $visibility unsafe extern "C" fn $name(size: usize) -> $result {
            $crate::global::alloc_or::<$slow>(size).cast()
        }
    };
}

/// Defines a function that is [`free_or`].
#[doc(hidden)]
#[macro_export]
macro_rules! define_free {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident, $slow:ty) => {
        $(#[$attribute])*
        $visibility unsafe extern "C" fn $name(block: *mut ::core::ffi::c_void) {
            // SAFETY: handed on to the caller.
            unsafe { $crate::global::free_or::<$slow>(block.cast()) }
        }
    };
}
