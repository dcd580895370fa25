//! A source of a kind chosen at run time.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Tier, Usage};
use crate::hugetlb::Hugetlb;
use crate::mmap::Mmap;
use core::ptr::NonNull;

/// One of the sources of memory that need no other backend.
#[derive(Debug)]
pub(crate) enum AnyPages {
    Mmap(Mmap),
    Hugetlb(Hugetlb),
}

impl AnyPages {
    fn get(&self) -> &dyn PageBackend {
        match self {
            Self::Mmap(pages) => pages,
            Self::Hugetlb(pages) => pages,
        }
    }
}

// SAFETY: every call goes to the one backend inside, whose contract holds.
unsafe impl PageBackend for AnyPages {
    fn granule(&self) -> usize {
        self.get().granule()
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        self.get().map(size, align)
    }

    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.get().purge(ptr, size, tier) }
    }

    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
        // SAFETY: as the caller vouches.
        unsafe { self.get().set_holes(ptr, size, tier, holes) }
    }

    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.get().unmap(ptr, size, tier) }
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.get().grow(ptr, size, extra, tier) }
    }

    unsafe fn remap(
        &self,
        ptr: NonNull<u8>,
        size: usize,
        new_size: usize,
        align: usize,
        tier: Tier,
    ) -> Result<Mapping, MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.get().remap(ptr, size, new_size, align, tier) }
    }

    fn capabilities(&self, tier: Tier) -> Capabilities {
        self.get().capabilities(tier)
    }

    fn name(&self, tier: Tier) -> &'static str {
        self.get().name(tier)
    }

    fn usage(&self, tier: Tier) -> Usage {
        self.get().usage(tier)
    }

    fn after_fork_in_child(&self) {
        self.get().after_fork_in_child();
    }
}
