//! The constructor.

use crate::{foreign, thread};
use alloc_core::global;

/// Runs when the library is loaded. Memory can be allocated and freed before it, and could be without it.
pub extern "C" fn load() {
    foreign::note_break();
    let _ = thread::real();
    global::install_hooks();
}
