//! What a cache does as a CPU's alone.

use super::Cache;
use crate::front::bins;
use crate::front::budget;
use crate::front::need::State;
use crate::front::open_bin::OpenBin;
use crate::front::slots;
use crate::heap::Engine;
use core::sync::atomic::Ordering;
use page_backend::PageBackend;
use size_classes::{CLASS_COUNT, CLASSES};

impl Cache {
    /// Slow paths since the last look at whether a sweep is due.
    pub(in crate::front) fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    /// Makes a bin empty whose state is not known; its array is lost.
    ///
    /// # Safety
    /// Nobody else uses the bin, or will.
    pub(in crate::front) unsafe fn abandon(&self, class: usize) {
        self.set_state(class, State::default());
        // SAFETY: the cursor of a bin without slots.
        unsafe { self.bins.set_cursor(class, bins::no_slots()) };
        let held = |class: usize| slots::slots(self.level(class)) * CLASSES.size_of(class as u8);
        self.capacity.store((1..CLASS_COUNT).map(held).sum(), Ordering::Relaxed);
    }

    /// Bytes of the objects in all bins.
    pub(in crate::front) fn bytes(&self) -> usize {
        (1..CLASS_COUNT).map(|class| self.len(class) * CLASSES.size_of(class as u8)).sum()
    }

    /// Gives the oldest `count(class)` objects of each bin back, and the part of the share that is not needed then.
    pub(in crate::front) fn give_back<'a, B: PageBackend>(
        &self,
        engine: &Engine<B>,
        open: impl Fn(usize) -> Option<OpenBin<'a>>,
        count: impl Fn(usize) -> usize,
    ) {
        for class in 1..CLASS_COUNT {
            let count = count(class);
            if count > 0
                && let Some(mut bin) = open(class)
            {
                let (len, count) = (bin.len(), count.min(bin.len()));
                bin.flush_oldest(engine, count);
                if count == len || count > bin.room() / 2 {
                    bin.shrink(engine);
                }
            }
        }
        budget::return_surplus(self);
    }
}
