//! Error numbers as C programs see them.

use core::ffi::{c_int, c_void};
use core::ptr;

/// Sets the calling thread's `errno`.
pub(crate) fn set(value: c_int) {
    // SAFETY: the address is the calling thread's own errno, valid as long as the thread.
    unsafe { *libc::__errno_location() = value };
}

/// Sets `errno` to `ENOMEM` when there is no block.
#[inline]
pub(crate) fn or_enomem(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        set(libc::ENOMEM);
    }
    block.cast()
}

/// No block, and `errno` says why.
pub(crate) fn fail(why: c_int) -> *mut c_void {
    set(why);
    ptr::null_mut()
}
