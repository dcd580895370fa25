//! What every front end is made of: bins that are as large as they need to be ([`super::need`]), under a byte budget.
//!
//! What a cache holds is counted by the capacity of its bins, so the fast path counts nothing. The slow path works on one
//! bin at a time, an [`OpenBin`].

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod of_cpu;

use super::bins::{self, Bins};
use super::need::State;
use super::open_bin::{OpenBin, len_below};
use super::{budget, slots};
use crate::heap::Engine;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use page_backend::{PageBackend, sys};
use size_classes::CLASS_COUNT;

/// Slow-path events between two looks at whether a sweep is due.
const SWEEP_EVENTS: u32 = 512;
/// Nanoseconds between two sweeps. A burst has its 512 events within a millisecond, and what it does not use is not therefore idle.
const SWEEP_EVERY: u64 = 500_000_000;
/// Slow-path events between two looks at whether the share was cut.
const SHARE_EVENTS: u32 = 16;

/// A cache of free objects.
///
/// `bins` comes first: what the fast path holds is the address of both.
#[repr(C)]
pub(crate) struct Cache {
    pub(super) bins: Bins,
    /// The [`State`] of each bin, changed by whoever has it open.
    states: [AtomicU32; CLASS_COUNT],
    /// Bytes that the slots of all bins can hold.
    pub(super) capacity: AtomicUsize,
    /// Share of the budget. Others may lower it.
    pub(super) limit: AtomicUsize,
    events: AtomicU32,
    /// When the last sweep was, by the coarse clock.
    swept: AtomicU64,
}

/// Work that has fallen due on a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// [`Cache::sweep`].
    Sweep,
    /// [`Cache::shrink_to_share`].
    Shrink,
}

impl Cache {
    /// An empty cache.
    pub(super) const fn new() -> Self {
        Self {
            bins: Bins::new(),
            states: [const { AtomicU32::new(0) }; CLASS_COUNT],
            capacity: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            events: AtomicU32::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// Objects in a bin; a moment's view, and 0 for a bin that is open in a CPU's cache.
    pub(crate) fn len(&self, class: usize) -> usize {
        let cursor = self.bins.cursor(class);
        if cursor == bins::taken() || cursor == bins::no_slots() {
            return 0;
        }
        // Another thread may read while the bin moves to another array: the difference is then meaningless, but bounded.
        len_below(cursor, self.level(class)).min(slots::slots(self.level(class)))
    }

    pub(super) fn state(&self, class: usize) -> State {
        State::from_word(self.states[class].load(Ordering::Relaxed))
    }

    pub(super) fn set_state(&self, class: usize, state: State) {
        self.states[class].store(state.word(), Ordering::Relaxed);
    }

    fn level(&self, class: usize) -> usize {
        self.state(class).level as usize
    }

    /// Objects in all bins.
    pub(crate) fn objects(&self) -> usize {
        (1..CLASS_COUNT).map(|class| self.len(class)).sum()
    }

    /// Bytes that the bins can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Share of the budget in bytes.
    pub(crate) fn share(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Counts a slow path, and says what has fallen due.
    pub(super) fn event(&self) -> Due {
        self.event_by(sys::clock_monotonic_coarse)
    }

    /// [`event`](Self::event) by a clock, which is read at every [`SWEEP_EVENTS`]th alone.
    #[inline]
    fn event_by(&self, clock: impl FnOnce() -> u64) -> Due {
        let events = self.events.load(Ordering::Relaxed) + 1;
        if events >= SWEEP_EVENTS {
            self.events.store(0, Ordering::Relaxed);
            let now = clock();
            if now.wrapping_sub(self.swept.load(Ordering::Relaxed)) < SWEEP_EVERY {
                return Due::Nothing;
            }
            self.swept.store(now, Ordering::Relaxed);
            return Due::Sweep;
        }
        self.events.store(events, Ordering::Relaxed);
        let over = events.is_multiple_of(SHARE_EVENTS) && self.capacity() > budget::allowed(self);
        if over { Due::Shrink } else { Due::Nothing }
    }

    /// Takes a step from each bin that was not used since the last sweep, and gives back the share that is not needed.
    pub(super) fn sweep<'a, B: PageBackend>(
        &self,
        engine: &Engine<B>,
        open: impl Fn(usize) -> Option<OpenBin<'a>>,
    ) {
        for class in 1..CLASS_COUNT {
            if self.states[class].load(Ordering::Relaxed) != 0
                && let Some(mut bin) = open(class)
            {
                bin.sweep(engine);
            }
        }
        budget::return_surplus(self);
    }

    /// Shrinks bins until what they can hold is within the share, those not in use first.
    #[cold]
    pub(super) fn shrink_to_share<'a, B: PageBackend>(
        &self,
        engine: &Engine<B>,
        open: impl Fn(usize) -> Option<OpenBin<'a>>,
    ) {
        for in_use in [false, true] {
            for class in 1..CLASS_COUNT {
                if self.capacity() <= budget::allowed(self) {
                    return;
                }
                let state = self.state(class);
                if state.used != in_use || state.level == 0 {
                    continue;
                }
                let Some(mut bin) = open(class) else { continue };
                while bin.cache().capacity() > budget::allowed(bin.cache()) && bin.room() > 0 {
                    bin.shrink(engine);
                }
            }
        }
    }

    /// Gives every object and array back, and the share.
    pub(super) fn empty<'a, B: PageBackend>(
        &self,
        engine: &Engine<B>,
        open: impl Fn(usize) -> Option<OpenBin<'a>>,
    ) {
        for class in 1..CLASS_COUNT {
            if self.level(class) > 0
                && let Some(mut bin) = open(class)
            {
                bin.flush_oldest(engine, bin.len());
                bin.relevel(0);
            }
        }
        budget::return_all(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_swept_once_and_a_steady_load_again_and_again() {
        let cache = Cache::new();
        let start = 10 * SWEEP_EVERY;
        let sweeps = |cycles: u32, now: u64| {
            (0..cycles * SWEEP_EVENTS).filter(|_| cache.event_by(|| now) == Due::Sweep).count()
        };
        assert_eq!(sweeps(100, start), 1);
        assert_eq!(sweeps(100, start + SWEEP_EVERY - 1), 0);
        assert_eq!(sweeps(100, start + SWEEP_EVERY), 1);
    }

    #[test]
    fn the_clock_is_not_read_at_every_event() {
        let cache = Cache::new();
        let reads = core::cell::Cell::new(0);
        for _ in 0..4 * SWEEP_EVENTS {
            cache.event_by(|| {
                reads.set(reads.get() + 1);
                SWEEP_EVERY
            });
        }
        assert_eq!(reads.get(), 4);
    }
}
