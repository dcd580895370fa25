//! The front end: caches of free objects for each thread or each CPU, and the slow paths behind them.
//!
//! Layer rule: above the engine, below `global`, which joins it to the process-wide heap. What `malloc` and `free` do most of
//! the time is [`bins`]; [`cache`] and [`open_bin`] fill and empty them, for `thread_cache` and `per_cpu` alike. One of these two is in use.

pub(crate) mod bins;
pub(crate) mod budget;
mod cache;
pub(crate) mod census;
pub(crate) mod metadata;
mod need;
mod open_bin;
pub(crate) mod parking;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod per_cpu;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[path = "no_per_cpu.rs"]
pub(crate) mod per_cpu;
pub(crate) mod registry;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod rseq;
mod slots;
pub(crate) mod thread_cache;

use crate::heap::{Block, Engine};
use crate::page_map::PAGE_MAP;
use crate::report::{self, Fault};
use crate::side;
use crate::span::Span;
use crate::tls;
use bins::{Bins, sentinel_busy, sentinel_direct, sentinel_empty, sentinel_metadata, sentinel_shared};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use page_backend::PageBackend;
use size_classes::CLASSES;
use thread_cache::ThreadCache;

/// No thread gets a cache: every call goes to the central lists, where every free is checked.
static DIRECT: AtomicBool = AtomicBool::new(false);

/// Makes threads that have no cache yet do without.
pub(crate) fn set_direct() {
    DIRECT.store(true, Ordering::Relaxed);
}

/// The calling thread is in the slow path: its slot says so, and calls that interrupt it take the nested path.
pub(crate) struct Inside {
    cache: Option<NonNull<ThreadCache>>,
    slot_after: *mut Bins,
}

/// Whether the thread is in the slow path.
pub(crate) fn is_inside() -> bool {
    let slot = tls::slot();
    slot == sentinel_busy() || slot == sentinel_metadata()
}

/// Enters the slow path; `None` when the thread is in it already, which a signal handler or the heap's own work may meet.
pub(crate) fn enter() -> Option<Inside> {
    if is_inside() {
        return None;
    }
    let slot = tls::slot();
    tls::set_slot(sentinel_busy());
    if slot == sentinel_direct() {
        return Some(Inside { cache: None, slot_after: slot });
    }
    let cache = if slot == sentinel_empty() || slot == sentinel_shared() {
        if DIRECT.load(Ordering::Relaxed) {
            return Some(Inside { cache: None, slot_after: sentinel_direct() });
        }
        if per_cpu::area() != 0 {
            return Some(Inside { cache: None, slot_after: sentinel_shared() });
        }
        registry::join()
    } else {
        // SAFETY: the slot is no sentinel.
        Some(unsafe { ThreadCache::from_bins(slot) })
    };
    let Some(cache) = cache else {
        // Without memory for a cache the thread does without, and tries again the next time.
        return Some(Inside { cache: None, slot_after: slot });
    };
    // SAFETY: the thread's own cache is valid until it leaves.
    unsafe { cache.as_ref() }.inside.store(true, Ordering::Relaxed);
    Some(Inside { cache: Some(cache), slot_after: ThreadCache::bins(cache.as_ptr()) })
}

/// As [`enter`], but makes no cache for a thread that has none.
pub(crate) fn enter_existing() -> Option<Inside> {
    let slot = tls::slot();
    if slot == sentinel_empty() || slot == sentinel_shared() { enter_without_cache() } else { enter() }
}

/// A new thread that the CPUs' caches serve counts from here on; others are met in their first slow path.
pub(crate) fn start_shared() {
    if per_cpu::area() != 0 && tls::slot() == sentinel_empty() {
        tls::set_slot(sentinel_shared());
        census::thread_met();
    }
}

/// Marks the thread as inside for work that needs no cache; `None` when it is inside already.
pub(crate) fn enter_without_cache() -> Option<Inside> {
    if is_inside() {
        return None;
    }
    let slot = tls::slot();
    tls::set_slot(sentinel_busy());
    Some(Inside { cache: None, slot_after: slot })
}

impl Inside {
    /// The thread's own cache.
    pub(crate) fn cache(&mut self) -> Option<&mut ThreadCache> {
        // SAFETY: the cache is this thread's own, and `self` is its only user while the thread is inside.
        self.cache.map(|mut cache| unsafe { cache.as_mut() })
    }

    /// The address of the thread's own cache.
    pub(crate) fn cache_ptr(&self) -> Option<NonNull<ThreadCache>> {
        self.cache
    }

    /// The thread ends: leaves the cache for the next, and goes on without one.
    pub(crate) fn end_thread<B: PageBackend>(mut self, engine: &Engine<B>) {
        // SAFETY: the cache is this thread's own, in the registry, and the slot no longer leads to it.
        if self.cache.is_some_and(|cache| per_cpu::area() == 0 && unsafe { parking::put(cache) }) {
            self.cache = None;
        }
        per_cpu::end_thread();
        self.end_cache(engine);
    }

    /// Hands the cache back for good: the thread goes on without one.
    pub(crate) fn end_cache<B: PageBackend>(mut self, engine: &Engine<B>) {
        self.give_cache_back(engine);
        self.slot_after = sentinel_direct();
    }

    /// Hands the cache back if there is one, since the CPUs' caches are in use.
    fn move_to_cpus<B: PageBackend>(&mut self, engine: &Engine<B>) {
        if self.cache.is_some() {
            self.give_cache_back(engine);
            self.slot_after = sentinel_shared();
        }
    }

    #[cold]
    fn give_cache_back<B: PageBackend>(&mut self, engine: &Engine<B>) {
        if let Some(cache) = self.cache() {
            cache.flush_all(engine);
        }
        if let Some(cache) = self.cache.take() {
            // SAFETY: the cache is this thread's own, empty now, and the slot no longer leads to it.
            unsafe { registry::leave(cache) };
        }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        if let Some(cache) = self.cache {
            // SAFETY: the thread's own cache is valid until it leaves.
            unsafe { cache.as_ref() }.inside.store(false, Ordering::Relaxed);
        }
        tls::set_slot(self.slot_after);
    }
}

/// An object of a class whose bin is empty; `None` when memory is out.
pub(crate) fn alloc_class<B: PageBackend>(engine: &Engine<B>, class: u8) -> Option<Block> {
    let Some(mut inside) = enter() else { return alloc_nested(engine, CLASSES.size_of(class), 1) };
    let object = match inside.cache() {
        _ if per_cpu::area() != 0 => {
            inside.move_to_cpus(engine);
            per_cpu::refill(engine, class as usize)
        }
        Some(cache) => cache.refill(engine, class as usize),
        None => engine.take_one(class),
    };
    free_waiting(engine);
    object
}

/// A large block that was freed just now, and whether time should pass; `None` where none fits, or the thread is inside already.
#[inline]
pub(crate) fn alloc_parked<B: PageBackend>(
    engine: &Engine<B>,
    size: usize,
    align: usize,
) -> Option<(Block, bool)> {
    let _inside = enter_without_cache()?;
    engine.alloc_parked(size, align)
}

/// A large block, but no parked one.
pub(crate) fn alloc_large<B: PageBackend>(engine: &Engine<B>, size: usize, align: usize) -> Option<Block> {
    let Some(_inside) = enter_without_cache() else { return alloc_nested(engine, size, align) };
    engine.alloc_unparked(size, align)
}

/// What a call gets that interrupted the slow path of its own thread: an object if no lock is in the way, else a mapping.
#[cold]
fn alloc_nested<B: PageBackend>(engine: &Engine<B>, size: usize, align: usize) -> Option<Block> {
    let object = CLASSES.class_of_aligned(size, align).and_then(|class| engine.try_take_one(class));
    object.or_else(|| NonNull::new(side::alloc(size, align))).map(Block::used)
}

/// Frees an object of a class whose bin is full, or has it on top already.
///
/// # Safety
/// The caller gives the object away.
pub(crate) unsafe fn free_class<B: PageBackend>(engine: &Engine<B>, class: u8, object: *mut u8) {
    let Some(mut inside) = enter() else {
        // SAFETY: handed on to the caller.
        unsafe {
            if !engine.try_put_one(class, object) && !side::free_later(object) {
                report::lost(1);
            }
        }
        return;
    };
    match inside.cache() {
        _ if per_cpu::area() != 0 => {
            inside.move_to_cpus(engine);
            // SAFETY: handed on to the caller.
            unsafe { per_cpu::overflow(engine, class as usize, object) }
        }
        Some(cache) => cache.overflow(engine, class as usize, object),
        // SAFETY: handed on to the caller.
        None => unsafe { engine.put(class, &object, 1, false) },
    }
    free_waiting(engine);
}

/// Frees what is no object of the global heap's classes: a large block, a block of a private heap, a side block. What is none of
/// these is told of and left. `false` when no time need pass.
///
/// # Safety
/// The caller gives the block away.
pub(crate) unsafe fn free_other<B: PageBackend>(
    engine: &Engine<B>,
    block: NonNull<u8>,
) -> Result<bool, Foreign> {
    let Some(span) = PAGE_MAP.span_of(block.as_ptr().addr()) else {
        // SAFETY: handed on to the caller.
        return if unsafe { side::free(block) } { Ok(true) } else { Err(Foreign) };
    };
    if metadata::is_mark(span) {
        return Err(Foreign);
    }
    let Some(_inside) = enter_without_cache() else {
        // SAFETY: handed on to the caller.
        if !unsafe { side::free_later(block.as_ptr()) } {
            report::lost(1);
        }
        return Ok(true);
    };
    // SAFETY: handed on to the caller.
    Ok(unsafe { free_of_span(engine, block, span) })
}

/// Frees a block of the heap that its span belongs to; `false` when no time need pass. The thread is inside.
///
/// # Safety
/// The caller gives the block away; `span` is what the page map says of it.
unsafe fn free_of_span<B: PageBackend>(engine: &Engine<B>, block: NonNull<u8>, span: NonNull<Span>) -> bool {
    // SAFETY: a span in the page map is valid, and its owner outlives it.
    unsafe {
        match span.as_ref().owner.as_ref() {
            Some(owner) => {
                (owner.free)(owner.heap, block, span);
                true
            }
            None => engine.free(block, span),
        }
    }
}

/// The pointer is not one of the heap's.
pub(crate) struct Foreign;

/// Frees what nested calls had to put by. The thread is inside.
fn free_waiting<B: PageBackend>(engine: &Engine<B>) {
    side::free_waiting(|block| {
        let (Some(block), Some(span)) = (NonNull::new(block), PAGE_MAP.span_of(block.addr())) else {
            return report::fault(Fault::Foreign, block);
        };
        // SAFETY: the nested call gave the block away.
        unsafe { free_of_span(engine, block, span) };
    });
}

/// Whether what this thread allocates now is the heap's own: see [`metadata`].
pub(crate) fn in_metadata_work() -> bool {
    tls::slot() == sentinel_metadata()
}

/// Locks the front end's pools for a fork. Its locks of the first rank, the registry's and the one that a drain holds, are taken
/// before the engine's.
pub(crate) fn lock_pools_for_fork() {
    per_cpu::lock_pools_for_fork();
    slots::lock_for_fork();
    metadata::lock_for_fork();
}

/// # Safety
/// As [`crate::lock::Lock::unlock_after_fork`].
pub(crate) unsafe fn unlock_pools_after_fork() {
    // SAFETY: handed on to the caller.
    unsafe {
        metadata::unlock_after_fork();
        slots::unlock_after_fork();
        per_cpu::unlock_pools_after_fork();
    }
}
