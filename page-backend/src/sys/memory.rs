//! Address space and physical memory.

use super::Errno;
use core::ffi::c_int;
use core::ptr::{self, NonNull};

bitflags::bitflags! {
    /// Flags of [`mmap`] beside `MAP_PRIVATE`, which is always set: memory shared with a forked child
    /// would be handed out twice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapFlags: c_int {
        /// Not backed by a file.
        const ANONYMOUS = libc::MAP_ANONYMOUS;
        /// At exactly this address or not at all; kernels before 4.17 take it as a hint.
        const FIXED_NOREPLACE = libc::MAP_FIXED_NOREPLACE;
        /// Take no part in the accounting of committed memory.
        const NORESERVE = libc::MAP_NORESERVE;
        /// On pages of the huge page pool.
        const HUGETLB = libc::MAP_HUGETLB;
        /// With [`HUGETLB`](Self::HUGETLB): pages of 2 MiB.
        const HUGE_2MB = 21 << libc::MAP_HUGE_SHIFT;
        /// With [`HUGETLB`](Self::HUGETLB): pages of 1 GiB.
        const HUGE_1GB = 30 << libc::MAP_HUGE_SHIFT;
    }
}

/// An advice for [`madvise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Drop content and physical memory; private anonymous memory reads as zero afterwards.
    DontNeed = libc::MADV_DONTNEED,
    /// The same for locked memory too (Linux 5.18).
    DontNeedLocked = 24,
    /// Transparent huge pages are welcome.
    HugePage = libc::MADV_HUGEPAGE,
    /// May be reclaimed before others (Linux 5.4); refused for locked memory.
    Cold = 20,
    /// No transparent huge pages.
    NoHugePage = libc::MADV_NOHUGEPAGE,
    /// Take memory now for writing, with an error if there is none (Linux 5.14).
    PopulateWrite = 23,
    /// Make transparent huge pages now (Linux 6.1).
    Collapse = 25,
    /// Leave out of core files.
    DontDump = libc::MADV_DONTDUMP,
    /// A forked child finds zeros here.
    WipeOnFork = 18,
    /// A forked child has nothing here.
    DontFork = libc::MADV_DONTFORK,
}

/// Maps `len` bytes of private memory, readable and writable, at `addr` (or anywhere, if null).
///
/// # Errors
/// As mmap(2).
///
/// # Safety
/// Without flags that replace mappings, as here, the call touches no memory in use; `fd` must be open for
/// reading unless the mapping is anonymous.
#[cfg(not(miri))]
pub unsafe fn mmap(
    addr: *mut u8,
    len: usize,
    flags: MapFlags,
    fd: c_int,
    offset: usize,
) -> Result<NonNull<u8>, Errno> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags.bits() | libc::MAP_PRIVATE;
    let args = [addr as usize, len, prot as usize, flags as usize, fd as isize as usize, offset];
    // SAFETY: no MAP_FIXED among the flags, so existing mappings stay as they are.
    let at = unsafe { super::syscall(libc::SYS_mmap as usize, args)? };
    NonNull::new(ptr::with_exposed_provenance_mut(at)).ok_or(Errno::ENOMEM)
}

/// Maps `len` bytes of private memory; Miri knows anonymous memory without a wished address only.
///
/// # Errors
/// `EINVAL` for flags that Miri does not know.
///
/// # Safety
/// As outside Miri.
#[cfg(miri)]
pub unsafe fn mmap(
    _addr: *mut u8,
    len: usize,
    flags: MapFlags,
    _fd: c_int,
    _offset: usize,
) -> Result<NonNull<u8>, Errno> {
    if flags != MapFlags::ANONYMOUS {
        return Err(Errno::EINVAL);
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let mut at = ptr::null_mut();
    super::keep_errno(|| {
        // SAFETY: a fresh anonymous mapping.
        at =
            unsafe { libc::mmap(ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if at == libc::MAP_FAILED { -1 } else { 0 }
    })?;
    NonNull::new(at.cast()).ok_or(Errno::ENOMEM)
}

/// Maps `len` bytes of zeroed memory anywhere, aligned to the operating system's page.
///
/// # Errors
/// As mmap(2): `ENOMEM` above all.
pub fn mmap_anonymous(len: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    unsafe { mmap(ptr::null_mut(), len, MapFlags::ANONYMOUS, -1, 0) }
}

/// Unmaps whole pages. Under Miri the range must be one whole mapping.
///
/// # Errors
/// `ENOMEM` when splitting a mapping would exceed `vm.max_map_count`; `EINVAL` for misaligned ranges.
///
/// # Safety
/// The range is the caller's own and nothing uses it any more.
pub unsafe fn munmap(at: NonNull<u8>, len: usize) -> Result<(), Errno> {
    #[cfg(not(miri))]
    // SAFETY: the caller owns the range.
    unsafe {
        super::syscall(libc::SYS_munmap as usize, [at.as_ptr() as usize, len, 0, 0, 0, 0])?;
    }
    #[cfg(miri)]
    // SAFETY: the caller owns the range.
    super::keep_errno(|| unsafe { libc::munmap(at.as_ptr().cast(), len) as isize })?;
    Ok(())
}

/// Advises the kernel about a range of whole pages.
///
/// Under Miri the two advices that drop content write zeros, and the others do nothing.
///
/// # Errors
/// As madvise(2).
///
/// # Safety
/// The range is the caller's own; for advices that drop content, nothing uses it.
pub unsafe fn madvise(at: NonNull<u8>, len: usize, advice: Advice) -> Result<(), Errno> {
    #[cfg(not(miri))]
    // SAFETY: the caller owns the range, and its content if the advice drops it.
    unsafe {
        let args = [at.as_ptr().expose_provenance(), len, advice as i32 as usize, 0, 0, 0];
        super::syscall(libc::SYS_madvise as usize, args)?;
    }
    #[cfg(miri)]
    if matches!(advice, Advice::DontNeed | Advice::DontNeedLocked) {
        // SAFETY: the caller owns the range and its content.
        unsafe { ptr::write_bytes(at.as_ptr(), 0, len) };
    }
    Ok(())
}

/// Resizes a mapping where it is.
///
/// # Errors
/// `ENOMEM` if there is no room behind it; others, `EFAULT` above all, if the range is not one mapping or a
/// limit forbids it. The mapping is then as before.
///
/// # Safety
/// The old range is the caller's, and after success what a smaller size cuts off is not used.
pub unsafe fn mremap_in_place(at: NonNull<u8>, old_len: usize, new_len: usize) -> Result<(), Errno> {
    // SAFETY: the caller owns the old range, and nothing else is unmapped.
    unsafe {
        let args = [at.as_ptr().expose_provenance(), old_len, new_len, 0, 0, 0];
        super::syscall(libc::SYS_mremap as usize, args)?;
    }
    Ok(())
}

/// Moves or resizes a mapping; it may go anywhere.
///
/// # Errors
/// As mremap(2); the old mapping is then as before.
///
/// # Safety
/// The old range is one mapping of the caller's, and after success its old address is not used.
pub unsafe fn mremap(at: NonNull<u8>, old_len: usize, new_len: usize) -> Result<NonNull<u8>, Errno> {
    let args = [at.as_ptr().expose_provenance(), old_len, new_len, libc::MREMAP_MAYMOVE as usize, 0, 0];
    // SAFETY: the caller owns the old range.
    let to = unsafe { super::syscall(libc::SYS_mremap as usize, args)? };
    NonNull::new(ptr::with_exposed_provenance_mut(to)).ok_or(Errno::ENOMEM)
}

/// Moves a mapping to `to`, in place of what is mapped there.
///
/// # Errors
/// As mremap(2). The kernel unmaps the target first, so after an error it may be gone.
///
/// # Safety
/// Both ranges are the caller's own; after success the old address is not used.
pub unsafe fn mremap_to(
    at: NonNull<u8>,
    old_len: usize,
    new_len: usize,
    to: NonNull<u8>,
) -> Result<(), Errno> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    let args = [at.as_ptr().expose_provenance(), old_len, new_len, flags, to.as_ptr().expose_provenance(), 0];
    // SAFETY: the caller owns both ranges.
    unsafe { super::syscall(libc::SYS_mremap as usize, args)? };
    Ok(())
}

/// As [`mremap_to`] with the old length, but the old range stays mapped, without its content (Linux 5.7).
///
/// # Errors
/// As [`mremap_to`], and `EINVAL` from older kernels.
///
/// # Safety
/// Both ranges are the caller's own and of private anonymous memory.
pub unsafe fn mremap_keeping(at: NonNull<u8>, len: usize, to: NonNull<u8>) -> Result<(), Errno> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) as usize;
    let args = [at.as_ptr().expose_provenance(), len, len, flags, to.as_ptr().expose_provenance(), 0];
    // SAFETY: the caller owns both ranges.
    unsafe { super::syscall(libc::SYS_mremap as usize, args)? };
    Ok(())
}

/// Whether a range lies in one mapping, so that it can be moved. Asks the kernel to make it longer by a page, which looks
/// at the range first; a page that it gives is given back.
///
/// # Errors
/// Any other answer of the kernel.
///
/// # Safety
/// The range is the caller's own.
pub unsafe fn is_one_mapping(at: NonNull<u8>, len: usize) -> Result<bool, Errno> {
    let longer = len + super::page_size();
    // SAFETY: the caller owns the range. A page behind it that the kernel gives was nobody's, and is known to nobody.
    unsafe {
        match mremap_in_place(at, len, longer) {
            Err(Errno::EFAULT) => Ok(false),
            // No room, or a limit.
            Err(Errno::ENOMEM | Errno::EAGAIN) => Ok(true),
            Err(errno) => Err(errno),
            Ok(()) => mremap_in_place(at, longer, len).map(|()| true),
        }
    }
}

/// Takes and locks the memory of a range of whole pages.
///
/// # Errors
/// `ENOMEM`, `EAGAIN` or `EPERM` when a limit forbids it; a part may be locked then.
///
/// # Safety
/// The range is the caller's own.
pub unsafe fn mlock(at: NonNull<u8>, len: usize) -> Result<(), Errno> {
    // SAFETY: locking changes no content.
    unsafe { super::syscall(libc::SYS_mlock as usize, [at.as_ptr().expose_provenance(), len, 0, 0, 0, 0])? };
    Ok(())
}

/// Locks each page of a range when it is first touched (Linux 4.4).
///
/// # Errors
/// As [`mlock`], and `ENOSYS`.
///
/// # Safety
/// The range is the caller's own.
pub unsafe fn mlock_on_fault(at: NonNull<u8>, len: usize) -> Result<(), Errno> {
    let args = [at.as_ptr().expose_provenance(), len, libc::MLOCK_ONFAULT as usize, 0, 0, 0];
    // SAFETY: locking changes no content.
    unsafe { super::syscall(libc::SYS_mlock2 as usize, args)? };
    Ok(())
}

/// Unlocks a range of whole pages.
///
/// # Errors
/// As munlock(2).
///
/// # Safety
/// The range is the caller's own.
pub unsafe fn munlock(at: NonNull<u8>, len: usize) -> Result<(), Errno> {
    // SAFETY: unlocking changes no content.
    unsafe {
        super::syscall(libc::SYS_munlock as usize, [at.as_ptr().expose_provenance(), len, 0, 0, 0, 0])?
    };
    Ok(())
}
