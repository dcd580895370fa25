//! What a page heap counts: pages by tier, and the events of its history.

use size_classes::PAGE_SIZE;

/// Tiers with an account of their own; the memory of later ones is counted under the last.
pub(crate) const TIERS: usize = crate::snapshot::MAX_TIERS;

/// The pages of one tier. Every mapped page is used or free; a free one is backed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TierPages {
    pub(crate) mapped: usize,
    /// Marked as used: handed out, or held by a release under way.
    pub(crate) used: usize,
    /// Of the used ones: held by a release under way, so free in truth.
    pub(crate) held: usize,
    /// Free, without memory behind them.
    pub(crate) unbacked: usize,
}

impl TierPages {
    pub(crate) const ZERO: Self = Self { mapped: 0, used: 0, held: 0, unbacked: 0 };
}

/// The user memory of one tier, in bytes. `mapped = in_use + free + purged`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TierBytes {
    /// Mapped from the backend.
    pub(crate) mapped: usize,
    /// Handed out in runs.
    pub(crate) in_use: usize,
    /// Free, with memory behind it.
    pub(crate) free: usize,
    /// Free, never touched or given back to the system.
    pub(crate) purged: usize,
}

impl From<TierPages> for TierBytes {
    fn from(pages: TierPages) -> Self {
        Self {
            mapped: pages.mapped * PAGE_SIZE,
            in_use: (pages.used - pages.held) * PAGE_SIZE,
            free: (pages.mapped - pages.used - pages.unbacked + pages.held) * PAGE_SIZE,
            purged: pages.unbacked * PAGE_SIZE,
        }
    }
}

/// Events since the start; every value only grows. Bytes and counts as gperftools has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// Times that memory without pages behind it was taken into use.
    pub(crate) commit_count: u64,
    pub(crate) commit_bytes: u64,
    /// Times that memory was given back to the system, by purge or unmap.
    pub(crate) decommit_count: u64,
    pub(crate) decommit_bytes: u64,
    /// Times that address space was mapped.
    pub(crate) reserve_count: u64,
    pub(crate) reserve_bytes: u64,
    /// Rounds of release.
    pub(crate) scavenge_count: u64,
    /// Requests refused by the hard limit.
    pub(crate) hard_limit_hits: u64,
    /// Requests that failed, for whatever reason.
    pub(crate) failed_allocations: u64,
    /// Backend calls that failed on the way back; no memory is lost by them.
    pub(crate) failed_releases: u64,
}

impl Events {
    pub(crate) const ZERO: Self = Self {
        commit_count: 0,
        commit_bytes: 0,
        decommit_count: 0,
        decommit_bytes: 0,
        reserve_count: 0,
        reserve_bytes: 0,
        scavenge_count: 0,
        hard_limit_hits: 0,
        failed_allocations: 0,
        failed_releases: 0,
    };
}

/// All accounts of a page heap at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageAccounts {
    /// By tier.
    pub(crate) tiers: [TierBytes; TIERS],
    /// Free bytes in the tails of large runs, counted in the tiers too.
    pub(crate) donated: usize,
    /// Bytes in wholly free huge pages with memory behind them, counted in the tiers too.
    pub(crate) cached_huge: usize,
    /// Events.
    pub(crate) events: Events,
}

#[cfg(test)]
impl PageAccounts {
    fn sum(&self, part: impl Fn(&TierBytes) -> usize) -> usize {
        self.tiers.iter().map(part).sum()
    }

    /// Bytes mapped from the backend.
    pub(crate) fn mapped(&self) -> usize {
        self.sum(|t| t.mapped)
    }

    /// Bytes handed out in runs.
    pub(crate) fn in_use(&self) -> usize {
        self.sum(|t| t.in_use)
    }

    /// Free bytes with memory behind them.
    pub(crate) fn free(&self) -> usize {
        self.sum(|t| t.free)
    }

    /// Free bytes without memory behind them.
    pub(crate) fn purged(&self) -> usize {
        self.sum(|t| t.purged)
    }
}
