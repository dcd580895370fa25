//! `mallctl`, as far as programs ask it of whatever allocator they find.
//!
//! MariaDB takes the version from it, Percona Server and monitoring agents read the totals. Everything else is answered
//! as jemalloc answers an unknown name.

use crate::control::{VERSION, read_property};
use core::ffi::{CStr, c_char, c_int, c_void};

/// What a name stands for.
enum Value {
    Text(*const c_char),
    Epoch,
    Bytes(u64),
}

/// Reads a value by jemalloc's name for it: `version`, `epoch`, or `stats.` with `allocated`, `active`,
/// `metadata`, `resident`, `mapped`, `retained`.
///
/// Returns 0, `ENOENT` for another name, `EPERM` for an attempt to write anything but the epoch, or
/// `EINVAL` for a buffer of the wrong size, which is filled as far as it goes.
///
/// # Safety
/// `name` is a C string; `old` and `old_len` are both null or describe a buffer; `new` is null or as long as `new_len`.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *const c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    let Some(value) = look_up(unsafe { CStr::from_ptr(name) }) else { return libc::ENOENT };
    let writes = !new.is_null() || new_len != 0;
    let word = match value {
        Value::Epoch if writes && new_len != size_of::<u64>() => return libc::EINVAL,
        _ if writes && !matches!(value, Value::Epoch) => return libc::EPERM,
        Value::Text(text) => text.addr() as u64,
        Value::Epoch => 1,
        Value::Bytes(bytes) => bytes,
    };
    // SAFETY: the caller's contract.
    unsafe { answer(word, old, old_len) }
}

fn look_up(name: &CStr) -> Option<Value> {
    match name.to_bytes() {
        b"version" => Some(Value::Text(VERSION.as_ptr())),
        b"epoch" => Some(Value::Epoch),
        other if other.starts_with(b"stats.") => read_property(name).map(Value::Bytes),
        _ => None,
    }
}

/// Stores eight bytes the way jemalloc does: a buffer of another size gets what fits, and an error.
///
/// # Safety
/// `old` and `old_len` are both null or describe a buffer.
unsafe fn answer(word: u64, old: *mut c_void, old_len: *mut usize) -> c_int {
    if old.is_null() || old_len.is_null() {
        return 0;
    }
    // SAFETY: the caller's contract.
    unsafe {
        let room = *old_len;
        let len = room.min(size_of::<u64>());
        core::ptr::copy_nonoverlapping((&raw const word).cast::<u8>(), old.cast(), len);
        if room == size_of::<u64>() {
            return 0;
        }
        *old_len = len;
    }
    libc::EINVAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    fn read(name: &CStr) -> Result<u64, c_int> {
        let (mut word, mut len) = (0u64, size_of::<u64>());
        // SAFETY: the buffer is described as it is.
        match unsafe { mallctl(name.as_ptr(), (&raw mut word).cast(), &mut len, ptr::null(), 0) } {
            0 => Ok(word),
            error => Err(error),
        }
    }

    #[test]
    fn version_is_a_readable_string() {
        let text = read(c"version").unwrap() as *const c_char;
        // SAFETY: the value of `version` is a C string.
        assert!(unsafe { CStr::from_ptr(text) }.to_str().unwrap().starts_with("stratalloc "));
    }

    #[test]
    fn unknown_names_and_wrong_sizes_are_errors() {
        assert_eq!(read(c"opt.narenas"), Err(libc::ENOENT));
        assert!(read(c"epoch").is_ok());
        let (mut half, mut len) = (0u32, size_of::<u32>());
        // SAFETY: the buffer is described as it is.
        let result =
            unsafe { mallctl(c"stats.allocated".as_ptr(), (&raw mut half).cast(), &mut len, ptr::null(), 0) };
        assert_eq!((result, len), (libc::EINVAL, 4));
        let one = 1u64;
        // SAFETY: as above.
        unsafe {
            let write = |name: &CStr| {
                mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), (&raw const one).cast(), 8)
            };
            assert_eq!(write(c"epoch"), 0);
            assert_eq!(write(c"stats.mapped"), libc::EPERM);
        }
    }
}
