//! The helper thread, `background_thread:true`: lets time pass for the heap while the program makes no calls.
//!
//! Off by default: a second thread breaks programs that must have one alone (unshare, setns, some forks). It is started where libc
//! holds no lock that `pthread_create` needs: from a constructor, or when the program makes a thread itself. It does not live
//! on in a forked child; there it starts again when the child makes a thread.

use super::release;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use page_backend::sys;

/// Nanoseconds between two ticks.
const PERIOD: u64 = 100_000_000;
/// Stack of the helper in bytes.
const STACK: usize = 128 << 10;

static RUNNING: AtomicBool = AtomicBool::new(false);

/// Starts the helper if the settings ask for it and it does not run.
pub(super) fn start_if_asked() {
    if !super::start::settings().background_thread || RUNNING.swap(true, Ordering::AcqRel) {
        return;
    }
    if !spawn() {
        RUNNING.store(false, Ordering::Release);
        crate::message::Message::new()
            .str("the helper thread could not be started; going on without it")
            .send();
    }
}

fn spawn() -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: each object is initialised by its own call before it is used; the helper is detached and touches nothing of this
    // frame. Signals are blocked for it, since the program's handlers do not expect a thread of ours.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let made =
            libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, core::ptr::null_mut()) == 0;
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        made
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: names the calling thread; the string ends with a null.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"stratalloc".as_ptr()) };
    loop {
        sys::nanosleep(PERIOD);
        release::tick();
    }
}

/// In a forked child: the helper is gone.
pub(super) fn after_fork_in_child() {
    RUNNING.store(false, Ordering::Release);
}
