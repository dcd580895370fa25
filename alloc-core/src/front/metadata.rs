//! Memory for libraries inside the heap that allocate through the program's global allocator: the epochs.
//!
//! While such code runs, the thread's slot says so, and what it allocates comes from the metadata arena: in pieces of powers of
//! two, marked in the page map so that freeing recognises them.

use super::bins::{sentinel_busy, sentinel_metadata};
use crate::arena::META;
use crate::lock::{Lock, Rank};
use crate::page_map::PAGE_MAP;
use crate::span::Span;
use crate::tls;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use size_classes::PAGE_SIZE;

/// What the epochs need for one call at the most: a participant and a bag of deferred calls.
const RESERVE: usize = 16 << 10;
/// Pieces are of 2^4 to 2^12 bytes.
const MIN_SHIFT: u32 = 4;
const MAX_SHIFT: u32 = 12;
const SIZES: usize = (MAX_SHIFT - MIN_SHIFT + 1) as usize;

/// Runs `work`, with its allocations taken from the metadata arena; `None`, without running it, when the arena could
/// run out on the way. The epochs abort on failed allocations, so they are not called then.
pub(super) fn with_memory<T>(work: impl FnOnce() -> T) -> Option<T> {
    if !META.reserve(RESERVE) || !refill_all() {
        return None;
    }
    let before = tls::slot();
    debug_assert!(before == sentinel_busy() || cfg!(test), "epochs run on the slow path alone");
    tls::set_slot(sentinel_metadata());
    let result = work();
    tls::set_slot(before);
    Some(result)
}

struct Free {
    head: *mut Piece,
}
struct Piece {
    next: *mut Piece,
}
// SAFETY: the list owns its pieces.
unsafe impl Send for Free {}

static FREE: [Lock<Free>; SIZES] = [const { Lock::new(Rank::Pool, Free { head: null_mut() }) }; SIZES];

/// The map's entry for pages of pieces: its class of 0 keeps them off the fast path, and its address says what they are.
static MARK_SPAN: core::sync::atomic::AtomicPtr<Span> = core::sync::atomic::AtomicPtr::new(null_mut());

fn shift_for(size: usize) -> Option<usize> {
    let shift = size.max(1 << MIN_SHIFT).next_power_of_two().trailing_zeros();
    (shift <= MAX_SHIFT).then_some((shift - MIN_SHIFT) as usize)
}

/// Makes sure that at least two pieces of every size are at hand.
fn refill_all() -> bool {
    (0..SIZES).all(|index| {
        // SAFETY: pieces in a list are free and start with their link.
        let enough = unsafe {
            let head = FREE[index].lock().head;
            !head.is_null() && !(*head).next.is_null()
        };
        enough || refill(index)
    })
}

fn refill(index: usize) -> bool {
    let size = 1 << (index as u32 + MIN_SHIFT);
    let Some(page) = META.alloc(PAGE_SIZE, PAGE_SIZE) else { return false };
    let address = page.as_ptr().addr();
    let Some(mark) = mark() else { return false };
    if !PAGE_MAP.ensure(address, PAGE_SIZE) {
        return false;
    }
    PAGE_MAP.set_span(address, 1, mark.as_ptr(), 0);
    for piece in 0..PAGE_SIZE / size {
        // SAFETY: inside the page, which nobody else has.
        unsafe { free_piece(page.add(piece * size), index) };
    }
    true
}

/// The span record that stands for all pieces.
fn mark() -> Option<NonNull<Span>> {
    use core::sync::atomic::Ordering;
    if let Some(mark) = NonNull::new(MARK_SPAN.load(Ordering::Acquire)) {
        return Some(mark);
    }
    let mark = Span::create(NonNull::dangling(), 0, 0, 1, core::ptr::null())?;
    match MARK_SPAN.compare_exchange(null_mut(), mark.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(mark),
        Err(other) => {
            // SAFETY: the record is ours and in no list.
            unsafe { Span::destroy(mark) };
            NonNull::new(other)
        }
    }
}

/// Whether a span of the page map stands for metadata.
pub(crate) fn is_mark(span: NonNull<Span>) -> bool {
    span.as_ptr() == MARK_SPAN.load(core::sync::atomic::Ordering::Acquire)
}

/// # Safety
/// The piece is of the size of `index` and given away.
unsafe fn free_piece(piece: NonNull<u8>, index: usize) {
    let piece = piece.cast::<Piece>().as_ptr();
    let mut free = FREE[index].lock();
    // SAFETY: the caller gave the piece away, and every piece has room for a link.
    unsafe { piece.write(Piece { next: free.head }) };
    free.head = piece;
}

/// The metadata arena as an allocator, for the libraries that the heap itself calls.
///
/// The preload library names it as its `#[global_allocator]`: its own code never allocates, so all that comes here
/// is the epochs'. Requests above 4 KiB fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetadataAlloc;

// SAFETY: pieces are powers of two of at least the size and alignment asked for, aligned to their size, and have one owner.
unsafe impl GlobalAlloc for MetadataAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(index) = shift_for(layout.size().max(layout.align())) else { return null_mut() };
        if FREE[index].lock().head.is_null() && !refill(index) {
            return null_mut();
        }
        let mut free = FREE[index].lock();
        let Some(piece) = NonNull::new(free.head) else { return null_mut() };
        // SAFETY: pieces in a list are free and start with their link.
        free.head = unsafe { piece.as_ref().next };
        piece.as_ptr().cast()
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if let (Some(index), Some(piece)) = (shift_for(layout.size().max(layout.align())), NonNull::new(ptr))
        {
            // SAFETY: the caller gives back what `alloc` gave for this layout.
            unsafe { free_piece(piece, index) };
        }
    }
}

pub(super) fn lock_for_fork() {
    for free in &FREE {
        free.lock_for_fork();
    }
}

/// # Safety
/// As [`Lock::unlock_after_fork`].
pub(super) unsafe fn unlock_after_fork() {
    for free in &FREE {
        // SAFETY: handed on to the caller.
        unsafe { free.unlock_after_fork() };
    }
}
