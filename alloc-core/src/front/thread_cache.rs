//! The per-thread front end: bins with slow start under a byte budget.
//!
//! A bin's array grows when the bin runs dry or over, as far as the thread's share of the budget allows. What a thread holds is
//! counted by the capacity of its bins, so the fast path counts nothing. Other threads may take from a cache's share of the
//! budget, never from its objects: the owner shrinks at its next slow path.

use super::bins::{self, Bins, Slot};
use super::{budget, slots};
use crate::heap::Engine;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use page_backend::PageBackend;
use size_classes::{CLASS_COUNT, CLASSES, MAX_BATCH};

/// Bytes that the slots of one bin may hold.
const BIN_BYTES: usize = 512 << 10;
/// Arrays whose slots hold no more than this come without asking the budget.
const FREE_OF_CHARGE: usize = 2 << 10;
/// A bin grows when it has missed once for each of these bytes of its size since the last sweep: what a program asks for once or
/// twice is not worth keeping, and large blocks least of all.
const GROWTH_BYTES: usize = 1 << 8;
/// But this many misses are enough for any size.
const MOST_MISSES: usize = 64;
/// Slow-path events between two looks for bins that nobody used.
const SWEEP_EVENTS: u32 = 512;

/// A thread's cache of free objects.
///
/// `bins` comes first: the thread's slot holds the address of both.
#[repr(C)]
pub(crate) struct ThreadCache {
    bins: Bins,
    bin: [Bin; CLASS_COUNT],
    /// Bytes that the slots of all bins can hold. Written by the owner.
    capacity: AtomicUsize,
    /// Share of the budget. Others may lower it.
    pub(super) limit: AtomicUsize,
    events: u32,
    /// The owner is inside the slow path: after a fork the child cannot trust the bins.
    pub(crate) inside: AtomicBool,
    /// The next cache in the registry, which owns this word.
    pub(crate) next: AtomicPtr<ThreadCache>,
    /// The owner's handle on the registry's epochs, once it needed one.
    pub(crate) epoch: Option<crossbeam_epoch::LocalHandle>,
}

/// What the slow path knows of a bin.
struct Bin {
    /// Lower guard of the array; the always-missing one at level 0.
    base: AtomicPtr<Slot>,
    level: AtomicU8,
    /// How often the bin ran dry or over since the last sweep.
    misses: u8,
}

/// The highest level that a class may reach.
fn top_level(size: usize) -> usize {
    let mut level = 1;
    while level + 1 < slots::LEVELS && slots::slots(level + 1) * size <= BIN_BYTES {
        level += 1;
    }
    level
}

impl ThreadCache {
    /// Makes an empty cache out of a fresh record.
    pub(crate) fn init(record: &mut MaybeUninit<ThreadCache>) -> &mut ThreadCache {
        record.write(ThreadCache {
            bins: Bins::new(),
            bin: [const {
                Bin { base: AtomicPtr::new(bins::no_slots()), level: AtomicU8::new(0), misses: 0 }
            }; CLASS_COUNT],
            capacity: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            events: 0,
            inside: AtomicBool::new(true),
            next: AtomicPtr::new(null_mut()),
            epoch: None,
        })
    }

    /// The bins, for the thread's slot.
    pub(crate) fn bins(cache: *mut ThreadCache) -> *mut Bins {
        cache.cast()
    }

    /// Objects in a bin.
    pub(crate) fn len(&self, class: usize) -> usize {
        let base = self.bin[class].base.load(Ordering::Relaxed);
        // Another thread may read while the owner moves the bin to another array: the difference is then meaningless, so it
        // is bounded.
        let bytes = self.bins.cursor(class).addr().wrapping_sub(base.addr());
        (bytes / size_of::<Slot>()).min(self.room(class))
    }

    /// Objects in all bins.
    pub(crate) fn objects(&self) -> usize {
        (1..CLASS_COUNT).map(|class| self.len(class)).sum()
    }

    fn room(&self, class: usize) -> usize {
        slots::slots(self.bin[class].level.load(Ordering::Relaxed) as usize)
    }

    /// Bytes that the bins can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Share of the budget in bytes.
    pub(crate) fn share(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Refills an empty bin and returns one object; null when memory is out.
    pub(crate) fn refill<B: PageBackend>(&mut self, engine: &Engine<B>, class: usize) -> *mut u8 {
        self.missed(class);
        self.grow(class);
        let want = (CLASSES.class(class as u8).batch as usize).min(self.room(class) + 1);
        let mut objects = [null_mut(); MAX_BATCH];
        // SAFETY: `want` is at most a batch.
        let taken = unsafe { engine.take(class as u8, want, objects.as_mut_ptr()) };
        let Some((&mut first, rest)) = objects[..taken].split_first_mut() else { return null_mut() };
        // The lowest address comes out first: neighbours in use stay neighbours in memory.
        rest.reverse();
        // SAFETY: the bin is empty and its room is at least `want - 1`.
        unsafe { self.append(class, rest) };
        self.event(engine);
        first
    }

    /// Adds objects on top of a bin.
    ///
    /// # Safety
    /// The bin has room for them.
    unsafe fn append(&mut self, class: usize, objects: &[*mut u8]) {
        let cursor = self.bins.cursor(class);
        // SAFETY: the caller says that there is room above the cursor.
        unsafe {
            cursor.add(1).copy_from_nonoverlapping(objects.as_ptr(), objects.len());
            self.bins.set_cursor(class, cursor.add(objects.len()));
        }
    }

    /// Takes an object back into a bin that has no room, or that already has it on top.
    pub(crate) fn overflow<B: PageBackend>(&mut self, engine: &Engine<B>, class: usize, object: *mut u8) {
        let len = self.len(class);
        // SAFETY: the cursor points to the top slot, or to the lower guard, which is null.
        if unsafe { self.bins.cursor(class).read() } == object {
            return crate::report::fault(crate::report::Fault::Double, object);
        }
        self.missed(class);
        if len == self.room(class) && !self.grow(class) {
            self.flush_oldest(engine, class, len.div_ceil(2));
        }
        if self.len(class) < self.room(class) {
            // SAFETY: there is room for one.
            unsafe { self.append(class, &[object]) };
        } else {
            // SAFETY: the caller gave the object away.
            unsafe { engine.put(class as u8, &object, 1, false) };
        }
        self.event(engine);
    }

    /// Gives the oldest objects of a bin back, in batches.
    fn flush_oldest<B: PageBackend>(&mut self, engine: &Engine<B>, class: usize, count: usize) {
        let batch = CLASSES.class(class as u8).batch as usize;
        let len = self.len(class);
        let count = if count >= batch { count - count % batch } else { count };
        if count == 0 {
            return;
        }
        let base = self.bin[class].base.load(Ordering::Relaxed);
        // SAFETY: slots 1 to `len` above the lower guard hold objects; `count` is at most `len`.
        unsafe {
            let first = base.add(1);
            let mut given = 0;
            while given < count {
                let len = batch.min(count - given);
                engine.put(class as u8, first.add(given), len, len == batch);
                given += len;
            }
            first.copy_from(first.add(count), len - count);
            self.bins.set_cursor(class, base.add(len - count));
        }
    }

    fn missed(&mut self, class: usize) {
        self.bin[class].misses = self.bin[class].misses.saturating_add(1);
    }

    /// Gives a bin the next larger array, if it misses often enough for its size and the budget allows.
    fn grow(&mut self, class: usize) -> bool {
        let size = CLASSES.size_of(class as u8);
        if (self.bin[class].misses as usize) < (size / GROWTH_BYTES).min(MOST_MISSES) {
            return false;
        }
        let level = self.bin[class].level.load(Ordering::Relaxed) as usize;
        if level >= top_level(size) {
            return false;
        }
        let more = (slots::slots(level + 1) - slots::slots(level)) * size;
        let free_of_charge = slots::slots(level + 1) * size <= FREE_OF_CHARGE;
        if !free_of_charge && !budget::afford(self, more) {
            return false;
        }
        self.relevel(class, level + 1)
    }

    /// Moves a bin to the array of another level, which has room for its objects.
    fn relevel(&mut self, class: usize, level: usize) -> bool {
        let array = if level == 0 {
            bins::no_slots()
        } else {
            let Some(array) = slots::alloc(level) else { return false };
            array
        };
        let len = self.len(class);
        let old = self.bin[class].base.load(Ordering::Relaxed);
        let old_level = self.bin[class].level.load(Ordering::Relaxed) as usize;
        debug_assert!(len <= slots::slots(level));
        // SAFETY: both arrays have room for `len` slots above the lower guard; the old one is not used after this.
        unsafe {
            array.add(1).copy_from_nonoverlapping(old.add(1), len);
            self.bins.set_cursor(class, array.add(len));
            self.bin[class].base.store(array, Ordering::Relaxed);
            self.bin[class].level.store(level as u8, Ordering::Relaxed);
            if old_level > 0 {
                slots::free(old, old_level);
            }
        }
        let size = CLASSES.size_of(class as u8);
        let capacity = self.capacity() + slots::slots(level) * size - slots::slots(old_level) * size;
        self.capacity.store(capacity, Ordering::Relaxed);
        true
    }

    /// Counts a slow path, and sweeps when it is time or the share was cut.
    fn event<B: PageBackend>(&mut self, engine: &Engine<B>) {
        self.events += 1;
        if self.events >= SWEEP_EVENTS {
            self.events = 0;
            self.sweep(engine);
        } else if self.capacity() > self.share() && self.events.is_multiple_of(16) {
            self.shrink_to_share(engine);
        }
    }

    /// Gives back half of what bins hold that were not used since the last sweep, and halves their arrays.
    fn sweep<B: PageBackend>(&mut self, engine: &Engine<B>) {
        for class in 1..CLASS_COUNT {
            if core::mem::take(&mut self.bin[class].misses) == 0 {
                self.shrink(engine, class);
            }
        }
        budget::return_surplus(self);
    }

    /// One level down, with the objects that no longer have room given back.
    fn shrink<B: PageBackend>(&mut self, engine: &Engine<B>, class: usize) {
        let level = self.bin[class].level.load(Ordering::Relaxed) as usize;
        if level == 0 {
            return;
        }
        let keep = slots::slots(level - 1);
        let len = self.len(class);
        if len > keep {
            self.flush_oldest(engine, class, len - keep);
            // Whole batches may leave a few above; they go one by one.
            let left = self.len(class);
            if left > keep {
                let batch = CLASSES.class(class as u8).batch as usize;
                debug_assert!(left - keep < batch);
                self.flush_oldest(engine, class, left - keep);
            }
        }
        self.relevel(class, level - 1);
    }

    /// Shrinks bins until what they can hold is within the share, those not in use first.
    #[cold]
    fn shrink_to_share<B: PageBackend>(&mut self, engine: &Engine<B>) {
        for in_use in [false, true] {
            for class in 1..CLASS_COUNT {
                let size = CLASSES.size_of(class as u8);
                while self.capacity() > self.share()
                    && (self.bin[class].misses > 0) == in_use
                    && self.room(class) * size > FREE_OF_CHARGE
                {
                    self.shrink(engine, class);
                }
            }
        }
    }

    /// Gives every object and array back.
    pub(crate) fn flush_all<B: PageBackend>(&mut self, engine: &Engine<B>) {
        for class in 1..CLASS_COUNT {
            let len = self.len(class);
            self.flush_oldest(engine, class, len);
            let left = self.len(class);
            self.flush_oldest(engine, class, left);
            self.relevel(class, 0);
        }
        budget::return_all(self);
    }

    /// The cache that a thread's slot leads to.
    ///
    /// # Safety
    /// `bins` is no sentinel.
    pub(crate) unsafe fn from_bins(bins: *mut Bins) -> NonNull<ThreadCache> {
        // SAFETY: a slot is never null, and one that is no sentinel is the start of a cache.
        unsafe { NonNull::new_unchecked(bins.cast()) }
    }
}
