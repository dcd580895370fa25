//! The engine of a heap: one central list per size class over one page heap.
//!
//! Layer rule: joins central and page heap, below every front end. Has no thread of its own and no thread-local state, so
//! the global heap and private heaps share it whole.

use crate::central::{Central, FreeSpans};
use crate::lock::{Lock, Rank};
use crate::page_heap::PageHeap;
use crate::page_map::{HUGE_PAGE, PAGE_MAP};
use crate::report::{self, Fault, Rejected};
use crate::span::{Owner, Span};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use page_backend::PageBackend;
use size_classes::{CLASS_COUNT, CLASSES, MAX_SMALL, PAGE_SIZE};

/// Requests above this are refused, as the C standard's `ptrdiff_t` asks.
const MAX_REQUEST: usize = isize::MAX as usize;

/// A heap's engine.
pub(crate) struct Engine<B: PageBackend> {
    centrals: [Central; CLASS_COUNT],
    large: Lock<LargeList>,
    pub(crate) pages: PageHeap<B>,
    /// Null for the global heap; written once, before the first span of a private heap is made.
    owner: UnsafeCell<*const Owner>,
}

// SAFETY: everything inside is locked, but `owner`, which is written before the engine is shared.
unsafe impl<B: PageBackend> Sync for Engine<B> {}

/// The large blocks of a heap, and what they amount to.
struct LargeList {
    head: *mut Span,
    count: usize,
    pages: usize,
}
// SAFETY: the list owns its spans.
unsafe impl Send for LargeList {}

/// A fresh block.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) ptr: NonNull<u8>,
    /// The content is zero throughout.
    pub(crate) zeroed: bool,
}

impl<B: PageBackend> Engine<B> {
    pub(crate) const fn new(backend: B) -> Self {
        Self {
            centrals: [const { Central::new() }; CLASS_COUNT],
            large: Lock::new(Rank::Large, LargeList { head: null_mut(), count: 0, pages: 0 }),
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
    pub(crate) unsafe fn take(&self, class: u8, want: usize, out: *mut *mut u8) -> usize {
        let central = self.central(class);
        // SAFETY: handed on to the caller.
        unsafe {
            let taken = central.take_from_transfer(want, out);
            if taken != 0 {
                return taken;
            }
            let taken = central.take_from_spans(class, want, out);
            if taken != 0 {
                return taken;
            }
            match self.new_span(class) {
                Some(span) => central.add_span(class, span, want, out),
                None => 0,
            }
        }
    }

    /// As [`take`](Self::take) for one object, but takes no lock that is held: for signal handlers.
    pub(crate) fn try_take_one(&self, class: u8) -> Option<NonNull<u8>> {
        let mut object = null_mut();
        // SAFETY: there is room for one object.
        unsafe { self.central(class).try_take_from_spans(class, 1, &mut object) };
        NonNull::new(object)
    }

    /// Puts objects of one class back: through the transfer cache when they are a batch, else into their spans.
    ///
    /// # Safety
    /// `objects` points to `len` objects of `class`, at most a batch, which the caller gives away.
    pub(crate) unsafe fn put(&self, class: u8, objects: *const *mut u8, len: usize, as_batch: bool) {
        let central = self.central(class);
        // SAFETY: handed on to the caller.
        unsafe {
            if as_batch && central.put_into_transfer(class, objects, len) {
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

    #[cold]
    fn new_span(&self, class: u8) -> Option<NonNull<Span>> {
        let info = CLASSES.class(class);
        let pages = info.pages as usize;
        let run = self.pages.alloc(pages, 1)?;
        let owner = self.owner();
        let Some(span) = Span::create(run.ptr, pages, class, info.objects as usize, owner) else {
            // SAFETY: the run is ours and unused.
            unsafe { self.pages.free(run.ptr, pages) };
            return None;
        };
        // Class bytes lead into the global front end; objects of private heaps must miss it.
        let class_byte = if owner.is_null() { class } else { 0 };
        PAGE_MAP.set_span(run.ptr.as_ptr().addr(), pages, span.as_ptr(), class_byte);
        Some(span)
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
        if class == 0 {
            return self.alloc_large(size, align);
        }
        let mut object = null_mut();
        // SAFETY: there is room for one object.
        unsafe { self.take(class, 1, &mut object) };
        Some(Block { ptr: NonNull::new(object)?, zeroed: false })
    }

    /// A block of whole pages.
    ///
    /// `align` is a power of two. `None` when memory is out or the request is over `isize::MAX`.
    pub(crate) fn alloc_large(&self, size: usize, align: usize) -> Option<Block> {
        if size > MAX_REQUEST || align > MAX_REQUEST - size {
            return None;
        }
        let pages = size.div_ceil(PAGE_SIZE).max(1);
        let align_pages = align.div_ceil(PAGE_SIZE);
        // Runs are aligned up to a huge page; beyond that the block begins inside a longer run.
        let over = if align > HUGE_PAGE { align_pages } else { 0 };
        let run = self.pages.alloc(pages + over, align_pages.min(HUGE_PAGE / PAGE_SIZE))?;
        let lead = run.ptr.as_ptr().align_offset(align) / PAGE_SIZE;
        // SAFETY: the run has `over` more pages than the block, and the lead is within them.
        let start = unsafe { run.ptr.add(lead * PAGE_SIZE) };
        let Some(span) = Span::create(start, pages, 0, 1, self.owner()) else {
            // SAFETY: the run is ours and unused.
            unsafe { self.pages.free(run.ptr, pages + over) };
            return None;
        };
        if over > 0 {
            // SAFETY: the pages around the block are ours and unused.
            unsafe {
                if lead > 0 {
                    self.pages.free(run.ptr, lead);
                }
                if over > lead {
                    self.pages.free(start.add(pages * PAGE_SIZE), over - lead);
                }
            }
        }
        PAGE_MAP.set_span(start.as_ptr().addr(), 1, span.as_ptr(), 0);
        self.large.lock().add(span.as_ptr());
        Some(Block { ptr: start, zeroed: run.zeroed })
    }

    /// Frees a block of whole pages. A pointer that is no such block's start is told of and left.
    ///
    /// # Safety
    /// The span is in the page map, of class 0 and of this heap; the caller gives the block away.
    pub(crate) unsafe fn free_large(&self, block: NonNull<u8>, span: NonNull<Span>) {
        // SAFETY: handed on to the caller.
        unsafe {
            if let Some(pages) = self.forget_large(block, span) {
                self.pages.free(block, pages);
            }
        }
    }

    /// As [`free_large`](Self::free_large), with the memory given back to the system at once: for a block that its program has
    /// outgrown and will not ask for again.
    ///
    /// # Safety
    /// As for [`free_large`](Self::free_large).
    pub(crate) unsafe fn free_outgrown(&self, block: NonNull<u8>, span: NonNull<Span>) {
        // SAFETY: handed on to the caller.
        unsafe {
            if let Some(pages) = self.forget_large(block, span) {
                self.pages.free_at_once(block, pages);
            }
        }
    }

    /// Takes a large block out of list and map; its pages, or `None` when it is none.
    ///
    /// # Safety
    /// As for [`free_large`](Self::free_large).
    unsafe fn forget_large(&self, block: NonNull<u8>, span: NonNull<Span>) -> Option<usize> {
        // SAFETY: a span in the page map is valid.
        let (start, pages) = unsafe { (span.as_ref().start, span.as_ref().pages) };
        if start != block.as_ptr() {
            report::fault(Fault::Interior, block.as_ptr());
            return None;
        }
        // Two threads that free the same block at once meet here: the list says which came first.
        if !self.large.lock().remove(span.as_ptr()) {
            report::fault(Fault::Double, block.as_ptr());
            return None;
        }
        PAGE_MAP.clear_span(start.addr(), 1);
        // SAFETY: the block is out of list and map, and the caller gave it away.
        unsafe { Span::destroy(span) };
        Some(pages)
    }

    /// Changes the length of a large block where it is; `false` when that cannot be done.
    ///
    /// # Safety
    /// `span` is the span of a live large block of this heap, which the caller owns.
    pub(crate) unsafe fn resize_large(&self, span: NonNull<Span>, size: usize) -> bool {
        if size <= MAX_SMALL || size > MAX_REQUEST {
            return false;
        }
        let pages = size.div_ceil(PAGE_SIZE);
        // SAFETY: the span is valid and its block the caller's.
        unsafe {
            let old = span.as_ref().pages;
            let start = NonNull::new_unchecked(span.as_ref().start);
            if pages > old {
                if !self.pages.grow_in_place(start, old, pages - old) {
                    return false;
                }
            } else if pages < old {
                self.pages.free(start.add(pages * PAGE_SIZE), old - pages);
            }
            self.large.lock().resize(span.as_ptr(), pages);
        }
        true
    }

    /// Makes a large block longer at another place, without copying most of it; `None`, with nothing changed, when that cannot
    /// be done.
    ///
    /// # Safety
    /// As for [`resize_large`](Self::resize_large); the caller does not use the old address again when the block has moved.
    pub(crate) unsafe fn relocate_large(&self, span: NonNull<Span>, size: usize) -> Option<NonNull<u8>> {
        if size > MAX_REQUEST {
            return None;
        }
        let pages = size.div_ceil(PAGE_SIZE);
        // SAFETY: the span is valid and its block the caller's.
        unsafe {
            let (start, old) = (span.as_ref().start, span.as_ref().pages);
            if pages <= old {
                return None;
            }
            // Out of list and map before it moves: its old address may be another block's the moment after.
            self.large.lock().remove(span.as_ptr());
            PAGE_MAP.clear_span(start.addr(), 1);
            let run = self.pages.relocate(NonNull::new_unchecked(start), old, pages);
            if let Some(run) = &run {
                (*span.as_ptr()).start = run.ptr.as_ptr();
                (*span.as_ptr()).pages = pages;
            }
            PAGE_MAP.set_span(span.as_ref().start.addr(), 1, span.as_ptr(), 0);
            self.large.lock().add(span.as_ptr());
            Some(run?.ptr)
        }
    }

    /// Frees any block of this heap.
    ///
    /// # Safety
    /// The caller gives the block away; `span` is what the page map says of it, and of this heap.
    pub(crate) unsafe fn free(&self, block: NonNull<u8>, span: NonNull<Span>) {
        // SAFETY: a span in the page map is valid; the rest is handed on to the caller.
        unsafe {
            match span.as_ref().class {
                0 => self.free_large(block, span),
                class => self.put(class, &block.as_ptr(), 1, false),
            }
        }
    }

    /// Empties the transfer caches into the spans.
    pub(crate) fn empty_transfers(&self) {
        for (class, central) in self.centrals() {
            central.sweep_transfer(class, self.owner(), true, |freed| self.free_spans(freed));
        }
    }

    /// Empties the transfer cache of one class, by half if it was in use; see [`Central::sweep_transfer`].
    pub(crate) fn sweep_transfer(&self, class: u8) {
        let central = self.central(class);
        central.sweep_transfer(class, self.owner(), false, |freed| self.free_spans(freed));
    }

    /// Large blocks: how many, and their pages.
    pub(crate) fn large_counts(&self) -> (usize, usize) {
        let large = self.large.lock();
        (large.count, large.pages)
    }

    /// Checks every list of the engine; the first class that is wrong, or 0 for large blocks.
    pub(crate) fn check(&self) -> Result<(), u8> {
        for (class, central) in self.centrals() {
            if !central.check(class, self.owner()) {
                return Err(class);
            }
        }
        if self.large.lock().check() { Ok(()) } else { Err(0) }
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
        loop {
            let head = self.large.lock().head;
            let Some(span) = NonNull::new(head) else { return };
            // SAFETY: a span of the list is valid, and nothing uses its block.
            unsafe { self.free_large(NonNull::new_unchecked(span.as_ref().start), span) };
        }
    }

    pub(crate) fn lock_for_fork(&self) {
        for central in &self.centrals {
            central.lock_for_fork();
        }
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
            for central in &self.centrals {
                central.unlock_after_fork();
            }
        }
    }
}

/// Value of [`Span::list`] for a large block that is in the list.
const LISTED: u8 = 1;

impl LargeList {
    fn add(&mut self, span: *mut Span) {
        // SAFETY: the span is new and ours; the head is in the list and so valid.
        unsafe {
            (*span).list = LISTED;
            (*span).prev = null_mut();
            (*span).next = self.head;
            if !self.head.is_null() {
                (*self.head).prev = span;
            }
            self.pages += (*span).pages;
        }
        self.head = span;
        self.count += 1;
    }

    /// `false` when the span is not in the list.
    fn remove(&mut self, span: *mut Span) -> bool {
        // SAFETY: records of spans are type-stable; those in the list are valid.
        unsafe {
            if (*span).list != LISTED || (*span).class != 0 {
                return false;
            }
            (*span).list = 0;
            let (next, prev) = ((*span).next, (*span).prev);
            if prev.is_null() {
                self.head = next;
            } else {
                (*prev).next = next;
            }
            if !next.is_null() {
                (*next).prev = prev;
            }
            self.pages -= (*span).pages;
        }
        self.count -= 1;
        true
    }

    fn resize(&mut self, span: *mut Span, pages: usize) {
        // SAFETY: the span is in the list, says the caller.
        unsafe {
            self.pages = self.pages - (*span).pages + pages;
            (*span).pages = pages;
        }
    }

    fn check(&self) -> bool {
        let (mut count, mut pages, mut prev, mut span) = (0, 0, null_mut(), self.head);
        while !span.is_null() {
            // SAFETY: spans of the list are valid.
            unsafe {
                count += 1;
                pages += (*span).pages;
                if (*span).prev != prev
                    || (*span).class != 0
                    || PAGE_MAP.span_of((*span).start.addr()).map(|s| s.as_ptr()) != Some(span)
                {
                    return false;
                }
                prev = span;
                span = (*span).next;
            }
        }
        count == self.count && pages == self.pages
    }
}
