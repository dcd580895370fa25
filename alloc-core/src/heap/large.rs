//! Large blocks: runs of pages of their own.
//!
//! A block that is freed is *parked* at first ([`super::parking`]): its record, its entry in the page map and its pages stay as they
//! are, and the next request for as many pages or a little fewer gets it back in one step. To park is to put off a free, not to
//! keep memory: a few blocks wait, of 64 MiB at the most, and their frees are carried out before the page heap takes memory that
//! has no pages behind it, before anything is given back or counted, and on every tick.

use super::large_list::end_use;
use super::parking::MOST_PARKED;
use super::{Block, Engine};
use crate::page_heap::{PageAccounts, ReleaseMode, Run};
use crate::page_map::{HUGE_PAGE, PAGE_MAP};
use crate::report::{self, Fault};
use crate::settings::{Delay, Settings};
use crate::span::Span;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use page_backend::PageBackend;
use size_classes::{MAX_SMALL, PAGE_SIZE};

/// Requests above this are refused, as the C standard's `ptrdiff_t` asks.
const MAX_REQUEST: usize = isize::MAX as usize;

impl<B: PageBackend> Engine<B> {
    /// A block of whole pages.
    ///
    /// `align` is a power of two. `None` when memory is out or the request is over `isize::MAX`.
    pub(crate) fn alloc_large(&self, size: usize, align: usize) -> Option<Block> {
        match self.alloc_parked(size, align) {
            Some((block, _)) => Some(block),
            None => self.alloc_unparked(size, align),
        }
    }

    /// As [`alloc_large`](Self::alloc_large), out of the parked blocks alone; with it goes whether time should pass.
    #[inline]
    pub(crate) fn alloc_parked(&self, size: usize, align: usize) -> Option<(Block, bool)> {
        if self.forked.load(Ordering::Relaxed) {
            self.leave_parents_blocks();
        }
        let (span, due) = self.parking.unpark(size.div_ceil(PAGE_SIZE).max(1), align)?;
        // SAFETY: the span is of a block that is this call's now.
        let start = unsafe { NonNull::new_unchecked(span.as_ref().start) };
        Some((Block::used(start), due))
    }

    /// In a forked child: sees to it that no block comes back to life whose memory the fork does not copy in small pages.
    #[cold]
    fn leave_parents_blocks(&self) {
        self.forked.store(false, Ordering::Relaxed);
        if !self.pages.fork_copies() {
            self.parking.stop();
        }
        self.carry_out_frees();
    }

    /// As [`alloc_large`](Self::alloc_large), but no parked block.
    #[inline(never)]
    pub(crate) fn alloc_unparked(&self, size: usize, align: usize) -> Option<Block> {
        if size > MAX_REQUEST || align > MAX_REQUEST - size {
            return None;
        }
        let pages = size.div_ceil(PAGE_SIZE).max(1);
        let align_pages = align.div_ceil(PAGE_SIZE);
        // Runs are aligned up to a huge page; beyond that the block begins inside a longer run.
        let over = if align > HUGE_PAGE { align_pages } else { 0 };
        let run = self.alloc_run(pages + over, align_pages.min(HUGE_PAGE / PAGE_SIZE))?;
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
        // SAFETY: the span is new.
        unsafe { self.large.lock().add(span) };
        Some(Block { ptr: start, dirty: run.dirty })
    }

    /// Frees a block of whole pages; `false` when no time need pass. A pointer that is no such block's start is told of and left.
    ///
    /// # Safety
    /// The span is in the page map, of class 0 and of this heap; the caller gives the block away.
    pub(crate) unsafe fn free_large(&self, block: NonNull<u8>, span: NonNull<Span>) -> bool {
        // SAFETY: a span in the page map is valid.
        if !unsafe { self.take_out_of_use(block, span) } {
            return true;
        }
        loop {
            // SAFETY: the block is free, and nobody else's to free.
            match unsafe { self.parking.park(span) } {
                Ok(due) => {
                    // Whoever carries out frees takes the word back first and looks at every lot then.
                    if !self.parked.load(Ordering::Relaxed) {
                        self.parked.store(true, Ordering::Relaxed);
                    }
                    return due;
                }
                Err(over) => {
                    // SAFETY: the block is free, and in no lot any more.
                    unsafe { self.end_block(over, |run, pages| self.pages.free(run, pages)) };
                    if over == span {
                        return true;
                    }
                }
            }
        }
    }

    /// Notes that a block is its program's no more. What is no start of a block in use is told of: `false`.
    ///
    /// # Safety
    /// As for [`free_large`](Self::free_large).
    #[inline]
    unsafe fn take_out_of_use(&self, block: NonNull<u8>, span: NonNull<Span>) -> bool {
        // SAFETY: a span in the page map is valid.
        let fault = unsafe {
            if span.as_ref().start != block.as_ptr() {
                Fault::Interior
            } else if !end_use(span) {
                Fault::Double
            } else {
                return true;
            }
        };
        report::fault(fault, block.as_ptr());
        false
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
    #[cold]
    unsafe fn forget_large(&self, block: NonNull<u8>, span: NonNull<Span>) -> Option<usize> {
        // SAFETY: a span in the page map is valid; the block is in the list, and the caller gave it away.
        unsafe {
            if !self.take_out_of_use(block, span) {
                return None;
            }
            let pages = span.as_ref().pages;
            self.end_block(span, |_, _| ());
            Some(pages)
        }
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
                // What is parked may be in the way.
                let grow = || self.pages.grow_in_place(start, old, pages - old);
                let grown = grow() || (self.carry_out_frees() && grow());
                if !grown {
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
            self.large.lock().remove(span);
            PAGE_MAP.clear_span(start.addr(), 1);
            let run = self.pages.relocate(NonNull::new_unchecked(start), old, pages);
            if let Some(run) = &run {
                (*span.as_ptr()).start = run.ptr.as_ptr();
                (*span.as_ptr()).pages = pages;
            }
            PAGE_MAP.set_span(span.as_ref().start.addr(), 1, span.as_ptr(), 0);
            self.large.lock().add(span);
            Some(run?.ptr)
        }
    }

    /// A run of pages. What is parked goes back to the page heap before memory is taken that has no pages behind it.
    #[inline]
    pub(super) fn alloc_run(&self, pages: usize, align: usize) -> Option<Run> {
        if !self.parked.load(Ordering::Relaxed) {
            return self.pages.alloc(pages, align);
        }
        self.alloc_run_of_parked(pages, align)
    }

    #[inline(never)]
    fn alloc_run_of_parked(&self, pages: usize, align: usize) -> Option<Run> {
        if let Some(run) = self.pages.alloc_backed(pages, align) {
            return Some(run);
        }
        self.carry_out_frees();
        self.pages.alloc(pages, align)
    }

    /// Frees what is parked; `false` when nothing was.
    fn carry_out_frees(&self) -> bool {
        if !self.parked.swap(false, Ordering::Relaxed) {
            return false;
        }
        // SAFETY: the spans were parked, and their blocks are free.
        self.parking.take_all(|span| unsafe {
            self.end_block(span, |run, pages| self.pages.free_and_keep(run, pages));
        });
        true
    }

    /// Gives the span of a large block back, and its pages to `free`.
    ///
    /// # Safety
    /// The span is in the page map and in the list, and nobody uses its block.
    unsafe fn end_block(&self, span: NonNull<Span>, free: impl FnOnce(NonNull<u8>, usize)) {
        // SAFETY: by the contract.
        unsafe {
            let (start, pages) = (span.as_ref().start, span.as_ref().pages);
            self.large.lock().remove(span);
            PAGE_MAP.clear_span(start.addr(), 1);
            Span::destroy(span);
            free(NonNull::new_unchecked(start), pages);
        }
    }

    /// Large blocks in use: how many, and their pages.
    pub(crate) fn large_counts(&self) -> (usize, usize) {
        let (parked, parked_pages) = self.parking.counts();
        let (count, pages) = self.large.lock().counts();
        (count.saturating_sub(parked), pages.saturating_sub(parked_pages))
    }

    /// Gives all large blocks back, whatever is live.
    ///
    /// # Safety
    /// Nothing of this heap is in use, and it is not used again.
    pub(super) unsafe fn forget_large_blocks(&self) {
        self.carry_out_frees();
        loop {
            let head = self.large.lock().head();
            let Some(span) = NonNull::new(head) else { return };
            // SAFETY: a span of the list is valid, and nothing uses its block.
            unsafe {
                let start = NonNull::new_unchecked(span.as_ref().start);
                if let Some(pages) = self.forget_large(start, span) {
                    self.pages.free(start, pages);
                }
            }
        }
    }

    /// Takes the settings that concern pages; from here on freed large blocks are parked, unless free memory is to go back at
    /// once. For a heap for which time passes: see [`tick`](Self::tick).
    pub(crate) fn configure(&self, settings: &Settings) {
        let most = if settings.release_delay == Delay::Millis(0) { 0 } else { MOST_PARKED };
        self.parking.set_most(most);
        self.carry_out_frees();
        self.pages.configure(settings);
    }

    /// Lets time pass; see [`PageHeap::tick`](crate::page_heap::PageHeap::tick).
    pub(crate) fn tick(&self, now: u64) -> bool {
        self.carry_out_frees();
        self.pages.tick(now)
    }

    /// Gives free memory back; see [`PageHeap::release`](crate::page_heap::PageHeap::release).
    pub(crate) fn release(&self, bytes: usize, mode: ReleaseMode) -> usize {
        self.carry_out_frees();
        self.pages.release(bytes, mode)
    }

    /// The accounts of the page heap.
    pub(crate) fn page_accounts(&self) -> PageAccounts {
        self.carry_out_frees();
        self.pages.accounts()
    }

    /// In a forked child; see [`PageHeap::after_fork_in_child`](crate::page_heap::PageHeap::after_fork_in_child).
    pub(crate) fn after_fork_in_child(&self) {
        self.forked.store(true, Ordering::Relaxed);
        self.pages.after_fork_in_child();
    }
}
