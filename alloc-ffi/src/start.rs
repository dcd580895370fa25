//! The constructor and the destructor.

use crate::{foreign, thread};
use alloc_core::global::{self, fork, hooks, start};
use alloc_stats::output;
use core::ffi::{c_char, c_int};

/// Runs when the library is loaded. Memory can be allocated and freed before it, and could be without it.
///
/// # Safety
/// Called by the loader, with the arguments that it gives to constructors.
pub unsafe extern "C" fn load(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    start::lend_between_classes();
    // SAFETY: the loader passes the process's environment.
    unsafe { start::with_environment(environment) };
    fork::ask_whether_alone(thread::is_alone);
    foreign::note_break();
    output::install(start::settings());
    // Without this there are no threads yet, and before glibc 2.34 no thread keys either: a later `pthread_create` installs.
    // A static archive does not interpose it, and has libc's threads linked in.
    if cfg!(archive) || !thread::real().is_null() {
        hooks::install();
    }
}

/// Runs at exit, behind the program's exit handlers. Tears nothing down: others free after it.
pub extern "C" fn unload() {
    global::at_exit();
    output::at_exit();
}
