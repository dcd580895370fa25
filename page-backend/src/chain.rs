//! One backend behind another.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Tier, Usage};
use crate::capped::Capped;
use crate::counters::Fallbacks;
use core::ptr::NonNull;

/// Asks `A`, and `B` for what `A` refuses. Chains of more links are chains of chains.
///
/// Tiers are those of `A`, then those of `B`. What `A` refused is counted, by reason, under `A`'s last tier.
/// The granule is the smaller of the two; a link with larger pages rounds requests up.
#[derive(Debug)]
pub struct Chain<A, B> {
    first: Capped<A>,
    second: Capped<B>,
    fallbacks: Fallbacks,
}

impl<A: PageBackend, B: PageBackend> Chain<A, B> {
    /// A chain without caps.
    pub const fn new(first: A, second: B) -> Self {
        Self::with_caps(first, usize::MAX, second, usize::MAX)
    }

    /// A chain whose links map at most so many bytes each.
    pub const fn with_caps(first: A, first_cap: usize, second: B, second_cap: usize) -> Self {
        Self {
            first: Capped::new(first, first_cap),
            second: Capped::new(second, second_cap),
            fallbacks: Fallbacks::new(),
        }
    }

    /// The link that is asked first.
    pub const fn first(&self) -> &A {
        self.first.inner()
    }

    /// The link behind it.
    pub const fn second(&self) -> &B {
        self.second.inner()
    }

    /// The first request since the last call that was passed from the first link to the second, and why.
    pub fn take_new_fallback(&self) -> Option<MapError> {
        self.fallbacks.take()
    }

    /// The link that a tier belongs to, with its own number of the tier.
    fn link(&self, tier: Tier) -> (&dyn PageBackend, Tier) {
        let n = self.first.tiers() as u8;
        if tier.0 < n { (&self.first, tier) } else { (&self.second, Tier(tier.0 - n)) }
    }
}

// SAFETY: every call goes to the link that the tier belongs to, whose contract holds; `map` gives memory of
// one link, and a refusal of the first has no effect.
unsafe impl<A: PageBackend, B: PageBackend> PageBackend for Chain<A, B> {
    fn granule(&self) -> usize {
        self.first.granule().min(self.second.granule())
    }

    fn granule_of(&self, tier: Tier) -> usize {
        let (link, tier) = self.link(tier);
        link.granule_of(tier)
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        match self.first.map(size, align) {
            Ok(mapping) => Ok(mapping),
            Err(error) => {
                self.fallbacks.record(error);
                let mapping = self.second.map(size, align)?;
                Ok(Mapping { tier: Tier(mapping.tier.0 + self.first.tiers() as u8), ..mapping })
            }
        }
    }

    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let (link, tier) = self.link(tier);
        // SAFETY: as the caller vouches.
        unsafe { link.purge(ptr, size, tier) }
    }

    unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let (link, tier) = self.link(tier);
        // SAFETY: as the caller vouches.
        unsafe { link.restore(ptr, size, tier) }
    }

    fn fills_huge_pages(&self, tier: Tier) -> bool {
        let (link, tier) = self.link(tier);
        link.fills_huge_pages(tier)
    }

    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
        let (link, tier) = self.link(tier);
        // SAFETY: as the caller vouches.
        unsafe { link.set_holes(ptr, size, tier, holes) }
    }

    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let (link, tier) = self.link(tier);
        // SAFETY: as the caller vouches.
        unsafe { link.unmap(ptr, size, tier) }
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, tier: Tier) -> Result<(), MapError> {
        let (link, tier) = self.link(tier);
        // SAFETY: as the caller vouches.
        unsafe { link.grow(ptr, size, extra, tier) }
    }

    unsafe fn remap(
        &self,
        ptr: NonNull<u8>,
        size: usize,
        new_size: usize,
        align: usize,
        tier: Tier,
    ) -> Result<Mapping, MapError> {
        let (link, own) = self.link(tier);
        // SAFETY: as the caller vouches.
        let mapping = unsafe { link.remap(ptr, size, new_size, align, own)? };
        Ok(Mapping { tier: Tier(tier.0 - own.0 + mapping.tier.0), ..mapping })
    }

    fn capabilities(&self, tier: Tier) -> Capabilities {
        let (link, tier) = self.link(tier);
        link.capabilities(tier)
    }

    fn tiers(&self) -> usize {
        self.first.tiers() + self.second.tiers()
    }

    fn name(&self, tier: Tier) -> &'static str {
        let (link, tier) = self.link(tier);
        link.name(tier)
    }

    fn usage(&self, tier: Tier) -> Usage {
        let (link, own) = self.link(tier);
        let mut usage = link.usage(own);
        if usize::from(tier.0) + 1 == self.first.tiers() {
            self.fallbacks.add_to(&mut usage.fallbacks);
        }
        usage
    }

    fn after_fork_in_child(&self) {
        self.first.after_fork_in_child();
        self.second.after_fork_in_child();
    }
}
