//! Blocks that come to us and are not ours.
//!
//! They exist in sound programs: a module opened with `RTLD_DEEPBIND`, or one that bound libc's malloc before us,
//! passes its blocks to code that calls our `free`. The page map alone says what is ours. Of the rest we
//! know one thing for certain: the program break moves for libc's malloc alone, so a block between the break as we found it
//! and as it is now is libc's, and libc's own function gets it. Anything else the heap
//! leaves as it is, unread, and reports as the setting `foreign` says.

use crate::errno::or_enomem;
use crate::symbols::{self, Scope};
use alloc_core::global;
use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use page_backend::sys;

const LIBC: Scope = Scope::Sonames(&[b"libc.so."]);

/// Where the program break was when the library was loaded; 0 before.
// As the variables that are not zero at first: every process has their page.
#[unsafe(link_section = ".data")]
static FIRST_BREAK: AtomicUsize = AtomicUsize::new(0);

/// Notes the program break; called once, by the constructor.
pub(crate) fn note_break() {
    FIRST_BREAK.store(program_break(), Ordering::Relaxed);
}

fn program_break() -> usize {
    // SAFETY: brk with an address that cannot be one changes nothing and answers where the break is.
    unsafe { sys::syscall(libc::SYS_brk as usize, [0; 6]) }.unwrap_or(0)
}

/// Whether the block lies in the part of the heap segment that grew under libc's hands.
fn is_libcs(ptr: *const c_void) -> bool {
    let first = FIRST_BREAK.load(Ordering::Relaxed);
    first != 0 && ptr.addr() >= first && ptr.addr() < program_break()
}

/// The address of a function of libc's, or null.
pub(crate) fn libcs(name: &CStr) -> *const c_void {
    symbols::find(name, LIBC)
}

/// Frees a block of libc's; leaves any other.
///
/// # Safety
/// As for [`free`](crate::free); the block is not ours.
#[cold]
pub(crate) unsafe fn free(ptr: *mut c_void) {
    let theirs = if is_libcs(ptr) { libcs(c"free") } else { ptr::null() };
    // SAFETY: the address is libc's `free`, and the block is libc's. The heap counts and reports what is not its own.
    unsafe {
        if theirs.is_null() {
            global::free_slow(ptr.cast());
        } else {
            transmute::<*const c_void, unsafe extern "C" fn(*mut c_void)>(theirs)(ptr);
        }
    }
}

/// Moves a block of libc's to one of ours; refuses any other, whose size nobody knows.
///
/// # Safety
/// As for [`realloc`](crate::realloc); the block is not ours, and `size` is not 0.
#[cold]
pub(crate) unsafe fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    let old = unsafe { usable_size(ptr) };
    if old == 0 {
        // SAFETY: the heap does nothing to a block that is not its own but to count and report it.
        return or_enomem(unsafe { global::realloc(ptr.cast(), size) });
    }
    let block = or_enomem(global::alloc(size));
    if !block.is_null() {
        // SAFETY: both blocks hold that many bytes and are different; the caller gives the old one up.
        unsafe {
            ptr::copy_nonoverlapping(ptr.cast::<u8>(), block.cast::<u8>(), old.min(size));
            free(ptr);
        }
    }
    block
}

/// Asks libc for the size of its block; 0 for any other.
///
/// # Safety
/// As for [`malloc_usable_size`](crate::malloc_usable_size); the block is not ours.
#[cold]
pub(crate) unsafe fn usable_size(ptr: *mut c_void) -> usize {
    let theirs = if is_libcs(ptr) { libcs(c"malloc_usable_size") } else { ptr::null() };
    if theirs.is_null() {
        return 0;
    }
    // SAFETY: the address is libc's `malloc_usable_size`, and the block is libc's.
    unsafe { transmute::<*const c_void, unsafe extern "C" fn(*mut c_void) -> usize>(theirs)(ptr) }
}
