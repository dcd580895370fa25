//! Taking physical memory now, with an error instead of a signal when there is none.

use crate::sys::{self, Advice, Errno};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The kernel has no MADV_POPULATE_WRITE (before Linux 5.14).
static OLD_KERNEL: AtomicBool = AtomicBool::new(false);

/// Takes every page of a range for writing. After an error a part may be taken.
///
/// `EFAULT` means that a page could not be had: the pool or a control group's limit.
///
/// # Safety
/// The range is mapped, the caller's own, made of whole pages of `page` bytes, and all zero.
pub(crate) unsafe fn populate(ptr: NonNull<u8>, size: usize, page: usize) -> Result<(), Errno> {
    if !OLD_KERNEL.load(Relaxed) {
        // SAFETY: as the caller vouches; populating changes no content.
        match unsafe { retry(|| sys::madvise(ptr, size, Advice::PopulateWrite)) } {
            Err(Errno::EINVAL) => OLD_KERNEL.store(true, Relaxed),
            other => return other,
        }
    }
    // SAFETY: as the caller vouches.
    unsafe { populate_by_read(ptr, size, page) }
}

/// Lets read(2) write a zero into each page: the kernel reports a page that it cannot write to as `EFAULT`.
///
/// # Safety
/// As for [`populate`].
unsafe fn populate_by_read(ptr: NonNull<u8>, size: usize, page: usize) -> Result<(), Errno> {
    let zero = sys::open(c"/dev/zero", libc::O_RDONLY, 0)?;
    let mut result = Ok(());
    for offset in (0..size).step_by(page) {
        // SAFETY: one byte within the range, which is ours; writing a zero to zeroed memory changes nothing.
        let byte = unsafe { core::slice::from_raw_parts_mut(ptr.add(offset).as_ptr(), 1) };
        result = retry(|| sys::read(zero, byte).map(|_| ()));
        if result.is_err() {
            break;
        }
    }
    sys::close(zero);
    result
}

/// Repeats a call that a signal interrupted, but not for ever.
fn retry(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    let mut result = Ok(());
    for _ in 0..1000 {
        result = call();
        if !matches!(result, Err(Errno::EINTR | Errno::EAGAIN)) {
            break;
        }
    }
    result
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn taken(ptr: NonNull<u8>, pages: usize) -> usize {
        let mut states = std::vec![0u8; pages];
        // SAFETY: the range is mapped, and there is a byte for each page.
        let ret =
            unsafe { libc::mincore(ptr.as_ptr().cast(), pages * sys::page_size(), states.as_mut_ptr()) };
        assert_eq!(ret, 0);
        states.iter().filter(|&&state| state & 1 == 1).count()
    }

    #[test]
    fn both_ways_take_every_page() {
        let (page, pages) = (sys::page_size(), 16);
        for old in [false, true] {
            let ptr = sys::mmap_anonymous(page * pages).unwrap();
            assert_eq!(taken(ptr, pages), 0);
            // SAFETY: the range is ours and zero.
            unsafe {
                if old {
                    populate_by_read(ptr, page * pages, page).unwrap();
                } else {
                    populate(ptr, page * pages, page).unwrap();
                }
                assert_eq!(taken(ptr, pages), pages);
                sys::munmap(ptr, page * pages).unwrap();
            }
        }
    }

    #[test]
    fn both_ways_report_what_cannot_be_had() {
        let page = sys::page_size();
        let ptr = sys::mmap_anonymous(2 * page).unwrap();
        // SAFETY: the ranges are ours; the hole is never touched from here, only by the kernel.
        unsafe {
            sys::munmap(ptr.add(page), page).unwrap();
            assert!(populate(ptr, 2 * page, page).is_err());
            assert_eq!(populate_by_read(ptr, 2 * page, page), Err(Errno::EFAULT));
            sys::munmap(ptr, page).unwrap();
        }
    }
}
