//! Backends that only stand for another one.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Tier, Usage};
use crate::hugetlb::Hugetlb;
use crate::mmap::Mmap;
use core::ptr::NonNull;

/// Sends every method of [`PageBackend`] to the backend that `$get` returns.
macro_rules! forward {
    ($get:expr) => {
        fn granule(&self) -> usize {
            $get(self).granule()
        }

        fn granule_of(&self, tier: Tier) -> usize {
            $get(self).granule_of(tier)
        }

        fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
            $get(self).map(size, align)
        }

        unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
            // SAFETY: as the caller vouches.
            unsafe { $get(self).purge(ptr, size, tier) }
        }

        unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
            // SAFETY: as the caller vouches.
            unsafe { $get(self).restore(ptr, size, tier) }
        }

        fn fills_huge_pages(&self, tier: Tier) -> bool {
            $get(self).fills_huge_pages(tier)
        }

        unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
            // SAFETY: as the caller vouches.
            unsafe { $get(self).set_holes(ptr, size, tier, holes) }
        }

        unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
            // SAFETY: as the caller vouches.
            unsafe { $get(self).unmap(ptr, size, tier) }
        }

        unsafe fn grow(
            &self,
            ptr: NonNull<u8>,
            size: usize,
            extra: usize,
            tier: Tier,
        ) -> Result<(), MapError> {
            // SAFETY: as the caller vouches.
            unsafe { $get(self).grow(ptr, size, extra, tier) }
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
            unsafe { $get(self).remap(ptr, size, new_size, align, tier) }
        }

        fn capabilities(&self, tier: Tier) -> Capabilities {
            $get(self).capabilities(tier)
        }

        fn tiers(&self) -> usize {
            $get(self).tiers()
        }

        fn name(&self, tier: Tier) -> &'static str {
            $get(self).name(tier)
        }

        fn usage(&self, tier: Tier) -> Usage {
            $get(self).usage(tier)
        }

        fn after_fork_in_child(&self) {
            $get(self).after_fork_in_child();
        }
    };
}

fn referent<'a, B: ?Sized>(reference: &'a &B) -> &'a B {
    reference
}

// SAFETY: every call goes to the backend behind the reference, whose contract holds.
unsafe impl<B: PageBackend + ?Sized> PageBackend for &B {
    forward!(referent);
}

/// A source of a kind chosen at run time.
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
    forward!(Self::get);
}
