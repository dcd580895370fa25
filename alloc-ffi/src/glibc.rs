//! glibc's second names for the malloc family, which some programs and libraries import.

use crate::errno;
use crate::info;
#[cfg(doc)]
use crate::malloc;
use crate::malloc::{allocate, allocate_aligned, allocate_pages, page_size, release, resize};
use core::ffi::{c_int, c_void};

/// As [`malloc::malloc`].
///
/// # Safety
/// As for [`malloc::malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_malloc(size: usize) -> *mut c_void {
    allocate(size)
}

/// As [`malloc::calloc`].
///
/// # Safety
/// As for [`malloc::malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(total) => errno::or_enomem(alloc_core::global::alloc_zeroed(total)),
        None => errno::fail(libc::ENOMEM),
    }
}

/// As [`malloc::realloc`].
///
/// # Safety
/// As for [`malloc::realloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { resize(ptr, size) }
}

/// As [`malloc::reallocarray`].
///
/// # Safety
/// As for [`malloc::realloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's contract.
        Some(total) => unsafe { resize(ptr, total) },
        None => errno::fail(libc::ENOMEM),
    }
}

/// As [`malloc::free`].
///
/// # Safety
/// As for [`malloc::free`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_free(ptr: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { release(ptr) }
}

/// As [`malloc::memalign`].
///
/// # Safety
/// As for [`malloc::malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    allocate_aligned(align, size)
}

/// As [`malloc::valloc`].
///
/// # Safety
/// As for [`malloc::malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    allocate_aligned(page_size(), size)
}

/// As [`malloc::pvalloc`].
///
/// # Safety
/// As for [`malloc::malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    allocate_pages(size)
}

/// As [`info::mallinfo`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn __libc_mallinfo() -> info::Mallinfo {
    info::mallinfo_now()
}

/// As [`info::mallopt`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn __libc_mallopt(parameter: c_int, value: c_int) -> c_int {
    info::set_option(parameter, value)
}
