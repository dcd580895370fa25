//! The system call wrappers; what Miri knows runs there too.

use page_backend::sys::{self, Advice, Errno};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[test]
fn anonymous_memory_is_zeroed_and_reads_zero_after_dontneed() {
    let len = 4 * sys::page_size();
    let at = sys::mmap_anonymous(len).unwrap();
    // SAFETY: the mapping is ours, `len` bytes long.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(at.as_ptr(), len);
        assert!(bytes.iter().all(|&b| b == 0));
        bytes.fill(7);
        sys::madvise(at, len, Advice::DontNeed).unwrap();
        let bytes = std::slice::from_raw_parts(at.as_ptr(), len);
        assert!(bytes.iter().all(|&b| b == 0));
        sys::munmap(at, len).unwrap();
    }
}

#[test]
fn page_size_is_a_power_of_two_of_at_least_4k() {
    assert!(sys::page_size().is_power_of_two() && sys::page_size() >= 4096);
}

#[test]
fn clocks_advance() {
    let (fine, coarse) = (sys::clock_monotonic(), sys::clock_monotonic_coarse());
    sys::nanosleep(30_000_000);
    assert!(sys::clock_monotonic() >= fine + 30_000_000);
    assert!(sys::clock_monotonic_coarse() > coarse);
}

#[test]
fn futex_wait_sees_a_changed_word_and_times_out() {
    let word = AtomicU32::new(1);
    assert_eq!(sys::futex_wait(&word, 0, None), Err(Errno::EAGAIN));
    assert_eq!(sys::futex_wait(&word, 1, Some(1_000_000)), Err(Errno::ETIMEDOUT));
    assert_eq!(sys::futex_wake(&word, 1), 0);
}

#[test]
fn futex_wake_wakes() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let waiter = std::thread::spawn(|| {
        while WORD.load(Ordering::Acquire) == 0 {
            let _ = sys::futex_wait(&WORD, 0, None);
        }
    });
    std::thread::sleep(Duration::from_millis(5));
    WORD.store(1, Ordering::Release);
    let start = Instant::now();
    sys::futex_wake(&WORD, u32::MAX);
    waiter.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn write_reaches_the_descriptor_and_reports_errors() {
    assert_eq!(sys::write_all(1, b""), Ok(()));
    assert_eq!(sys::write(-1, b"x"), Err(Errno(libc::EBADF)));
}

#[test]
fn errno_stays() {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = 123 };
    assert!(sys::write(-1, b"x").is_err());
    let at = sys::mmap_anonymous(sys::page_size()).unwrap();
    // SAFETY: the mapping is ours.
    unsafe {
        sys::madvise(at, sys::page_size(), Advice::DontNeed).unwrap();
        sys::munmap(at, sys::page_size()).unwrap();
        assert_eq!(*libc::__errno_location(), 123);
    }
}

#[test]
fn ids_are_those_of_the_standard_library() {
    assert_eq!(sys::getpid() as u32, std::process::id());
    let other = std::thread::spawn(sys::gettid).join().unwrap();
    assert_ne!(other, sys::gettid());
    sys::sched_yield();
}

#[cfg(not(miri))]
mod outside_miri {
    use super::*;
    use page_backend::sys::{Limit, MapFlags};
    use std::ptr::NonNull;

    #[test]
    fn files_are_read() {
        let fd = sys::open(c"/proc/sys/kernel/ostype", libc::O_RDONLY, 0).unwrap();
        let mut buffer = [0; 64];
        let n = sys::read(fd, &mut buffer).unwrap();
        sys::close(fd);
        assert_eq!(buffer[..n], std::fs::read("/proc/sys/kernel/ostype").unwrap()[..]);
        assert_eq!(sys::open(c"/nonexistent/file", libc::O_RDONLY, 0), Err(Errno::ENOENT));
    }

    #[test]
    fn limits_are_those_of_libc() {
        for (ours, theirs) in [(Limit::AddressSpace, libc::RLIMIT_AS), (Limit::Locked, libc::RLIMIT_MEMLOCK)]
        {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the call writes into `limit`.
            assert_eq!(unsafe { libc::getrlimit(theirs, &mut limit) }, 0);
            assert_eq!(sys::getrlimit(ours), Ok(limit.rlim_cur));
        }
    }

    #[test]
    fn noreplace_does_not_replace() {
        let page = sys::page_size();
        let at = sys::mmap_anonymous(2 * page).unwrap();
        // SAFETY: the mapping is ours; without MAP_FIXED nothing is replaced.
        unsafe {
            at.write(5);
            let flags = MapFlags::ANONYMOUS | MapFlags::FIXED_NOREPLACE;
            assert_eq!(sys::mmap(at.as_ptr(), page, flags, -1, 0), Err(Errno::EEXIST));
            assert_eq!(at.read(), 5);
            sys::munmap(at.add(page), page).unwrap();
            let second = sys::mmap(at.add(page).as_ptr(), page, flags, -1, 0);
            assert_eq!(second, Ok(at.add(page)));
            sys::munmap(at, 2 * page).unwrap();
        }
    }

    #[test]
    fn mremap_keeps_content() {
        let page = sys::page_size();
        let at = sys::mmap_anonymous(page).unwrap();
        let target = sys::mmap_anonymous(8 * page).unwrap();
        // SAFETY: all mappings are ours.
        unsafe {
            at.write(9);
            let at = sys::mremap(at, page, 4 * page).unwrap();
            assert_eq!(at.read(), 9);
            assert_eq!(at.add(4 * page - 1).read(), 0);
            sys::mremap_to(at, 4 * page, 8 * page, target).unwrap();
            assert_eq!(target.read(), 9);
            sys::munmap(target, 8 * page).unwrap();
        }
    }

    #[test]
    fn bad_ranges_are_errors() {
        let odd = NonNull::new(std::ptr::without_provenance_mut::<u8>(4097)).unwrap();
        // SAFETY: the kernel refuses misaligned addresses before it does anything.
        unsafe {
            assert_eq!(sys::munmap(odd, 4096), Err(Errno::EINVAL));
            assert_eq!(sys::madvise(odd, 4096, Advice::DontNeed), Err(Errno::EINVAL));
        }
    }
}
