//! Clocks and waiting.

use super::Errno;
use core::ffi::c_int;
use core::sync::atomic::AtomicU32;

/// Seconds and nanoseconds as 64-bit kernels take them.
type Timespec = [i64; 2];

const NANOS: u64 = 1_000_000_000;

fn timespec(nanos: u64) -> Timespec {
    [(nanos / NANOS) as i64, (nanos % NANOS) as i64]
}

/// Nanoseconds since some point in the past, exact.
pub fn clock_monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the same point, at the last tick of the kernel (1 to 10 ms ago at most).
pub fn clock_monotonic_coarse() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// 0 if the clock cannot be read, which only a seccomp filter can bring about.
fn clock(id: c_int) -> u64 {
    #[cfg(not(miri))]
    let now = {
        let mut now: Timespec = [0; 2];
        let args = [id as usize, now.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
        // SAFETY: the kernel writes a timespec into `now`.
        let _ = unsafe { super::syscall(libc::SYS_clock_gettime as usize, args) };
        now
    };
    #[cfg(miri)]
    let now = {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes a timespec into `now`.
        let _ = super::keep_errno(|| unsafe { libc::clock_gettime(id, &mut now) as isize });
        [now.tv_sec, now.tv_nsec]
    };
    now[0] as u64 * NANOS + now[1] as u64
}

/// Sleeps while `word` is `expected`, until woken, for at most `nanos` (`None`: no limit).
///
/// # Errors
/// `EAGAIN`: the word was not `expected`; `ETIMEDOUT`; `EINTR`. The caller looks at the word again in each case.
pub fn futex_wait(word: &AtomicU32, expected: u32, nanos: Option<u64>) -> Result<(), Errno> {
    let timeout = timespec(nanos.unwrap_or(0));
    let timeout = if nanos.is_some() { timeout.as_ptr() } else { core::ptr::null() };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    futex(word, op, expected, timeout).map(|_| ())
}

/// Wakes up to `count` threads that wait on `word`, and returns how many.
pub fn futex_wake(word: &AtomicU32, count: u32) -> usize {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    futex(word, op, count.min(i32::MAX as u32), core::ptr::null()).unwrap_or(0)
}

fn futex(word: &AtomicU32, op: c_int, value: u32, timeout: *const i64) -> Result<usize, Errno> {
    #[cfg(not(miri))]
    // SAFETY: the word and the timeout, if any, live through the call.
    return unsafe {
        let args = [
            word.as_ptr().expose_provenance(),
            op as usize,
            value as usize,
            timeout.expose_provenance(),
            0,
            0,
        ];
        super::syscall(libc::SYS_futex as usize, args)
    };
    #[cfg(miri)]
    // SAFETY: the word and the timeout, if any, live through the call.
    super::keep_errno(|| unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, timeout.cast::<libc::timespec>()) as isize
    })
}

/// Sleeps for `nanos`, or less when a signal comes.
pub fn nanosleep(nanos: u64) {
    let time = timespec(nanos);
    #[cfg(not(miri))]
    // SAFETY: the kernel reads a timespec.
    let _ = unsafe {
        super::syscall(libc::SYS_nanosleep as usize, [time.as_ptr().expose_provenance(), 0, 0, 0, 0, 0])
    };
    #[cfg(miri)]
    // SAFETY: the call reads a timespec.
    let _ = super::keep_errno(|| unsafe {
        libc::nanosleep(time.as_ptr().cast::<libc::timespec>(), core::ptr::null_mut()) as isize
    });
}
