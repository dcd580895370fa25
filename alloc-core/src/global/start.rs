//! Reading the settings: at the first call that needs memory from the central lists, or from a constructor.

use super::HEAP;
use crate::front::{self, budget, census};
use crate::report;
use crate::settings::{Check, PerCpu, Settings};
use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

const NOT_STARTED: u8 = 0;
const STARTING: u8 = 1;
const STARTED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);

struct Current(UnsafeCell<Settings>);
// SAFETY: written by the one thread that moved STATE to STARTING, read after STARTED.
unsafe impl Sync for Current {}
static CURRENT: Current = Current(UnsafeCell::new(Settings::DEFAULT));
/// The latest settings that the program has changed; null while it has not.
static CHANGED: AtomicPtr<Settings> = AtomicPtr::new(null_mut());

/// The settings in effect; the defaults until they have been read.
pub fn settings() -> &'static Settings {
    let changed = CHANGED.load(Ordering::Acquire);
    if !changed.is_null() {
        // SAFETY: `replace` stores what lives for ever.
        unsafe { &*changed }
    } else if STATE.load(Ordering::Acquire) == STARTED {
        // SAFETY: constant since STARTED.
        unsafe { &*CURRENT.0.get() }
    } else {
        &Settings::DEFAULT
    }
}

/// Puts `after` in effect if `before` is.
pub(super) fn replace(before: &'static Settings, after: &'static Settings) -> bool {
    let expected = CHANGED.load(Ordering::Acquire);
    ptr::eq(settings(), before)
        && CHANGED
            .compare_exchange(expected, ptr::from_ref(after).cast_mut(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// For the C family alone, whose frees look up the class of each block: size classes that hold little share spans.
pub fn lend_between_classes() {
    HEAP.lend_between_classes();
}

/// Reads the settings if nobody has.
#[inline]
pub(super) fn ensure() {
    if STATE.load(Ordering::Relaxed) == NOT_STARTED {
        from_environ();
    }
}

#[inline(never)]
fn from_environ() {
    #[cfg(not(miri))]
    {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: libc's variable, set before any program code runs; null while the loader is still at work.
        let envp = unsafe { environ };
        if !envp.is_null() {
            // SAFETY: libc's environment is a valid vector.
            unsafe { with_environment(envp) };
        }
    }
}

/// Reads the settings from an environment, if nobody has yet.
///
/// # Safety
/// `envp` is a null-terminated vector of C strings that stays valid for the call.
#[inline(never)]
pub unsafe fn with_environment(envp: *const *const c_char) {
    if STATE.compare_exchange(NOT_STARTED, STARTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        // Another thread is reading them; it would be wrong to wait for it inside malloc.
        return;
    }
    // SAFETY: getauxval reads the process's auxiliary vector and changes nothing.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // SAFETY: the vector is valid, says the caller; this thread alone writes CURRENT.
    let settings = unsafe {
        *CURRENT.0.get() = Settings::from_environment(envp, secure);
        &*CURRENT.0.get()
    };
    apply(settings);
    STATE.store(STARTED, Ordering::Release);
}

#[inline(never)]
fn apply(settings: &Settings) {
    budget::set_total(usize::try_from(settings.max_total_thread_cache_bytes).unwrap_or(usize::MAX));
    if settings.check == Check::Full {
        front::set_direct();
        // The thread that reads the settings may have been served before they could be read.
        if let Some(inside) = front::enter_existing() {
            inside.end_cache(&HEAP);
        }
        census::choose(PerCpu::Never);
    } else {
        census::choose(settings.percpu_cache);
    }
    report::set_policy(settings.foreign, settings.invalid_free);
    HEAP.configure(settings);
    if !settings.has_plain_backend() {
        settings.with_system_config(|config| HEAP.pages.backend().configure(config));
    }
    if !settings.has_plain_backend() || settings.background_thread {
        super::raw_fork::watch();
    }
}
