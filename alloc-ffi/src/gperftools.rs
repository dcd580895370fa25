//! gperftools' C interface, as far as servers and agents use it.

use crate::control::{VERSION, read_property, set, stratalloc_check, stratalloc_stats};
use crate::malloc::malloc_usable_size;
use alloc_core::global;
use alloc_core::message::decimal;
use alloc_core::settings::Key;
use core::ffi::{CStr, c_char, c_int, c_void};

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

/// Reads one number by its name: 1, or 0 when there is none of that name.
///
/// # Safety
/// `name` is a C string, and `value` can be written.
#[cfg_attr(preload, unsafe(export_name = "MallocExtension_GetNumericProperty"))]
pub unsafe extern "C" fn get_numeric_property(name: *const c_char, value: *mut usize) -> c_int {
    // SAFETY: the caller's contract.
    match read_property(unsafe { CStr::from_ptr(name) }) {
        Some(number) => {
            // SAFETY: the caller's contract.
            unsafe { *value = number as usize };
            1
        }
        None => 0,
    }
}

/// Sets one of the numbers that can be set, `tcmalloc.max_total_thread_cache_bytes`: 1, or 0 for any other name.
///
/// # Safety
/// `name` is a C string.
#[cfg_attr(preload, unsafe(export_name = "MallocExtension_SetNumericProperty"))]
pub unsafe extern "C" fn set_numeric_property(name: *const c_char, value: usize) -> c_int {
    // SAFETY: the caller's contract.
    if unsafe { CStr::from_ptr(name) } != c"tcmalloc.max_total_thread_cache_bytes" {
        return 0;
    }
    let mut digits = [0; 20];
    c_int::from(set(Key::MaxTotalThreadCacheBytes, decimal(value as u64, &mut digits)) == 0)
}

/// Writes the statistics for people into a buffer, cut to its size and ended with a zero.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[cfg_attr(preload, unsafe(export_name = "MallocExtension_GetStats"))]
pub unsafe extern "C" fn get_stats(buffer: *mut c_char, size: c_int) {
    // SAFETY: the caller's contract.
    unsafe { stratalloc_stats(1, buffer, usize::try_from(size).unwrap_or(0)) };
}

/// Gives all free memory back to the system.
#[cfg_attr(preload, unsafe(export_name = "MallocExtension_ReleaseFreeMemory"))]
pub extern "C" fn release_free_memory() {
    global::trim();
}

/// Checks the whole heap: 1 when it is sound, else 0 and a line on standard error.
#[cfg_attr(preload, unsafe(export_name = "MallocExtension_VerifyAllMemory"))]
pub extern "C" fn verify_all_memory() -> c_int {
    c_int::from(stratalloc_check() == 0)
}

/// Bytes that a block can hold.
///
/// # Safety
/// As for [`malloc_usable_size`].
#[cfg_attr(preload, unsafe(export_name = "MallocExtension_GetAllocatedSize"))]
pub unsafe extern "C" fn get_allocated_size(block: *const c_void) -> usize {
    // SAFETY: the caller's contract.
    unsafe { malloc_usable_size(block.cast_mut()) }
}
