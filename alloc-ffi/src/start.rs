//! The constructor.

use crate::{foreign, thread};
use alloc_core::global::{hooks, start};
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
    // SAFETY: the loader passes the process's environment.
    unsafe { start::with_environment(environment) };
    alloc_stats::output::install(start::settings());
    foreign::note_break();
    // Without this there are no threads yet, and before glibc 2.34 no thread keys either: a later `pthread_create` installs.
    if !thread::real().is_null() {
        hooks::install();
    }
}

/// Runs when the process exits: the statistics that the settings ask for. Memory can be allocated and freed after it.
pub extern "C" fn unload() {
    alloc_stats::output::at_exit();
}
