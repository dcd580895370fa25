//! Arrays of slots for bins, in a few sizes, from type-stable pools of metadata.

use super::bins::{self, Slot};
use crate::arena::Pool;
use core::ptr::NonNull;

/// Slots of an array at each level. The step from 14 to 32 makes room for a whole batch.
const SLOTS: [u16; LEVELS] = [0, 2, 6, 14, 32, 64, 128, 256, 512, 1024];
/// Levels of arrays; level 0 is a bin without an array.
pub(super) const LEVELS: usize = 10;

/// Two guards.
const GUARDS: usize = 2;

macro_rules! pools {
    ($($level:literal => $name:ident),*) => {
        $(static $name: Pool<[usize; SLOTS[$level] as usize + GUARDS]> = Pool::new();)*

        /// An empty array of a level from 1 up, guards in place: its lower guard is the cursor of an empty bin.
        pub(super) fn alloc(level: usize) -> Option<*mut Slot> {
            let array: NonNull<Slot> = match level {
                $($level => $name.alloc()?.cast(),)*
                _ => return None,
            };
            // SAFETY: the array is fresh, with room for the level's slots and the guards.
            Some(unsafe { bins::fence(array, slots(level) + GUARDS) })
        }

        /// Gives an array back.
        ///
        /// # Safety
        /// The array came from `alloc` with the same level and no cursor points into it any more.
        pub(super) unsafe fn free(array: *mut Slot, level: usize) {
            let Some(array) = NonNull::new(array) else { return };
            match level {
                // SAFETY: handed on to the caller.
                $($level => unsafe { $name.free(array.cast()) },)*
                _ => debug_assert!(false, "level 0 has no array"),
            }
        }

        pub(super) fn lock_for_fork() {
            $($name.lock_for_fork();)*
        }

        /// # Safety
        /// As [`crate::lock::Lock::unlock_after_fork`].
        pub(super) unsafe fn unlock_after_fork() {
            // SAFETY: handed on to the caller.
            unsafe { $($name.unlock_after_fork();)* }
        }
    };
}

pools!(1 => L1, 2 => L2, 3 => L3, 4 => L4, 5 => L5, 6 => L6, 7 => L7, 8 => L8, 9 => L9);

/// Slots at a level.
#[inline]
pub(super) const fn slots(level: usize) -> usize {
    SLOTS[level] as usize
}
