//! The process-wide heap: what `malloc` and `#[global_allocator]` reach.
//!
//! Layer rule: joins the front end to one static engine; the C ABI and [`crate::Stratalloc`] stand on it. The fast paths are
//! [`alloc_or`] and [`free_or`], [`alloc_fast`] and [`free_sized_fast`]; everything else here is where they miss.
//!
//! No function here unwinds or touches `errno`; null is failure.

mod background;
mod change;
mod fallback;
pub mod fork;
pub mod hooks;
mod inspect;
#[doc(hidden)]
pub mod parts;
mod raw_fork;
mod realloc;
pub mod release;
mod soft_limit;
pub mod start;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod straight;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[path = "straight_portable.rs"]
mod straight;

pub use change::{ChangeError, change};
pub use inspect::{CheckError, check, owns, snapshot, usable_size};
pub(crate) use realloc::realloc_sized;
pub use realloc::{realloc, serves, serves_large};
pub use release::{at_exit, trim};
pub use straight::{alloc_or, free_or};

use crate::front::bins::{Bins, sentinel_empty};
use crate::front::{self, Foreign, per_cpu};
use crate::heap::{Block, Engine};
use crate::page_map::PAGE_MAP;
use crate::tls;
use core::ptr::{NonNull, null_mut};
use page_backend::System;
use size_classes::{CLASSES, MAX_SMALL, MAX_TINY};

/// The heap of the process.
pub(crate) static HEAP: Engine<System> = Engine::new(System::new());

/// Where an allocation goes on that no cache serves.
pub trait AllocSlow {
    /// Serves the call; null when memory is out.
    extern "C" fn slow(size: usize) -> *mut u8;
}

/// Where a free goes on that no cache takes.
pub trait FreeSlow {
    /// Sees to the block.
    ///
    /// # Safety
    /// As for [`free`].
    unsafe extern "C" fn slow(block: *mut u8);
}

/// Takes a block of at least `size` bytes from the thread's cache; null when the cache has none or the size is above
/// 1 KiB: go on with [`alloc_slow`].
#[inline(always)]
pub fn alloc_fast(size: usize) -> *mut u8 {
    if size > MAX_TINY { null_mut() } else { pop(CLASSES.class_of_small(size)) }
}

/// Whether the CPUs' caches are in use at this moment.
pub fn has_per_cpu_caches() -> bool {
    per_cpu::area() != 0
}

/// How often the kernel has begun an operation on a CPU's cache anew, because it interrupted it; a diagnostic figure.
pub fn sequence_restarts() -> u64 {
    per_cpu::restarts()
}

/// Takes an object of a class out of this thread's bin; null when it has none.
#[inline(always)]
fn pop(class: u8) -> *mut u8 {
    // SAFETY: the slot holds this thread's bins or a sentinel, and the table's classes are below BINS.
    match unsafe { Bins::pop(tls::slot(), class as usize) } {
        Some(object) => object.as_ptr(),
        None => null_mut(),
    }
}

/// A block of at least `size` bytes, aligned to 16 (to 8 when `size <= 8`); null when memory is out.
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    alloc_or::<Slow>(size)
}

/// What [`alloc`] and [`free`] come to.
struct Slow;

impl AllocSlow for Slow {
    extern "C" fn slow(size: usize) -> *mut u8 {
        alloc_slow(size)
    }
}

impl FreeSlow for Slow {
    unsafe extern "C" fn slow(block: *mut u8) {
        // SAFETY: handed on to the caller.
        unsafe { free_slow(block) }
    }
}

/// What [`alloc`] does when the cache in use has missed.
#[inline(never)]
pub fn alloc_slow(size: usize) -> *mut u8 {
    if size > MAX_SMALL {
        return alloc_large(size, 1).map_or(null_mut(), |block| block.ptr.as_ptr());
    }
    alloc_in_class(CLASSES.class_of(size)).map_or(null_mut(), |block| block.ptr.as_ptr())
}

/// An object of a class, from this CPU's or this thread's cache if that has one.
///
/// With caches per CPU the thread's slot always misses, and the first thing here is the CPU's bin.
fn alloc_in_class(class: u8) -> Option<Block> {
    let area = per_cpu::area();
    // SAFETY: the table's classes are below BINS.
    let object = if area != 0 { unsafe { per_cpu::pop(area, class as usize) } } else { pop(class) };
    match NonNull::new(object) {
        Some(ptr) => Some(Block::used(ptr)),
        None => refill(class),
    }
}

#[inline(never)]
fn refill(class: u8) -> Option<Block> {
    before_slow_path();
    let first = tls::slot() == sentinel_empty();
    let take = || front::alloc_class(&HEAP, class);
    let object = take().or_else(|| release::retry_after_trim(CLASSES.size_of(class), take));
    if first && tls::slot() != sentinel_empty() {
        hooks::thread_met();
    }
    release::on_slow_path();
    object
}

/// A block of at least `size` bytes at a multiple of `align`, a power of two; null when memory is out.
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    if align <= 8 {
        return alloc(size);
    }
    alloc_aligned_block(align, size).map_or(null_mut(), |block| block.ptr.as_ptr())
}

#[inline]
fn alloc_aligned_block(align: usize, size: usize) -> Option<Block> {
    match CLASSES.class_of_aligned(size, align) {
        Some(class) => alloc_in_class(class),
        None => alloc_large(size, align),
    }
}

/// As [`alloc_aligned`], and the first `size` bytes are zero; memory that is known to be zero is not touched.
pub(crate) fn alloc_aligned_zeroed(align: usize, size: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    let block = alloc_aligned_block(align, size);
    // SAFETY: the block is fresh and has that many bytes.
    block.map_or(null_mut(), |block| unsafe { block.zero(size) }.as_ptr())
}

/// What every allocation sees to before it takes new memory: that the settings are read, and that the child of an unannounced
/// fork has left its parent's ways.
fn before_slow_path() {
    start::ensure();
    if raw_fork::noticed() {
        fork::leave_parents_ways();
    }
}

fn alloc_large(size: usize, align: usize) -> Option<Block> {
    before_slow_path();
    if let Some((block, due)) = front::alloc_parked(&HEAP, size, align) {
        if due || release::is_overdue() {
            release::on_slow_path();
        }
        return Some(block);
    }
    let block = front::alloc_large(&HEAP, size, align)
        .or_else(|| release::retry_after_trim(size, || front::alloc_large(&HEAP, size, align)));
    release::on_slow_path();
    block
}

/// A block of at least `size` bytes, the first `size` of which are zero; null when memory is out.
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    let object = alloc_fast(size);
    if object.is_null() {
        return alloc_zeroed_slow(size);
    }
    // SAFETY: the object is fresh and has that many bytes.
    unsafe { object.write_bytes(0, size) };
    object
}

#[inline(never)]
fn alloc_zeroed_slow(size: usize) -> *mut u8 {
    let block = if size > MAX_SMALL { alloc_large(size, 1) } else { alloc_in_class(CLASSES.class_of(size)) };
    // SAFETY: the block is fresh and has that many bytes.
    block.map_or(null_mut(), |block| unsafe { block.zero(size) }.as_ptr())
}

/// Frees a block of any of the heap's families: small, large, private, side. Null is allowed.
///
/// A pointer that is not the heap's, or no live block's start, is told of on standard error and left, as far as it is noticed:
/// at once when its page is not the heap's or the block is the last one freed in its class, when the object reaches the central
/// lists otherwise.
///
/// # Safety
/// The block is not used again.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: handed on to the caller.
    unsafe { free_or::<Slow>(block) }
}

/// What [`free`] does when the cache in use has missed.
///
/// # Safety
/// As for [`free`].
#[inline(never)]
pub unsafe fn free_slow(block: *mut u8) {
    let class = PAGE_MAP.class_of(block.addr());
    let area = per_cpu::area();
    // SAFETY: the page map holds classes below BINS alone, and class 0 is a bin that always misses.
    if area != 0 && unsafe { per_cpu::push(area, class.into(), block) } {
        return;
    }
    // SAFETY: handed on to the caller.
    unsafe { free_missed(block, class) }
}

/// What [`free_slow`] does when the CPU's bin has missed as well.
///
/// # Safety
/// As for [`free`]; `class` is the class of the block's page.
#[inline(never)]
unsafe fn free_missed(block: *mut u8, class: u8) {
    let Some(address) = NonNull::new(block) else { return };
    // SAFETY: handed on to the caller.
    unsafe {
        if class != 0 {
            let first = tls::slot() == sentinel_empty();
            front::free_class(&HEAP, class, block);
            if first && tls::slot() != sentinel_empty() {
                hooks::thread_met();
            }
        } else {
            match front::free_other(&HEAP, address) {
                Ok(false) if !release::is_overdue() => return,
                Ok(_) => {}
                Err(Foreign) => inspect::fault_without_span(block),
            }
        }
        release::on_slow_path();
    }
}

/// Frees a block whose request was for `size` bytes, without a look at the page map; `false`, without effect, when the
/// thread's cache cannot take it: go on with [`free_slow`].
///
/// # Safety
/// As for [`free`], and `size` is what the block was asked with, with no alignment beyond 16.
#[inline(always)]
pub unsafe fn free_sized_fast(block: *mut u8, size: usize) -> bool {
    if size > MAX_TINY {
        return false;
    }
    let class = CLASSES.class_of_small(size);
    // SAFETY: as in `pop`; the caller vouches for the size.
    unsafe { Bins::push(tls::slot(), class as usize, block) }
}

/// Frees a block whose size the caller vouches for.
///
/// # Safety
/// As for [`free_sized_fast`]; null is not allowed.
#[inline(always)]
pub unsafe fn free_sized(block: *mut u8, size: usize) {
    debug_assert!(!block.is_null());
    // SAFETY: handed on to the caller.
    unsafe {
        if !free_sized_fast(block, size) {
            free_slow(block);
        }
    }
}

/// Frees a block whose size and alignment the caller vouches for.
///
/// # Safety
/// As for [`free`], and the block was asked with this alignment and size; null is not allowed.
#[inline]
pub unsafe fn free_sized_aligned(block: *mut u8, align: usize, size: usize) {
    // SAFETY: handed on to the caller. Up to an alignment of 8 the size alone decides the class.
    unsafe {
        if align <= 8 {
            free_sized(block, size);
        } else {
            free(block);
        }
    }
}
