//! Wrong frees: counted, told once in a line with the address, and left without effect unless the settings say abort.

use crate::message::Message;
use crate::settings::Policy;
use crate::snapshot::ErrorCounters;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What is wrong with a pointer that was given to the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not an address that the heap has handed out pages for.
    Foreign,
    /// Inside a page of the heap, but not the start of an object.
    Interior,
    /// The object is free already.
    Double,
    /// The size given does not belong to the block.
    Size,
}

/// Lines written for each kind of fault; the rest is only counted.
const LINES: u64 = 10;

static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static LOST: AtomicU64 = AtomicU64::new(0);
static FOREIGN: AtomicU8 = AtomicU8::new(Policy::Report as u8);
static INVALID: AtomicU8 = AtomicU8::new(Policy::Report as u8);

/// Sets what happens on pointers that are not the heap's, and on wrong ones that are.
pub(crate) fn set_policy(foreign: Policy, invalid: Policy) {
    FOREIGN.store(foreign as u8, Ordering::Relaxed);
    INVALID.store(invalid as u8, Ordering::Relaxed);
}

/// Counts a wrong pointer and tells of it, as the settings say.
#[cold]
#[inline(never)]
pub(crate) fn fault(fault: Fault, pointer: *const u8) {
    let before = COUNTS[fault as usize].fetch_add(1, Ordering::Relaxed);
    let policy = if fault == Fault::Foreign { &FOREIGN } else { &INVALID }.load(Ordering::Relaxed);
    let abort = policy == Policy::Abort as u8;
    if abort || (before < LINES && policy != Policy::Ignore as u8) {
        let what = match fault {
            Fault::Foreign => " freed, but this heap has no block there",
            Fault::Interior => " freed, but no block begins there",
            Fault::Double => " freed twice",
            Fault::Size => " freed with a size that is not its own",
        };
        let then = if abort {
            "; aborting as the settings ask"
        } else if before + 1 == LINES {
            "; ignored, as will be further ones, in silence"
        } else {
            "; ignored"
        };
        Message::new().str("pointer ").ptr(pointer).str(what).str(then).send();
    }
    if abort {
        // SAFETY: abort has no precondition.
        unsafe { libc::abort() }
    }
}

/// Counts objects that are out of reach for good.
pub(crate) fn lost(objects: usize) {
    LOST.fetch_add(objects as u64, Ordering::Relaxed);
}

/// The counts so far.
pub(crate) fn counts() -> ErrorCounters {
    let count = |fault: Fault| COUNTS[fault as usize].load(Ordering::Relaxed);
    ErrorCounters {
        foreign_frees: count(Fault::Foreign),
        double_frees: count(Fault::Double),
        invalid_frees: count(Fault::Interior),
        wrong_sizes: count(Fault::Size),
        lost_objects: LOST.load(Ordering::Relaxed),
    }
}

/// Wrong pointers found while a lock was held, to be told of after it.
pub(crate) struct Rejected {
    first: [Option<(*mut u8, Fault)>; 2],
    more: [u64; 4],
}

impl Rejected {
    pub(crate) const fn none() -> Self {
        Self { first: [None; 2], more: [0; 4] }
    }

    /// Notes one.
    #[cold]
    pub(crate) fn add(&mut self, pointer: *mut u8, fault: Fault) {
        match self.first.iter_mut().find(|entry| entry.is_none()) {
            Some(entry) => *entry = Some((pointer, fault)),
            None => self.more[fault as usize] += 1,
        }
    }

    /// Counts and tells of all that were noted. Call it with no lock held.
    #[inline]
    pub(crate) fn report(self) {
        if self.first[0].is_some() {
            self.report_all();
        }
    }

    #[cold]
    fn report_all(self) {
        for (pointer, kind) in self.first.into_iter().flatten() {
            // SAFETY: the pointer was given away to be freed.
            let side_block = kind == Fault::Foreign
                && NonNull::new(pointer).is_some_and(|block| unsafe { crate::side::free(block) });
            if !side_block {
                fault(kind, pointer);
            }
        }
        for (count, more) in COUNTS.iter().zip(self.more) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }
}
