//! The spans of one class, in lists by how full they are.
//!
//! Objects come from the fullest span that has one, so that sparse spans drain and their pages go back.

use crate::page_map::PAGE_MAP;
use crate::span::{Owner, Span};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use size_classes::CLASSES;

/// Lists: 0 holds spans that have nothing to hand out, then rising with the part that is free.
const LISTS: usize = 4;

/// The lists of spans of one class; guarded by the central's lock.
pub(crate) struct SpanLists {
    heads: [*mut Span; LISTS],
    len: usize,
    free: usize,
}

// SAFETY: the lists own their spans.
unsafe impl Send for SpanLists {}

/// The list for a span of `objects` objects, `free` of them free.
fn list_for(free: usize, objects: usize) -> usize {
    match free {
        0 => 0,
        free if free * 4 <= objects => 1,
        free if free * 2 <= objects => 2,
        _ => 3,
    }
}

/// The list that a span belongs in.
///
/// # Safety
/// The span is valid, and its central's lock is held.
unsafe fn place(span: *mut Span) -> usize {
    // SAFETY: by the contract.
    let (free, objects, start, owner) =
        unsafe { ((*span).free as usize, (*span).objects as usize, (*span).start, (*span).owner) };
    // A private heap's spans have no class bytes.
    if owner.is_null() && PAGE_MAP.is_retired(start.addr()) { 0 } else { list_for(free, objects) }
}

impl SpanLists {
    pub(crate) const fn new() -> Self {
        Self { heads: [null_mut(); LISTS], len: 0, free: 0 }
    }

    /// Spans in all.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Free objects in all spans.
    pub(crate) fn free_objects(&self) -> usize {
        self.free
    }

    /// Any span.
    pub(crate) fn any(&self) -> Option<*mut Span> {
        self.heads.iter().copied().find(|head| !head.is_null())
    }

    fn link(&mut self, span: *mut Span, list: usize) {
        let head = self.heads[list];
        // SAFETY: spans of the lists, and one that is being put in, are valid and ours under the lock.
        unsafe {
            (*span).list.store(list as u8, Ordering::Relaxed);
            (*span).prev = null_mut();
            (*span).next = head;
            if !head.is_null() {
                (*head).prev = span;
            }
        }
        self.heads[list] = span;
    }

    fn unlink(&mut self, span: *mut Span) {
        // SAFETY: as in `link`.
        unsafe {
            let (next, prev) = ((*span).next, (*span).prev);
            if prev.is_null() {
                self.heads[(*span).list.load(Ordering::Relaxed) as usize] = next;
            } else {
                (*prev).next = next;
            }
            if !next.is_null() {
                (*next).prev = prev;
            }
        }
    }

    /// Puts a new span in.
    pub(crate) fn add(&mut self, span: *mut Span) {
        // SAFETY: the caller gives a valid span that is in no list.
        let (free, list) = unsafe { ((*span).free as usize, place(span)) };
        self.len += 1;
        self.free += free;
        self.link(span, list);
    }

    /// Takes a span out.
    pub(crate) fn remove(&mut self, span: *mut Span) {
        self.len -= 1;
        // SAFETY: a span of these lists is valid.
        self.free -= unsafe { (*span).free as usize };
        self.unlink(span);
    }

    /// Takes up to `want` objects of `size` bytes; returns how many.
    ///
    /// # Safety
    /// `out` has room for `want` pointers.
    pub(crate) unsafe fn take(&mut self, size: usize, want: usize, out: *mut *mut u8) -> usize {
        let mut taken = 0;
        for list in 1..LISTS {
            while taken < want && !self.heads[list].is_null() {
                let span = self.heads[list];
                // SAFETY: a span of these lists is valid; the room is what the caller gives, less what was taken.
                taken += unsafe { Span::take(span, size, want - taken, out.add(taken)) };
                self.relist(span);
            }
        }
        self.free -= taken;
        taken
    }

    /// Notes that one object of `span` was marked free.
    pub(crate) fn freed_one(&mut self, span: *mut Span) {
        self.free += 1;
        self.relist(span);
    }

    fn relist(&mut self, span: *mut Span) {
        // SAFETY: a span of these lists is valid.
        let (list, now) = unsafe { ((*span).list.load(Ordering::Relaxed) as usize, place(span)) };
        if list != now {
            self.unlink(span);
            self.link(span, now);
        }
    }

    /// Takes spans in huge pages that were retired out of those that hand out objects.
    pub(crate) fn hide_retired(&mut self) {
        for list in 1..LISTS {
            let mut span = self.heads[list];
            while !span.is_null() {
                // SAFETY: spans of these lists are valid.
                let next = unsafe { (*span).next };
                self.relist(span);
                span = next;
            }
        }
    }

    /// Checks every span against its bitmap, its list, the class and the page map.
    pub(crate) fn check(&self, class: u8, owner: *const Owner) -> bool {
        let info = CLASSES.class(class);
        let (mut len, mut free) = (0, 0);
        for (list, &head) in self.heads.iter().enumerate() {
            let mut span = head;
            let mut prev = null_mut();
            while !span.is_null() {
                // SAFETY: spans of these lists are valid, and ours under the lock.
                let sound = unsafe {
                    len += 1;
                    free += (*span).free as usize;
                    (*span).prev == prev
                        && (*span).list.load(Ordering::Relaxed) as usize == list
                        && list == place(span)
                        && (*span).class == class
                        && (*span).owner == owner
                        && (*span).pages == info.pages as usize
                        && (*span).objects == info.objects
                        && Span::count_free(span) == (*span).free as usize
                        && PAGE_MAP.span_of((*span).start.addr()).map(|s| s.as_ptr()) == Some(span)
                };
                if !sound {
                    return false;
                }
                prev = span;
                // SAFETY: as above.
                span = unsafe { (*span).next };
            }
        }
        len == self.len && free == self.free
    }
}
