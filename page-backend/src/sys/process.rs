//! The process: its ids, limits and page size.

use super::Errno;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(clippy::unnecessary_cast, reason = "the constants are c_int on musl")]
pub enum Limit {
    /// Bytes of address space.
    AddressSpace = libc::RLIMIT_AS as u32,
    /// Bytes of private writable memory.
    Data = libc::RLIMIT_DATA as u32,
    /// Bytes of locked memory.
    Locked = libc::RLIMIT_MEMLOCK as u32,
}

/// The soft limit of a resource; `u64::MAX` means no limit.
///
/// # Errors
/// As prlimit(2), for example under a strict seccomp filter.
pub fn getrlimit(limit: Limit) -> Result<u64, Errno> {
    let mut pair = [0u64; 2];
    let args = [0, limit as usize, 0, pair.as_mut_ptr().expose_provenance(), 0, 0];
    // SAFETY: the kernel writes two 64-bit numbers into `pair`.
    unsafe { super::syscall(libc::SYS_prlimit64 as usize, args)? };
    Ok(pair[0])
}

/// Whether this thread has CAP_IPC_LOCK among its effective capabilities. In a user namespace that is no
/// promise, since the kernel wants the capability in the initial one.
pub fn has_cap_ipc_lock() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let mut header = [VERSION_3, 0];
    // Two times effective, permitted, inheritable.
    let mut data = [0u32; 6];
    let args = [header.as_mut_ptr().expose_provenance(), data.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the kernel reads two words from the header and, in version 3, writes six into the data.
    let done = unsafe { super::syscall(libc::SYS_capget as usize, args) };
    done.is_ok() && data[0] & 1 << CAP_IPC_LOCK != 0
}

/// The process id, as its own namespace sees it.
pub fn getpid() -> i32 {
    #[cfg(not(miri))]
    // SAFETY: no arguments; the call cannot fail.
    return unsafe { super::syscall(libc::SYS_getpid as usize, [0; 6]) }.unwrap_or(0) as i32;
    #[cfg(miri)]
    // SAFETY: no arguments.
    unsafe {
        libc::getpid()
    }
}

/// The thread id.
pub fn gettid() -> i32 {
    #[cfg(not(miri))]
    // SAFETY: no arguments; the call cannot fail.
    return unsafe { super::syscall(libc::SYS_gettid as usize, [0; 6]) }.unwrap_or(0) as i32;
    #[cfg(miri)]
    // SAFETY: no arguments.
    unsafe {
        libc::gettid()
    }
}

/// Lets another thread run.
pub fn sched_yield() {
    #[cfg(not(miri))]
    // SAFETY: no arguments; the call cannot fail.
    let _ = unsafe { super::syscall(libc::SYS_sched_yield as usize, [0; 6]) };
    #[cfg(miri)]
    // SAFETY: no arguments.
    unsafe {
        libc::sched_yield();
    }
}

const UNKNOWN_PAGE_SIZE: usize = 1;

/// The operating system's page size in bytes: 4, 16 or 64 KiB.
#[inline]
pub fn page_size() -> usize {
    // Not zero at first, so that it lies with the other small variables and not alone on a page.
    static CACHED: AtomicUsize = AtomicUsize::new(UNKNOWN_PAGE_SIZE);
    let cached = CACHED.load(Ordering::Relaxed);
    if cached != UNKNOWN_PAGE_SIZE { cached } else { ask_page_size(&CACHED) }
}

#[inline(never)]
fn ask_page_size(cache: &AtomicUsize) -> usize {
    #[cfg(not(miri))]
    // SAFETY: getauxval only reads the vector that the kernel passed at the start.
    let size = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    #[cfg(miri)]
    let size = 4096usize;
    // A vector without the entry is not to be expected; every Linux page is then at least this.
    let size = if size.is_power_of_two() { size } else { 4096 };
    cache.store(size, Ordering::Relaxed);
    size
}

/// Registers the calling thread's rseq area, of 32 bytes; `false` where the kernel refuses, or has an area of this thread already.
///
/// # Safety
/// `area` is aligned to 32 bytes and stays valid, for the kernel to read and write, until [`rseq_unregister`] or the thread's
/// end. The descriptors of all sequences have [`RSEQ_SIGNATURE`] before their abort addresses.
#[cfg(target_arch = "x86_64")]
pub unsafe fn rseq_register(area: *mut u8) -> bool {
    // SAFETY: handed on to the caller.
    unsafe { rseq(area, 0) }
}

/// Ends the registration of the calling thread's area; `false` where it is not registered.
///
/// # Safety
/// No sequence of this thread begins afterwards.
#[cfg(target_arch = "x86_64")]
pub unsafe fn rseq_unregister(area: *mut u8) -> bool {
    const UNREGISTER: usize = 1;
    // SAFETY: handed on to the caller.
    unsafe { rseq(area, UNREGISTER) }
}

/// What stands before an abort address: glibc's number, so that whoever registers first serves all.
#[cfg(target_arch = "x86_64")]
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;

#[cfg(target_arch = "x86_64")]
unsafe fn rseq(area: *mut u8, flags: usize) -> bool {
    /// Of the area's first version, which every kernel takes.
    const SIZE: usize = 32;
    let args = [area.expose_provenance(), SIZE, flags, RSEQ_SIGNATURE as usize, 0, 0];
    // SAFETY: handed on to the caller.
    unsafe { super::syscall(libc::SYS_rseq as usize, args) }.is_ok()
}

/// Registers the process for [`membarrier_rseq`]; `false` where the kernel cannot (Linux 5.10).
pub fn membarrier_register_rseq() -> bool {
    const REGISTER_PRIVATE_EXPEDITED_RSEQ: usize = 1 << 8;
    membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0)
}

/// Restarts every restartable sequence that a thread of this process is in on `cpu`; see membarrier(2).
pub fn membarrier_rseq(cpu: usize) -> bool {
    const PRIVATE_EXPEDITED_RSEQ: usize = 1 << 7;
    const ON_CPU: usize = 1;
    membarrier(PRIVATE_EXPEDITED_RSEQ, ON_CPU, cpu)
}

fn membarrier(command: usize, flags: usize, cpu: usize) -> bool {
    // SAFETY: membarrier(2) touches no memory of the process.
    unsafe { super::syscall(libc::SYS_membarrier as usize, [command, flags, cpu, 0, 0, 0]) }.is_ok()
}

/// CPUs that the calling thread may run on; 1 when the kernel does not tell.
pub fn usable_cpus() -> usize {
    // Room for 4096 CPUs; a kernel with more in its set refuses.
    let mut set = [0u64; 64];
    let args = [0, size_of_val(&set), set.as_mut_ptr().expose_provenance(), 0, 0, 0];
    // SAFETY: the kernel writes at most as many bytes as it was told.
    let _ = unsafe { super::syscall(libc::SYS_sched_getaffinity as usize, args) };
    set.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
}

/// One more than the highest number that a CPU of this machine may have; 0 when the kernel does not tell.
pub fn possible_cpus() -> usize {
    let mut buffer = [0; 64];
    let Some(list) = crate::numbers::read_into(c"/sys/devices/system/cpu/possible", &mut buffer) else {
        return 0;
    };
    // A list of ranges such as `0-3,8-11`: the last number in it is the highest.
    let last = list.rsplit(|byte| !byte.is_ascii_digit()).find(|digits| !digits.is_empty());
    last.and_then(crate::numbers::parse).map_or(0, |highest| highest as usize + 1)
}
