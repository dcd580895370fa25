//! Bins: the arrays of pointers that `malloc` pops from and `free` pushes to.
//!
//! A bin is one cursor into an array of slots that is fenced by two guard values: a null below the lowest slot,
//! [`FULL`] above the highest. Popping reads the slot under the cursor and finds null when the bin is
//! empty; pushing looks at the slot above and finds `FULL` when there is no room. So neither reads a bound, and a
//! cursor at a fence without slots is a bin that always misses.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Bins of a front end, class 0 ("no class") included: its bin always misses.
pub(crate) const BINS: usize = size_classes::CLASS_COUNT;

/// The guard above the highest slot; no object has this address.
const FULL: *mut u8 = core::ptr::without_provenance_mut(1);

/// A place for one pointer.
pub(crate) type Slot = *mut u8;

/// A fence around no slots, aligned as any array of slots is.
#[repr(align(16))]
struct Fence([Slot; 2]);
// SAFETY: never written.
unsafe impl Sync for Fence {}
static FENCE: Fence = Fence([null_mut(), FULL]);
static TAKEN: Fence = Fence([null_mut(), FULL]);

/// The cursors of one front end, indexed by class.
///
/// Written by the owning thread alone; others read them to count.
#[repr(C)]
pub(crate) struct Bins {
    cursors: [AtomicPtr<Slot>; BINS],
}

const ALWAYS_MISS: *mut Slot = (&raw const FENCE.0).cast_mut().cast();

/// Sets of bins that always miss, overlapping: they differ by address alone, which says what state the thread is in.
#[repr(transparent)]
pub(crate) struct Sentinels([AtomicPtr<Slot>; BINS + 4]);
pub(crate) static SENTINELS: Sentinels = Sentinels([const { AtomicPtr::new(ALWAYS_MISS) }; BINS + 4]);

const fn sentinel(index: usize) -> *mut Bins {
    // SAFETY: four places further at the most, and the static has room for that.
    unsafe { (&raw const SENTINELS.0).cast::<AtomicPtr<Slot>>().add(index).cast_mut().cast() }
}

/// The slot of a thread that has no front end yet.
pub(crate) const fn sentinel_empty() -> *mut Bins {
    sentinel(0)
}

/// The slot of a thread that is inside the slow path: what it or its signal handlers allocate takes the nested path.
pub(crate) const fn sentinel_busy() -> *mut Bins {
    sentinel(1)
}

/// The slot of a thread without a front end for good: it has handed it back and will end, or all are checked.
pub(crate) const fn sentinel_direct() -> *mut Bins {
    sentinel(2)
}

/// The slot of a thread that has no bins of its own and uses the CPUs' caches, as long as those are in use.
pub(crate) const fn sentinel_shared() -> *mut Bins {
    sentinel(4)
}

/// The slot of a thread that runs code which allocates records of the heap itself: those come from the metadata arena.
pub(crate) const fn sentinel_metadata() -> *mut Bins {
    sentinel(3)
}

impl Bins {
    /// Bins that all miss.
    pub(crate) const fn new() -> Self {
        Self { cursors: [const { AtomicPtr::new(ALWAYS_MISS) }; BINS] }
    }

    /// Takes an object out of a bin, or misses.
    ///
    /// # Safety
    /// `bins` is a sentinel or this thread's own; `class < BINS`.
    #[inline(always)]
    pub(crate) unsafe fn pop(bins: *mut Bins, class: usize) -> Option<NonNull<u8>> {
        debug_assert!(class < BINS);
        // SAFETY: the class is in range, and a cursor always points to a slot or the lower fence.
        unsafe {
            let bin = (&raw mut (*bins).cursors).cast::<AtomicPtr<Slot>>().add(class);
            let cursor = (*bin).load(Ordering::Relaxed);
            let object = NonNull::new(cursor.read())?;
            move_cursor::<-1>(bins, class);
            Some(object)
        }
    }

    /// Puts an object into a bin; `false` when the bin has no room or already has that object on top.
    ///
    /// # Safety
    /// `bins` is a sentinel or this thread's own; `class < BINS`.
    #[inline(always)]
    pub(crate) unsafe fn push(bins: *mut Bins, class: usize, object: *mut u8) -> bool {
        debug_assert!(class < BINS);
        // SAFETY: the class is in range, and above the slot that a cursor points to is a slot or the upper fence.
        unsafe {
            let bin = (&raw mut (*bins).cursors).cast::<AtomicPtr<Slot>>().add(class);
            let cursor = (*bin).load(Ordering::Relaxed);
            if cursor.read() == object {
                return false;
            }
            let above = cursor.add(1);
            if above.read() == FULL {
                return false;
            }
            above.write(object);
            // After the slot is written, so that a forked child which finds the cursor finds the slot too.
            move_cursor::<1>(bins, class);
        }
        true
    }

    /// The cursor of a bin.
    #[inline]
    pub(crate) fn cursor(&self, class: usize) -> *mut Slot {
        self.cursors[class].load(Ordering::Relaxed)
    }

    /// Moves the cursor of a bin.
    ///
    /// # Safety
    /// `cursor` points to a slot of an array made by [`fence`], or to its lower guard, and the slots up to it hold objects.
    pub(crate) unsafe fn set_cursor(&self, class: usize, cursor: *mut Slot) {
        self.cursors[class].store(cursor, Ordering::Relaxed);
    }
}

/// Moves a bin's cursor by slots, in one instruction on x86-64: cheaper by one than to compute and store it.
///
/// # Safety
/// `bins` is this thread's own, `class < BINS`, and the cursor stays within its guards.
#[inline(always)]
unsafe fn move_cursor<const SLOTS: isize>(bins: *mut Bins, class: usize) {
    // SAFETY: the caller's contract. What was written before stays before it: x86-64 keeps stores in order, and so does the
    // compiler around assembler that may use memory.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        core::arch::asm!(
            "add qword ptr [{bins} + {class}*8], {bytes}",
            bins = in(reg) bins,
            class = in(reg) class,
            bytes = const SLOTS * size_of::<Slot>() as isize,
            options(nostack)
        );
    }
    // SAFETY: as above.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unsafe {
        let bin = (&raw mut (*bins).cursors).cast::<AtomicPtr<Slot>>().add(class);
        (*bin).store((*bin).load(Ordering::Relaxed).offset(SLOTS), Ordering::Release);
    }
}

/// Puts the guards around an array of `room` words, and returns the cursor of the empty bin.
///
/// # Safety
/// `array` has room for `room` words, none of which holds 1 but perhaps the last, and is exclusively the caller's; `room > 2`.
pub(crate) unsafe fn fence(array: NonNull<Slot>, room: usize) -> *mut Slot {
    debug_assert!(room > 2);
    let array = array.as_ptr();
    // SAFETY: the array has `room` words.
    unsafe {
        array.write(null_mut());
        array.add(room - 1).write(FULL);
    }
    array
}

/// The cursor of a bin that the slow path of some thread has open: it misses, and differs from [`no_slots`].
pub(crate) const fn taken() -> *mut Slot {
    (&raw const TAKEN.0).cast_mut().cast()
}

/// The cursor of a bin without slots.
pub(crate) const fn no_slots() -> *mut Slot {
    ALWAYS_MISS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: usize) -> *mut u8 {
        core::ptr::without_provenance_mut(number * 16)
    }

    #[test]
    fn sentinels_miss_for_every_class_and_every_pointer() {
        let sentinels =
            [sentinel_empty(), sentinel_busy(), sentinel_direct(), sentinel_metadata(), sentinel_shared()];
        for bins in sentinels {
            for class in 0..BINS {
                // SAFETY: sentinels may be popped and pushed by any thread.
                unsafe {
                    assert!(Bins::pop(bins, class).is_none());
                    assert!(!Bins::push(bins, class, object(1)));
                    assert!(!Bins::push(bins, class, null_mut()));
                }
            }
        }
    }

    #[test]
    fn a_bin_is_a_stack_between_its_guards() {
        let mut room: [Slot; 6] = [null_mut(); 6];
        let mut bins = Bins::new();
        let array = NonNull::from(&mut room).cast();
        // SAFETY: the array has room for six words and lives as long as the bins.
        unsafe {
            bins.set_cursor(1, fence(array, 6));
            let bins = &raw mut bins;
            assert!(Bins::pop(bins, 1).is_none());
            for number in 1..=4 {
                assert!(Bins::push(bins, 1, object(number)));
                assert!(!Bins::push(bins, 1, object(number)), "the top object is not taken twice");
            }
            assert!(!Bins::push(bins, 1, object(5)), "the upper guard stops the push");
            for number in (1..=4).rev() {
                assert_eq!(Bins::pop(bins, 1).map(NonNull::as_ptr), Some(object(number)));
            }
            assert!(Bins::pop(bins, 1).is_none());
            assert!(Bins::pop(bins, 2).is_none(), "other bins are not touched");
        }
    }
}
