//! gperftools' C interface, as far as servers and agents use it.

use crate::control::VERSION;
use alloc_core::global;
use core::ffi::{c_char, c_int};

const fn number(text: &str) -> c_int {
    let (mut value, mut i) = (0, 0);
    while i < text.len() {
        value = value * 10 + (text.as_bytes()[i] - b'0') as c_int;
        i += 1;
    }
    value
}

const MAJOR: c_int = number(env!("CARGO_PKG_VERSION_MAJOR"));
const MINOR: c_int = number(env!("CARGO_PKG_VERSION_MINOR"));

/// The name and version of the library. MariaDB shows it as `@@version_malloc_library`.
///
/// # Safety
/// Each pointer is null or can be written.
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn tc_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut *const c_char,
) -> *const c_char {
    // SAFETY: the caller's contract.
    unsafe {
        if !major.is_null() {
            *major = MAJOR;
        }
        if !minor.is_null() {
            *minor = MINOR;
        }
        if !patch.is_null() {
            *patch = c"".as_ptr();
        }
    }
    VERSION.as_ptr()
}

/// Gives free memory back to the system.
#[cfg_attr(preload, unsafe(export_name = "MallocExtension_ReleaseFreeMemory"))]
pub extern "C" fn release_free_memory() {
    global::trim();
}
