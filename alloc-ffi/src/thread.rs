//! `pthread_create`, interposed: a new thread gets its cache ready before the program's code runs in it.
//!
//! Nothing depends on it for correctness; a thread made in another way is prepared at its first slow path.

use crate::malloc;
use crate::symbols::{self, Scope};
use alloc_core::global::{self, hooks};
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

type Create = unsafe extern "C" fn(*mut c_void, *const c_void, Start, *mut c_void) -> c_int;
type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// The `pthread_create` behind ours; null until it is looked up.
// As the variables that are not zero at first: every process has their page.
#[unsafe(link_section = ".data")]
static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What the new thread has to run. It lives in a block of its own, for the creating thread may go on, or end,
/// before the new one reads it.
#[repr(C)]
struct Launch {
    start: Start,
    argument: *mut c_void,
}

/// Starts a thread as libc does, and tells the heap of it.
///
/// Returns what libc's function returns, or `EAGAIN` when there is no memory or no such function.
///
/// # Safety
/// As in POSIX.
#[cfg_attr(all(preload, not(archive)), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let real = real();
    if real.is_null() {
        return libc::EAGAIN;
    }
    hooks::install();
    let launch = global::alloc(size_of::<Launch>()).cast::<Launch>();
    if launch.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: `launch` is a fresh block of the right size; `real` is a pthread_create; the caller's contract.
    unsafe {
        launch.write(Launch { start, argument });
        let real = transmute::<*mut c_void, Create>(real);
        let result = real(thread, attributes, begin, launch.cast());
        if result != 0 {
            malloc::release(launch.cast());
        }
        result
    }
}

/// Looks up the `pthread_create` behind ours, once.
pub(crate) fn real() -> *mut c_void {
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        real = symbols::find(c"pthread_create", Scope::Next).cast_mut();
        REAL.store(real, Ordering::Relaxed);
    }
    real
}

/// Whether libc says that the process has one thread: glibc since 2.32.
pub(crate) fn is_alone() -> bool {
    static NEVER: u8 = 0;
    static WORD: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
    let mut word = WORD.load(Ordering::Relaxed);
    if word.is_null() {
        let found = symbols::find_variable(c"__libc_single_threaded", Scope::Sonames(&[b"libc.so.6"]));
        word = if found.is_null() { (&raw const NEVER).cast_mut() } else { found.cast_mut().cast() };
        WORD.store(word, Ordering::Relaxed);
    }
    // SAFETY: a byte of ours or of libc's, which changes it while there is no other thread to read it, or to 0.
    unsafe { word.read_volatile() != 0 }
}

/// Runs in the new thread: prepares its cache and hands back what to run.
///
/// # Safety
/// `launch` comes from [`pthread_create`], and is used here alone.
unsafe extern "C" fn prepare(launch: *mut c_void) -> Launch {
    hooks::thread_started();
    // SAFETY: the block holds a `Launch`, and nobody else knows of it.
    unsafe {
        let work = launch.cast::<Launch>().read();
        malloc::release(launch);
        work
    }
}

/// The first function of a new thread. It leaves no frame behind: cancellation, `pthread_exit` and uncaught
/// exceptions unwind from the program's function straight into libc.
///
/// # Safety
/// As for [`prepare`].
#[unsafe(naked)]
unsafe extern "C" fn begin(launch: *mut c_void) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {prepare}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        prepare = sym prepare,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "bl {prepare}",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "mov x16, x0",
        "mov x0, x1",
        "br x16",
        ".cfi_endproc",
        prepare = sym prepare,
    );
}
