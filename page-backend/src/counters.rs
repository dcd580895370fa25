//! Counters that backends share: bytes held and requests passed on.

use crate::backend::{MapError, Reason, Step};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A number of bytes held.
#[derive(Debug)]
pub(crate) struct Bytes(AtomicUsize);

impl Bytes {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Relaxed);
    }

    /// Stops at zero: a forked child gives back memory that its reset counters never saw.
    pub(crate) fn sub(&self, bytes: usize) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |held| Some(held.saturating_sub(bytes)));
    }

    pub(crate) fn resize(&self, old: usize, new: usize) {
        if new >= old { self.add(new - old) } else { self.sub(old - new) }
    }

    pub(crate) fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// Adds `bytes` if the sum stays within `cap`.
    pub(crate) fn reserve(&self, bytes: usize, cap: usize) -> Result<(), MapError> {
        let within = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= cap);
        match self.0.fetch_update(Relaxed, Relaxed, within) {
            Ok(_) => Ok(()),
            Err(_) => Err(MapError::refused(Reason::CapReached, Step::Check)),
        }
    }
}

/// Requests that a tier refused and passed on, with the first of them since the last look.
#[derive(Debug)]
pub(crate) struct Fallbacks {
    counts: [AtomicU64; Reason::COUNT],
    first: AtomicU64,
}

impl Fallbacks {
    pub(crate) const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; Reason::COUNT], first: AtomicU64::new(0) }
    }

    /// Counts a refusal. What was decided beforehand (a forked child, an excluded program) is no news.
    pub(crate) fn record(&self, error: MapError) {
        if let Some(count) = self.counts.get(error.reason as usize) {
            count.fetch_add(1, Relaxed);
        }
        if !matches!(error.reason, Reason::Forked | Reason::Excluded) {
            let _ = self.first.compare_exchange(0, error.to_bits(), Relaxed, Relaxed);
        }
    }

    /// The first refusal since the last call, if there was one.
    pub(crate) fn take(&self) -> Option<MapError> {
        if self.first.load(Relaxed) == 0 {
            return None;
        }
        MapError::from_bits(self.first.swap(0, Relaxed))
    }

    pub(crate) fn add_to(&self, totals: &mut [u64; Reason::COUNT]) {
        for (total, count) in totals.iter_mut().zip(&self.counts) {
            *total += count.load(Relaxed);
        }
    }
}
