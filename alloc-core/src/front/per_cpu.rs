//! The per-CPU front end: one cache for each CPU, used by whichever thread runs there.
//!
//! What is cached is bounded by CPUs, not by threads, and a thread that ends or idles holds nothing. The fast path is a
//! restartable sequence ([`super::rseq`]); a signal handler that allocates in its middle restarts it.
//!
//! The slow path opens a bin by putting a cursor that always misses in its place, and closes it by a plain store: while the
//! bin is open nothing else stores to its cursor. Another CPU's cache is emptied by taking its bins off the table and having the
//! kernel restart every sequence on that CPU (membarrier(2)); after that nobody has a pointer into them.

use super::bins::{self, Bins, sentinel_busy, sentinel_empty, sentinel_metadata};
use super::cache::{Cache, Due, OpenBin};
use super::rseq;
use crate::arena::Pool;
use crate::heap::Engine;
use crate::lock::{Lock, Rank};
use crate::report;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use page_backend::{PageBackend, sys};
use size_classes::CLASS_COUNT;

/// CPUs that the table has room for; machines with more get per-thread caches.
const MAX_CPUS: usize = 1024;

/// The bins of each CPU, from CPU -2 on: its own cache's; `sentinel_empty` where it has none yet; `sentinel_busy` while it
/// is drained.
static TABLE: [AtomicPtr<Bins>; MAX_CPUS + 2] = [const { AtomicPtr::new(null_mut()) }; MAX_CPUS + 2];
/// The cache of each CPU, on the table or not.
static CACHES: [AtomicPtr<Cache>; MAX_CPUS] = [const { AtomicPtr::new(null_mut()) }; MAX_CPUS];
static RECORDS: Pool<Cache> = Pool::new();
/// Offset of the rseq area from the thread pointer; 0 while this front end is not in use.
static AREA: AtomicIsize = AtomicIsize::new(0);
/// CPUs that the machine may have.
static CPUS: AtomicUsize = AtomicUsize::new(0);
/// Held while a CPU is drained.
static DRAINING: Lock<()> = Lock::new(Rank::Draining, ());
/// Where the search for idle CPUs goes on, and each CPU's events when it was last looked at.
static IDLE_AT: AtomicUsize = AtomicUsize::new(0);
static SEEN: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// The rseq area's offset, or 0 when this front end is not in use.
#[inline(always)]
pub(crate) fn area() -> isize {
    AREA.load(Ordering::Relaxed)
}

/// Takes an object out of the current CPU's bin; null when it misses.
///
/// # Safety
/// `area` is what [`area`] gave, not 0; `class` is below the number of bins.
#[inline(always)]
pub(crate) unsafe fn pop(area: isize, class: usize) -> *mut u8 {
    // SAFETY: the table has an entry for every CPU since `area` is not 0.
    unsafe { rseq::pop(area, TABLE.as_ptr(), class) }
}

/// Puts an object into the current CPU's bin; `false` when it has no room, or has the object on top already.
///
/// # Safety
/// As for [`pop`].
#[inline(always)]
pub(crate) unsafe fn push(area: isize, class: usize, object: *mut u8) -> bool {
    // SAFETY: as in `pop`.
    unsafe { rseq::push(area, TABLE.as_ptr(), class, object) }
}

/// Puts this front end in use, where libc, kernel and machine allow it; `false` leaves the per-thread one.
pub(crate) fn activate() -> bool {
    let Some(area) = rseq::area() else { return false };
    let cpus = sys::possible_cpus();
    if rseq::cpu(area) < 0 || cpus == 0 || cpus > MAX_CPUS || !sys::membarrier_register_rseq() {
        return false;
    }
    for entry in &TABLE[..cpus + 2] {
        entry.store(sentinel_empty(), Ordering::Relaxed);
    }
    CPUS.store(cpus, Ordering::Relaxed);
    AREA.store(area, Ordering::Release);
    true
}

fn entry(cpu: usize) -> &'static AtomicPtr<Bins> {
    &TABLE[cpu + 2]
}

/// The caches made so far.
pub(crate) fn caches() -> impl Iterator<Item = &'static Cache> {
    CACHES[..CPUS.load(Ordering::Relaxed)].iter().filter_map(|cache| {
        // SAFETY: a CPU's cache is never freed.
        unsafe { cache.load(Ordering::Acquire).as_ref() }
    })
}

/// Opens a bin of the current CPU; `None` when another thread has it open, the CPU is being drained, or memory for its cache is
/// out.
fn open(class: usize) -> Option<OpenBin<'static>> {
    let area = area();
    for _ in 0..2 {
        // SAFETY: the front end is in use; the class is that of a bin.
        let (bins, cursor) = unsafe {
            let sentinels = (sentinel_empty(), sentinel_metadata());
            rseq::take(area, TABLE.as_ptr(), class, bins::taken(), sentinels)
        };
        if bins == sentinel_empty() {
            make(rseq::cpu(area))?;
            continue;
        }
        if bins == sentinel_busy() || cursor == bins::taken() {
            return None;
        }
        // SAFETY: bins on the table that are no sentinel are the start of a cache, which is never freed. The bin is ours: its
        // cursor always misses until it is closed.
        return Some(unsafe { OpenBin::new(&*bins.cast::<Cache>(), class, cursor) });
    }
    None
}

/// Gives a CPU its cache, if it has none.
#[cold]
fn make(cpu: i32) -> Option<()> {
    let cpu = usize::try_from(cpu).ok().filter(|&cpu| cpu < CPUS.load(Ordering::Relaxed))?;
    let record = RECORDS.alloc()?;
    // SAFETY: the record is fresh.
    unsafe { record.write(Cache::new()) };
    if CACHES[cpu].compare_exchange(null_mut(), record.as_ptr(), Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        // SAFETY: nobody has seen the record.
        unsafe { RECORDS.free(record) };
        return Some(());
    }
    entry(cpu).store(record.as_ptr().cast(), Ordering::Release);
    Some(())
}

/// Refills the current CPU's bin and returns one object; null when memory is out.
pub(crate) fn refill<B: PageBackend>(engine: &Engine<B>, class: usize) -> *mut u8 {
    let Some(mut bin) = open(class) else {
        let mut object = null_mut();
        // SAFETY: there is room for one object.
        unsafe { engine.take(class as u8, 1, &mut object) };
        return object;
    };
    let object = bin.refill(engine);
    close(engine, bin);
    object
}

/// Takes an object back that the current CPU's bin had no room for.
///
/// # Safety
/// The caller gives the object away.
pub(crate) unsafe fn overflow<B: PageBackend>(engine: &Engine<B>, class: usize, object: *mut u8) {
    let Some(mut bin) = open(class) else {
        // SAFETY: handed on to the caller.
        return unsafe { engine.put(class as u8, &object, 1, false) };
    };
    bin.overflow(engine, object);
    close(engine, bin);
}

/// Closes a bin, and does what has fallen due on its cache.
fn close<B: PageBackend>(engine: &Engine<B>, bin: OpenBin<'static>) {
    let cache = bin.cache();
    drop(bin);
    // The thread may be on another CPU by now, and then opens that one's bins: any cache gains by it.
    match cache.event() {
        Due::Nothing => {}
        Due::Sweep => cache.sweep(engine, open),
        Due::Shrink => cache.shrink_to_share(engine, open),
    }
}

/// Empties the cache of a CPU, whoever runs there.
fn drain<B: PageBackend>(engine: &Engine<B>, cpu: usize) {
    // SAFETY: a CPU's cache is never freed.
    let Some(cache) = (unsafe { CACHES[cpu].load(Ordering::Acquire).as_ref() }) else { return };
    let _draining = DRAINING.lock();
    entry(cpu).store(sentinel_busy(), Ordering::SeqCst);
    if sys::membarrier_rseq(cpu) {
        cache.empty(engine, |class| {
            let cursor = cache.bins.cursor(class);
            if cursor == bins::taken() {
                return None;
            }
            // SAFETY: no sequence has the bins any more, none finds them before they are back on the table, and the slow path
            // of a thread that had this bin open would have left its mark.
            Some(unsafe { OpenBin::new(cache, class, cursor) })
        });
    }
    entry(cpu).store(core::ptr::from_ref(cache).cast_mut().cast(), Ordering::SeqCst);
}

/// Empties the caches of all CPUs.
pub(crate) fn drain_all<B: PageBackend>(engine: &Engine<B>) {
    for cpu in 0..CPUS.load(Ordering::Relaxed) {
        drain(engine, cpu);
    }
}

/// Empties the cache of one CPU whose slow path nobody took since it was last looked at. Called now and then.
pub(crate) fn drain_an_idle_one<B: PageBackend>(engine: &Engine<B>) {
    let cpus = CPUS.load(Ordering::Relaxed);
    if cpus == 0 {
        return;
    }
    let cpu = IDLE_AT.fetch_add(1, Ordering::Relaxed) % cpus;
    // SAFETY: a CPU's cache is never freed.
    if let Some(cache) = unsafe { CACHES[cpu].load(Ordering::Acquire).as_ref() } {
        let events = cache.events();
        if SEEN[cpu].swap(events, Ordering::Relaxed) == events && cache.objects() > 0 {
            drain(engine, cpu);
        }
    }
}

/// Keeps drains out for the time of a fork: they take the engine's locks, so this comes before those.
pub(crate) fn lock_for_fork() {
    DRAINING.lock_for_fork();
}

/// # Safety
/// As [`Lock::unlock_after_fork`].
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: handed on to the caller.
    unsafe { DRAINING.unlock_after_fork() }
}

pub(crate) fn lock_pools_for_fork() {
    RECORDS.lock_for_fork();
}

/// # Safety
/// As [`Lock::unlock_after_fork`].
pub(crate) unsafe fn unlock_pools_after_fork() {
    // SAFETY: handed on to the caller.
    unsafe { RECORDS.unlock_after_fork() }
}

/// In a forked child: bins that other threads had open are nobody's now, and are made empty.
///
/// # Safety
/// The calling thread is the only one.
pub(crate) unsafe fn after_fork_in_child() {
    if area() == 0 {
        return;
    }
    sys::membarrier_register_rseq();
    for cache in caches() {
        for class in 1..CLASS_COUNT {
            if cache.bins.cursor(class) == bins::taken() {
                // What the bin held is not known: its owner may have been moving it.
                report::lost(1);
                // SAFETY: nobody uses the bin.
                unsafe { cache.abandon(class) };
            }
        }
    }
}
