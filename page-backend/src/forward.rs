//! Backends that only stand for others.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Tier, Usage};
use crate::hugetlb::Hugetlb;
use crate::mmap::Mmap;
use core::ptr::NonNull;

/// Sends each method of [`PageBackend`] that is about one tier, but for `usage`, to the backend that
/// `$route(self, tier)` returns, with that backend's own number of the tier.
macro_rules! forward_by_tier {
    ($route:expr) => {
        fn granule_of(&self, tier: Tier) -> usize {
            let (pages, tier) = $route(self, tier);
            pages.granule_of(tier)
        }

        unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
            let (pages, tier) = $route(self, tier);
            // SAFETY: as the caller vouches.
            unsafe { pages.purge(ptr, size, tier) }
        }

        unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
            let (pages, tier) = $route(self, tier);
            // SAFETY: as the caller vouches.
            unsafe { pages.restore(ptr, size, tier) }
        }

        fn fills_huge_pages(&self, tier: Tier) -> bool {
            let (pages, tier) = $route(self, tier);
            pages.fills_huge_pages(tier)
        }

        unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
            let (pages, tier) = $route(self, tier);
            // SAFETY: as the caller vouches.
            unsafe { pages.set_holes(ptr, size, tier, holes) }
        }

        unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
            let (pages, tier) = $route(self, tier);
            // SAFETY: as the caller vouches.
            unsafe { pages.unmap(ptr, size, tier) }
        }

        unsafe fn grow(
            &self,
            ptr: NonNull<u8>,
            size: usize,
            extra: usize,
            tier: Tier,
        ) -> Result<(), MapError> {
            let (pages, tier) = $route(self, tier);
            // SAFETY: as the caller vouches.
            unsafe { pages.grow(ptr, size, extra, tier) }
        }

        unsafe fn remap(
            &self,
            ptr: NonNull<u8>,
            size: usize,
            new_size: usize,
            align: usize,
            tier: Tier,
        ) -> Result<Mapping, MapError> {
            let (pages, own) = $route(self, tier);
            // SAFETY: as the caller vouches.
            let mapping = unsafe { pages.remap(ptr, size, new_size, align, own)? };
            Ok(Mapping { tier: Tier(tier.0 - own.0 + mapping.tier.0), ..mapping })
        }

        fn capabilities(&self, tier: Tier) -> Capabilities {
            let (pages, tier) = $route(self, tier);
            pages.capabilities(tier)
        }

        fn name(&self, tier: Tier) -> &'static str {
            let (pages, tier) = $route(self, tier);
            pages.name(tier)
        }
    };
}

pub(crate) use forward_by_tier;

/// Sends every method of [`PageBackend`] to the backend that `$get` returns.
macro_rules! forward {
    ($get:expr) => {
        forward_by_tier!(|own, tier| ($get(own), tier));

        fn granule(&self) -> usize {
            $get(self).granule()
        }

        fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
            $get(self).map(size, align)
        }

        fn tiers(&self) -> usize {
            $get(self).tiers()
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
