//! One backend behind another.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Tier, Usage};
use crate::capped::Capped;
use crate::counters::Fallbacks;
use crate::forward::forward_by_tier;
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
    forward_by_tier!(Self::link);

    fn granule(&self) -> usize {
        self.first.granule().min(self.second.granule())
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

    fn tiers(&self) -> usize {
        self.first.tiers() + self.second.tiers()
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
