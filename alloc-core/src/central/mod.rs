//! The central list of one size class: a transfer cache of whole batches over lists of spans.
//!
//! Layer rule: between the front end and the page heap. Knows spans and objects of one class; the page heap
//! is reached by the heap that owns both.

pub(crate) mod batch;
mod span_list;

use crate::lock::{Lock, Rank};
use crate::page_map::PAGE_MAP;
use crate::report::Rejected;
use crate::span::{Owner, Span};
use batch::{BatchId, BatchStack};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicI32, AtomicIsize, AtomicU8, Ordering};
use size_classes::{CLASSES, MAX_BATCH};
use span_list::SpanLists;

/// Bytes that the transfer caches of all classes and heaps may hold together.
const TRANSFER_BYTES: usize = 32 << 20;
/// Refills between two sweeps that find nothing in a transfer cache and ask for what it turned away: from then on it grows.
const PROOF: i32 = 32;

/// What is left of [`TRANSFER_BYTES`].
static BYTES_LEFT: AtomicIsize = AtomicIsize::new(TRANSFER_BYTES as isize);

/// The central list of one class.
///
/// The transfer cache follows the rule of the bins: it has room for nothing until it was often enough asked for what it had turned
/// away, and then for as much as that. At each sweep it loses what it could have done without since the last.
pub(crate) struct Central {
    transfer: BatchStack,
    /// Objects in the transfer cache. Counted after the exchange, so it may be below zero for a moment.
    in_transfer: AtomicI32,
    /// The fewest objects in it since the last sweep.
    least: AtomicI32,
    /// Objects that it may hold.
    limit: AtomicI32,
    /// Objects that found no room and were not asked for since, since the last sweep.
    turned_away: AtomicI32,
    /// Refills that asked for such since the last sweep.
    needless: AtomicI32,
    /// Objects of another class that were handed out for want of a span; `u8::MAX` from the first span on.
    borrowed: AtomicU8,
    spans: Lock<SpanLists>,
}

/// Spans that became free, linked by `next`, to be given to the page heap without a lock held.
pub(crate) struct FreeSpans(*mut Span);

impl FreeSpans {
    pub(crate) const fn none() -> Self {
        Self(null_mut())
    }

    fn add(&mut self, span: *mut Span) {
        // SAFETY: the span is in no list now and exclusively ours.
        unsafe { (*span).next = self.0 };
        self.0 = span;
    }
}

impl Iterator for FreeSpans {
    type Item = NonNull<Span>;
    fn next(&mut self) -> Option<NonNull<Span>> {
        let span = NonNull::new(self.0)?;
        // SAFETY: spans of this list are exclusively ours.
        self.0 = unsafe { span.as_ref().next };
        Some(span)
    }
}

/// What a class holds, for reports and checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CentralCounts {
    pub(crate) spans: usize,
    pub(crate) free_in_spans: usize,
    pub(crate) in_transfer: usize,
}

impl Central {
    pub(crate) const fn new() -> Self {
        Self {
            transfer: BatchStack::new(),
            in_transfer: AtomicI32::new(0),
            least: AtomicI32::new(0),
            limit: AtomicI32::new(0),
            turned_away: AtomicI32::new(0),
            needless: AtomicI32::new(0),
            borrowed: AtomicU8::new(0),
            spans: Lock::new(Rank::Central, SpanLists::new()),
        }
    }

    fn in_transfer(&self) -> usize {
        self.in_transfer.load(Ordering::Relaxed).max(0) as usize
    }

    /// Takes up to `want` objects out of the transfer cache; returns how many, 0 for none at hand.
    ///
    /// # Safety
    /// `out` has room for `want` pointers.
    #[inline]
    pub(crate) unsafe fn take_from_transfer(&self, class: u8, want: usize, out: *mut *mut u8) -> usize {
        let Some(batch) = self.transfer.pop() else {
            self.ran_dry(class, want);
            return 0;
        };
        // SAFETY: the batch is ours since the pop; the caller gives the room.
        let (taken, left) = unsafe { batch.take(want, out) };
        if left == 0 {
            batch.put_unused();
        } else {
            self.transfer.push(batch);
        }
        let now = self.in_transfer.fetch_sub(taken as i32, Ordering::Relaxed) - taken as i32;
        if now < self.least.load(Ordering::Relaxed) {
            self.least.store(now, Ordering::Relaxed);
        }
        taken
    }

    /// The transfer cache had nothing for a refill of `want` objects: it grows by as many if it turned them away before.
    fn ran_dry(&self, class: u8, want: usize) {
        self.least.store(0, Ordering::Relaxed);
        let turned_away = self.turned_away.load(Ordering::Relaxed);
        if turned_away <= 0 {
            return;
        }
        let more = turned_away.min(want as i32);
        self.turned_away.store(turned_away - more, Ordering::Relaxed);
        if self.needless.fetch_add(1, Ordering::Relaxed) < PROOF {
            return;
        }
        let bytes = more as isize * CLASSES.size_of(class) as isize;
        if BYTES_LEFT.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
            self.limit.fetch_add(more, Ordering::Relaxed);
        } else {
            BYTES_LEFT.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Puts objects into the transfer cache as one batch; `false` when that is full.
    ///
    /// # Safety
    /// `objects` points to `len` objects of this class, at most [`MAX_BATCH`], which the caller gives away.
    #[inline]
    pub(crate) unsafe fn put_into_transfer(&self, objects: *const *mut u8, len: usize) -> bool {
        if self.in_transfer.load(Ordering::Relaxed) + len as i32 > self.limit.load(Ordering::Relaxed) {
            self.turned_away.fetch_add(len as i32, Ordering::Relaxed);
            return false;
        }
        let Some(batch) = BatchId::take_unused() else { return false };
        // SAFETY: the batch is ours until pushed.
        unsafe { batch.fill(objects, len) };
        self.in_transfer.fetch_add(len as i32, Ordering::Relaxed);
        self.transfer.push(batch);
        true
    }

    /// Takes up to `want` objects from spans, fullest spans first; returns how many.
    ///
    /// # Safety
    /// `out` has room for `want` pointers.
    pub(crate) unsafe fn take_from_spans(&self, class: u8, want: usize, out: *mut *mut u8) -> usize {
        let mut spans = self.spans.lock();
        // SAFETY: handed on to the caller.
        unsafe { spans.take(CLASSES.size_of(class), want, out) }
    }

    /// As [`take_from_spans`](Self::take_from_spans), but gives up at once when another holds the lock.
    ///
    /// # Safety
    /// `out` has room for `want` pointers.
    pub(crate) unsafe fn try_take_from_spans(&self, class: u8, want: usize, out: *mut *mut u8) -> usize {
        let Some(mut spans) = self.spans.try_lock() else { return 0 };
        // SAFETY: handed on to the caller.
        unsafe { spans.take(CLASSES.size_of(class), want, out) }
    }

    /// Whether the class, which has nothing free, does without a span of its own once more, up to `most` times in all.
    #[inline]
    pub(crate) fn may_borrow(&self, most: u8) -> bool {
        let borrowed = self.borrowed.load(Ordering::Relaxed);
        let may = borrowed < most;
        if may {
            // Others may do so at the same time: the number is no promise.
            self.borrowed.store(borrowed + 1, Ordering::Relaxed);
        }
        may
    }

    /// Adds a span whose objects are all free and takes up to `want` objects.
    ///
    /// # Safety
    /// The span is new, of this class, and in the page map; `out` has room for `want` pointers.
    pub(crate) unsafe fn add_span(
        &self,
        class: u8,
        span: NonNull<Span>,
        want: usize,
        out: *mut *mut u8,
    ) -> usize {
        self.borrowed.store(u8::MAX, Ordering::Relaxed);
        let mut spans = self.spans.lock();
        spans.add(span.as_ptr());
        // SAFETY: handed on to the caller.
        unsafe { spans.take(CLASSES.size_of(class), want, out) }
    }

    /// Puts objects back into their spans. Pointers that are no live objects of this class are left out and told.
    ///
    /// # Safety
    /// `objects` points to `len` pointers, at most [`MAX_BATCH`], that the caller gives away.
    pub(crate) unsafe fn put_into_spans(
        &self,
        class: u8,
        owner: *const Owner,
        objects: *const *mut u8,
        len: usize,
        rejected: &mut Rejected,
    ) -> FreeSpans {
        debug_assert!(len <= MAX_BATCH);
        // SAFETY: the caller vouches for `len` pointers.
        let objects = unsafe { core::slice::from_raw_parts(objects, len) };
        let mut found = [null_mut(); MAX_BATCH];
        Self::find_spans(objects, &mut found);
        let mut spans = self.spans.lock();
        // SAFETY: handed on to the caller.
        unsafe { Self::put_all(&mut spans, class, owner, objects, &found, rejected, true) }
    }

    /// As [`put_into_spans`](Self::put_into_spans) for one object, but gives up at once when another holds the lock, with
    /// `false`. A span that becomes free is kept: giving it back would take further locks.
    ///
    /// # Safety
    /// As for [`put_into_spans`](Self::put_into_spans).
    pub(crate) unsafe fn try_put_into_spans(
        &self,
        class: u8,
        owner: *const Owner,
        object: *mut u8,
        rejected: &mut Rejected,
    ) -> bool {
        let mut found = [null_mut()];
        Self::find_spans(&[object], &mut found);
        let Some(mut spans) = self.spans.try_lock() else { return false };
        // SAFETY: handed on to the caller.
        unsafe { Self::put_all(&mut spans, class, owner, &[object], &found, rejected, false) };
        true
    }

    /// Looks the objects' spans up, null for what has none, and has their records fetched: what the processor reads of them at once
    /// now would be read one by one while the class is locked.
    fn find_spans(objects: &[*mut u8], found: &mut [*mut Span]) {
        for (object, found) in objects.iter().zip(found) {
            *found = PAGE_MAP.span_of(object.addr()).map_or(null_mut(), NonNull::as_ptr);
            Span::prefetch(*found);
        }
    }

    /// Puts objects into the spans that [`find_spans`](Self::find_spans) has found.
    ///
    /// # Safety
    /// As for [`put_into_spans`](Self::put_into_spans).
    unsafe fn put_all(
        spans: &mut SpanLists,
        class: u8,
        owner: *const Owner,
        objects: &[*mut u8],
        found: &[*mut Span],
        rejected: &mut Rejected,
        take_empty: bool,
    ) -> FreeSpans {
        let info = CLASSES.class(class);
        let mut empty = FreeSpans::none();
        for (&object, &span) in objects.iter().zip(found) {
            if span.is_null() {
                rejected.add(object, crate::report::Fault::Foreign);
                continue;
            }
            // SAFETY: a span in the page map is valid, and stays so while objects of it are in the caller's hands. A
            // wrong pointer may name a span that ends at this moment; its record is type-stable, and the lists are
            // locked before anything is changed.
            unsafe {
                let offset = object.addr().wrapping_sub((*span).start.addr());
                let index = if (*span).class == class && (*span).owner == owner && offset < info.span_bytes()
                {
                    info.exact_index(offset as u32)
                } else {
                    None
                };
                match index {
                    None => rejected.add(object, crate::report::Fault::Interior),
                    Some(index) if !Span::put(span, index as usize) => {
                        rejected.add(object, crate::report::Fault::Double);
                    }
                    Some(_) => {
                        spans.freed_one(span);
                        if take_empty && (*span).free == (*span).objects {
                            spans.remove(span);
                            empty.add(span);
                        }
                    }
                }
            }
        }
        empty
    }

    /// Empties the transfer cache into the spans: all of it, or what was not needed since the last sweep.
    pub(crate) fn sweep_transfer(
        &self,
        class: u8,
        owner: *const Owner,
        everything: bool,
        mut freed: impl FnMut(FreeSpans),
    ) {
        let in_transfer = self.in_transfer.load(Ordering::Relaxed);
        let least = self.least.load(Ordering::Relaxed);
        let spare = if everything { in_transfer } else { in_transfer.min(least) }.max(0);
        self.turned_away.store(0, Ordering::Relaxed);
        self.needless.store(0, Ordering::Relaxed);
        let lost = self.limit.load(Ordering::Relaxed).min(spare);
        self.limit.fetch_sub(lost, Ordering::Relaxed);
        BYTES_LEFT.fetch_add(lost as isize * CLASSES.size_of(class) as isize, Ordering::Relaxed);
        let mut surplus = spare as usize;
        let mut rejected = Rejected::none();
        while surplus > 0 {
            let mut objects = [null_mut(); MAX_BATCH];
            // SAFETY: there is room for a batch, and what was in it is ours to put into spans.
            unsafe {
                let len = self.take_from_transfer(class, MAX_BATCH.min(surplus), objects.as_mut_ptr());
                if len == 0 {
                    break;
                }
                freed(self.put_into_spans(class, owner, objects.as_ptr(), len, &mut rejected));
                surplus = surplus.saturating_sub(len);
            }
        }
        self.least.store(self.in_transfer.load(Ordering::Relaxed), Ordering::Relaxed);
        rejected.report();
    }

    /// See [`SpanLists::hide_retired`].
    pub(crate) fn hide_retired(&self) {
        self.spans.lock().hide_retired();
    }

    /// What the class holds.
    pub(crate) fn counts(&self) -> CentralCounts {
        let in_transfer = self.in_transfer();
        let spans = self.spans.lock();
        CentralCounts { spans: spans.len(), free_in_spans: spans.free_objects(), in_transfer }
    }

    /// Checks lists, counts and bitmaps of every span of the class; `false` when something is wrong.
    pub(crate) fn check(&self, class: u8, owner: *const Owner) -> bool {
        self.spans.lock().check(class, owner)
    }

    /// Takes every span out, whatever is live in them.
    ///
    /// # Safety
    /// Nothing uses objects of this class any more.
    pub(crate) unsafe fn take_all_spans(&self) -> FreeSpans {
        while let Some(batch) = self.transfer.pop() {
            batch.put_unused();
        }
        let mut all = FreeSpans::none();
        let mut spans = self.spans.lock();
        while let Some(span) = spans.any() {
            spans.remove(span);
            all.add(span);
        }
        all
    }

    pub(crate) fn lock_for_fork(&self) {
        self.spans.lock_for_fork();
    }

    /// # Safety
    /// As [`Lock::unlock_after_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: handed on to the caller.
        unsafe { self.spans.unlock_after_fork() }
    }
}
