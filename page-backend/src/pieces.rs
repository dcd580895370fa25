//! Moves of memory that the kernel keeps as several mappings.
//!
//! mremap(2) resizes and, before Linux 6.17, moves no more than one mapping at a time. Memory that was moved once does not
//! merge with its new neighbours, so a run that took free memory behind it can be made of several. They are moved one by one; all
//! but the last leave their old addresses mapped and empty (MREMAP_DONTUNMAP, Linux 5.7), so that nobody else can map
//! there and a failure can be undone.
//!
//! What such a move leaves behind is not locked any more, and locking it anew could fail. So of locked memory only the last
//! mapping is ever moved, whose move has no effect when it fails.

use crate::sys::{self, Advice, Errno, MapFlags};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The kernel has refused to keep the old addresses.
static UNSUPPORTED: AtomicBool = AtomicBool::new(false);

/// Whether the kernel is not known to be too old for [`move_all`] of several mappings.
pub(crate) fn can_be_moved() -> bool {
    !UNSUPPORTED.load(Relaxed)
}

/// Moves `size` bytes to `target` and makes them longer, to `new_size` bytes, in place of what is mapped there.
///
/// # Errors
/// `EINVAL` when some mapping but the last is locked, or from kernels that are too old; others as mremap(2). The content is
/// where it was, and the target unmapped, but for untouched address space that could not be.
///
/// # Safety
/// Both ranges are the caller's own and made of whole pages, and `new_size` is above `size`; after success the old range is
/// not used.
pub(crate) unsafe fn move_all(
    from: NonNull<u8>,
    size: usize,
    new_size: usize,
    target: NonNull<u8>,
) -> Result<(), Errno> {
    debug_assert!(new_size > size);
    let mut done = 0;
    let failed = loop {
        // SAFETY: `done` is below `size`; the rest of both ranges is the caller's.
        let (at, to) = unsafe { (from.add(done), target.add(done)) };
        // SAFETY: as above.
        let len = match unsafe { movable(at, size - done) } {
            Ok(len) => len,
            Err(errno) => {
                // SAFETY: nothing of the target's rest is in use.
                unsafe { discard(to, new_size - done) };
                break errno;
            }
        };
        if done + len == size {
            // SAFETY: as above; the target's rest is longer by what the run grows.
            match unsafe { sys::mremap_to(at, len, new_size - done, to) } {
                Ok(()) => {
                    // SAFETY: these pages have moved. If this fails, address space without memory is lost.
                    unsafe { discard(from, done) };
                    return Ok(());
                }
                Err(errno) => {
                    abandon_target(to, new_size - done);
                    break errno;
                }
            }
        }
        // SAFETY: as above.
        if let Err(errno) = unsafe { sys::mremap_keeping(at, len, to) } {
            if errno == Errno::EINVAL {
                UNSUPPORTED.store(true, Relaxed);
            }
            abandon_target(to, len);
            // SAFETY: nothing of the target behind this piece is in use.
            unsafe { discard(to.add(len), new_size - done - len) };
            break errno;
        }
        done += len;
    };
    // SAFETY: the first `done` bytes have moved, and their old addresses are mapped and empty. They are copied back, for
    // moving them could fail again, and then with nothing left at the old addresses.
    unsafe {
        from.copy_from_nonoverlapping(target, done);
        discard(target, done);
    }
    Err(failed)
}

/// How many bytes from `at` on, up to `len`, can be moved in one piece.
///
/// # Errors
/// `EFAULT` when nothing is mapped there; `EINVAL` when it is less than `len` and locked.
///
/// # Safety
/// The range is the caller's own and made of whole pages.
unsafe fn movable(at: NonNull<u8>, len: usize) -> Result<usize, Errno> {
    let page = sys::page_size();
    // SAFETY: the range is the caller's, and shorter ones too.
    let is_one = |pages: usize| unsafe { sys::is_one_mapping(at, pages * page) };
    let (mut fits, mut too_long) = (0, len / page);
    if is_one(too_long)? {
        return Ok(len);
    }
    while too_long - fits > 1 {
        let middle = fits.midpoint(too_long);
        if is_one(middle)? {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    if fits == 0 {
        return Err(Errno::EFAULT);
    }
    // This advice is harmless, and refused for locked memory.
    // SAFETY: the page is the caller's; the advice drops no content.
    unsafe { sys::madvise(at, page, Advice::Cold)? };
    Ok(fits * page)
}

/// Unmaps a range that may be empty. What cannot be unmapped is address space without memory, and is lost.
///
/// # Safety
/// The range is ours, and nothing in it is used.
unsafe fn discard(at: NonNull<u8>, size: usize) {
    if size > 0 {
        // SAFETY: as the caller vouches.
        let _ = unsafe { sys::munmap(at, size) };
    }
}

/// Gives back the target of a move that failed. The kernel may have unmapped it already, and another thread
/// may have mapped something there since, so it is unmapped only if it can be claimed anew; otherwise
/// untouched address space stays mapped.
fn abandon_target(target: NonNull<u8>, size: usize) {
    if crate::mmap::map_at(target, size, MapFlags::ANONYMOUS).is_ok() {
        // SAFETY: the range was free and is now ours.
        unsafe { discard(target, size) };
    }
}
