//! The large blocks of a heap, parked ones among them.

use crate::page_map::PAGE_MAP;
use crate::span::Span;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering;
use size_classes::{MAX_SMALL, PAGE_SIZE};

/// A block serves a request that leaves at most this part of it unused: the most that size classes waste.
const WASTE_SHIFT: u32 = 3;

/// Whether a block of `has` pages serves a request for `wanted` pages.
#[inline]
pub(super) fn serves(has: usize, wanted: usize) -> bool {
    has >= wanted && has - wanted <= has >> WASTE_SHIFT
}

/// What the span of a large block says of it, in [`Span::list`]. It changes without the list's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Not in the list.
    Out = 0,
    InUse = 1,
    /// Freed, in [`super::parking`] or on its way there or out of it.
    Parked = 2,
}

/// Takes a block that its program gives away out of use; `false` when it is none in use.
///
/// # Safety
/// `span` is a record of a span, whatever has become of it: these are type-stable.
#[inline]
pub(super) unsafe fn end_use(span: NonNull<Span>) -> bool {
    let (from, to) = (State::InUse as u8, State::Parked as u8);
    // SAFETY: by the contract. Two threads that free the same block at once meet here: one of them finds it in use.
    let span = unsafe { span.as_ref() };
    span.class == 0 && span.list.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// # Safety
/// The span is of a large block and the caller's.
#[inline]
pub(super) unsafe fn set_state(span: NonNull<Span>, state: State) {
    // SAFETY: by the contract.
    unsafe { span.as_ref() }.list.store(state as u8, Ordering::Release);
}

/// See the module's page. The spans of all its blocks are in the page map.
pub(super) struct LargeList {
    head: *mut Span,
    count: usize,
    pages: usize,
}
// SAFETY: the list owns its spans.
unsafe impl Send for LargeList {}

impl LargeList {
    pub(super) const EMPTY: Self = Self { head: null_mut(), count: 0, pages: 0 };

    /// Blocks in the list: how many, and their pages.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.count, self.pages)
    }

    /// The span of a block; null when there is none.
    pub(super) fn head(&self) -> *mut Span {
        self.head
    }

    /// Adds a block in use.
    ///
    /// # Safety
    /// The span is valid, of class 0, in no list and the caller's.
    #[inline]
    pub(super) unsafe fn add(&mut self, span: NonNull<Span>) {
        let at = span.as_ptr();
        // SAFETY: by the contract; the head is in the list and so valid.
        unsafe {
            debug_assert!((*at).class == 0);
            set_state(span, State::InUse);
            (*at).prev = null_mut();
            (*at).next = self.head;
            if !self.head.is_null() {
                (*self.head).prev = at;
            }
            self.pages += (*at).pages;
        }
        self.head = at;
        self.count += 1;
    }

    /// Takes a block out.
    ///
    /// # Safety
    /// The block is in the list and its span the caller's.
    #[inline]
    pub(super) unsafe fn remove(&mut self, span: NonNull<Span>) {
        // SAFETY: by the contract; spans in the list are valid.
        unsafe {
            set_state(span, State::Out);
            let (next, prev, pages) = (span.as_ref().next, span.as_ref().prev, span.as_ref().pages);
            if prev.is_null() {
                self.head = next;
            } else {
                (*prev).next = next;
            }
            if !next.is_null() {
                (*next).prev = prev;
            }
            self.pages -= pages;
        }
        self.count -= 1;
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

    /// Whether the list agrees with its counts and the page map.
    pub(super) fn check(&self) -> bool {
        let (mut count, mut pages, mut prev, mut at) = (0, 0, null_mut(), self.head);
        while let Some(span) = NonNull::new(at) {
            // SAFETY: spans of the list are valid.
            unsafe {
                count += 1;
                pages += (*at).pages;
                if (*at).prev != prev || !is_sound(span) {
                    return false;
                }
                prev = at;
                at = (*at).next;
            }
        }
        count == self.count && pages == self.pages
    }
}

/// # Safety
/// The span is valid.
unsafe fn is_sound(span: NonNull<Span>) -> bool {
    // SAFETY: by the contract.
    unsafe {
        span.as_ref().class == 0
            && span.as_ref().list.load(Ordering::Relaxed) != State::Out as u8
            && PAGE_MAP.span_of(span.as_ref().start.addr()) == Some(span)
    }
}

impl Span {
    /// Whether this is the span of a large block in that state. The caller owns the block, or asks about one that the program
    /// has freed.
    #[inline]
    fn is_large_in(&self, state: State) -> bool {
        self.class == 0 && self.list.load(Ordering::Relaxed) == state as u8
    }

    /// Whether this is the span of a large block that has been freed and is parked; the caller as above.
    pub(crate) fn is_parked(&self) -> bool {
        self.is_large_in(State::Parked)
    }

    /// Whether this is the span of a large block in use that a request for `size` bytes can get; the caller as above.
    #[inline]
    pub(crate) fn is_large_of(&self, size: usize) -> bool {
        self.is_large_in(State::InUse) && size > MAX_SMALL && serves(self.pages, size.div_ceil(PAGE_SIZE))
    }
}
