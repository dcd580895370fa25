//! Files: just enough to read `/proc`, to write messages and to use a hugetlbfs mount.

use super::Errno;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;

/// Opens a file and returns its descriptor. `O_CLOEXEC` is added to `flags`.
///
/// # Errors
/// As open(2).
pub fn open(path: &CStr, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    let flags = flags | libc::O_CLOEXEC;
    let args = [
        libc::AT_FDCWD as isize as usize,
        path.as_ptr().expose_provenance(),
        flags as usize,
        mode as usize,
        0,
        0,
    ];
    // SAFETY: the path is a C string that outlives the call.
    Ok(unsafe { super::syscall(libc::SYS_openat as usize, args)? } as c_int)
}

/// Closes a descriptor. It is gone in every case, so there is nothing to report.
pub fn close(fd: c_int) {
    // SAFETY: the call touches no memory.
    let _ = unsafe { super::syscall(libc::SYS_close as usize, [fd as isize as usize, 0, 0, 0, 0, 0]) };
}

/// Reads up to `buffer.len()` bytes; 0 at the end of the file.
///
/// # Errors
/// As read(2), `EINTR` included.
pub fn read(fd: c_int, buffer: &mut [u8]) -> Result<usize, Errno> {
    let args = [fd as isize as usize, buffer.as_mut_ptr().expose_provenance(), buffer.len(), 0, 0, 0];
    // SAFETY: the buffer is exclusively borrowed.
    unsafe { super::syscall(libc::SYS_read as usize, args) }
}

/// Writes up to `bytes.len()` bytes and returns how many.
///
/// # Errors
/// As write(2), `EINTR` included.
pub fn write(fd: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    #[cfg(not(miri))]
    // SAFETY: the bytes are borrowed for the call.
    return unsafe {
        super::syscall(
            libc::SYS_write as usize,
            [fd as isize as usize, bytes.as_ptr().expose_provenance(), bytes.len(), 0, 0, 0],
        )
    };
    #[cfg(miri)]
    // SAFETY: the bytes are borrowed for the call.
    super::keep_errno(|| unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// Writes all bytes, through interruptions and short writes.
///
/// # Errors
/// The first error other than `EINTR`; a part may be written.
pub fn write_all(fd: c_int, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The block size of the file system that an open file is on; for hugetlbfs that is its page size.
/// `None` if the file system is not hugetlbfs.
///
/// # Errors
/// As fstatfs(2).
pub fn stat_fs_page_size(fd: c_int) -> Result<Option<usize>, Errno> {
    let mut info = MaybeUninit::<libc::statfs>::zeroed();
    let args = [fd as isize as usize, info.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the kernel writes at most a `struct statfs`, which is what the buffer is.
    unsafe { super::syscall(libc::SYS_fstatfs as usize, args)? };
    // SAFETY: all zero is a valid value, and the kernel has filled it.
    let info = unsafe { info.assume_init() };
    Ok((info.f_type as u64 & 0xffff_ffff == libc::HUGETLBFS_MAGIC as u64).then_some(info.f_bsize as usize))
}
