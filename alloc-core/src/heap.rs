//! The engine of a heap: one central list per size class over one page heap.
//!
//! Layer rule: joins central and page heap, below every front end. Has no thread of its own and no thread-local state, so
//! the global heap and private heaps share it whole.

mod large;
mod large_list;
mod parking;
#[cfg(test)]
mod tests;

use crate::central::{Central, FreeSpans};
use crate::lock::{Lock, Rank};
use crate::page_heap::PageHeap;
use crate::page_map::PAGE_MAP;
use crate::report::Rejected;
use crate::span::{Owner, Span};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};
use large_list::LargeList;
use page_backend::PageBackend;
use parking::Parking;
use size_classes::{CLASS_COUNT, CLASSES};

/// Objects of a larger class that a class uses before it gets its first span, and the bytes that these may be longer than needed.
const MOST_BORROWED: usize = 8;
const BORROWED_WASTE: usize = 1024;

/// A heap's engine.
pub(crate) struct Engine<B: PageBackend> {
    centrals: [Central; CLASS_COUNT],
    large: Lock<LargeList>,
    parking: Parking,
    /// Some large block may be parked.
    parked: AtomicBool,
    /// Set in a forked child until the next large block is taken.
    forked: AtomicBool,
    /// A class without a span may borrow objects of a larger one.
    lends: AtomicBool,
    pub(crate) pages: PageHeap<B>,
    /// Null for the global heap; written once, before the first span of a private heap is made.
    owner: UnsafeCell<*const Owner>,
}

// SAFETY: everything inside is locked, but `owner`, which is written before the engine is shared.
unsafe impl<B: PageBackend> Sync for Engine<B> {}

/// A fresh block.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) ptr: NonNull<u8>,
    /// Bytes from the first on that may hold anything; all behind them are zero.
    pub(crate) dirty: usize,
}

impl Block {
    /// A block of unknown content.
    #[inline]
    pub(crate) fn used(ptr: NonNull<u8>) -> Self {
        Self { ptr, dirty: usize::MAX }
    }

    /// Makes the first `size` bytes zero.
    ///
    /// # Safety
    /// The block has that many bytes, and nobody uses it yet.
    #[inline]
    pub(crate) unsafe fn zero(self, size: usize) -> NonNull<u8> {
        // SAFETY: the caller's contract.
        unsafe { self.ptr.write_bytes(0, size.min(self.dirty)) };
        self.ptr
    }
}

/// What [`Engine::take`] has taken.
#[derive(Clone, Copy)]
pub(crate) struct Objects {
    pub(crate) count: usize,
    /// As [`Block::dirty`], of the first.
    pub(crate) dirty: usize,
}

impl<B: PageBackend> Engine<B> {
    pub(crate) const fn new(backend: B) -> Self {
        Self {
            centrals: [const { Central::new() }; CLASS_COUNT],
            large: Lock::new(Rank::Large, LargeList::EMPTY),
            parking: Parking::new(),
            parked: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            lends: AtomicBool::new(false),
            pages: PageHeap::new(backend),
            owner: UnsafeCell::new(core::ptr::null()),
        }
    }

    /// Makes this the engine of a private heap.
    ///
    /// # Safety
    /// Nothing was allocated yet, and no other thread knows the engine.
    pub(crate) unsafe fn set_owner(&self, owner: *const Owner) {
        // SAFETY: exclusive, says the caller.
        unsafe { *self.owner.get() = owner };
    }

    #[inline]
    pub(crate) fn owner(&self) -> *const Owner {
        // SAFETY: constant since the engine is shared.
        unsafe { *self.owner.get() }
    }

    /// The central list of a class.
    #[inline]
    pub(crate) fn central(&self, class: u8) -> &Central {
        debug_assert!((class as usize) < CLASS_COUNT);
        // SAFETY: class ids come from the table and the page map, which hold ids below CLASS_COUNT alone.
        unsafe { self.centrals.get_unchecked(class as usize) }
    }

    /// Every class with its central list.
    pub(crate) fn centrals(&self) -> impl Iterator<Item = (u8, &Central)> {
        (0u8..).zip(&self.centrals).skip(1)
    }

    /// Takes up to `want` objects of a class; fewer than asked when they are at hand, none when memory is out.
    ///
    /// # Safety
    /// `out` has room for `want` pointers; `want > 0`.
    pub(crate) unsafe fn take(&self, class: u8, want: usize, out: *mut *mut u8) -> Objects {
        let central = self.central(class);
        // SAFETY: handed on to the caller.
        unsafe {
            let mut count = central.take_from_transfer(class, want, out);
            if count == 0 {
                count = central.take_from_spans(class, want, out);
            }
            let mut dirty = usize::MAX;
            if count == 0 {
                if let Some(object) = self.borrow(class) {
                    out.write(object.ptr.as_ptr());
                    return Objects { count: 1, dirty: object.dirty };
                }
                if let Some((span, dirty_bytes)) = self.new_span(class) {
                    let start = span.as_ref().start;
                    count = central.add_span(class, span, want, out);
                    // What others have put back meanwhile can come first.
                    if count > 0 && out.read() == start {
                        dirty = dirty_bytes;
                    }
                }
            }
            Objects { count, dirty }
        }
    }

    /// As [`take`](Self::take) for one object.
    pub(crate) fn take_one(&self, class: u8) -> Option<Block> {
        let mut object = null_mut();
        // SAFETY: there is room for one object.
        let dirty = unsafe { self.take(class, 1, &mut object) }.dirty;
        Some(Block { ptr: NonNull::new(object)?, dirty })
    }

    /// The first few objects of a class come out of the class of the next power of two, which serves all those between: a small
    /// process asks many classes for a few objects each, and a span for each of them would be pages for nothing.
    fn borrow(&self, class: u8) -> Option<Block> {
        let size = CLASSES.size_of(class);
        let lender = size.next_power_of_two();
        if lender == size || !self.lends.load(Ordering::Relaxed) {
            return None;
        }
        let most = MOST_BORROWED.min(BORROWED_WASTE / (lender - size));
        if self.central(class).may_borrow(most as u8) {
            self.take_one(CLASSES.class_of(lender))
        } else {
            None
        }
    }

    /// From now on classes lend each other objects. Every free must then go by the class of the block's page, not by a size
    /// that the program states.
    pub(crate) fn lend_between_classes(&self) {
        self.lends.store(true, Ordering::Relaxed);
    }

    /// As [`take`](Self::take) for one object, but takes no lock that is held: for signal handlers.
    pub(crate) fn try_take_one(&self, class: u8) -> Option<NonNull<u8>> {
        let mut object = null_mut();
        // SAFETY: there is room for one object.
        unsafe { self.central(class).try_take_from_spans(class, 1, &mut object) };
        NonNull::new(object)
    }

    /// Puts objects of one class back: into the transfer cache if they may stay there and it has room, else into their spans.
    ///
    /// # Safety
    /// `objects` points to `len` objects of `class`, at most a batch, which the caller gives away.
    pub(crate) unsafe fn put(&self, class: u8, objects: *const *mut u8, len: usize, may_stay: bool) {
        let central = self.central(class);
        // SAFETY: handed on to the caller.
        unsafe {
            if may_stay && central.put_into_transfer(objects, len) {
                return;
            }
            let mut rejected = Rejected::none();
            let freed = central.put_into_spans(class, self.owner(), objects, len, &mut rejected);
            self.free_spans(freed);
            rejected.report();
        }
    }

    /// As [`put`](Self::put) for one object, but takes no lock that is held: `false` then.
    ///
    /// # Safety
    /// The caller gives the object away, unless the answer is `false`.
    pub(crate) unsafe fn try_put_one(&self, class: u8, object: *mut u8) -> bool {
        let mut rejected = Rejected::none();
        // SAFETY: handed on to the caller.
        let done =
            unsafe { self.central(class).try_put_into_spans(class, self.owner(), object, &mut rejected) };
        rejected.report();
        done
    }

    /// A span of free objects, and how much of it may hold anything, in bytes.
    #[inline(never)]
    fn new_span(&self, class: u8) -> Option<(NonNull<Span>, usize)> {
        let info = CLASSES.class(class);
        let pages = info.pages as usize;
        let run = self.alloc_run(pages, 1)?;
        let owner = self.owner();
        let Some(span) = Span::create(run.ptr, pages, class, info.objects as usize, owner) else {
            // SAFETY: the run is ours and unused.
            unsafe { self.pages.free(run.ptr, pages) };
            return None;
        };
        // Class bytes lead into the global front end; objects of private heaps must miss it.
        let class_byte = if owner.is_null() { class } else { 0 };
        PAGE_MAP.set_span(run.ptr.as_ptr().addr(), pages, span.as_ptr(), class_byte);
        Some((span, run.dirty))
    }

    /// Gives spans without live objects back to the page heap.
    pub(crate) fn free_spans(&self, spans: FreeSpans) {
        for span in spans {
            // SAFETY: the span is in no list, nothing of it is live, and it is ours.
            unsafe {
                let (start, pages) = (span.as_ref().start, span.as_ref().pages);
                PAGE_MAP.clear_span(start.addr(), pages);
                Span::destroy(span);
                self.pages.free(NonNull::new_unchecked(start), pages);
            }
        }
    }

    /// A block of any size and alignment, straight from central or page heap.
    ///
    /// `align` is a power of two. `None` when memory is out or the request is over `isize::MAX`.
    pub(crate) fn alloc(&self, size: usize, align: usize) -> Option<Block> {
        debug_assert!(align.is_power_of_two());
        let class = if align <= 8 {
            CLASSES.class_of(size)
        } else {
            CLASSES.class_of_aligned(size, align).unwrap_or(0)
        };
        if class == 0 { self.alloc_large(size, align) } else { self.take_one(class) }
    }

    /// Frees any block of this heap; `false` when no time need pass.
    ///
    /// # Safety
    /// The caller gives the block away; `span` is what the page map says of it, and of this heap.
    pub(crate) unsafe fn free(&self, block: NonNull<u8>, span: NonNull<Span>) -> bool {
        // SAFETY: a span in the page map is valid; the rest is handed on to the caller.
        unsafe {
            let class = span.as_ref().class;
            if class == 0 {
                return self.free_large(block, span);
            }
            self.put(class, &block.as_ptr(), 1, false);
        }
        true
    }

    /// Empties the transfer caches into the spans.
    #[cold]
    pub(crate) fn empty_transfers(&self) {
        for (class, central) in self.centrals() {
            central.sweep_transfer(class, self.owner(), true, |freed| self.free_spans(freed));
        }
    }

    /// In a forked child whose inherited memory was retired: no small block is taken from it any more, once the caches above
    /// have given back what they hold.
    #[cold]
    pub(crate) fn leave_parents_spans(&self) {
        self.empty_transfers();
        for (_, central) in self.centrals() {
            central.hide_retired();
        }
    }

    /// Takes from the transfer cache of one class what it does not need; see [`Central::sweep_transfer`].
    pub(crate) fn sweep_transfer(&self, class: u8) {
        let central = self.central(class);
        central.sweep_transfer(class, self.owner(), false, |freed| self.free_spans(freed));
    }

    /// Checks every list of the engine; the first class that is wrong, or 0 for large blocks.
    pub(crate) fn check(&self) -> Result<(), u8> {
        for (class, central) in self.centrals() {
            if !central.check(class, self.owner()) {
                return Err(class);
            }
        }
        if self.large.lock().check() && self.parking.check() { Ok(()) } else { Err(0) }
    }

    /// Gives every span back, whatever is live in it.
    ///
    /// # Safety
    /// Nothing of this heap is in use, and it is not used again.
    pub(crate) unsafe fn forget_all(&self) {
        for (_, central) in self.centrals() {
            // SAFETY: handed on to the caller.
            self.free_spans(unsafe { central.take_all_spans() });
        }
        // SAFETY: handed on to the caller.
        unsafe { self.forget_large_blocks() };
    }

    pub(crate) fn lock_for_fork(&self) {
        for central in &self.centrals {
            central.lock_for_fork();
        }
        self.parking.lock_for_fork();
        self.large.lock_for_fork();
        self.pages.lock_for_fork();
    }

    /// # Safety
    /// As [`Lock::unlock_after_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: handed on to the caller.
        unsafe {
            self.pages.unlock_after_fork();
            self.large.unlock_after_fork();
            self.parking.unlock_after_fork();
            for central in &self.centrals {
                central.unlock_after_fork();
            }
        }
    }
}
