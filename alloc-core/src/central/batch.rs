//! Batches: fixed arrays of pointers that caches hand to each other whole.
//!
//! A batch is a magazine in the sense of Bonwick and Adams ("Magazines and Vmem", USENIX 2001). Moving objects from
//! one thread to another moves one batch on a lock-free stack: no object is touched and no list walked.
//!
//! Batches are numbered and never given back to the system, so a stack's head is a number and a tag in one word,
//! and a thread that reads a batch which another has just taken reads valid memory; the tag then makes its exchange fail.

use crate::arena::META;
use crate::lock::{Lock, Rank};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use size_classes::MAX_BATCH;

/// Batches made at a time: about one system page.
const CHUNK: usize = 15;
/// Chunks at most: a million batches.
const CHUNKS: usize = 1 << 16;

/// An array of up to [`MAX_BATCH`] objects.
#[repr(C)]
pub(crate) struct Batch {
    /// Number of the batch below in a stack; 0 for none.
    below: AtomicU32,
    len: UnsafeCell<u32>,
    slots: UnsafeCell<[*mut u8; MAX_BATCH]>,
}

#[unsafe(link_section = ".bss.tables")]
static TABLE: [AtomicPtr<Batch>; CHUNKS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS];
static CHUNKS_MADE: Lock<usize> = Lock::new(Rank::Pool, 0);
static UNUSED: BatchStack = BatchStack::new();

/// A batch that one thread owns: it is in no stack.
#[derive(Clone, Copy)]
pub(crate) struct BatchId(u32);

impl BatchId {
    fn batch(self) -> &'static Batch {
        let index = self.0 as usize - 1;
        let chunk = TABLE[index / CHUNK % CHUNKS].load(Ordering::Acquire);
        debug_assert!(!chunk.is_null());
        // SAFETY: numbers are handed out after their chunk is in the table, and chunks are never freed.
        unsafe { &*chunk.add(index % CHUNK) }
    }

    /// A batch to fill, or `None` when the system has no more memory.
    pub(crate) fn take_unused() -> Option<Self> {
        UNUSED.pop().or_else(Self::make)
    }

    /// A batch to fill, from those at hand alone: takes no lock.
    pub(crate) fn take_unused_lock_free() -> Option<Self> {
        UNUSED.pop()
    }

    #[inline(never)]
    fn make() -> Option<Self> {
        let mut made = CHUNKS_MADE.lock();
        if let Some(batch) = UNUSED.pop() {
            return Some(batch);
        }
        if *made == CHUNKS {
            return None;
        }
        let chunk = META.alloc(size_of::<Batch>() * CHUNK, align_of::<Batch>())?.cast::<Batch>();
        TABLE[*made].store(chunk.as_ptr(), Ordering::Release);
        let first = (*made * CHUNK) as u32 + 1;
        *made += 1;
        drop(made);
        // Zeroed memory is a valid batch.
        for number in first + 1..first + CHUNK as u32 {
            UNUSED.push(Self(number));
        }
        Some(Self(first))
    }

    /// Gives an empty batch back.
    pub(crate) fn put_unused(self) {
        UNUSED.push(self);
    }

    /// Copies objects in.
    ///
    /// # Safety
    /// The caller owns the batch; `objects` points to `len` pointers, at most [`MAX_BATCH`].
    #[inline]
    pub(crate) unsafe fn fill(self, objects: *const *mut u8, len: usize) {
        debug_assert!(len <= MAX_BATCH);
        let batch = self.batch();
        // SAFETY: the caller owns the batch, and the length is at most that of the array.
        unsafe {
            batch.slots.get().cast::<*mut u8>().copy_from_nonoverlapping(objects, len);
            *batch.len.get() = len as u32;
        }
    }

    /// Copies up to `want` objects out; returns how many, and how many are left.
    ///
    /// # Safety
    /// The caller owns the batch; `out` has room for `want` pointers.
    #[inline]
    pub(crate) unsafe fn take(self, want: usize, out: *mut *mut u8) -> (usize, usize) {
        let batch = self.batch();
        // SAFETY: the caller owns the batch, and `len` is what `fill` or `take` set.
        unsafe {
            let len = *batch.len.get() as usize;
            let taken = len.min(want);
            let left = len - taken;
            out.copy_from_nonoverlapping(batch.slots.get().cast::<*mut u8>().add(left), taken);
            *batch.len.get() = left as u32;
            (taken, left)
        }
    }
}

/// A lock-free stack of batches (Treiber, 1986), with a tag against the ABA problem.
pub(crate) struct BatchStack {
    /// Number of the top batch in the low half, a tag that each change raises in the high half.
    head: AtomicU64,
}

impl BatchStack {
    pub(crate) const fn new() -> Self {
        Self { head: AtomicU64::new(0) }
    }

    #[inline]
    fn with_tag_raised(head: u64, number: u32) -> u64 {
        ((head >> 32).wrapping_add(1) << 32) | u64::from(number)
    }

    /// Puts a batch on top. The caller gives it away.
    #[inline]
    pub(crate) fn push(&self, batch: BatchId) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            batch.batch().below.store(head as u32, Ordering::Relaxed);
            let new = Self::with_tag_raised(head, batch.0);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the top batch; the caller owns it then.
    #[inline]
    pub(crate) fn pop(&self) -> Option<BatchId> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let top = head as u32;
            if top == 0 {
                return None;
            }
            let below = BatchId(top).batch().below.load(Ordering::Relaxed);
            let new = Self::with_tag_raised(head, below);
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(BatchId(top)),
                Err(now) => head = now,
            }
        }
    }
}

// SAFETY: a batch's array is reached by its owner alone; stacks hand ownership on with release and acquire.
unsafe impl Sync for Batch {}

/// Locks the making of batches for a fork.
pub(crate) fn lock_for_fork() {
    CHUNKS_MADE.lock_for_fork();
}

/// Unlocks what [`lock_for_fork`] locked.
///
/// # Safety
/// As [`Lock::unlock_after_fork`].
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: handed on to the caller.
    unsafe { CHUNKS_MADE.unlock_after_fork() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Stands for an object.
    fn token(number: usize) -> *mut u8 {
        core::ptr::without_provenance_mut(number * 16)
    }

    #[test]
    fn tokens_are_conserved_while_threads_push_and_pop() {
        const THREADS: usize = 4;
        const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };
        static STACK: BatchStack = BatchStack::new();
        let taken: Vec<usize> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut taken = Vec::new();
                        for round in 0..ROUNDS {
                            let objects = [token(1 + thread * ROUNDS + round)];
                            let batch = BatchId::take_unused().expect("memory");
                            // SAFETY: the batch is this thread's.
                            unsafe { batch.fill(objects.as_ptr(), 1) };
                            STACK.push(batch);
                            if let Some(batch) = STACK.pop() {
                                let mut object = core::ptr::null_mut();
                                // SAFETY: the batch is this thread's since the pop.
                                assert_eq!(unsafe { batch.take(1, &mut object) }, (1, 0));
                                batch.put_unused();
                                taken.push(object.addr() / 16);
                            }
                        }
                        taken
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        let mut all = taken;
        while let Some(batch) = STACK.pop() {
            let mut object = core::ptr::null_mut();
            // SAFETY: no other thread is left.
            unsafe { batch.take(1, &mut object) };
            batch.put_unused();
            all.push(object.addr() / 16);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=THREADS * ROUNDS), "a token was lost or came twice");
    }

    #[test]
    fn a_batch_gives_back_its_newest_objects_first_and_keeps_the_rest() {
        let batch = BatchId::take_unused().expect("memory");
        let objects: Vec<_> = (1..=MAX_BATCH).map(token).collect();
        let mut out = [core::ptr::null_mut(); MAX_BATCH];
        // SAFETY: the batch is ours, and the arrays have room.
        unsafe {
            batch.fill(objects.as_ptr(), MAX_BATCH);
            assert_eq!(batch.take(5, out.as_mut_ptr()), (5, MAX_BATCH - 5));
            assert_eq!(&out[..5], &objects[MAX_BATCH - 5..]);
            assert_eq!(batch.take(MAX_BATCH, out.as_mut_ptr()), (MAX_BATCH - 5, 0));
            assert_eq!(&out[..MAX_BATCH - 5], &objects[..MAX_BATCH - 5]);
        }
        batch.put_unused();
    }
}
