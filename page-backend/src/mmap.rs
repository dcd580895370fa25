//! Ordinary anonymous memory.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use crate::counters::Bytes;
use crate::error::check_request;
use crate::pieces;
use crate::sys::{self, Advice, Errno, MapFlags};
use crate::thp::{self, ThpPolicy};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Private anonymous memory on pages of the operating system's size, with or without transparent huge pages.
///
/// `remap` keeps an alignment that a run has; it does not move a run to get a wider one.
///
/// Under Miri `unmap` keeps the address space, since Miri cannot unmap parts of a mapping, and `grow` and
/// `remap` refuse.
#[derive(Debug)]
pub struct Mmap {
    thp: ThpPolicy,
    mapped: Bytes,
    /// The process locks its memory (mlockall, or a `Locked` around this), so that plain MADV_DONTNEED fails.
    locked: AtomicBool,
}

impl Mmap {
    /// A backend with its own accounts, and huge pages as the system gives them.
    pub const fn new() -> Self {
        Self::with_thp(ThpPolicy::Default)
    }

    /// A backend with a policy for transparent huge pages.
    pub const fn with_thp(thp: ThpPolicy) -> Self {
        Self { thp, mapped: Bytes::new(), locked: AtomicBool::new(false) }
    }

    /// The policy for transparent huge pages.
    pub const fn thp(&self) -> ThpPolicy {
        self.thp
    }

    /// Asks the kernel to put a range on huge pages now. It may stall for milliseconds: not for a malloc path.
    ///
    /// # Errors
    /// [`Reason::Unsupported`] unless the policy is [`ThpPolicy::Collapse`] and the kernel has
    /// MADV_COLLAPSE (Linux 6.1); [`Reason::NoMemory`] when it found no huge page.
    ///
    /// # Safety
    /// The range is mapped by this backend and made of whole operating-system pages.
    pub unsafe fn collapse(&self, ptr: NonNull<u8>, size: usize) -> Result<(), MapError> {
        if self.thp != ThpPolicy::Collapse {
            return Err(MapError::refused(Reason::Unsupported, Step::Populate));
        }
        // SAFETY: the range is ours, as the caller vouches; collapsing changes no content.
        unsafe { sys::madvise(ptr, size, Advice::Collapse) }
            .map_err(|errno| MapError::kernel(errno, Step::Populate))
    }

    /// Tells the kernel the policy. Kernels without transparent huge pages refuse, which changes nothing.
    fn advise(&self, ptr: NonNull<u8>, size: usize) {
        let advice = match self.thp {
            ThpPolicy::Default => return,
            ThpPolicy::Never => Advice::NoHugePage,
            ThpPolicy::Madvise | ThpPolicy::Collapse => Advice::HugePage,
        };
        // SAFETY: the range was just mapped by us; the advice drops no content.
        let _ = unsafe { sys::madvise(ptr, size, advice) };
    }
}

impl Default for Mmap {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: memory comes from mmap(2) with MAP_PRIVATE and without MAP_FIXED, so it is zeroed and exclusive;
// munmap(2) and madvise(2) act on the exact range, whose bounds are whole pages by the caller's contract;
// private anonymous memory reads as zero after MADV_DONTNEED; a failed call leaves mappings as they were.
unsafe impl PageBackend for Mmap {
    fn granule(&self) -> usize {
        sys::page_size()
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        check_request(size, align, self.granule())?;
        let ptr = map_aligned(size, align).map_err(|errno| MapError::mapping(errno, Step::Map, size))?;
        self.advise(ptr, size);
        self.mapped.add(size);
        Ok(Mapping { ptr, len: size, tier: Tier(0) })
    }

    #[cold]
    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, _tier: Tier) -> Result<(), MapError> {
        let advise = |advice| loop {
            // SAFETY: the range is ours and nothing uses its content, as the caller vouches.
            match unsafe { sys::madvise(ptr, size, advice) } {
                Err(Errno::EINTR) => {}
                other => return other,
            }
        };
        let failed = |errno| MapError::kernel(errno, Step::Purge);
        if self.locked.load(Relaxed) {
            return advise(Advice::DontNeedLocked).map_err(failed);
        }
        match advise(Advice::DontNeed) {
            Ok(()) => Ok(()),
            // Locked memory. The newer advice works on both kinds, so it is the first choice from now on.
            Err(Errno::EINVAL) => {
                advise(Advice::DontNeedLocked).map_err(failed)?;
                self.locked.store(true, Relaxed);
                Ok(())
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    fn fills_huge_pages(&self, _tier: Tier) -> bool {
        thp::in_use(self.thp)
    }

    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, _tier: Tier, holes: bool) {
        if thp::in_use(self.thp) {
            let advice = if holes { Advice::NoHugePage } else { Advice::HugePage };
            // SAFETY: the range is ours; the advice drops no content. A refusal costs memory, not correctness.
            let _ = unsafe { sys::madvise(ptr, size, advice) };
        }
    }

    #[cold]
    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, _tier: Tier) -> Result<(), MapError> {
        if !cfg!(miri) {
            // SAFETY: the range is ours and not used again, as the caller vouches.
            unsafe { sys::munmap(ptr, size) }.map_err(|errno| MapError::kernel(errno, Step::Unmap))?;
        }
        self.mapped.sub(size);
        Ok(())
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, _tier: Tier) -> Result<(), MapError> {
        check_request(extra, self.granule(), self.granule())?;
        let at = behind(ptr, size)?;
        // A mapping made longer stays one mapping, which can be moved in one piece.
        // SAFETY: the last page of the run lies in one mapping of ours.
        let longer = !cfg!(miri)
            && unsafe {
                let page = sys::page_size();
                sys::mremap_in_place(ptr.add(size - page), page, page + extra).is_ok()
            };
        if !longer {
            map_at(at, extra, MapFlags::ANONYMOUS)
                .map_err(|errno| MapError::mapping(errno, Step::Remap, extra))?;
            self.advise(at, extra);
        }
        self.mapped.add(extra);
        Ok(())
    }

    #[cold]
    unsafe fn remap(
        &self,
        ptr: NonNull<u8>,
        size: usize,
        new_size: usize,
        align: usize,
        tier: Tier,
    ) -> Result<Mapping, MapError> {
        check_request(new_size, align, self.granule())?;
        if cfg!(miri) {
            return Err(MapError::refused(Reason::Unsupported, Step::Remap));
        }
        let failed = |errno| MapError::mapping(errno, Step::Remap, new_size);
        if !is_aligned(ptr, align) {
            return Err(MapError::refused(Reason::Unsupported, Step::Remap));
        }
        // Besides being the best outcome, this finds out whether the kernel would move the range at all,
        // before anything is mapped for it.
        // SAFETY: the run is ours, and its tail is not used again, as the caller vouches.
        match unsafe { sys::mremap_in_place(ptr, size, new_size) } {
            Ok(()) => {
                self.mapped.resize(size, new_size);
                return Ok(Mapping { ptr, len: new_size, tier });
            }
            // No room.
            Err(Errno::ENOMEM) if new_size > size => {}
            Err(Errno::EFAULT) if new_size > size && pieces::can_be_moved() => {}
            Err(errno) => return Err(failed(errno)),
        }
        let target = map_aligned(new_size, align).map_err(failed)?;
        // SAFETY: the caller owns the old range, and the target was just mapped and is not in use.
        unsafe { pieces::move_all(ptr, size, new_size, target) }.map_err(failed)?;
        self.mapped.resize(size, new_size);
        Ok(Mapping { ptr: target, len: new_size, tier })
    }

    fn capabilities(&self, _tier: Tier) -> Capabilities {
        let always = Capabilities::PARTIAL_PURGE | Capabilities::ZERO_AFTER_PURGE | Capabilities::FORK_COPIES;
        if cfg!(miri) { always } else { always | Capabilities::REMAP }
    }

    fn name(&self, _tier: Tier) -> &'static str {
        match self.thp {
            ThpPolicy::Default | ThpPolicy::Never => "mmap",
            ThpPolicy::Madvise | ThpPolicy::Collapse => "mmap-thp",
        }
    }

    fn usage(&self, _tier: Tier) -> Usage {
        Usage { mapped: self.mapped.get(), ..Usage::default() }
    }
}

fn is_aligned(ptr: NonNull<u8>, align: usize) -> bool {
    ptr.addr().get() & (align - 1) == 0
}

/// Maps anonymous memory at an alignment.
fn map_aligned(size: usize, align: usize) -> Result<NonNull<u8>, Errno> {
    // Newer kernels align anonymous mappings of 2 MiB and more by themselves.
    let ptr = sys::mmap_anonymous(size)?;
    if is_aligned(ptr, align) {
        return Ok(ptr);
    }
    // SAFETY: the mapping was just made and nobody knows of it.
    let _ = unsafe { discard(ptr, size) };
    let slack = align - sys::page_size();
    let total = size.checked_add(slack).ok_or(Errno::ENOMEM)?;
    let ptr = sys::mmap_anonymous(total)?;
    // The mapping ends below the top of the address space, so this does not overflow.
    let head = ptr.addr().get().wrapping_neg() & (align - 1);
    // SAFETY: head <= slack, so all three parts lie within the mapping; the outer ones are used by nobody.
    unsafe {
        let aligned = ptr.add(head);
        let trimmed = discard(ptr, head).and_then(|()| discard(aligned.add(size), slack - head));
        if let Err(errno) = trimmed {
            // Too many mappings to split one more. If the rest cannot be unmapped either, it is only
            // address space: no page of it was touched.
            let _ = discard(ptr, total);
            return Err(errno);
        }
        Ok(aligned)
    }
}

/// Unmaps a range that may be empty.
///
/// # Safety
/// The range is ours and used by nobody.
unsafe fn discard(ptr: NonNull<u8>, size: usize) -> Result<(), Errno> {
    if size == 0 || cfg!(miri) {
        return Ok(());
    }
    // SAFETY: as the caller vouches.
    unsafe { sys::munmap(ptr, size) }
}

/// The address directly behind a run.
pub(crate) fn behind(ptr: NonNull<u8>, size: usize) -> Result<NonNull<u8>, MapError> {
    let end = ptr.addr().get().checked_add(size);
    end.and_then(|end| NonNull::new(ptr::with_exposed_provenance_mut(end)))
        .ok_or(MapError::refused(Reason::BadRequest, Step::Check))
}

/// Maps at exactly `at` if nothing is there.
pub(crate) fn map_at(at: NonNull<u8>, size: usize, flags: MapFlags) -> Result<(), Errno> {
    // SAFETY: an anonymous mapping that replaces nothing.
    let got = unsafe { sys::mmap(at.as_ptr(), size, flags | MapFlags::FIXED_NOREPLACE, -1, 0) }?;
    if got == at {
        return Ok(());
    }
    // A kernel that takes the address as a hint.
    // SAFETY: the mapping was just made and nobody knows of it.
    let _ = unsafe { discard(got, size) };
    Err(Errno::EEXIST)
}
