//! Raw Linux system calls: the one place of the suite that enters the kernel.
//!
//! Calls are made without libc where the architecture is known, so that they neither touch `errno`
//! nor can be interposed by another preloaded library. Every function returns the kernel's answer as
//! a `Result` with its [`Errno`], or cannot fail. Under Miri the calls that it knows go through libc.

use core::ffi::c_int;

mod file;
mod memory;
mod process;
mod time;

pub use file::{close, open, read, stat_fs_page_size, write, write_all};
pub use memory::{
    Advice, MapFlags, is_one_mapping, madvise, mlock, mlock_on_fault, mmap, mmap_anonymous, mremap,
    mremap_in_place, mremap_keeping, mremap_to, munlock, munmap,
};
pub use process::{
    Limit, getpid, getrlimit, gettid, has_cap_ipc_lock, membarrier_register_rseq, membarrier_rseq, page_size,
    possible_cpus, sched_yield, usable_cpus,
};
#[cfg(target_arch = "x86_64")]
pub use process::{RSEQ_SIGNATURE, rseq_register, rseq_unregister};
pub use time::{clock_monotonic, clock_monotonic_coarse, futex_wait, futex_wake, nanosleep};

/// An error number of the kernel, for example 12 for `ENOMEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl Errno {
    /// Operation not permitted.
    pub const EPERM: Self = Self(libc::EPERM);
    /// No such file.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// Interrupted by a signal, or by the process freezer.
    pub const EINTR: Self = Self(libc::EINTR);
    /// Try again; locked memory over its limit, or a futex word that has changed.
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    /// Out of memory, or over a limit.
    pub const ENOMEM: Self = Self(libc::ENOMEM);
    /// Permission denied.
    pub const EACCES: Self = Self(libc::EACCES);
    /// Bad address; also what populating huge pages says when there are none.
    pub const EFAULT: Self = Self(libc::EFAULT);
    /// The address range is taken.
    pub const EEXIST: Self = Self(libc::EEXIST);
    /// No such device, or a mapping of a kind that it does not support.
    pub const ENODEV: Self = Self(libc::ENODEV);
    /// Invalid argument.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// Not supported by this kernel.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// Not supported for this object.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// The time is up.
    pub const ETIMEDOUT: Self = Self(libc::ETIMEDOUT);
    /// The memory has a hardware fault.
    pub const EHWPOISON: Self = Self(libc::EHWPOISON);
}

/// Makes one system call.
///
/// # Safety
/// The arguments must be valid for call `number`, as its man page says; memory that the call changes
/// must not be in use.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    let ret: isize;
    // SAFETY: the kernel's x86-64 convention: arguments in rdi, rsi, rdx, r10, r8, r9, result in rax,
    // rcx and r11 clobbered. The caller vouches for the arguments.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    decode(ret)
}

/// Makes one system call.
///
/// # Safety
/// The arguments must be valid for call `number`, as its man page says; memory that the call changes
/// must not be in use.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    let ret: isize;
    // SAFETY: the kernel's aarch64 convention: number in x8, arguments in x0 to x5, result in x0.
    // The caller vouches for the arguments.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") args[0] as isize => ret,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x4") args[4], in("x5") args[5],
            options(nostack)
        );
    }
    decode(ret)
}

/// Makes one system call through libc, with `errno` put back.
///
/// # Safety
/// The arguments must be valid for call `number`, as its man page says; memory that the call changes
/// must not be in use.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    keep_errno(|| {
        // SAFETY: the caller vouches for the arguments.
        unsafe {
            libc::syscall(number as libc::c_long, args[0], args[1], args[2], args[3], args[4], args[5])
                as isize
        }
    })
}

/// Runs a libc call that returns -1 on failure, and puts `errno` back.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn keep_errno(call: impl FnOnce() -> isize) -> Result<usize, Errno> {
    // SAFETY: errno is this thread's own, and nothing else runs on this thread meanwhile.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let ret = call();
        let failed = *errno;
        *errno = saved;
        if ret == -1 { Err(Errno(failed)) } else { Ok(ret as usize) }
    }
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline]
fn decode(ret: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&ret) { Err(Errno(-ret as c_int)) } else { Ok(ret as usize) }
}
