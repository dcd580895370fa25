//! Forks that run no handlers: `_Fork`, a raw `clone`, a fork before the handlers were installed.
//!
//! A page that the kernel wipes in every child (MADV_WIPEONFORK, Linux 4.14) tells of them. Only settings that a child must
//! leave need it, so a plain 4K heap without helper thread has no such page.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use page_backend::sys;

/// First byte of the page, 1 in the process that set it; null when none is needed.
static MARK: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());

/// Begins to watch, if the kernel can.
pub(super) fn watch() {
    let len = sys::page_size();
    let Ok(page) = sys::mmap_anonymous(len) else { return };
    // SAFETY: a mapping of our own. Without the advice the byte would stay 1 in children, and nothing is noticed.
    let wiped = unsafe { sys::madvise(page, len, sys::Advice::WipeOnFork) };
    if wiped.is_err() {
        // SAFETY: as above, and nobody knows it.
        let _ = unsafe { sys::munmap(page, len) };
        return;
    }
    let mark = page.cast::<AtomicU8>().as_ptr();
    // SAFETY: the page is mapped, zeroed and never unmapped from here on.
    unsafe { (*mark).store(1, Ordering::Relaxed) };
    MARK.store(mark, Ordering::Release);
}

/// Whether this process is a child that nobody has told yet; says so once.
#[inline]
pub(super) fn noticed() -> bool {
    // SAFETY: the page stays mapped.
    let Some(mark) = (unsafe { MARK.load(Ordering::Acquire).as_ref() }) else { return false };
    mark.load(Ordering::Relaxed) == 0
        && mark.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// A fork whose handlers did run needs no notice.
pub(super) fn told() {
    noticed();
}
