//! Fork: every lock is taken before it, in the order of ranks, and given back after it on both sides.
//!
//! The child has one thread. The caches of the others are emptied into the central lists, except those whose owner was in the
//! slow path at the moment of the fork: what they held is out of reach for the child, and counted.
//!
//! A thread that is alone in its process takes no lock, since nobody can hold one, and writes nothing: each page of the heap's own
//! that the handlers write to is copied, once for the parent and once for the child.

use super::{HEAP, start};
use crate::arena::META;
use crate::central::batch;
use crate::front::{self, registry};
use crate::page_map::PAGE_MAP;
use crate::report;
use crate::span;
use crate::tls;
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The forking thread's stay in the slow path, from `prepare` to the other two.
struct Forking(UnsafeCell<Option<front::Inside>>);
// SAFETY: libc runs the handlers of one fork at a time, and the registry's lock is held from before the first use to after
// the last.
unsafe impl Sync for Forking {}
static FORKING: Forking = Forking(UnsafeCell::new(None));

/// The thread that holds all locks for its fork, by [`tls::identity`].
static FORKING_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Whether nothing is to be done around a fork: there is one thread, and what the child inherits is all its own.
fn is_simple() -> bool {
    let settings = start::settings();
    is_alone()
        && settings.has_plain_backend()
        && !settings.background_thread
        && !front::per_cpu::is_prepared()
}

/// How to ask libc whether the process has one thread; null where nobody has said.
static IS_ALONE: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Says how to ask libc whether the process has one thread. A fork asks, so `is_alone` must not allocate.
pub fn ask_whether_alone(is_alone: fn() -> bool) {
    IS_ALONE.store(is_alone as *mut (), Ordering::Release);
}

fn is_alone() -> bool {
    let is_alone = IS_ALONE.load(Ordering::Acquire);
    // SAFETY: `ask_whether_alone` alone stores here, and it stores such a function.
    !is_alone.is_null() && unsafe { core::mem::transmute::<*mut (), fn() -> bool>(is_alone) }()
}

/// Before the fork, in the parent.
///
/// A fork from a signal handler that interrupted the slow path takes no lock: the thread may hold some already, and goes on in
/// the child to give them back.
pub(super) extern "C" fn prepare() {
    if is_simple() && !front::is_inside() {
        return;
    }
    let Some(inside) = front::enter_existing() else { return };
    registry::lock_for_fork();
    front::per_cpu::lock_for_fork();
    // SAFETY: the registry's lock is held.
    unsafe { *FORKING.0.get() = Some(inside) };
    FORKING_THREAD.store(tls::identity(), Ordering::Relaxed);
    HEAP.lock_for_fork();
    PAGE_MAP.lock_for_fork();
    span::lock_pools_for_fork();
    batch::lock_for_fork();
    front::lock_pools_for_fork();
    META.lock_for_fork();
}

/// Gives every lock but the registry's back, in the reverse order; `None` when `prepare` took none.
///
/// # Safety
/// `prepare` ran on this thread, or on the one it was forked from.
unsafe fn unlock() -> Option<front::Inside> {
    if FORKING_THREAD.load(Ordering::Relaxed) != tls::identity() {
        return None;
    }
    FORKING_THREAD.store(0, Ordering::Relaxed);
    // SAFETY: the locks are held since `prepare`.
    unsafe {
        META.unlock_after_fork();
        front::unlock_pools_after_fork();
        batch::unlock_after_fork();
        span::unlock_pools_after_fork();
        PAGE_MAP.unlock_after_fork();
        HEAP.unlock_after_fork();
        front::per_cpu::unlock_after_fork();
        (*FORKING.0.get()).take()
    }
}

/// After the fork, in the parent.
pub(super) extern "C" fn in_parent() {
    // SAFETY: libc calls this after `prepare`.
    unsafe {
        let Some(inside) = unlock() else { return };
        registry::unlock_after_fork();
        drop(inside);
    }
}

/// After the fork, in the child.
pub(super) extern "C" fn in_child() {
    super::release::begin_anew();
    if FORKING_THREAD.load(Ordering::Relaxed) == 0 && !front::is_inside() {
        // `prepare` found that there is nothing to do.
        return;
    }
    end_in_child();
}

#[inline(never)]
fn end_in_child() {
    // SAFETY: libc calls this after `prepare`, and the child has no other thread.
    unsafe {
        leave_parents_ways();
        super::raw_fork::told();
        let Some(mut inside) = unlock() else { return };
        front::per_cpu::after_fork_in_child();
        front::census::after_fork_in_child();
        registry::keep_own_alone(inside.cache_ptr(), |cache| bury(cache));
        registry::unlock_after_fork();
        if HEAP.pages.retire_inherited() {
            if let Some(cache) = inside.cache() {
                cache.flush_all(&HEAP);
            }
            front::per_cpu::drain_all(&HEAP);
            HEAP.leave_parents_spans();
        }
        drop(inside);
    }
}

/// What every child does, however it was made: no huge or locked pages, and no helper thread yet.
pub(super) fn leave_parents_ways() {
    HEAP.after_fork_in_child();
    super::release::after_fork_in_child();
    super::background::after_fork_in_child();
}

/// Empties the cache of a thread that is not in the child.
///
/// # Safety
/// Nobody else uses the cache.
unsafe fn bury(mut cache: NonNull<front::thread_cache::ThreadCache>) {
    // SAFETY: the caller's contract.
    let cache = unsafe { cache.as_mut() };
    if cache.inside.load(Ordering::Relaxed) {
        report::lost(cache.cache.objects());
    } else {
        cache.flush_all(&HEAP);
    }
}
