//! Changing the size of a block.

use super::{HEAP, alloc, alloc_aligned, free, usable_size};
use crate::front::{self, metadata};
use crate::page_map::{HUGE_PAGE, PAGE_MAP};
use core::ptr::{NonNull, null_mut};
use size_classes::CLASSES;

/// A growing small block of this size or more gets room to grow further: its pages take no memory until they are used.
const ROOM_FROM: usize = 4096;
/// Shrinking by less than this part of a block leaves it where it is.
const SHRINK_SHIFT: u32 = 1;

/// Whether `block` is a small block that [`realloc`] to `size` bytes leaves as it is.
///
/// Any pointer may be asked about. `false` for a size of 0, and for what is not a small block of the heap.
#[inline]
pub fn serves(block: *const u8, size: usize) -> bool {
    let class = PAGE_MAP.class_of(block.addr());
    // Class 0 has size 0, and so room for nothing.
    let room = CLASSES.size_of(class);
    size.wrapping_sub(1) < room && (size > room >> SHRINK_SHIFT || CLASSES.class_of(size) == class)
}

/// Whether `block` is a large block that [`realloc`] to `size` bytes leaves as it is; any pointer may be asked about.
#[inline]
pub fn serves_large(block: *const u8, size: usize) -> bool {
    match PAGE_MAP.span_of(block.addr()) {
        // SAFETY: what is in the page map and no mark is a valid span.
        Some(span) if !metadata::is_mark(span) => unsafe { span.as_ref() }.is_large_of(size),
        _ => false,
    }
}

/// A block of at least `size` bytes with the content of `block`, which may have moved; null when memory is out: the old block
/// is kept then.
///
/// # Safety
/// `block` is a live block of the heap and `size` is not 0. When the result is not null, `block` is not used again.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if serves(block, size) || serves_large(block, size) {
        return block;
    }
    let class = PAGE_MAP.class_of(block.addr());
    if class != 0 {
        let old = CLASSES.size_of(class);
        let ahead = if size > old && old >= ROOM_FROM { size.max(old + old / 4) } else { size };
        // SAFETY: handed on to the caller; a small block has the bytes of its class.
        return unsafe { move_to(block, old, size, ahead) };
    }
    // SAFETY: handed on to the caller.
    unsafe { realloc_large(block, size) }
}

/// As [`realloc`], for blocks that are freed by size: a block keeps the class of its size.
///
/// # Safety
/// As for [`realloc`], and the block was asked with `old` bytes.
pub(crate) unsafe fn realloc_sized(block: *mut u8, old: usize, size: usize) -> *mut u8 {
    let class = CLASSES.class_of(size);
    if class != CLASSES.class_of(old) {
        // SAFETY: handed on to the caller.
        return unsafe { move_to(block, old, size, size) };
    }
    if class != 0 || serves_large(block, size) {
        return block;
    }
    // SAFETY: handed on to the caller.
    unsafe { realloc_large(block, size) }
}

/// # Safety
/// As for [`realloc`].
#[cold]
unsafe fn realloc_large(block: *mut u8, size: usize) -> *mut u8 {
    let old = usable_size(block);
    if old == 0 {
        // A pointer that is not ours has no size that could be copied.
        crate::report::fault(crate::report::Fault::Foreign, block);
        return null_mut();
    }
    if let (Some(span), Some(_inside)) = (PAGE_MAP.span_of(block.addr()), front::enter_without_cache()) {
        // SAFETY: a span in the page map is valid.
        let (owner, class) = unsafe { (span.as_ref().owner, span.as_ref().class) };
        if owner.is_null() && class == 0 {
            // SAFETY: the block is live and the caller's, and the span is its own.
            if !outgrows_its_place(block, old, size) && unsafe { HEAP.resize_large(span, size) } {
                return block;
            }
            // SAFETY: as above; the caller does not use the old address when the result is another one.
            if let Some(moved) = unsafe { HEAP.relocate_large(span, size) } {
                return moved.as_ptr();
            }
        }
    }
    if outgrows_its_place(block, old, size)
        && let Some(new) = NonNull::new(alloc_aligned(HUGE_PAGE, size))
    {
        // SAFETY: both blocks have that many bytes, and the new one is fresh; the caller gives the old one away.
        unsafe {
            new.as_ptr().copy_from_nonoverlapping(block, old);
            free_outgrown(block);
        }
        return new.as_ptr();
    }
    // Room to grow further, so that growing in small steps copies a bounded number of times.
    let ahead = if size > old { size.saturating_add(old / 8) } else { size };
    // SAFETY: handed on to the caller.
    unsafe { move_to(block, old, size, ahead) }
}

/// Frees a block that its program will not ask for again in this size: the memory of a large one goes back at once.
///
/// # Safety
/// As for [`free`].
unsafe fn free_outgrown(block: *mut u8) {
    if let (Some(address), Some(span), Some(_inside)) =
        (NonNull::new(block), PAGE_MAP.span_of(block.addr()), front::enter_without_cache())
    {
        // SAFETY: a span in the page map is valid.
        let span_ref = unsafe { span.as_ref() };
        if span_ref.owner.is_null() && span_ref.class == 0 {
            // SAFETY: the block is live and large, and the caller gives it away.
            return unsafe { HEAP.free_outgrown(address, span) };
        }
    }
    // SAFETY: handed on to the caller.
    unsafe { free(block) }
}

/// Whether a block that begins inside a huge page grows beyond one. It is copied to the start of a huge page then, while it is
/// short: from there on it can be moved without a copy.
fn outgrows_its_place(block: *mut u8, old: usize, size: usize) -> bool {
    old < HUGE_PAGE && size >= HUGE_PAGE && !block.addr().is_multiple_of(HUGE_PAGE)
}

/// # Safety
/// `block` is live and has `old` bytes; it is freed when the result is not null.
unsafe fn move_to(block: *mut u8, old: usize, size: usize, ahead: usize) -> *mut u8 {
    let mut new = alloc(ahead);
    if new.is_null() && ahead > size {
        new = alloc(size);
    }
    // SAFETY: handed on to the caller.
    unsafe { copy_to(new, block, old, size) }
}

/// Copies a block to a fresh one and frees it; does nothing when `new` is null, and returns `new`.
///
/// # Safety
/// As for [`move_to`]; `new` is null or a fresh block of at least `size` bytes.
unsafe fn copy_to(new: *mut u8, block: *mut u8, old: usize, size: usize) -> *mut u8 {
    let Some(new) = NonNull::new(new) else { return null_mut() };
    // SAFETY: both blocks have that many bytes, and the new one is fresh.
    unsafe {
        new.as_ptr().copy_from_nonoverlapping(block, old.min(size));
        free(block);
    }
    new.as_ptr()
}
