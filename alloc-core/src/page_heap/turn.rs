//! Who maps more memory. One thread does at a time, and those that need a little wait for what it brings.
//!
//! Without this, a thousand threads that find the heap empty at the same moment map a thousand times the growth,
//! which is address space at best, and memory where it is taken when it is mapped.

use core::sync::atomic::{AtomicU32, Ordering};
use page_backend::sys::{self, Errno};

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// How long a thread waits for another's mapping before it asks again, in nanoseconds.
const PATIENCE: u64 = 10_000_000;

/// The right to map. Not a lock: nothing is guarded by it, and waiting for it ends.
pub(super) struct Turn(AtomicU32);

/// Held while mapping.
pub(super) struct Held<'a>(&'a Turn);

impl Turn {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the turn if nobody has it.
    pub(super) fn take(&self) -> Option<Held<'_>> {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Held(self))
    }

    /// Waits until the turn is given back. `false` when that took too long: the holder may be the code that this
    /// thread's signal handler interrupted.
    pub(super) fn wait(&self) -> bool {
        let held = self.0.compare_exchange(HELD, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
        if held == Err(FREE) {
            return true;
        }
        sys::futex_wait(&self.0, AWAITED, Some(PATIENCE)) != Err(Errno::ETIMEDOUT)
    }

    /// In a forked child: the thread that had the turn is not in this process.
    pub(super) fn reset(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) == AWAITED {
            sys::futex_wake(&self.0.0, u32::MAX);
        }
    }
}
