//! A bin in the hands of the slow path, which fills, empties and resizes it.
//!
//! Between opening and dropping an [`OpenBin`] nobody else moves the bin's cursor. How that is ensured is the front end's
//! business: a thread's cache has one user, a CPU's is taken out of use.

use super::bins::{self, Slot};
use super::cache::Cache;
use super::need::State;
use super::{budget, slots};
use crate::heap::{Block, Engine};
use crate::report::{self, Fault};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering;
use page_backend::PageBackend;
use size_classes::{CLASS_COUNT, CLASSES, MAX_BATCH};

/// Objects in a bin whose array has this level.
pub(super) fn len_below(cursor: *mut Slot, level: usize) -> usize {
    (cursor.addr() - slots::base(cursor, level).addr()) / size_of::<Slot>()
}

/// A bin in the hands of the slow path; closed, with its cursor and state as they then are, when dropped.
pub(super) struct OpenBin<'a> {
    cache: &'a Cache,
    class: usize,
    cursor: *mut Slot,
    state: State,
}

impl<'a> OpenBin<'a> {
    /// # Safety
    /// `cursor` is the cursor of the bin, and nobody else uses or moves it until the value is dropped.
    pub(super) unsafe fn new(cache: &'a Cache, class: usize, cursor: *mut Slot) -> Self {
        debug_assert!((1..CLASS_COUNT).contains(&class));
        Self { cache, class, cursor, state: cache.state(class) }
    }

    /// The cache that the bin is in.
    pub(super) fn cache(&self) -> &'a Cache {
        self.cache
    }

    fn level(&self) -> usize {
        self.state.level as usize
    }

    fn base(&self) -> *mut Slot {
        slots::base(self.cursor, self.level())
    }

    fn size(&self) -> usize {
        CLASSES.size_of(self.class as u8)
    }

    fn batch(&self) -> usize {
        CLASSES.class(self.class as u8).batch as usize
    }

    pub(super) fn len(&self) -> usize {
        len_below(self.cursor, self.level())
    }

    pub(super) fn room(&self) -> usize {
        slots::slots(self.level())
    }

    /// Refills a bin that has run dry and returns one object; `None` when memory is out.
    pub(super) fn refill<B: PageBackend>(&mut self, engine: &Engine<B>) -> Option<Block> {
        if self.len() > 0 {
            // Another thread of this CPU has filled the bin since the miss.
            // SAFETY: the cursor points to the top object.
            unsafe {
                let object = self.cursor.read();
                self.cursor = self.cursor.sub(1);
                return NonNull::new(object).map(Block::used);
            }
        }
        let mut state = self.state;
        state.missed(1, self.size());
        state.regret(self.size());
        self.settle(state);
        let want = self.state.fetch(self.batch());
        let mut objects = [null_mut(); MAX_BATCH];
        // SAFETY: `want` is at most a batch.
        let taken = unsafe { engine.take(self.class as u8, want, objects.as_mut_ptr()) };
        let (&mut first, rest) = objects[..taken.count].split_first_mut()?;
        // The lowest address comes out first: neighbours in use stay neighbours in memory.
        rest.reverse();
        // SAFETY: the bin is empty and its room is at least `want - 1`.
        unsafe { self.append(rest) };
        Some(Block { ptr: NonNull::new(first)?, dirty: taken.dirty })
    }

    /// Adds objects on top.
    ///
    /// # Safety
    /// The bin has room for them.
    unsafe fn append(&mut self, objects: &[*mut u8]) {
        debug_assert!(self.len() + objects.len() <= self.room());
        // SAFETY: the caller says that there is room above the cursor.
        unsafe {
            self.cursor.add(1).copy_from_nonoverlapping(objects.as_ptr(), objects.len());
            self.cursor = self.cursor.add(objects.len());
        }
    }

    /// Takes an object back that the bin had no room for, or that it has on top already.
    pub(super) fn overflow<B: PageBackend>(&mut self, engine: &Engine<B>, object: *mut u8) {
        // SAFETY: the cursor points to the top slot, or to the lower guard, which is null.
        if unsafe { self.cursor.read() } == object {
            return report::fault(Fault::Double, object);
        }
        let len = self.len();
        if len == self.room() {
            let mut state = self.state;
            state.missed(-1, self.size());
            if slots::slots(state.level as usize) <= len || !self.settle(state) {
                state.keep_to(self.level());
                let given = state.give_back(len, self.batch());
                self.flush_oldest(engine, given);
                self.settle(state);
            }
        }
        if self.len() < self.room() {
            // SAFETY: there is room for one.
            unsafe { self.append(&[object]) };
        } else {
            // SAFETY: the caller gave the object away.
            unsafe { engine.put(self.class as u8, &object, 1, true) };
        }
    }

    /// Gives the oldest objects back, in batches.
    pub(super) fn flush_oldest<B: PageBackend>(&mut self, engine: &Engine<B>, count: usize) {
        let (batch, len) = (self.batch(), self.len());
        debug_assert!(count <= len);
        if count == 0 {
            return;
        }
        // SAFETY: slots 1 to `len` above the lower guard hold objects; `count` is at most `len`.
        unsafe {
            let first = self.base().add(1);
            let mut given = 0;
            while given < count {
                let part = batch.min(count - given);
                engine.put(self.class as u8, first.add(given), part, true);
                given += part;
            }
            first.copy_from(first.add(count), len - count);
            self.cursor = self.base().add(len - count);
        }
    }

    /// Takes a new state on, with the array of its level, which has room for what the bin holds. Where budget or memory do not
    /// allow that, the bin keeps what it has: `false`.
    fn settle(&mut self, mut state: State) -> bool {
        let (level, wanted) = (self.level(), state.level as usize);
        let more = slots::slots(wanted).saturating_sub(self.room()) * self.size();
        let settled =
            wanted == level || ((more == 0 || budget::afford(self.cache, more)) && self.relevel(wanted));
        if !settled {
            state.level = level as u8;
            state.keep_to(level);
        }
        self.state = state;
        settled
    }

    /// Moves the bin to the array of another level, which has room for its objects.
    pub(super) fn relevel(&mut self, level: usize) -> bool {
        let array = if level == 0 {
            bins::no_slots()
        } else {
            let Some(array) = slots::alloc(level) else { return false };
            array
        };
        let (len, old, old_level) = (self.len(), self.base(), self.level());
        debug_assert!(len <= slots::slots(level));
        // SAFETY: both arrays have room for `len` slots above the lower guard; the old one is not used after this.
        unsafe {
            array.add(1).copy_from_nonoverlapping(old.add(1), len);
            self.cursor = array.add(len);
            self.state.level = level as u8;
            if old_level > 0 {
                slots::free(old, old_level);
            }
        }
        let size = self.size();
        self.cache.capacity.fetch_add(slots::slots(level) * size, Ordering::Relaxed);
        self.cache.capacity.fetch_sub(slots::slots(old_level) * size, Ordering::Relaxed);
        true
    }

    /// One level down, with the objects that no longer have room given back.
    pub(super) fn shrink<B: PageBackend>(&mut self, engine: &Engine<B>) {
        let mut state = self.state;
        if state.level > 0 {
            state.keep_to(state.level as usize - 1);
            let keep = slots::slots(state.level as usize);
            self.flush_oldest(engine, self.len().saturating_sub(keep));
            self.settle(state);
        }
    }

    /// Forgets a part of what speaks for a larger size, and takes a step when the bin was not used since the last sweep.
    pub(super) fn sweep<B: PageBackend>(&mut self, engine: &Engine<B>) {
        let state = &mut self.state;
        let used = core::mem::replace(&mut state.used, false);
        state.owed /= 2;
        state.needless -= state.needless.div_ceil(4);
        if !used {
            state.run = 0;
            self.shrink(engine);
        }
    }
}

impl Drop for OpenBin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cache.set_state(self.class, self.state);
        // SAFETY: the cursor is at a slot of the bin's array or at its lower guard.
        unsafe { self.cache.bins.set_cursor(self.class, self.cursor) };
    }
}
