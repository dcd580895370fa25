//! The malloc family: `stdlib.h` and `malloc.h`, with glibc 2.36 as the judge of edge cases.
//!
//! Each exported function is itself the fast path, and ends in a call of its cold half: no frame, no thunk.
//! On success and in every form of free `errno` stays as it was.

use crate::errno::{fail, or_enomem};
use crate::foreign;
#[cfg(all(preload, not(archive)))]
use crate::interposed::{bound_to, is_ours};
use alloc_core::global;
use core::ffi::{c_int, c_void};
use core::ptr;

/// Alignment that every block has, even the smallest.
const LEAST_ALIGNMENT: usize = 8;

alloc_core::define_alloc!(
    /// Allocates `size` bytes; of size 0 a block of its own.
    ///
    /// Returns null with `ENOMEM` when there is no memory or `size` is over `PTRDIFF_MAX`.
    ///
    /// # Safety
    /// As in C: the block is used within its size until it is freed.
    #[cfg_attr(preload, unsafe(no_mangle))]
    pub fn malloc() -> *mut c_void, Malloc
);

/// The cold half of `malloc`.
struct Malloc;

impl global::AllocSlow for Malloc {
    #[inline(never)]
    extern "C" fn slow(size: usize) -> *mut u8 {
        or_enomem(global::alloc_slow(size)).cast()
    }
}

/// The body of `malloc` for callers inside the library, which must not go through the exported symbol: another
/// object may have taken that over.
#[inline]
pub(crate) fn allocate(size: usize) -> *mut c_void {
    global::alloc_or::<Malloc>(size).cast()
}

alloc_core::define_free!(
    /// Frees a block of any function of this family; null is ignored.
    ///
    /// # Safety
    /// The argument is null or a block that has not been freed, and is not used again.
    #[cfg_attr(preload, unsafe(no_mangle))]
    pub fn free, Free
);

/// The body of `free` for callers inside the library.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub(crate) unsafe fn release(ptr: *mut c_void) {
    // SAFETY: the caller vouches for `ptr`; the fast path takes what the page map knows, and nothing else.
    unsafe { global::free_or::<Free>(ptr.cast()) }
}

/// The cold half of `free`.
pub(crate) struct Free;

impl global::FreeSlow for Free {
    #[inline(never)]
    unsafe extern "C" fn slow(block: *mut u8) {
        if block.is_null() {
            return;
        }
        if global::owns(block) {
            // SAFETY: the block is ours, and the caller gives it up.
            unsafe { global::free_slow(block) }
        } else {
            // SAFETY: the caller gives the block up.
            unsafe { foreign::free(block.cast()) }
        }
    }
}

/// Allocates `count * size` zeroed bytes.
///
/// Returns null with `ENOMEM` when the product overflows or there is no memory.
///
/// # Safety
/// As for [`malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(total) => or_enomem(global::alloc_zeroed(total)),
        None => fail(libc::ENOMEM),
    }
}

/// Resizes a block, moving it if need be. `realloc(NULL, n)` allocates; `realloc(p, 0)` frees and returns null.
///
/// Returns null with `ENOMEM` when there is no memory; the old block is then as it was.
///
/// # Safety
/// As for [`free`] when it succeeds.
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { resize(ptr, size) }
}

/// The body of `realloc` for callers inside the library.
///
/// # Safety
/// As for [`realloc`].
#[inline]
pub(crate) unsafe fn resize(ptr: *mut c_void, size: usize) -> *mut c_void {
    if global::serves(ptr.cast(), size) {
        return ptr;
    }
    // SAFETY: handed on to the caller.
    unsafe { resize_slow(ptr, size) }
}

/// # Safety
/// As for [`realloc`].
#[inline(never)]
unsafe fn resize_slow(ptr: *mut c_void, size: usize) -> *mut c_void {
    if global::serves_large(ptr.cast(), size) {
        return ptr;
    }
    if ptr.is_null() {
        return allocate(size);
    }
    // SAFETY: `ptr` is a live block, ours or foreign as the page map says, and the caller gives it up on success.
    unsafe {
        if size == 0 {
            release(ptr);
            return ptr::null_mut();
        }
        if !global::owns(ptr.cast()) {
            return foreign::realloc(ptr, size);
        }
        or_enomem(global::realloc(ptr.cast(), size))
    }
}

/// `realloc(ptr, count * size)`, or null with `ENOMEM` when the product overflows.
///
/// # Safety
/// As for [`realloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's contract.
        Some(total) => unsafe { resize_by_symbol(ptr, total) },
        None => fail(libc::ENOMEM),
    }
}

/// `realloc`, whoever's it is: the program's, if it has its own, as in glibc.
///
/// # Safety
/// As for [`realloc`].
#[cfg(all(preload, not(archive)))]
unsafe fn resize_by_symbol(ptr: *mut c_void, size: usize) -> *mut c_void {
    type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    let bound = bound_to!("realloc");
    // SAFETY: the caller's contract; what is bound is a realloc. It is libc's when this library was opened late and
    // stands behind libc: then who calls us means us.
    unsafe {
        if is_ours(bound) || bound == foreign::libcs(c"realloc").addr() {
            resize(ptr, size)
        } else {
            core::mem::transmute::<*const (), Realloc>(core::ptr::with_exposed_provenance(bound))(ptr, size)
        }
    }
}

#[cfg(any(not(preload), archive))]
use resize as resize_by_symbol;

/// Allocates with an alignment, as glibc's `memalign` does: small alignments are raised, and others rounded
/// up to a power of two. Null with `EINVAL` when there is no such power, with `ENOMEM` when there is no memory.
#[inline]
pub(crate) fn allocate_aligned(align: usize, size: usize) -> *mut c_void {
    if align <= LEAST_ALIGNMENT {
        return allocate(size);
    }
    match align.checked_next_power_of_two() {
        Some(align) => or_enomem(global::alloc_aligned(align, size)),
        None => fail(libc::EINVAL),
    }
}

/// Allocates `size` bytes at a multiple of `align`, which is rounded up to a power of two.
///
/// Returns null with `EINVAL` for an alignment over 2^63, with `ENOMEM` when there is no memory.
///
/// # Safety
/// As for [`malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    allocate_aligned(align, size)
}

/// As [`memalign`]: glibc accepts any size and any alignment here (up to its release 2.37).
///
/// # Safety
/// As for [`malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    allocate_aligned(align, size)
}

/// Allocates `size` bytes at a multiple of `align` into `*out`.
///
/// Returns 0, or `EINVAL` when `align` is not a power of two of at least a pointer's size, or `ENOMEM`; then
/// `*out` is untouched. `errno` is never changed.
///
/// # Safety
/// `out` can be written. The block as for [`malloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    let block = global::alloc_aligned(align, size);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's contract.
    unsafe { *out = block.cast() };
    0
}

/// Allocates `size` bytes at a page boundary.
///
/// # Safety
/// As for [`malloc`].
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    allocate_aligned(page_size(), size)
}

/// Allocates whole pages: `size` rounded up, at a page boundary.
///
/// # Safety
/// As for [`malloc`].
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    allocate_pages(size)
}

/// The body of [`pvalloc`].
pub(crate) fn allocate_pages(size: usize) -> *mut c_void {
    let page = page_size();
    match size.checked_next_multiple_of(page) {
        Some(rounded) => allocate_aligned(page, rounded),
        None => fail(libc::ENOMEM),
    }
}

/// The operating system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: getauxval reads the auxiliary vector, and AT_PAGESZ is always there.
    let size = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    if size.is_power_of_two() { size } else { 4096 }
}

/// As [`free`]: a name that old programs still use.
///
/// # Safety
/// As for [`free`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn cfree(ptr: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { release(ptr) }
}

/// C23: frees a block whose size the caller states.
///
/// The statement is not trusted: a program that states a wrong size has run well on other allocators.
///
/// # Safety
/// As for [`free`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn free_sized(ptr: *mut c_void, _size: usize) {
    // SAFETY: the caller's contract.
    unsafe { release(ptr) }
}

/// C23: frees an aligned block whose alignment and size the caller states; as [`free_sized`].
///
/// # Safety
/// As for [`free`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn free_aligned_sized(ptr: *mut c_void, _align: usize, _size: usize) {
    // SAFETY: the caller's contract.
    unsafe { release(ptr) }
}

/// Bytes that the block can hold: at least what was asked for, the same for the block's whole life, all of them
/// the program's to use. 0 for null and for what no allocator of ours made.
///
/// # Safety
/// `ptr` is null or a live block.
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    if ptr.is_null() {
        return 0;
    }
    match global::usable_size(ptr.cast()) {
        // SAFETY: the caller's contract.
        0 => unsafe { foreign::usable_size(ptr) },
        size => size,
    }
}
