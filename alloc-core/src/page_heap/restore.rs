//! Purged pages made ready for use again, where a backend needs that.

use super::PageHeap;
use super::inner::Give;
use super::tracker::{HUGE_PAGES, HUGE_SHIFT, TrackerMap};
use core::ptr::NonNull;
use page_backend::{Capabilities, PageBackend, Tier};
use size_classes::PAGE_SIZE;

/// Rows of purged pages that are restored between two looks at the records.
const ROWS: usize = 16;

impl<B: PageBackend> PageHeap<B> {
    /// Restores the purged pages of a run that has just been taken. On failure the run is given back.
    #[cold]
    pub(super) fn restore(&self, ptr: NonNull<u8>, pages: usize, tier: Tier) -> bool {
        let start = ptr.as_ptr().addr() / PAGE_SIZE;
        let mut from = start;
        loop {
            // Rows as page numbers and lengths.
            let mut rows = [(0, 0); ROWS];
            let mut count = 0;
            {
                let inner = self.inner.lock();
                let map = inner.map();
                while from < start + pages && count < ROWS {
                    let t = map.get((from * PAGE_SIZE) >> HUGE_SHIFT);
                    let pos = from % HUGE_PAGES;
                    let part = (start + pages - from).min(HUGE_PAGES - pos);
                    // SAFETY: the run is the caller's, so its records are live; the lock is held.
                    match unsafe { (*t).pages.take_purged(pos, part) } {
                        Some((row, len)) => {
                            let row = from - pos + row;
                            if count > 0 && rows[count - 1].0 + rows[count - 1].1 == row {
                                rows[count - 1].1 += len;
                            } else {
                                rows[count] = (row, len);
                                count += 1;
                            }
                            from = row + len;
                        }
                        None => from += part,
                    }
                }
            }
            if count == 0 {
                return true;
            }
            for (i, &(row, len)) in rows[..count].iter().enumerate() {
                // SAFETY: the row lies in the run, was purged, and is not marked so any more.
                let restored = unsafe {
                    let at = ptr.add((row - start) * PAGE_SIZE);
                    self.backend.restore(at, len * PAGE_SIZE, tier)
                };
                if restored.is_err() {
                    self.give_back(ptr, pages, tier, &rows[i..count]);
                    return false;
                }
            }
        }
    }

    /// Gives a run back of which `rows` are still purged, beside those still marked so.
    #[cold]
    fn give_back(&self, ptr: NonNull<u8>, pages: usize, tier: Tier, rows: &[(usize, usize)]) {
        let zero = self.backend.capabilities(tier).contains(Capabilities::ZERO_AFTER_PURGE);
        let mut inner = self.inner.lock();
        let map = inner.map();
        for &(row, len) in rows {
            let (mut at, end) = (row, row + len);
            while at < end {
                let part = (end - at).min(HUGE_PAGES - at % HUGE_PAGES);
                // SAFETY: the run is the caller's, so its records are live; the lock is held.
                unsafe {
                    (*map.get((at * PAGE_SIZE) >> HUGE_SHIFT)).pages.keep_purged(at % HUGE_PAGES, part)
                };
                at += part;
            }
        }
        inner.events.failed_allocations += 1;
        // SAFETY: the run was taken by this call and never handed out.
        unsafe { inner.give(ptr, pages, Give::Unrestored { zero }) };
    }
}
