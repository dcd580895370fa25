//! Blocks for code that interrupted the heap: a signal handler that allocates while its own thread is in the slow path.
//!
//! Such a call may find a lock that its own thread holds, and then must wait for nothing. It gets a mapping of its own, noted in
//! a fixed table; what it frees is put by until the slow path ends. A caller that frees by size alone may put such a block into a
//! bin, where it is as good as any; it ends here when the bin is emptied.

use crate::central::batch::{BatchId, BatchStack};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use page_backend::sys;

/// Side blocks at a time.
const BLOCKS: usize = 128;

struct SideBlock {
    start: AtomicPtr<u8>,
    len: AtomicUsize,
}

#[unsafe(link_section = ".bss.tables")]
static TABLE: [SideBlock; BLOCKS] =
    [const { SideBlock { start: AtomicPtr::new(null_mut()), len: AtomicUsize::new(0) } }; BLOCKS];
/// Side blocks in use; keeps the search for foreign pointers short when there are none.
static IN_USE: AtomicUsize = AtomicUsize::new(0);
/// Objects whose free had to wait, one in each batch.
static WAITING: BatchStack = BatchStack::new();

/// A zeroed block in a mapping of its own, on a page boundary; null when the table is full or memory is out.
pub(crate) fn alloc(size: usize, align: usize) -> *mut u8 {
    let page = sys::page_size();
    if size > isize::MAX as usize - page || align > page {
        return null_mut();
    }
    let len = size.max(1).next_multiple_of(page);
    let Ok(block) = sys::mmap_anonymous(len) else { return null_mut() };
    for entry in &TABLE {
        let taken = entry.len.compare_exchange(0, len, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            entry.start.store(block.as_ptr(), Ordering::Release);
            IN_USE.fetch_add(1, Ordering::Relaxed);
            return block.as_ptr();
        }
    }
    // SAFETY: mapped above, and nobody knows it.
    let _ = unsafe { sys::munmap(block, len) };
    null_mut()
}

fn find(block: *const u8) -> Option<&'static SideBlock> {
    if IN_USE.load(Ordering::Relaxed) == 0 || block.is_null() {
        return None;
    }
    TABLE.iter().find(|entry| entry.start.load(Ordering::Acquire).cast_const() == block)
}

/// Bytes of a side block; 0 for any other pointer.
pub(crate) fn usable_size(block: *const u8) -> usize {
    find(block).map_or(0, |entry| entry.len.load(Ordering::Relaxed))
}

/// Frees a side block; `false` for any other pointer.
///
/// # Safety
/// The caller gives the block away.
pub(crate) unsafe fn free(block: NonNull<u8>) -> bool {
    let Some(entry) = find(block.as_ptr()) else { return false };
    let ours = entry.start.compare_exchange(block.as_ptr(), null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    if ours.is_err() {
        return false;
    }
    let len = entry.len.load(Ordering::Relaxed);
    // SAFETY: the mapping is the block, which the caller gave away. If the call fails, the mapping is only lost.
    let _ = unsafe { sys::munmap(block, len) };
    entry.len.store(0, Ordering::Release);
    IN_USE.fetch_sub(1, Ordering::Relaxed);
    true
}

/// Puts a block by, to be freed when the thread is out of the slow path; `false` when nothing is at hand for that.
///
/// # Safety
/// The caller gives the block away.
#[cold]
pub(crate) unsafe fn free_later(block: *mut u8) -> bool {
    let Some(batch) = BatchId::take_unused_lock_free() else { return false };
    // SAFETY: the batch is ours until pushed.
    unsafe { batch.fill(&block, 1) };
    WAITING.push(batch);
    true
}

/// Hands the blocks that were put by to `free`.
#[inline]
pub(crate) fn free_waiting(mut free: impl FnMut(*mut u8)) {
    while let Some(batch) = WAITING.pop() {
        let mut block = null_mut();
        // SAFETY: the batch is ours since the pop, and holds one block.
        unsafe { batch.take(1, &mut block) };
        batch.put_unused();
        free(block);
    }
}
