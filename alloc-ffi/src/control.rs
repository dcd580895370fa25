//! `stratalloc.h`: control of the heap from C.

use core::ffi::{CStr, c_char};

/// `stratalloc x.y.z`.
pub const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!("stratalloc ", env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version has a zero in it"),
    };

/// The name and version of the library.
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn stratalloc_version() -> *const c_char {
    VERSION.as_ptr()
}
