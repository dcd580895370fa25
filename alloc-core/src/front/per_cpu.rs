//! The per-CPU front end: one cache for each CPU, used by whichever thread runs there.
//!
//! What is cached is bounded by CPUs, not by threads, and a thread that ends or idles holds nothing. The fast path is a
//! restartable sequence ([`super::rseq`]); a signal handler that allocates in its middle restarts it.
//!
//! The slow path opens a bin by putting a cursor that always misses in its place, and closes it by a plain store: while the
//! bin is open nothing else stores to its cursor. Another CPU's cache is emptied by taking its bins off the table and having the
//! kernel restart every sequence on that CPU (membarrier(2)); after that nobody has a pointer into them.

mod reclaim;

pub use super::rseq::RESTARTS;
pub(crate) use super::rseq::{Descriptor, restarts};
pub(crate) use reclaim::{CALLS_AFTER_THREAD, CALLS_AFTER_TICK, reclaim, ring};

use super::bins::{self, Bins, sentinel_busy, sentinel_empty, sentinel_metadata};
use super::cache::{Cache, Due};
use super::open_bin::OpenBin;
use super::rseq::{self, STRAIGHT};
use crate::arena::Pool;
use crate::heap::{Block, Engine};
use crate::lock::{Lock, Rank};
use crate::page_map::{PAGE_MAP, ROOT_LEN};
use crate::report;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use page_backend::{PageBackend, sys};
use size_classes::{CLASS_COUNT, CLASSES, MAX_TINY};

/// CPUs that the table has room for; machines with more get per-thread caches.
const MAX_CPUS: usize = 1024;

/// What calls on the CPUs' caches read. It is a part of the page map, so that one register reaches all of it.
#[repr(C, align(32))]
pub(crate) struct Tables {
    /// Copies of the descriptors of the naked functions' sections: with its own each finds the rest.
    pub(crate) descriptors: [[AtomicU64; 4]; STRAIGHT],
    /// The bins of each CPU, from CPU -2 on: its own cache's; `sentinel_empty` where it has none yet; `sentinel_busy` while it
    /// is drained.
    pub(crate) bins: [AtomicPtr<Bins>; MAX_CPUS + 2],
    /// The class of each small size, byte by byte, which takes two instructions less than in steps.
    pub(crate) class_of: [AtomicU8; MAX_TINY + 1],
}

impl Tables {
    pub(crate) const fn new() -> Self {
        Self {
            descriptors: [const { [const { AtomicU64::new(0) }; 4] }; STRAIGHT],
            bins: [const { AtomicPtr::new(null_mut()) }; MAX_CPUS + 2],
            class_of: [const { AtomicU8::new(0) }; MAX_TINY + 1],
        }
    }
}

static TABLES: &Tables = &PAGE_MAP.cpus;
/// The cache of each CPU, on the table or not.
#[unsafe(link_section = ".bss.tables")]
static CACHES: [AtomicPtr<CpuCache>; MAX_CPUS] = [const { AtomicPtr::new(null_mut()) }; MAX_CPUS];
static RECORDS: Pool<CpuCache> = Pool::new();
/// Offset of the rseq area from the thread pointer; 0 while this front end is not in use.
static AREA: AtomicIsize = AtomicIsize::new(0);
/// The same offset, in use or not, since it is known that the front end may be used.
pub static OFFSET: AtomicIsize = AtomicIsize::new(0);
/// The first size and the first root word of the page map that the threads' bins do not serve: both 0 while this front end is
/// in use.
pub static BOUNDS: [AtomicUsize; 2] = [AtomicUsize::new(BINS_SERVE[0]), AtomicUsize::new(BINS_SERVE[1])];
const BINS_SERVE: [usize; 2] = [MAX_TINY + 1, ROOT_LEN];
/// CPUs that the machine may have; 0 until then.
static CPUS: AtomicUsize = AtomicUsize::new(0);
/// How far [`prepare`] got.
static STATE: AtomicU8 = AtomicU8::new(UNTRIED);
const UNTRIED: u8 = 0;
const TRYING: u8 = 1;
const READY: u8 = 2;
const IMPOSSIBLE: u8 = 3;
/// Held while a CPU is drained.
static DRAINING: Lock<()> = Lock::new(Rank::Draining, ());

/// A CPU's cache; its bins come first.
#[repr(C)]
struct CpuCache {
    cache: Cache,
    /// The least that each bin held at the looks since the last reclaim: so many objects nobody needed.
    least: [AtomicU16; CLASS_COUNT],
    /// When that was, on the monotonic clock in nanoseconds; 0 before the first look.
    reclaimed: AtomicU64,
    /// Slow paths that still do without the cache after it was taken off the table.
    calls_without: AtomicU32,
    /// The cache's slow paths at that time.
    events: AtomicU32,
}

impl CpuCache {
    const fn new() -> Self {
        Self {
            cache: Cache::new(),
            least: [const { AtomicU16::new(u16::MAX) }; CLASS_COUNT],
            reclaimed: AtomicU64::new(0),
            calls_without: AtomicU32::new(0),
            events: AtomicU32::new(0),
        }
    }

    fn bins(&self) -> *mut Bins {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

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
    unsafe { rseq::pop(area, TABLES.bins.as_ptr(), class) }
}

/// Puts an object into the current CPU's bin; `false` when it has no room, or has the object on top already.
///
/// # Safety
/// As for [`pop`].
#[inline(always)]
pub(crate) unsafe fn push(area: isize, class: usize, object: *mut u8) -> bool {
    // SAFETY: as in `pop`.
    unsafe { rseq::push(area, TABLES.bins.as_ptr(), class, object) }
}

/// Puts this front end in use, where libc, kernel and machine allow it.
#[cold]
pub(crate) fn put_in_use() {
    if STATE.load(Ordering::Relaxed) == UNTRIED
        && STATE.compare_exchange(UNTRIED, TRYING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        STATE.store(if prepare() { READY } else { IMPOSSIBLE }, Ordering::Release);
    }
    if STATE.load(Ordering::Acquire) == READY {
        AREA.store(OFFSET.load(Ordering::Relaxed), Ordering::Release);
        set_bounds([0; 2]);
    }
}

/// Leaves the front end to those that are just using it. What the caches hold goes back with [`reclaim`].
pub(crate) fn put_out_of_use() {
    set_bounds(BINS_SERVE);
    AREA.store(0, Ordering::Release);
}

/// Released: who finds a bound of 0 finds the table and the area's offset.
fn set_bounds(to: [usize; 2]) {
    for (bound, to) in BOUNDS.iter().zip(to) {
        bound.store(to, Ordering::Release);
    }
}

fn prepare() -> bool {
    let area = rseq::area();
    let cpus = sys::possible_cpus();
    if cpus == 0 || cpus > MAX_CPUS || !sys::membarrier_register_rseq() || !rseq::register(area) {
        return false;
    }
    for entry in &TABLES.bins[..cpus + 2] {
        entry.store(sentinel_empty(), Ordering::Relaxed);
    }
    for (copy, original) in TABLES.descriptors.iter().zip(rseq::descriptors()) {
        for (copy, &word) in copy.iter().zip(original.into_iter().flatten()) {
            copy.store(word, Ordering::Relaxed);
        }
    }
    for (size, class) in TABLES.class_of.iter().enumerate() {
        class.store(CLASSES.class_of_small(size), Ordering::Relaxed);
    }
    OFFSET.store(area, Ordering::Relaxed);
    CPUS.store(cpus, Ordering::Release);
    true
}

fn entry(cpu: usize) -> &'static AtomicPtr<Bins> {
    &TABLES.bins[cpu + 2]
}

/// The caches made so far.
pub(crate) fn caches() -> impl Iterator<Item = &'static Cache> {
    (0..cpus()).filter_map(|cpu| Some(&cache_of(cpu)?.cache))
}

/// Whether the front end was ever in use.
pub(crate) fn is_prepared() -> bool {
    cpus() != 0
}

/// CPUs that may have a cache.
fn cpus() -> usize {
    CPUS.load(Ordering::Acquire)
}

fn cache_of(cpu: usize) -> Option<&'static CpuCache> {
    // SAFETY: a CPU's cache is never freed.
    unsafe { CACHES[cpu].load(Ordering::Acquire).as_ref() }
}

/// Opens a bin of the current CPU; `None` when another thread has it open, the CPU is being drained, or memory for its cache is
/// out.
fn open(class: usize) -> Option<OpenBin<'static>> {
    let area = OFFSET.load(Ordering::Relaxed);
    for _ in 0..2 {
        // SAFETY: the front end is in use; the class is that of a bin.
        let (bins, cursor) = unsafe {
            let sentinels = (sentinel_empty(), sentinel_metadata());
            rseq::take(area, TABLES.bins.as_ptr(), class, bins::taken(), sentinels)
        };
        if bins == sentinel_empty() {
            attach(area)?;
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

/// Puts the current CPU's cache on the table, made anew if it has none; `None` when the call at hand has to do without.
#[cold]
fn attach(area: isize) -> Option<()> {
    if !rseq::register(area) {
        return None;
    }
    let cpu = usize::try_from(rseq::cpu(area)).ok().filter(|&cpu| cpu < cpus())?;
    let cpu_cache = match cache_of(cpu) {
        Some(cpu_cache) => cpu_cache,
        None => make(cpu)?,
    };
    if cpu_cache.calls_without.load(Ordering::Relaxed) > 0 {
        cpu_cache.calls_without.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    // Where this fails the CPU is being drained, or another thread was first.
    let _ =
        entry(cpu).compare_exchange(sentinel_empty(), cpu_cache.bins(), Ordering::AcqRel, Ordering::Relaxed);
    Some(())
}

fn make(cpu: usize) -> Option<&'static CpuCache> {
    let record = RECORDS.alloc()?;
    // SAFETY: the record is fresh.
    unsafe { record.write(CpuCache::new()) };
    if CACHES[cpu].compare_exchange(null_mut(), record.as_ptr(), Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        // SAFETY: nobody has seen the record.
        unsafe { RECORDS.free(record) };
    }
    cache_of(cpu)
}

/// Refills the current CPU's bin and returns one object; null when memory is out.
pub(crate) fn refill<B: PageBackend>(engine: &Engine<B>, class: usize) -> Option<Block> {
    let Some(mut bin) = open(class) else { return engine.take_one(class as u8) };
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

/// Takes a CPU's cache off the table, whoever runs there, and lets `work` have it with a way to open its bins.
///
/// Nothing happens when the kernel refuses to restart the sequences that run there.
fn with_cpu_stopped(
    cpu: usize,
    cpu_cache: &'static CpuCache,
    work: impl FnOnce(&'static Cache, &dyn Fn(usize) -> Option<OpenBin<'static>>),
) {
    let cache = &cpu_cache.cache;
    let _draining = DRAINING.lock();
    entry(cpu).store(sentinel_busy(), Ordering::SeqCst);
    if sys::membarrier_rseq(cpu) {
        work(cache, &|class| {
            let cursor = cache.bins.cursor(class);
            if cursor == bins::taken() {
                return None;
            }
            // SAFETY: no sequence has the bins any more, none finds them before they are back on the table, and the slow path
            // of a thread that had this bin open would have left its mark.
            Some(unsafe { OpenBin::new(cache, class, cursor) })
        });
    }
    entry(cpu).store(cpu_cache.bins(), Ordering::SeqCst);
}

/// The calling thread ends. It is inside the slow path, and comes to no CPU's cache any more.
pub(crate) fn end_thread() {
    rseq::end_thread();
}

/// Empties the caches of all CPUs.
#[cold]
pub(crate) fn drain_all<B: PageBackend>(engine: &Engine<B>) {
    for cpu in 0..cpus() {
        if let Some(cpu_cache) = cache_of(cpu) {
            with_cpu_stopped(cpu, cpu_cache, |cache, open| cache.empty(engine, open));
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
    if cpus() == 0 {
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
