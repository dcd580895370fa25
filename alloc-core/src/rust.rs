//! The heap as a Rust program's global allocator.

use crate::front::{self, metadata::MetadataAlloc};
use crate::global;
use core::alloc::{GlobalAlloc, Layout};

/// The process-wide heap, for `#[global_allocator]`.
///
/// Zero-sized: every value stands for the one heap of the process.
///
/// ```
/// #[global_allocator]
/// static GLOBAL: alloc_core::Stratalloc = alloc_core::Stratalloc::new();
///
/// let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
/// assert_eq!(words[999], "999");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Stratalloc;

impl Stratalloc {
    /// The process-wide heap.
    pub const fn new() -> Self {
        Self
    }
}

// SAFETY: blocks come from `global`, which gives each to one owner, aligned to the class's size or as asked; no function unwinds.
unsafe impl GlobalAlloc for Stratalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_plain(layout) {
            let object = global::alloc_fast(layout.size());
            if !object.is_null() {
                return object;
            }
        }
        alloc_cold(layout)
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back a block that it got with this layout.
        unsafe {
            if !(is_plain(layout) && global::free_sized_fast(ptr, layout.size())) {
                dealloc_cold(ptr, layout);
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !front::in_metadata_work() {
            return if is_plain(layout) {
                global::alloc_zeroed(layout.size())
            } else {
                global::alloc_aligned_zeroed(layout.align(), layout.size())
            };
        }
        // SAFETY: handed on to the caller.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block is fresh and has that many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let new = Layout::from_size_align(new_size, layout.align()).unwrap_or(layout);
        debug_assert_eq!(new.size(), new_size, "the caller keeps sizes within isize::MAX");
        // SAFETY: the caller gives a live block with this layout, and a size that is not 0.
        unsafe {
            if is_plain(layout) && is_plain(new) && !front::in_metadata_work() {
                return global::realloc_sized(ptr, layout.size(), new_size);
            }
            let block = self.alloc(new);
            if !block.is_null() {
                block.copy_from_nonoverlapping(ptr, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            block
        }
    }
}

/// With caches per CPU every call comes here: what is rare stays out of its frame.
#[inline(never)]
fn alloc_cold(layout: Layout) -> *mut u8 {
    if front::in_metadata_work() {
        alloc_metadata(layout)
    } else if is_plain(layout) {
        global::alloc(layout.size())
    } else {
        global::alloc_aligned(layout.align(), layout.size())
    }
}

/// # Safety
/// As for `dealloc`.
#[inline(never)]
unsafe fn dealloc_cold(ptr: *mut u8, layout: Layout) {
    // SAFETY: handed on to the caller. What is freed during metadata work was allocated in it.
    unsafe {
        if front::in_metadata_work() {
            dealloc_metadata(ptr, layout);
        } else {
            global::free(ptr);
        }
    }
}

#[cold]
#[inline(never)]
fn alloc_metadata(layout: Layout) -> *mut u8 {
    // SAFETY: the metadata arena takes any layout.
    unsafe { MetadataAlloc.alloc(layout) }
}

/// # Safety
/// As for `dealloc`.
#[cold]
#[inline(never)]
unsafe fn dealloc_metadata(ptr: *mut u8, layout: Layout) {
    // SAFETY: handed on to the caller.
    unsafe { MetadataAlloc.dealloc(ptr, layout) }
}

/// Every block of this size has this alignment, so the size alone decides the class.
#[inline(always)]
fn is_plain(layout: Layout) -> bool {
    layout.align() <= 8 || (layout.align() == 16 && layout.size() > 8)
}
