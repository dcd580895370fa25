//! Hooks into the program: its forks, and the ends of its threads.
//!
//! Installed from a constructor of the preload library, from its `pthread_create`, and in Rust programs at the second thread's
//! first slow path; never inside `malloc`, where libc may hold locks of its own. Before that the heap is correct without them.

use super::{HEAP, background, fork, release};
use crate::front;
use crate::front::bins::{sentinel_direct, sentinel_empty};
use crate::front::census::{self, Gone};
use crate::tls;
#[cfg(all(target_env = "gnu", not(miri)))]
use core::ffi::c_int;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

const NONE: u8 = 0;
const INSTALLING: u8 = 1;
const INSTALLED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(NONE);
static KEY: AtomicU32 = AtomicU32::new(0);
/// Threads met in their first slow path.
static MET: AtomicUsize = AtomicUsize::new(0);

/// Rounds in which libc runs the destructors of thread-specific data; the cache is handed back in the last.
const ROUNDS: usize = 4;

/// Installs the fork handlers and the thread key, once.
pub fn install() {
    if STATE.compare_exchange(NONE, INSTALLING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: plain libc calls; the handlers and the destructor are functions of this library, which is never unloaded.
    let made = unsafe {
        on_fork(fork::prepare, fork::in_parent, fork::in_child);
        libc::pthread_key_create(&mut key, Some(thread_ending)) == 0
    };
    if made {
        KEY.store(key + 1, Ordering::Relaxed);
    }
    STATE.store(INSTALLED, Ordering::Release);
    background::start_if_asked();
}

/// A function that runs around a fork.
type Handler = unsafe extern "C" fn();

/// `pthread_atfork`, without the copy of it that glibc links into each library: that lies on a page of code of its own.
///
/// # Safety
/// The handlers belong to this library, and go when it is unloaded.
#[cfg(all(target_env = "gnu", not(miri)))]
unsafe fn on_fork(prepare: Handler, parent: Handler, child: Handler) {
    unsafe extern "C" {
        // What `pthread_atfork` in glibc's libc_nonshared.a calls, since 2.3.2.
        fn __register_atfork(
            prepare: Option<Handler>,
            parent: Option<Handler>,
            child: Option<Handler>,
            library: *const c_void,
        ) -> c_int;
        // The C start files define it in each program and library: how libc knows whose the handlers are.
        static __dso_handle: *const c_void;
    }
    // SAFETY: handed on to the caller.
    unsafe { __register_atfork(Some(prepare), Some(parent), Some(child), __dso_handle) };
}

/// # Safety
/// As for any caller of `pthread_atfork`.
#[cfg(not(all(target_env = "gnu", not(miri))))]
unsafe fn on_fork(prepare: Handler, parent: Handler, child: Handler) {
    // SAFETY: handed on to the caller.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Called before the program makes a thread, where libc holds no lock.
pub fn before_thread() {
    install();
    background::start_if_asked();
}

/// Arranges for the calling thread's cache to be handed back at its end. Called in a new thread, before the program's code.
pub fn thread_started() {
    if arm(1) {
        front::start_shared();
    }
}

/// Called once a thread has been met: counts and arms it, and in a program without our constructor installs the hooks when the thread is
/// the second. The calling thread is outside the slow path, so libc may allocate here.
pub(super) fn thread_met() {
    let met = MET.fetch_add(1, Ordering::Relaxed) + 1;
    if STATE.load(Ordering::Acquire) == NONE && met > 1 {
        install();
    }
    if arm(1) {
        census::thread_met();
    }
}

fn arm(round: usize) -> bool {
    let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) else { return false };
    // SAFETY: the key was made by `install`; the value is a count, not an address.
    unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(round)) == 0 }
}

/// The destructor of the thread key.
unsafe extern "C" fn thread_ending(round: *mut c_void) {
    let round = round.addr();
    // Other destructors may allocate and free after this one, in this round or a later one.
    if round < ROUNDS && arm(round + 1) {
        return;
    }
    let met = tls::slot() != sentinel_empty() && tls::slot() != sentinel_direct();
    if let Some(inside) = front::enter_existing() {
        inside.end_thread(&HEAP);
    }
    release::on_thread_end(if met { census::thread_gone() } else { Gone::Usual });
}
