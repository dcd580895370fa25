//! An rseq area of our own in each thread, for where libc registers none: musl, glibc before 2.35, and
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0`.
//!
//! A thread registers it in its first slow path that needs a CPU's cache, and unregisters it at its end, since a libc may unmap a
//! detached thread's memory before the kernel is done with the thread. Where another library was first, the kernel
//! refuses: that thread then does without caches.

use core::arch::{asm, global_asm};
use page_backend::sys;

/// The area's `cpu_id` once the kernel has refused it, or the thread has ended (`RSEQ_CPU_ID_REGISTRATION_FAILED`).
const FAILED: i32 = -2;

macro_rules! symbol {
    () => {
        concat!($crate::tls_symbol!(), "_rseq")
    };
}

global_asm!(
    ".section .tdata,\"awT\",@progbits",
    ".balign 32",
    concat!(".globl ", symbol!()),
    concat!(".hidden ", symbol!()),
    concat!(".type ", symbol!(), ",@object"),
    concat!(".size ", symbol!(), ", 32"),
    concat!(symbol!(), ":"),
    // cpu_id_start, cpu_id (RSEQ_CPU_ID_UNINITIALIZED), rseq_cs, flags, the rest of the first version's 32 bytes.
    ".long 0, -1",
    ".quad 0",
    ".quad 0, 0",
    ".text",
);

/// The area's offset from the thread pointer, the same in all threads.
pub(super) fn area() -> isize {
    let offset;
    // SAFETY: reads a link-time offset.
    unsafe {
        asm!(
            concat!("mov {0}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
            out(reg) offset,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    offset
}

/// The address of this thread's area.
fn address() -> *mut i32 {
    let address: *mut i32;
    // SAFETY: the first word at the thread pointer is its own address (psABI).
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, {1}",
            out(reg) address,
            in(reg) area(),
            options(nostack, pure, readonly)
        );
    }
    address
}

/// Registers this thread's area; `false` where the kernel refuses, now or at an earlier call.
pub(super) fn register() -> bool {
    if cpu() == FAILED {
        return false;
    }
    // SAFETY: the area lives as long as the thread, which unregisters it before libc takes its memory back.
    if unsafe { sys::rseq_register(address().cast()) } {
        return true;
    }
    set_failed();
    false
}

/// Ends the registration of this thread's area, for good.
pub(super) fn unregister() {
    // SAFETY: the area that `register` registered.
    unsafe { sys::rseq_unregister(address().cast()) };
    set_failed();
}

fn cpu() -> i32 {
    // SAFETY: the thread's own word, which the kernel may change at any time.
    unsafe { address().add(1).read_volatile() }
}

fn set_failed() {
    // SAFETY: the thread's own word; the kernel no longer has, or never had, the area.
    unsafe { address().add(1).write_volatile(FAILED) }
}
