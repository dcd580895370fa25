//! Arrays of slots for bins, in a few sizes, from type-stable pools of metadata.
//!
//! An array with its two guards is a power of two of words long and aligned to its length, so a cursor leads to its lower guard.

use super::bins::{self, Slot};
use crate::arena::Pool;
use core::ptr::NonNull;

/// Levels of arrays; level 0 is a bin without an array.
pub(super) const LEVELS: usize = 10;

/// Words of an array at a level, its two guards among them.
const fn words(level: usize) -> usize {
    2 << level
}

/// Slots of an array at a level: 0, 2, 6, 14, 30 and so on.
#[inline]
pub(super) const fn slots(level: usize) -> usize {
    words(level) - 2
}

/// The lower guard of the array at `level` that a cursor points into.
#[inline]
pub(super) fn base(cursor: *mut Slot, level: usize) -> *mut Slot {
    cursor.map_addr(|address| address & !(words(level) * size_of::<Slot>() - 1))
}

macro_rules! pools {
    ($($level:literal => $pool:ident of $array:ident at $bytes:literal),*) => {
        $(
            #[repr(align($bytes))]
            struct $array {
                _words: [usize; words($level)],
            }
            const _: () = assert!(size_of::<$array>() == $bytes);
            static $pool: Pool<$array> = Pool::new();
        )*

        /// An empty array of a level from 1 up, guards in place: its lower guard is the cursor of an empty bin.
        pub(super) fn alloc(level: usize) -> Option<*mut Slot> {
            let array: NonNull<Slot> = match level {
                $($level => $pool.alloc()?.cast(),)*
                _ => return None,
            };
            // SAFETY: the array is fresh, with room for the level's slots and the guards. Its words were zero at first, and what
            // was written into them since are objects, the pool's link and the guards, at the same places.
            Some(unsafe { bins::fence(array, words(level)) })
        }

        /// Gives an array back.
        ///
        /// # Safety
        /// The array came from `alloc` with the same level and no cursor points into it any more.
        pub(super) unsafe fn free(array: *mut Slot, level: usize) {
            let Some(array) = NonNull::new(array) else { return };
            match level {
                // SAFETY: handed on to the caller.
                $($level => unsafe { $pool.free(array.cast()) },)*
                _ => debug_assert!(false, "level 0 has no array"),
            }
        }

        pub(super) fn lock_for_fork() {
            $($pool.lock_for_fork();)*
        }

        /// # Safety
        /// As [`crate::lock::Lock::unlock_after_fork`].
        pub(super) unsafe fn unlock_after_fork() {
            // SAFETY: handed on to the caller.
            unsafe { $($pool.unlock_after_fork();)* }
        }
    };
}

pools!(
    1 => P1 of A1 at 32, 2 => P2 of A2 at 64, 3 => P3 of A3 at 128, 4 => P4 of A4 at 256, 5 => P5 of A5 at 512,
    6 => P6 of A6 at 1024, 7 => P7 of A7 at 2048, 8 => P8 of A8 at 4096, 9 => P9 of A9 at 8192
);
