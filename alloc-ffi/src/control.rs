//! `include/stratalloc.h`: control of the heap from C. The header has the contracts.

use crate::output::CText;
use alloc_core::global::{self, ChangeError, CheckError};
use alloc_core::message::Message;
use alloc_core::settings::{Format, Key};
use alloc_stats::{About, output, render};
use core::ffi::{CStr, c_char, c_int, c_void};

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

/// Writes the statistics into a buffer as `snprintf` does; returns the length of the whole text, 0 for an unknown format.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_stats(format: c_int, buffer: *mut c_char, size: usize) -> usize {
    let format = match format {
        1 => Format::Text,
        2 => Format::Json,
        3 => Format::Prom,
        _ => Format::Off,
    };
    // SAFETY: the caller's contract.
    let mut text = unsafe { CText::new(buffer, size) };
    output::with_snapshot(|snapshot| render(format, snapshot, &About::this_process(), text.sink()));
    text.finish()
}

/// Reads one number by its name; `ENOENT` when there is none of that name.
///
/// # Safety
/// `name` is a C string, and `value` can be written.
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_property(name: *const c_char, value: *mut u64) -> c_int {
    // SAFETY: the caller's contract.
    match read_property(unsafe { CStr::from_ptr(name) }) {
        Some(number) => {
            // SAFETY: the caller's contract.
            unsafe { *value = number };
            0
        }
        None => libc::ENOENT,
    }
}

/// The number called `name`.
pub(crate) fn read_property(name: &CStr) -> Option<u64> {
    output::property(name.to_bytes())
}

/// Gives all free memory back to the system; 1 if any went back, else 0.
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn stratalloc_release() -> c_int {
    c_int::from(global::trim())
}

/// Checks the whole heap; 0 when it is sound, else 1 and a line on standard error.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn stratalloc_check() -> c_int {
    let Err(error) = global::check() else { return 0 };
    let message = Message::new().str("check: ");
    match error {
        CheckError::Class(size) => {
            message.str("the spans of blocks of ").dec(size as u64).str(" bytes are not sound")
        }
        CheckError::Large => message.str("the list of large blocks is not sound"),
        CheckError::PageHeap => message.str("the page heap is not sound"),
    }
    .send();
    1
}

/// Whether an address lies in a block of the heap.
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn stratalloc_owns(address: *const c_void) -> c_int {
    c_int::from(global::owns(address.cast()))
}

/// Writes the value of a setting into a buffer as `snprintf` does; returns its length. `*error` gets `ENOENT` for an
/// unknown key, else 0.
///
/// # Safety
/// `key` is a C string, `buffer` has room for `size` bytes, `error` is null or can be written.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_get(
    key: *const c_char,
    buffer: *mut c_char,
    size: usize,
    error: *mut c_int,
) -> usize {
    // SAFETY: the caller's contract.
    let (key, mut text) = unsafe { (find_key(CStr::from_ptr(key)), CText::new(buffer, size)) };
    if let Some(key) = key {
        global::start::settings().write_value(key, text.sink());
    }
    if !error.is_null() {
        // SAFETY: the caller's contract.
        unsafe { *error = if key.is_some() { 0 } else { libc::ENOENT } };
    }
    text.finish()
}

/// Sets a setting while the program runs: `ENOENT` for an unknown key, `EINVAL` for a bad value, `EPERM` for one that is
/// fixed when the program starts, `ENOMEM`.
///
/// # Safety
/// `key` and `value` are C strings.
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn stratalloc_set(key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    let (key, value) = unsafe { (find_key(CStr::from_ptr(key)), CStr::from_ptr(value)) };
    let Some(key) = key else { return libc::ENOENT };
    set(key, value.to_bytes())
}

/// Sets a key; returns 0 or the error number.
#[cold]
pub(crate) fn set(key: Key, value: &[u8]) -> c_int {
    match global::change(key, value) {
        Ok(()) => 0,
        Err(ChangeError::Value(_)) => libc::EINVAL,
        Err(ChangeError::Fixed) => libc::EPERM,
        Err(ChangeError::NoMemory) => libc::ENOMEM,
    }
}

#[cold]
fn find_key(name: &CStr) -> Option<Key> {
    Key::ALL.into_iter().find(|key| key.name().as_bytes() == name.to_bytes())
}
