//! Where freed large blocks wait for the next request of about their length.
//!
//! Blocks wait in a few lots, and a thread goes to the lot of its number first: threads that take and free large blocks at the
//! same time hardly meet. A lot is held for a few instructions, by one atomic exchange; where one is held the next will do.
//! Parked blocks stay in the list of large blocks and in the page map; their spans say that they are parked.

use super::large_list::{State, serves, set_state};
use crate::span::Span;
use crate::tls;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use page_backend::sys;
use size_classes::PAGE_SIZE;

/// Lots of a heap.
const LOTS: usize = 8;
/// Most blocks in one lot.
const PLACES: usize = 8;
/// Most pages in parked blocks: 64 MiB.
pub(super) const MOST_PARKED: usize = (64 << 20) / PAGE_SIZE;
/// Pages that a lot has room for whatever is parked in the others: 4 MiB.
const OWN_PAGES: usize = (4 << 20) / PAGE_SIZE;
/// Time passes for the heap with one in so many uses of a lot: to ask the clock takes as long as the rest.
const QUICK_USES: u32 = 16;
/// How often a thread that must have a lot looks whether it is free before it sleeps, and for how many nanoseconds.
const SPINS: u32 = 100;
const NAP: u64 = 50_000;

/// See the module's page.
pub(super) struct Parking {
    lots: [Lot; LOTS],
    /// Most pages to park.
    most: AtomicUsize,
    /// Nothing is parked any more, whatever is set.
    stopped: AtomicBool,
}

/// One lot, on cache lines of its own. The counts are changed by its holder alone.
#[repr(align(128))]
struct Lot {
    held: AtomicBool,
    count: AtomicU32,
    pages: AtomicUsize,
    places: UnsafeCell<Places>,
}

/// The parked blocks of a lot, the longest parked first, and their pages.
struct Places {
    uses: u32,
    spans: [*mut Span; PLACES],
    pages: [u32; PLACES],
}

// SAFETY: the places are used by the lot's holder alone, and who holds it owns the spans.
unsafe impl Sync for Lot {}
// SAFETY: as above.
unsafe impl Send for Lot {}

impl Parking {
    pub(super) const fn new() -> Self {
        Self {
            lots: [const { Lot::new() }; LOTS],
            most: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Sets how many pages may be parked; blocks that are stay.
    pub(super) fn set_most(&self, pages: usize) {
        let pages = if self.stopped.load(Ordering::Relaxed) { 0 } else { pages };
        self.most.store(pages, Ordering::Relaxed);
    }

    /// Parks nothing from here on; blocks that are parked stay.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.most.store(0, Ordering::Relaxed);
    }

    /// The lots, the calling thread's first.
    fn lots(&self) -> impl Iterator<Item = &Lot> {
        // The upper bits of a product depend on all bits of the address.
        let own = (tls::identity() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LOTS.ilog2());
        (0..LOTS).map(move |i| &self.lots[(own as usize + i) % LOTS])
    }

    /// Parked blocks and their pages; a moment's view.
    pub(super) fn counts(&self) -> (usize, usize) {
        self.lots.iter().fold((0, 0), |(count, pages), lot| {
            (count + lot.count(), pages + lot.pages.load(Ordering::Relaxed))
        })
    }

    /// Parks a block; `true` when time should pass. Where there is no room the block that is to be freed instead comes back: the
    /// one that has waited longest in its lot, the call can be tried again then, or the block itself.
    ///
    /// # Safety
    /// The span is of a large block that is free, is in the page map, and is the caller's.
    #[inline]
    pub(super) unsafe fn park(&self, span: NonNull<Span>) -> Result<bool, NonNull<Span>> {
        // SAFETY: the span is the caller's.
        let pages = unsafe { span.as_ref().pages };
        let most = self.most.load(Ordering::Relaxed);
        if pages > most {
            return Err(span);
        }
        let Some(mut lot) = self.lots().find_map(Lot::try_hold) else { return Err(span) };
        let (count, own) = (lot.0.count(), lot.0.pages.load(Ordering::Relaxed));
        let fits = own + pages <= OWN_PAGES.min(most) || self.counts().1 + pages <= most;
        if fits && count < PLACES {
            lot.push(span.as_ptr(), pages);
            return Ok(lot.is_due());
        }
        Err(if count > 0 { lot.remove(0) } else { span })
    }

    /// Takes a parked block back into use that has `pages` pages or not many more, and is at a multiple of `align` bytes; with it
    /// goes whether time should pass.
    #[inline]
    pub(super) fn unpark(&self, pages: usize, align: usize) -> Option<(NonNull<Span>, bool)> {
        for lot in self.lots() {
            if lot.count() > 0
                && let Some(mut lot) = lot.try_hold()
                && let Some(at) = lot.best(pages, align)
            {
                let span = lot.remove(at);
                // SAFETY: the span was parked and is this call's now.
                unsafe { set_state(span, State::InUse) };
                return Some((span, lot.is_due()));
            }
        }
        None
    }

    /// Takes all blocks out that are parked at this moment, and gives each to `end`, lots not held.
    pub(super) fn take_all(&self, mut end: impl FnMut(NonNull<Span>)) {
        for lot in self.lots() {
            let (spans, count) = lot.hold().take_all();
            spans[..count].iter().filter_map(|span| NonNull::new(*span)).for_each(&mut end);
        }
    }

    /// Whether the lots agree with their counts, and the spans with the lots.
    pub(super) fn check(&self) -> bool {
        self.lots.iter().all(|lot| {
            let mut held = lot.hold();
            let (count, places) = (lot.count(), held.places());
            // SAFETY: parked spans are valid.
            let is_sound = |at: usize| unsafe {
                let span = &*places.spans[at];
                span.is_parked() && span.pages == places.pages[at] as usize
            };
            let pages: usize = places.pages[..count].iter().map(|pages| *pages as usize).sum();
            pages == lot.pages.load(Ordering::Relaxed) && (0..count).all(is_sound)
        })
    }

    pub(super) fn lock_for_fork(&self) {
        for lot in &self.lots {
            core::mem::forget(lot.hold());
        }
    }

    /// # Safety
    /// This thread, or the thread that it was forked from, called `lock_for_fork`.
    pub(super) unsafe fn unlock_after_fork(&self) {
        for lot in &self.lots {
            lot.held.store(false, Ordering::Release);
        }
    }
}

impl Lot {
    const fn new() -> Self {
        let places = Places { uses: 0, spans: [null_mut(); PLACES], pages: [0; PLACES] };
        Self {
            held: AtomicBool::new(false),
            count: AtomicU32::new(0),
            pages: AtomicUsize::new(0),
            places: UnsafeCell::new(places),
        }
    }

    #[inline]
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn try_hold(&self) -> Option<Held<'_>> {
        if self.held.load(Ordering::Relaxed) || self.held.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Held(self))
    }

    /// Holds the lot, however long that takes: its holder may have been preempted, by this thread even, so the wait must sleep.
    fn hold(&self) -> Held<'_> {
        loop {
            for _ in 0..SPINS {
                if let Some(held) = self.try_hold() {
                    return held;
                }
                spin_loop();
            }
            sys::nanosleep(NAP);
        }
    }
}

/// A lot while it is held.
struct Held<'a>(&'a Lot);

impl Held<'_> {
    #[inline]
    fn places(&mut self) -> &mut Places {
        // SAFETY: the lot has one holder, and the borrow is of that.
        unsafe { &mut *self.0.places.get() }
    }

    /// Counts a use; `true` for every so many.
    #[inline]
    fn is_due(&mut self) -> bool {
        let places = self.places();
        places.uses = places.uses.wrapping_add(1);
        places.uses.is_multiple_of(QUICK_USES)
    }

    /// There is a place left.
    #[inline]
    fn push(&mut self, span: *mut Span, pages: usize) {
        let count = self.0.count();
        let places = self.places();
        places.spans[count] = span;
        places.pages[count] = pages as u32;
        self.note(count + 1, self.0.pages.load(Ordering::Relaxed) + pages);
    }

    #[inline]
    fn note(&self, count: usize, pages: usize) {
        self.0.count.store(count as u32, Ordering::Relaxed);
        self.0.pages.store(pages, Ordering::Relaxed);
    }

    /// The place of the block that serves a request best: the youngest of its very length, else the shortest that is long enough.
    #[inline]
    fn best(&mut self, pages: usize, align: usize) -> Option<usize> {
        let count = self.0.count();
        let places = self.places();
        // Blocks begin on a page.
        let is_aligned = |at: usize| {
            // SAFETY: parked spans are valid.
            align <= PAGE_SIZE || unsafe { (*places.spans[at]).start.addr() }.is_multiple_of(align)
        };
        let (mut best, mut best_pages) = (None, usize::MAX);
        for at in (0..count.min(PLACES)).rev() {
            let has = places.pages[at] as usize;
            if has < best_pages && serves(has, pages) && is_aligned(at) {
                (best, best_pages) = (Some(at), has);
                if has == pages {
                    break;
                }
            }
        }
        best
    }

    /// Takes all blocks out: their spans, and how many.
    fn take_all(&mut self) -> ([*mut Span; PLACES], usize) {
        let count = self.0.count();
        self.note(0, 0);
        (self.places().spans, count)
    }

    /// Takes the block at a place out; there is one.
    #[inline]
    fn remove(&mut self, at: usize) -> NonNull<Span> {
        let count = self.0.count();
        debug_assert!(at < count && count <= PLACES);
        let places = self.places();
        let (span, pages) = (places.spans[at], places.pages[at]);
        for i in at..count.min(PLACES) - 1 {
            places.spans[i] = places.spans[i + 1];
            places.pages[i] = places.pages[i + 1];
        }
        self.note(count - 1, self.0.pages.load(Ordering::Relaxed) - pages as usize);
        // SAFETY: parked spans are not null.
        unsafe { NonNull::new_unchecked(span) }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}
