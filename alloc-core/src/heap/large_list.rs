//! The large blocks of a heap: those in use, and the last few freed ones, which are parked.

use crate::page_map::PAGE_MAP;
use crate::span::Span;
use core::ptr::{NonNull, null_mut};
use size_classes::{MAX_SMALL, PAGE_SIZE};

/// Most blocks that are parked.
const PLACES: usize = 8;
/// Most pages in parked blocks: 64 MiB.
pub(super) const MOST_PARKED: usize = (64 << 20) / PAGE_SIZE;

/// Value of [`Span::list`] for a large block in use.
const IN_USE: u8 = 1;
/// Value of [`Span::list`] for a parked one.
const PARKED: u8 = 2;

/// See the module's page. The spans of all its blocks are in the page map.
pub(super) struct LargeList {
    head: *mut Span,
    count: usize,
    pages: usize,
    /// The first `parked_count` are parked, the longest parked first.
    parked: [*mut Span; PLACES],
    parked_count: usize,
    parked_pages: usize,
    /// Most pages to park.
    most_parked: usize,
    /// Nothing is parked any more, whatever is set.
    stopped: bool,
}
// SAFETY: the list owns its spans.
unsafe impl Send for LargeList {}

/// Spans out of list, chained by their `next`.
pub(super) struct Chain(*mut Span);

impl Iterator for Chain {
    type Item = NonNull<Span>;

    fn next(&mut self) -> Option<NonNull<Span>> {
        let span = NonNull::new(self.0)?;
        // SAFETY: spans of a chain are valid, and whoever has the chain owns them.
        self.0 = unsafe { span.as_ref().next };
        Some(span)
    }
}

impl Chain {
    /// # Safety
    /// The span is valid, in no list and nobody else's.
    unsafe fn push(&mut self, span: *mut Span) {
        // SAFETY: by the contract.
        unsafe { (*span).next = self.0 };
        self.0 = span;
    }
}

impl LargeList {
    pub(super) const EMPTY: Self = Self {
        head: null_mut(),
        count: 0,
        pages: 0,
        parked: [null_mut(); PLACES],
        parked_count: 0,
        parked_pages: 0,
        most_parked: 0,
        stopped: false,
    };

    /// Blocks in use: how many, and their pages.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.count, self.pages)
    }

    /// The span of a block in use; null when there is none.
    pub(super) fn head(&self) -> *mut Span {
        self.head
    }

    /// Sets how many pages may be parked; blocks that are stay.
    pub(super) fn set_most_parked(&mut self, pages: usize) {
        self.most_parked = if self.stopped { 0 } else { pages };
    }

    /// Parks nothing from here on; blocks that are parked stay.
    pub(super) fn stop_parking(&mut self) {
        self.stopped = true;
        self.most_parked = 0;
    }

    /// Adds a block in use.
    ///
    /// # Safety
    /// The span is valid, of class 0, in no list and the caller's.
    #[inline]
    pub(super) unsafe fn add(&mut self, span: *mut Span) {
        // SAFETY: by the contract; the head is in the list and so valid.
        unsafe {
            debug_assert!((*span).class == 0);
            (*span).list = IN_USE;
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

    /// Takes a block in use out; `false` when it is none.
    ///
    /// # Safety
    /// `span` is a record of a span, whatever has become of it: these are type-stable.
    #[inline]
    pub(super) unsafe fn remove(&mut self, span: *mut Span) -> bool {
        // SAFETY: by the contract; spans in the list are valid.
        unsafe {
            if (*span).list != IN_USE || (*span).class != 0 {
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

    /// Changes the length of a block in use.
    ///
    /// # Safety
    /// The span is of a block in use, which the caller owns.
    pub(super) unsafe fn resize(&mut self, span: *mut Span, pages: usize) {
        // SAFETY: by the contract.
        unsafe {
            self.pages = self.pages - (*span).pages + pages;
            (*span).pages = pages;
        }
    }

    /// Parks a block that is out of use. What there is no room for, the block itself or those parked the longest, comes back.
    ///
    /// # Safety
    /// The span was [`remove`](Self::remove)d just now.
    #[inline]
    pub(super) unsafe fn park(&mut self, span: *mut Span) -> Chain {
        let mut out = Chain(null_mut());
        // SAFETY: the span is ours, and so are parked ones.
        unsafe {
            let pages = (*span).pages;
            if pages > self.most_parked {
                out.push(span);
                return out;
            }
            while self.parked_count == PLACES || self.parked_pages + pages > self.most_parked {
                out.push(self.unpark_at(0));
            }
            (*span).list = PARKED;
            self.parked_pages += pages;
        }
        self.parked[self.parked_count] = span;
        self.parked_count += 1;
        out
    }

    /// Whether some block is parked.
    #[inline]
    pub(super) fn has_parked(&self) -> bool {
        self.parked_count > 0
    }

    /// Takes the youngest parked block of `pages` pages at a multiple of `align` bytes back into use.
    #[inline]
    pub(super) fn unpark(&mut self, pages: usize, align: usize) -> Option<NonNull<Span>> {
        // SAFETY: parked spans are valid.
        let fits = |span: &*mut Span| unsafe {
            (**span).pages == pages && (**span).start.addr().is_multiple_of(align)
        };
        let at = self.parked[..self.parked_count].iter().rposition(fits)?;
        let span = self.unpark_at(at);
        // SAFETY: the span is in no list now.
        unsafe { self.add(span) };
        NonNull::new(span)
    }

    /// Takes all parked blocks out.
    pub(super) fn unpark_all(&mut self) -> Chain {
        let mut out = Chain(null_mut());
        while self.parked_count > 0 {
            // SAFETY: parked spans are valid and ours.
            unsafe { out.push(self.unpark_at(self.parked_count - 1)) };
        }
        out
    }

    #[inline]
    fn unpark_at(&mut self, at: usize) -> *mut Span {
        debug_assert!(at < self.parked_count);
        let span = self.parked[at];
        self.parked_count -= 1;
        for i in at..self.parked_count {
            self.parked[i] = self.parked[i + 1];
        }
        // SAFETY: parked spans are valid and ours.
        unsafe {
            (*span).list = 0;
            self.parked_pages -= (*span).pages;
        }
        span
    }

    /// Whether the list agrees with its counts and the page map.
    pub(super) fn check(&self) -> bool {
        let (mut count, mut pages, mut prev, mut span) = (0, 0, null_mut(), self.head);
        while !span.is_null() {
            // SAFETY: spans of the list are valid.
            unsafe {
                count += 1;
                pages += (*span).pages;
                if (*span).prev != prev || !is_sound(span, IN_USE) {
                    return false;
                }
                prev = span;
                span = (*span).next;
            }
        }
        let parked = &self.parked[..self.parked_count];
        // SAFETY: as above.
        let parked_pages: usize = parked.iter().map(|span| unsafe { (**span).pages }).sum();
        count == self.count
            && pages == self.pages
            && parked_pages == self.parked_pages
            // SAFETY: as above.
            && parked.iter().all(|span| unsafe { is_sound(*span, PARKED) })
    }
}

/// # Safety
/// The span is valid.
unsafe fn is_sound(span: *mut Span, list: u8) -> bool {
    // SAFETY: by the contract.
    unsafe {
        (*span).class == 0
            && (*span).list == list
            && PAGE_MAP.span_of((*span).start.addr()).map(NonNull::as_ptr) == Some(span)
    }
}

impl Span {
    /// Whether this is the span of a large block that has been freed and is parked. The caller owns the block, or asks about
    /// one that the program has freed.
    pub(crate) fn is_parked(&self) -> bool {
        self.class == 0 && self.list == PARKED
    }

    /// Whether this is the span of a large block in use that a request for `size` bytes would get. The caller owns the block, or
    /// asks about one that the program has freed.
    #[inline]
    pub(crate) fn is_large_of(&self, size: usize) -> bool {
        self.class == 0 && self.list == IN_USE && size > MAX_SMALL && size.div_ceil(PAGE_SIZE) == self.pages
    }
}
