//! Giving back what the CPUs' caches hold without need, and seeing to it that somebody comes by to do so.

use super::{CpuCache, area, cache_of, cpus, entry, with_cpu_stopped};
use crate::front::bins::sentinel_empty;
use crate::heap::Engine;
use core::sync::atomic::{AtomicUsize, Ordering};
use page_backend::PageBackend;
use size_classes::{CLASS_COUNT, CLASSES};

/// Time over which the lengths of bins are looked at before the least of them goes back, in nanoseconds.
const RECLAIM_AFTER: u64 = 500_000_000;
/// It is not worth stopping a CPU for fewer bytes.
const WORTH_BYTES: usize = 16 << 10;
/// CPUs that one tick looks at, and of those the CPUs that it may stop.
const LOOKS: usize = 16;
const STOPS: usize = 2;
/// Where the next tick goes on.
static LOOK_AT: AtomicUsize = AtomicUsize::new(0);

/// Slow paths of a CPU that do without its cache after [`ring`], at a tick and when a thread has ended: a program that makes more
/// calls than these before it is time for the next tick is busy enough to come to the slow path by itself.
pub(crate) const CALLS_AFTER_TICK: u32 = 32;
pub(crate) const CALLS_AFTER_THREAD: u32 = 4;

impl CpuCache {
    /// Notes how much each bin holds; returns the bytes that nobody needed since the last reclaim.
    fn look(&self) -> usize {
        let mut bytes = 0;
        for class in 1..CLASS_COUNT {
            let len = self.cache.len(class) as u16;
            let least = self.least[class].load(Ordering::Relaxed).min(len);
            self.least[class].store(least, Ordering::Relaxed);
            bytes += usize::from(least) * CLASSES.size_of(class as u8);
        }
        bytes
    }

    fn begin_anew(&self, now: u64) {
        for least in &self.least {
            least.store(u16::MAX, Ordering::Relaxed);
        }
        self.reclaimed.store(now, Ordering::Relaxed);
        self.events.store(self.cache.events(), Ordering::Relaxed);
    }
}

/// Gives back what CPUs' caches held without need for some time, or all of it when they are not in use. Called on ticks; `now` is
/// the monotonic clock in nanoseconds.
///
/// A hit in a CPU's cache counts nothing, so whether a bin is in use is seen from its lengths at the ticks: the least of them is
/// what could have been missing without anybody noticing. A CPU that nothing of the process runs on any more gives back everything
/// that way, and a busy one keeps what it turns over.
pub(crate) fn reclaim<B: PageBackend>(engine: &Engine<B>, now: u64) {
    let cpus = cpus();
    let mut stops = 0;
    for _ in 0..cpus.min(LOOKS) {
        let cpu = LOOK_AT.fetch_add(1, Ordering::Relaxed) % cpus;
        if let Some(cpu_cache) = cache_of(cpu)
            && cpu_cache.reclaim(engine, cpu, now)
        {
            stops += 1;
            if stops == STOPS {
                break;
            }
        }
    }
}

impl CpuCache {
    /// As the function of that name, for one CPU; whether it was stopped.
    fn reclaim<B: PageBackend>(&'static self, engine: &Engine<B>, cpu: usize, now: u64) -> bool {
        let cache = &self.cache;
        let mut give_all = area() == 0;
        let mut give_some = false;
        if !give_all {
            let unneeded = self.look();
            let since = self.reclaimed.load(Ordering::Relaxed);
            if since != 0 && now.wrapping_sub(since) < RECLAIM_AFTER {
                return false;
            }
            give_some = since != 0 && unneeded >= WORTH_BYTES;
            give_all = since != 0
                && unneeded == cache.bytes()
                && self.events.load(Ordering::Relaxed) == cache.events();
        }
        give_all &= cache.capacity() > 0;
        if give_all {
            with_cpu_stopped(cpu, self, |cache, open| cache.empty(engine, open));
        } else if give_some {
            let least = |class: usize| self.least[class].load(Ordering::Relaxed).into();
            with_cpu_stopped(cpu, self, |cache, open| cache.give_back(engine, open, least));
        }
        self.begin_anew(now);
        give_all || give_some
    }
}

/// Takes all caches off the table, so that the next calls come to the slow path and let time pass, if only few are made from now
/// on. What is in the middle of a sequence goes on with the cache it has found, which stays its CPU's.
///
/// Without this the last calls of a busy time would be the last to give anything back: what follows finds all it needs in the
/// caches. Called at the end of each tick, and when a thread has ended; `calls` of each CPU are served without its cache.
pub(crate) fn ring(calls: u32) {
    if area() == 0 {
        return;
    }
    for cpu in 0..cpus() {
        let Some(cpu_cache) = cache_of(cpu) else { continue };
        let attached = cpu_cache.bins();
        let taken =
            entry(cpu).compare_exchange(attached, sentinel_empty(), Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            cpu_cache.calls_without.store(calls, Ordering::Relaxed);
        }
    }
}
