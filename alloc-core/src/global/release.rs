//! Giving memory back to the system: when asked, and over time.
//!
//! Time passes on slow paths: every few milliseconds one of them does a little work, a millisecond at the most. A program that
//! makes no calls gives nothing back by itself; the helper thread (`background_thread`) is for that.

use super::HEAP;
use crate::front::census::{self, Gone};
use crate::front::{self, parking, per_cpu};
use crate::page_heap::ReleaseMode;
use crate::settings::Delay;
use crate::stats_page;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use page_backend::sys;
use size_classes::CLASS_COUNT;

/// Counts of the processor's clock between two looks at the real clock: 1 to 8 ms on today's machines.
const GATE: u64 = 1 << 23;
/// The part of a tick, in nanoseconds, that may go to emptying transfer caches.
const SWEEP_NANOS: u64 = 300_000;
/// Nanoseconds between two sweeps over all transfer caches.
const SWEEP_EVERY: u64 = 1_000_000_000;

/// Bytes that the end of one thread gives back: fewer are left for the next, and more would take too long.
const LEAST_SHARE: usize = 64 << 10;
const MOST_SHARE: usize = 2 << 20;

/// Nanoseconds without another attempt to free memory for a request, after one in vain.
const VAIN_PAUSE: u64 = 1_000_000;

/// When emptying the caches for a request was in vain last.
static LAST_VAIN: AtomicU64 = AtomicU64::new(0);
static LAST_GATE: AtomicU64 = AtomicU64::new(0);
/// Free memory has waited longer than it should, because no time passed: every call of a slow path does a part.
static OVERDUE: AtomicBool = AtomicBool::new(false);
static TICKING: AtomicBool = AtomicBool::new(false);
static LAST_SWEEP: AtomicU64 = AtomicU64::new(0);
/// The class whose transfer cache the running sweep is at; `CLASS_COUNT` when none is running.
static SWEEP_AT: AtomicUsize = AtomicUsize::new(CLASS_COUNT);

/// Gives everything back that the calling thread's cache, the transfer caches and the page heap have free; `true` when
/// anything went back.
pub fn trim() -> bool {
    let Some(mut inside) = front::enter_existing() else { return false };
    if let Some(cache) = inside.cache() {
        cache.flush_all(&HEAP);
    }
    parking::give_back_all(&HEAP);
    per_cpu::drain_all(&HEAP);
    HEAP.empty_transfers();
    HEAP.release(usize::MAX, ReleaseMode::Everything) > 0
}

/// What `attempt` gives, tried once more where that is nothing: after the caches have given back what they keep, and the page
/// heap what is free. A request for more than the heap has mapped cannot be met in this way.
#[cold]
#[inline(never)]
pub(super) fn retry_after_trim<T>(size: usize, attempt: impl FnOnce() -> Option<T>) -> Option<T> {
    let now = sys::clock_monotonic();
    let recent = now.wrapping_sub(LAST_VAIN.load(Ordering::Relaxed)) < VAIN_PAUSE;
    if recent || size > HEAP.page_accounts().tiers.iter().map(|tier| tier.mapped).sum() {
        return None;
    }
    trim();
    let got = attempt();
    if got.is_none() {
        LAST_VAIN.store(now, Ordering::Relaxed);
    }
    got
}

/// A cheap clock that only gates the real one.
#[inline]
fn cycles() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction has no precondition.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    sys::clock_monotonic_coarse()
}

/// Whether every call that comes by should do a part of the work.
#[inline]
pub(super) fn is_overdue() -> bool {
    OVERDUE.load(Ordering::Relaxed)
}

/// Called on slow paths, outside all locks: lets time pass.
#[inline]
pub(super) fn on_slow_path() {
    let now = cycles();
    let last = LAST_GATE.load(Ordering::Relaxed);
    if now.wrapping_sub(last) > GATE || is_overdue() {
        LAST_GATE.store(now, Ordering::Relaxed);
        // The first look only starts the clock, so that a short-lived process pays nothing.
        if last != 0 {
            tick();
        }
    }
}

/// Called when a thread has ended, outside all locks.
///
/// Of many threads that end in a wave, each takes its share of the free memory with it: behind the wave nobody may make calls
/// that let time pass.
pub(super) fn on_thread_end(gone: Gone) {
    on_slow_path();
    match gone {
        Gone::Usual => {}
        Gone::Fewer(left) => {
            release_share(left);
            per_cpu::ring(per_cpu::CALLS_AFTER_THREAD);
        }
        Gone::Few => {
            if let Some(_inside) = front::enter_without_cache() {
                per_cpu::drain_all(&HEAP);
            }
            tick();
        }
    }
}

/// Gives back one part of the free memory in `left` and one.
#[inline(never)]
fn release_share(left: usize) {
    if super::start::settings().release_delay == Delay::Never {
        return;
    }
    let Some(_inside) = front::enter_without_cache() else { return };
    let free: usize = HEAP.pages.accounts().tiers.iter().map(|tier| tier.free).sum();
    let share = (free / (left + 1)).min(MOST_SHARE);
    if share >= LEAST_SHARE {
        HEAP.pages.release(share, ReleaseMode::Everything);
    }
}

/// A bounded amount of work that is due by now; what another thread is at already is left to it.
#[inline(never)]
pub(super) fn tick() {
    let Some(inside) = front::enter_without_cache() else { return };
    if TICKING.swap(true, Ordering::Acquire) {
        return;
    }
    let now = sys::clock_monotonic_coarse();
    per_cpu::reclaim(&HEAP, now);
    let start = sys::clock_monotonic();
    while parking::give_back_one(&HEAP, now) && sys::clock_monotonic() - start < SWEEP_NANOS {}
    sweep_some(now);
    OVERDUE.store(HEAP.tick(now), Ordering::Relaxed);
    super::soft_limit::heed(now);
    super::fallback::tell();
    per_cpu::ring(per_cpu::CALLS_AFTER_TICK);
    TICKING.store(false, Ordering::Release);
    drop(inside);
    stats_page::tick(now, super::snapshot);
}

/// What is left to tell when the process exits.
pub fn at_exit() {
    if let Some(_inside) = front::enter_without_cache() {
        super::fallback::tell();
    }
}

/// In a forked child: the thread that was ticking is gone.
pub(super) fn after_fork_in_child() {
    TICKING.store(false, Ordering::Release);
}

/// In a forked child: time begins anew, for most children are as short-lived as any small process.
pub(super) fn begin_anew() {
    LAST_GATE.store(0, Ordering::Relaxed);
    stats_page::begin_anew();
}

/// Goes on with the sweep over the transfer caches, or begins one when it is time.
fn sweep_some(now: u64) {
    let mut class = SWEEP_AT.load(Ordering::Relaxed);
    if class >= CLASS_COUNT {
        let last = LAST_SWEEP.load(Ordering::Relaxed);
        // What a growing heap has lying in caches of other sizes makes it larger than it need be.
        if last != 0 && now.wrapping_sub(last) < SWEEP_EVERY && !HEAP.pages.has_grown() {
            return;
        }
        LAST_SWEEP.store(now, Ordering::Relaxed);
        census::forget_fewest();
        if last == 0 {
            return;
        }
        class = 1;
    }
    let start = sys::clock_monotonic();
    while class < CLASS_COUNT {
        HEAP.sweep_transfer(class as u8);
        class += 1;
        if sys::clock_monotonic() - start > SWEEP_NANOS {
            break;
        }
    }
    SWEEP_AT.store(class, Ordering::Relaxed);
}
