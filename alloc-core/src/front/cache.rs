//! What every front end is made of: bins with slow start under a byte budget.
//!
//! A bin's array grows when the bin runs dry or over often enough for its size, as far as the cache's share of the budget allows.
//! What a cache holds is counted by the capacity of its bins, so the fast path counts nothing.
//!
//! The slow path works on one bin at a time, opened: between opening and dropping an [`OpenBin`] nobody else moves the
//! bin's cursor. How that is ensured is the front end's business: a thread's cache has one user, a CPU's is taken out of use.

use super::bins::{self, Bins, Slot};
use super::{budget, slots};
use crate::heap::Engine;
use crate::report::{self, Fault};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use page_backend::PageBackend;
use size_classes::{CLASS_COUNT, CLASSES, MAX_BATCH};

/// Bytes that the slots of one bin may hold.
const BIN_BYTES: usize = 512 << 10;
/// A bin grows when it has missed more than once for each of these bytes of its size since the last sweep: what a thread asks for
/// once is not worth keeping, and large blocks least of all.
const GROWTH_BYTES: usize = 1 << 8;
/// And more than once for each of these slots that it has: a single wave of frees is no reason for a large array.
const GROWTH_SLOTS: usize = 16;
/// But this many misses are enough for any size.
const MOST_MISSES: usize = 64;
/// Slow-path events between two looks for bins that nobody used.
const SWEEP_EVENTS: u32 = 512;
/// Slow-path events between two looks at whether the share was cut.
const SHARE_EVENTS: u32 = 16;

/// A cache of free objects.
///
/// `bins` comes first: what the fast path holds is the address of both.
#[repr(C)]
pub(crate) struct Cache {
    pub(super) bins: Bins,
    /// Lower guard of each bin's array; the always-missing one at level 0. Changed, as the next two, by whoever has the bin
    /// open.
    base: [AtomicPtr<Slot>; CLASS_COUNT],
    level: [AtomicU8; CLASS_COUNT],
    /// How often each bin ran dry or over since the last sweep.
    misses: [AtomicU8; CLASS_COUNT],
    /// Bytes that the slots of all bins can hold.
    capacity: AtomicUsize,
    /// Share of the budget. Others may lower it.
    pub(super) limit: AtomicUsize,
    events: AtomicU32,
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

/// The highest level that a class may reach.
fn top_level(size: usize) -> usize {
    let mut level = 1;
    while level + 1 < slots::LEVELS && slots::slots(level + 1) * size <= BIN_BYTES {
        level += 1;
    }
    level
}

impl Cache {
    /// An empty cache.
    pub(super) const fn new() -> Self {
        Self {
            bins: Bins::new(),
            base: [const { AtomicPtr::new(bins::no_slots()) }; CLASS_COUNT],
            level: [const { AtomicU8::new(0) }; CLASS_COUNT],
            misses: [const { AtomicU8::new(0) }; CLASS_COUNT],
            capacity: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            events: AtomicU32::new(0),
        }
    }

    /// Objects in a bin; a moment's view, and 0 for a bin that is open in a CPU's cache.
    pub(crate) fn len(&self, class: usize) -> usize {
        self.len_below(class, self.bins.cursor(class))
    }

    fn len_below(&self, class: usize, cursor: *mut Slot) -> usize {
        // Another thread may read while the bin moves to another array: the difference is then meaningless, so it is bounded.
        let base = self.base[class].load(Ordering::Relaxed);
        let slots = cursor.addr().wrapping_sub(base.addr()) / size_of::<Slot>();
        if slots <= self.room(class) { slots } else { 0 }
    }

    fn room(&self, class: usize) -> usize {
        slots::slots(self.level(class))
    }

    fn level(&self, class: usize) -> usize {
        self.level[class].load(Ordering::Relaxed) as usize
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

    /// Slow paths so far; starts anew at each sweep.
    pub(super) fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    /// Makes a bin empty whose state is not known; its array is lost.
    ///
    /// # Safety
    /// Nobody else uses the bin, or will.
    pub(super) unsafe fn abandon(&self, class: usize) {
        self.base[class].store(bins::no_slots(), Ordering::Relaxed);
        self.level[class].store(0, Ordering::Relaxed);
        // SAFETY: the cursor of a bin without slots.
        unsafe { self.bins.set_cursor(class, bins::no_slots()) };
        let held = |class: usize| self.room(class) * CLASSES.size_of(class as u8);
        self.capacity.store((1..CLASS_COUNT).map(held).sum(), Ordering::Relaxed);
    }

    /// Counts a slow path, and says what has fallen due.
    pub(super) fn event(&self) -> Due {
        let events = self.events.load(Ordering::Relaxed) + 1;
        if events >= SWEEP_EVENTS {
            self.events.store(0, Ordering::Relaxed);
            return Due::Sweep;
        }
        self.events.store(events, Ordering::Relaxed);
        let over = events.is_multiple_of(SHARE_EVENTS) && self.capacity() > budget::allowed(self);
        if over { Due::Shrink } else { Due::Nothing }
    }

    /// Gives back half of what bins hold that were not used since the last sweep, and the share that is not needed.
    pub(super) fn sweep<'a, B: PageBackend>(
        &self,
        engine: &Engine<B>,
        open: impl Fn(usize) -> Option<OpenBin<'a>>,
    ) {
        for class in 1..CLASS_COUNT {
            if self.misses[class].swap(0, Ordering::Relaxed) == 0
                && self.level(class) > 0
                && let Some(mut bin) = open(class)
            {
                bin.shrink(engine);
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
                if (self.misses[class].load(Ordering::Relaxed) > 0) != in_use || self.level(class) == 0 {
                    continue;
                }
                let Some(mut bin) = open(class) else { continue };
                while bin.cache.capacity() > budget::allowed(bin.cache) && bin.room() > 0 {
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

impl Cache {
    /// Bytes of the objects in all bins.
    pub(super) fn bytes(&self) -> usize {
        (1..CLASS_COUNT).map(|class| self.len(class) * CLASSES.size_of(class as u8)).sum()
    }

    /// Gives the oldest `count(class)` objects of each bin back, and the part of the share that is not needed then.
    pub(super) fn give_back<'a, B: PageBackend>(
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

/// A bin in the hands of the slow path; closed, with its cursor where it then is, when dropped.
pub(super) struct OpenBin<'a> {
    cache: &'a Cache,
    class: usize,
    cursor: *mut Slot,
}

impl<'a> OpenBin<'a> {
    /// # Safety
    /// `cursor` is the cursor of the bin, and nobody else uses or moves it until the value is dropped.
    pub(super) unsafe fn new(cache: &'a Cache, class: usize, cursor: *mut Slot) -> Self {
        debug_assert!((1..CLASS_COUNT).contains(&class));
        Self { cache, class, cursor }
    }

    /// The cache that the bin is in.
    pub(super) fn cache(&self) -> &'a Cache {
        self.cache
    }

    fn base(&self) -> *mut Slot {
        self.cache.base[self.class].load(Ordering::Relaxed)
    }

    fn size(&self) -> usize {
        CLASSES.size_of(self.class as u8)
    }

    fn batch(&self) -> usize {
        CLASSES.class(self.class as u8).batch as usize
    }

    fn len(&self) -> usize {
        self.cache.len_below(self.class, self.cursor)
    }

    fn room(&self) -> usize {
        self.cache.room(self.class)
    }

    /// Refills a bin that has run dry and returns one object; null when memory is out.
    pub(super) fn refill<B: PageBackend>(&mut self, engine: &Engine<B>) -> *mut u8 {
        self.missed();
        if self.len() > 0 {
            // Another thread of this CPU has filled the bin since the miss.
            // SAFETY: the cursor points to the top object.
            unsafe {
                let object = self.cursor.read();
                self.cursor = self.cursor.sub(1);
                return object;
            }
        }
        self.grow();
        let want = self.batch().min(self.room() + 1);
        let mut objects = [null_mut(); MAX_BATCH];
        // SAFETY: `want` is at most a batch.
        let taken = unsafe { engine.take(self.class as u8, want, objects.as_mut_ptr()) };
        let Some((&mut first, rest)) = objects[..taken].split_first_mut() else { return null_mut() };
        // The lowest address comes out first: neighbours in use stay neighbours in memory.
        rest.reverse();
        // SAFETY: the bin is empty and its room is at least `want - 1`.
        unsafe { self.append(rest) };
        first
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
        self.missed();
        let len = self.len();
        if len == self.room() && !self.grow() {
            self.flush_oldest(engine, len.div_ceil(2));
        }
        if self.len() < self.room() {
            // SAFETY: there is room for one.
            unsafe { self.append(&[object]) };
        } else {
            // SAFETY: the caller gave the object away.
            unsafe { engine.put(self.class as u8, &object, 1, false) };
        }
    }

    /// Gives the oldest objects back: in whole batches, and what is left of `count` one by one.
    fn flush_oldest<B: PageBackend>(&mut self, engine: &Engine<B>, count: usize) {
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
                engine.put(self.class as u8, first.add(given), part, part == batch);
                given += part;
            }
            first.copy_from(first.add(count), len - count);
            self.cursor = self.base().add(len - count);
        }
    }

    fn missed(&self) {
        let misses = self.cache.misses[self.class].load(Ordering::Relaxed);
        self.cache.misses[self.class].store(misses.saturating_add(1), Ordering::Relaxed);
    }

    /// Gives the bin the next larger array, if it misses often enough for its size and the budget allows.
    fn grow(&mut self) -> bool {
        let (size, level) = (self.size(), self.cache.level(self.class));
        let misses = self.cache.misses[self.class].load(Ordering::Relaxed) as usize;
        let needed = (size / GROWTH_BYTES).max(slots::slots(level) / GROWTH_SLOTS).min(MOST_MISSES);
        if misses <= needed || level >= top_level(size) {
            return false;
        }
        let more = (slots::slots(level + 1) - slots::slots(level)) * size;
        budget::afford(self.cache, more) && self.relevel(level + 1)
    }

    /// Moves the bin to the array of another level, which has room for its objects.
    fn relevel(&mut self, level: usize) -> bool {
        let array = if level == 0 {
            bins::no_slots()
        } else {
            let Some(array) = slots::alloc(level) else { return false };
            array
        };
        let (len, old, old_level) = (self.len(), self.base(), self.cache.level(self.class));
        debug_assert!(len <= slots::slots(level));
        // SAFETY: both arrays have room for `len` slots above the lower guard; the old one is not used after this.
        unsafe {
            array.add(1).copy_from_nonoverlapping(old.add(1), len);
            self.cursor = array.add(len);
            self.cache.base[self.class].store(array, Ordering::Relaxed);
            self.cache.level[self.class].store(level as u8, Ordering::Relaxed);
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
    fn shrink<B: PageBackend>(&mut self, engine: &Engine<B>) {
        let level = self.cache.level(self.class);
        if level > 0 {
            let keep = slots::slots(level - 1);
            self.flush_oldest(engine, self.len().saturating_sub(keep));
            self.relevel(level - 1);
        }
    }
}

impl Drop for OpenBin<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the cursor is at a slot of the bin's array or at its lower guard.
        unsafe { self.cache.bins.set_cursor(self.class, self.cursor) };
    }
}
