//! The per-thread front end.
//!
//! A thread's cache is used by its thread alone, and by the slow path only while the thread's slot says "inside". Other threads
//! read it to count, and may take from its share of the budget, never from its objects: the owner shrinks at its next slow
//! path.

use super::bins::Bins;
use super::cache::{Cache, Due};
use super::open_bin::OpenBin;
use crate::heap::{Block, Engine};
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use page_backend::PageBackend;

/// A thread's cache of free objects; `cache` comes first, and its bins first in it.
#[repr(C)]
pub(crate) struct ThreadCache {
    pub(crate) cache: Cache,
    /// The owner is inside the slow path: after a fork the child cannot trust the bins.
    pub(crate) inside: AtomicBool,
    /// The next cache in the registry, which owns this word.
    pub(crate) next: AtomicPtr<ThreadCache>,
    /// The cache below this one among those parked, and when it was parked, by the coarse clock.
    pub(super) below: AtomicPtr<ThreadCache>,
    pub(super) parked_at: AtomicU64,
    /// The owner's handle on the registry's epochs, once it needed one.
    pub(crate) epoch: Option<crossbeam_epoch::LocalHandle>,
}

impl ThreadCache {
    /// Makes an empty cache out of a fresh record.
    pub(crate) fn init(record: &mut MaybeUninit<ThreadCache>) -> &mut ThreadCache {
        record.write(ThreadCache {
            cache: Cache::new(),
            inside: AtomicBool::new(true),
            next: AtomicPtr::new(null_mut()),
            below: AtomicPtr::new(null_mut()),
            parked_at: AtomicU64::new(0),
            epoch: None,
        })
    }

    /// The bins, for the thread's slot.
    pub(crate) fn bins(cache: *mut ThreadCache) -> *mut Bins {
        cache.cast()
    }

    /// The cache that a thread's slot leads to.
    ///
    /// # Safety
    /// `bins` is no sentinel.
    pub(crate) unsafe fn from_bins(bins: *mut Bins) -> NonNull<ThreadCache> {
        // SAFETY: a slot is never null, and one that is no sentinel is the start of a cache.
        unsafe { NonNull::new_unchecked(bins.cast()) }
    }

    fn open(&self, class: usize) -> OpenBin<'_> {
        // SAFETY: the cache is its thread's alone, which is inside and has no other bin of this class open.
        unsafe { OpenBin::new(&self.cache, class, self.cache.bins.cursor(class)) }
    }

    /// Refills an empty bin and returns one object; null when memory is out.
    pub(crate) fn refill<B: PageBackend>(&mut self, engine: &Engine<B>, class: usize) -> Option<Block> {
        let object = self.open(class).refill(engine);
        self.event(engine);
        object
    }

    /// Takes an object back into a bin that has no room, or that already has it on top.
    pub(crate) fn overflow<B: PageBackend>(&mut self, engine: &Engine<B>, class: usize, object: *mut u8) {
        self.open(class).overflow(engine, object);
        self.event(engine);
    }

    fn event<B: PageBackend>(&mut self, engine: &Engine<B>) {
        let open = |class| Some(self.open(class));
        match self.cache.event() {
            Due::Nothing => {}
            Due::Sweep => self.cache.sweep(engine, open),
            Due::Shrink => self.cache.shrink_to_share(engine, open),
        }
    }

    /// Gives every object and array back.
    pub(crate) fn flush_all<B: PageBackend>(&mut self, engine: &Engine<B>) {
        self.cache.empty(engine, |class| Some(self.open(class)));
    }
}
