//! How many threads there are, and what that makes of the front end: bins of their own for few threads, the CPUs' caches for many.
//!
//! A thread's own bins are the fastest path, and what they keep grows with the threads. The CPUs' caches keep what a machine of
//! that size needs, however many threads share them, and an idle thread holds nothing. So threads have bins while there are few.
//! From a bound on new threads get none, and those that have some hand them back when a bin misses; when threads have become few
//! again they get bins as new ones do. Between the two bounds everything stays as it is, so a program that moves around
//! one of them does not switch with each thread.
//!
//! A thread counts from its first slow path on, or from its start if the heap is told of that, to its end.

use super::per_cpu;
use crate::settings::PerCpu;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use page_backend::sys;

/// From so many threads on they are many, on any machine.
const MANY: usize = 16;
/// And from so many on for each CPU that the process may use. `docs/performance.md` has the measurement.
const MANY_PER_CPU: usize = 8;

static AUTO: AtomicBool = AtomicBool::new(true);
/// Threads that are alive and have been met.
static LIVE: AtomicIsize = AtomicIsize::new(0);
/// From this many threads on the CPUs' caches are in use. On a machine with more than two CPUs it rises when first reached.
static BOUND: AtomicUsize = AtomicUsize::new(MANY);
/// The fewest threads that there were since this was last forgotten, or since they have doubled.
static FEWEST: AtomicIsize = AtomicIsize::new(isize::MAX);
static BOUND_KNOWN: AtomicBool = AtomicBool::new(false);

/// Follows the settings.
pub(crate) fn choose(choice: PerCpu) {
    AUTO.store(choice == PerCpu::Auto, Ordering::Relaxed);
    if choice == PerCpu::Always {
        per_cpu::put_in_use();
    }
}

/// A thread has begun to use the heap.
pub(crate) fn thread_met() {
    let live = LIVE.fetch_add(1, Ordering::Relaxed) + 1;
    if live / 2 > FEWEST.load(Ordering::Relaxed) {
        FEWEST.store(live, Ordering::Relaxed);
    }
    if live >= BOUND.load(Ordering::Relaxed) as isize
        && per_cpu::area() == 0
        && AUTO.load(Ordering::Relaxed)
        && live >= bound() as isize
    {
        per_cpu::put_in_use();
    }
}

/// What the end of a thread means for what many threads shared.
pub(crate) enum Gone {
    /// Nothing: there were few threads, or as few as now a moment ago.
    Usual,
    /// So few threads were not seen for a while; this many are left.
    Fewer(usize),
    /// Threads have just become few.
    Few,
}

/// A thread that was met has ended.
pub(crate) fn thread_gone() -> Gone {
    let live = LIVE.fetch_sub(1, Ordering::Relaxed) - 1;
    let few = (BOUND.load(Ordering::Relaxed) / 2) as isize;
    let shared = per_cpu::area() != 0;
    if live < few && shared && AUTO.load(Ordering::Relaxed) {
        per_cpu::put_out_of_use();
    }
    if live == few - 1 && shared {
        Gone::Few
    } else if shared && live < FEWEST.fetch_min(live, Ordering::Relaxed) {
        Gone::Fewer(live.max(0) as usize)
    } else {
        Gone::Usual
    }
}

/// Forgets how few threads there were until now. Called now and then.
pub(crate) fn forget_fewest() {
    FEWEST.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// In a forked child one thread is left.
pub(crate) fn after_fork_in_child() {
    LIVE.store(1, Ordering::Relaxed);
    if AUTO.load(Ordering::Relaxed) {
        per_cpu::put_out_of_use();
    }
}

#[inline(never)]
fn bound() -> usize {
    if !BOUND_KNOWN.swap(true, Ordering::Relaxed) {
        BOUND.store(MANY.max(MANY_PER_CPU * sys::usable_cpus()), Ordering::Relaxed);
    }
    BOUND.load(Ordering::Relaxed)
}
