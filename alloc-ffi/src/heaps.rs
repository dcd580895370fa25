//! `include/stratalloc.h`: heaps of their own, on pages of the caller's choice. The header has the contracts.

use alloc_core::settings::{Origin, Settings, parse};
use alloc_core::{Heap, global};
use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use page_backend::System;

/// What the caller has a pointer to. It lives in a block of the process-wide heap.
#[derive(Debug)]
pub struct PrivateHeap(Heap<System>);

/// Makes a heap; null with `*error` set to `EINVAL` for settings that are wrong, each told of on standard error, or to
/// `ENOMEM`.
///
/// # Safety
/// `settings` is a C string; `error` is null or can be written.
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_heap_create(
    settings: *const c_char,
    error: *mut c_int,
) -> *mut PrivateHeap {
    // SAFETY: the caller's contract.
    let (heap, code) = match create(unsafe { CStr::from_ptr(settings) }) {
        Ok(heap) => (heap, 0),
        Err(code) => (ptr::null_mut(), code),
    };
    if !error.is_null() {
        // SAFETY: the caller's contract.
        unsafe { *error = code };
    }
    heap
}

#[cold]
fn create(text: &CStr) -> Result<*mut PrivateHeap, c_int> {
    let mut settings = Settings::DEFAULT;
    let mut sound = true;
    parse(&mut settings, text.to_bytes(), Origin::Program, &mut |problem| {
        sound = false;
        problem.message().send();
    });
    if !sound {
        return Err(libc::EINVAL);
    }
    let place = global::alloc(size_of::<PrivateHeap>()).cast::<PrivateHeap>();
    if place.is_null() {
        return Err(libc::ENOMEM);
    }
    match Heap::with_settings(&settings) {
        Some(heap) => {
            // SAFETY: the block is fresh, large enough, and aligned as any block of its size.
            unsafe { place.write(PrivateHeap(heap)) };
            Ok(place)
        }
        None => {
            // SAFETY: the block is ours, and nobody else knows of it.
            unsafe { global::free(place.cast()) };
            Err(libc::ENOMEM)
        }
    }
}

/// Ends a heap and gives all its memory back, with every block that is still in use.
///
/// # Safety
/// `heap` is null or comes from [`stratalloc_heap_create`]; neither it nor any of its blocks is used again.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_heap_destroy(heap: *mut PrivateHeap) {
    if heap.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe {
        ptr::drop_in_place(heap);
        global::free(heap.cast());
    }
}

/// A block of the heap at a multiple of `align`, a power of two; null when there is no memory, or for another alignment.
///
/// # Safety
/// `heap` comes from [`stratalloc_heap_create`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_heap_alloc(
    heap: *const PrivateHeap,
    align: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    let heap = unsafe { &(*heap).0 };
    let block = Layout::from_size_align(size, align).ok().and_then(|layout| heap.allocate(layout));
    block.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// As [`stratalloc_heap_alloc`], with every byte zero.
///
/// # Safety
/// As for [`stratalloc_heap_alloc`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_heap_zalloc(
    heap: *const PrivateHeap,
    align: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    let heap = unsafe { &(*heap).0 };
    let block = Layout::from_size_align(size, align).ok().and_then(|layout| heap.allocate_zeroed(layout));
    block.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// Frees a block of the heap; null is ignored. `free` does the same.
///
/// # Safety
/// `heap` comes from [`stratalloc_heap_create`]; `block` is null or a block of it that is not used again.
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_heap_free(heap: *const PrivateHeap, block: *mut c_void) {
    if let Some(block) = NonNull::new(block.cast::<u8>()) {
        // SAFETY: the caller's contract. The heap looks the layout up.
        unsafe { (*heap).0.deallocate(block, Layout::new::<u8>()) }
    }
}

/// Bytes in live blocks of the heap, rounded up to what they take.
///
/// # Safety
/// `heap` comes from [`stratalloc_heap_create`].
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_heap_bytes(heap: *const PrivateHeap) -> usize {
    // SAFETY: the caller's contract.
    unsafe { (*heap).0.allocated_bytes() }
}

/// Gives the heap's free memory back to the system; returns how many bytes went.
///
/// # Safety
/// `heap` comes from [`stratalloc_heap_create`].
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_heap_release(heap: *const PrivateHeap) -> usize {
    // SAFETY: the caller's contract.
    unsafe { (*heap).0.release() }
}
