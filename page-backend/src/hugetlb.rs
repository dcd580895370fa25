//! Memory on pages of the huge page pool.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use crate::counters::Bytes;
use crate::error::{align_up, check_request};
use crate::mmap::{behind, map_at};
use crate::pool::{self, HugeSize};
use crate::populate::populate;
use crate::sys::{self, Errno, MapFlags};
use core::ffi::CStr;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The path of a mounted hugetlbfs, kept in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountPath {
    bytes: [u8; Self::MAX + 1],
}

impl MountPath {
    /// The longest path in bytes.
    pub const MAX: usize = 127;

    /// Takes over a path; `None` if it is empty, longer than [`MAX`](Self::MAX) or contains a zero byte.
    pub const fn new(path: &[u8]) -> Option<Self> {
        if path.is_empty() || path.len() > Self::MAX {
            return None;
        }
        let mut bytes = [0; Self::MAX + 1];
        let mut i = 0;
        while i < path.len() {
            if path[i] == 0 {
                return None;
            }
            bytes[i] = path[i];
            i += 1;
        }
        Some(Self { bytes })
    }

    /// The path as a C string.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// How a [`Hugetlb`] reaches its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeSource {
    /// Anonymous mappings (MAP_HUGETLB); needs no mount.
    Anonymous,
    /// Unnamed files on a mounted hugetlbfs of the same page size, one for each run, so that no file is
    /// shared with a forked child.
    Mount(MountPath),
}

/// Private memory on huge pages of a pool.
///
/// Every page is taken when the run is mapped, so that an empty pool or a control group's limit is an error
/// here and never a SIGBUS later. Memory returns to the pool by `unmap` alone: MADV_DONTNEED would keep the
/// reservation, and others could not use the pages.
///
/// # Fork
/// A child of fork shares the pages until one side writes. The writer then needs a free huge page; if the
/// pool has none when the *parent* writes, the kernel takes the page from the child, which dies of SIGBUS
/// when it touches it. After [`after_fork_in_child`](PageBackend::after_fork_in_child) the child gets no new
/// memory here ([`Reason::Forked`]). posix_spawn, popen and vfork copy nothing and are safe.
#[derive(Debug)]
pub struct Hugetlb {
    size: HugeSize,
    source: HugeSource,
    mapped: Bytes,
    forked: AtomicBool,
}

impl Hugetlb {
    /// A backend on anonymous mappings.
    pub const fn new(size: HugeSize) -> Self {
        Self::with_source(size, HugeSource::Anonymous)
    }

    /// A backend on a source of choice.
    pub const fn with_source(size: HugeSize, source: HugeSource) -> Self {
        Self { size, source, mapped: Bytes::new(), forked: AtomicBool::new(false) }
    }

    /// The page size of the pool.
    pub const fn huge_size(&self) -> HugeSize {
        self.size
    }

    /// Maps with a reservation, without taking pages yet.
    fn reserve(&self, size: usize, align: usize) -> Result<NonNull<u8>, Errno> {
        if align <= self.size.bytes() {
            return match &self.source {
                // SAFETY: an anonymous mapping at an address of the kernel's choice.
                HugeSource::Anonymous => unsafe {
                    sys::mmap(ptr::null_mut(), size, self.size.flags(), -1, 0)
                },
                HugeSource::Mount(path) => self.reserve_file(path.as_c_str(), ptr::null_mut(), size),
            };
        }
        // Trimming a larger mapping would reserve more pages than needed for a moment. So find a place with
        // ordinary memory, and try again if another thread takes it first.
        let total = size.checked_add(align).ok_or(Errno::ENOMEM)?;
        for _ in 0..8 {
            let probe = sys::mmap_anonymous(total)?;
            // SAFETY: the mapping was just made and nobody knows of it.
            unsafe { sys::munmap(probe, total)? };
            let at = align_up(probe.addr().get(), align).map(ptr::with_exposed_provenance_mut);
            let Some(at) = at.and_then(NonNull::new) else { continue };
            let got = match &self.source {
                HugeSource::Anonymous => map_at(at, size, self.size.flags()).map(|()| at),
                HugeSource::Mount(path) => self.reserve_file(path.as_c_str(), at.as_ptr(), size),
            };
            match got {
                Err(Errno::EEXIST) => {}
                other => return other,
            }
        }
        Err(Errno::ENOMEM)
    }

    /// Maps a fresh unnamed file of a hugetlbfs, at `at` or anywhere if null.
    #[cold]
    fn reserve_file(&self, mount: &CStr, at: *mut u8, size: usize) -> Result<NonNull<u8>, Errno> {
        let fd = sys::open(mount, libc::O_TMPFILE | libc::O_RDWR, 0o600)?;
        let mapped = match sys::stat_fs_page_size(fd) {
            Ok(Some(bytes)) if bytes == self.size.bytes() => {
                let flags = if at.is_null() { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
                // SAFETY: the descriptor is open for reading, and nothing is replaced.
                unsafe { sys::mmap(at, size, flags, fd, 0) }
            }
            Ok(_) => Err(Errno::ENODEV),
            Err(errno) => Err(errno),
        };
        sys::close(fd);
        mapped
    }

    /// Takes every page of a reserved range, or gives the whole range back.
    #[cold]
    fn take(&self, ptr: NonNull<u8>, size: usize) -> Result<(), MapError> {
        // SAFETY: the range was just mapped by us and holds nothing.
        let Err(errno) = (unsafe { populate(ptr, size, self.size.bytes()) }) else { return Ok(()) };
        let reason = pool::populate_reason(self.size, errno);
        // SAFETY: nobody knows of the range. It consists of whole huge pages. If even this fails, the range
        // stays mapped and reserved, which the kernel's own counters show; there is nothing left to try.
        let _ = unsafe { sys::munmap(ptr, size) };
        Err(MapError { reason, step: Step::Populate, errno: Some(errno) })
    }

    fn check_forked(&self) -> Result<(), MapError> {
        if self.forked.load(Relaxed) {
            return Err(MapError::refused(Reason::Forked, Step::Check));
        }
        Ok(())
    }

    #[cold]
    fn reserve_error(&self, errno: Errno, step: Step, size: usize) -> MapError {
        let mut error = MapError::mapping(errno, step, size);
        if errno == Errno::ENOMEM && error.reason == Reason::NoMemory {
            error.reason = pool::reserve_reason(self.size, size);
        }
        error
    }
}

// SAFETY: memory comes from mmap(2) with MAP_PRIVATE and without MAP_FIXED, so it is zeroed and exclusive;
// all its pages are taken before it is handed out, so touching it cannot fail; only whole huge pages are
// unmapped, so nothing is rounded over neighbours; a failed map or grow unmaps what it mapped.
unsafe impl PageBackend for Hugetlb {
    fn granule(&self) -> usize {
        self.size.bytes()
    }

    #[cold]
    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        check_request(size, align, self.granule())?;
        self.check_forked()?;
        let ptr = self.reserve(size, align).map_err(|errno| self.reserve_error(errno, Step::Map, size))?;
        self.take(ptr, size)?;
        self.mapped.add(size);
        Ok(Mapping { ptr, len: size, tier: Tier(0) })
    }

    unsafe fn purge(&self, _ptr: NonNull<u8>, _size: usize, _tier: Tier) -> Result<(), MapError> {
        Err(MapError::refused(Reason::Unsupported, Step::Purge))
    }

    #[cold]
    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, _tier: Tier) -> Result<(), MapError> {
        let mask = self.granule() - 1;
        if (ptr.addr().get() | size) & mask != 0 || size == 0 {
            return Err(MapError::refused(Reason::BadRequest, Step::Unmap));
        }
        // SAFETY: the range is ours, made of whole huge pages and not used again, as the caller vouches.
        unsafe { sys::munmap(ptr, size) }.map_err(|errno| MapError::kernel(errno, Step::Unmap))?;
        self.mapped.sub(size);
        Ok(())
    }

    #[cold]
    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, _tier: Tier) -> Result<(), MapError> {
        check_request(extra, self.granule(), self.granule())?;
        self.check_forked()?;
        let at = behind(ptr, size)?;
        let reserved = match &self.source {
            HugeSource::Anonymous => map_at(at, extra, self.size.flags()),
            HugeSource::Mount(path) => self.reserve_file(path.as_c_str(), at.as_ptr(), extra).map(|_| ()),
        };
        reserved.map_err(|errno| self.reserve_error(errno, Step::Remap, extra))?;
        self.take(at, extra)?;
        self.mapped.add(extra);
        Ok(())
    }

    fn capabilities(&self, _tier: Tier) -> Capabilities {
        Capabilities::HUGE | Capabilities::LOCKED | Capabilities::POPULATED
    }

    fn name(&self, _tier: Tier) -> &'static str {
        match self.size {
            HugeSize::Size2M => "hugetlb-2M",
            HugeSize::Size1G => "hugetlb-1G",
        }
    }

    fn usage(&self, _tier: Tier) -> Usage {
        let mapped = self.mapped.get();
        Usage { mapped, huge: mapped, pinned: mapped, ..Usage::default() }
    }

    fn after_fork_in_child(&self) {
        self.forked.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::MountPath;

    #[test]
    fn paths_fit_or_are_refused() {
        assert_eq!(MountPath::new(b"/dev/hugepages").unwrap().as_c_str(), c"/dev/hugepages");
        assert!(MountPath::new(&[b'x'; MountPath::MAX]).is_some());
        assert!(MountPath::new(&[b'x'; MountPath::MAX + 1]).is_none());
        assert!(MountPath::new(b"").is_none());
        assert!(MountPath::new(b"a\0b").is_none());
    }
}
