//! Numbers and words out of small kernel files, without allocation.

use crate::sys;
use core::ffi::CStr;

/// The first number in a file; `None` if the file cannot be read or begins with something else.
pub(crate) fn read(path: &CStr) -> Option<u64> {
    let mut buffer = [0; 64];
    parse(read_into(path, &mut buffer)?)
}

/// The beginning of a file, as much as fits the buffer.
pub(crate) fn read_into<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let fd = sys::open(path, libc::O_RDONLY, 0).ok()?;
    let len = loop {
        match sys::read(fd, buffer) {
            Err(sys::Errno::EINTR) => {}
            other => break other,
        }
    };
    sys::close(fd);
    buffer.get(..len.ok()?)
}

/// The number that `bytes` begin with.
pub(crate) fn parse(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let value = |acc: u64, byte: &u8| acc.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    Some(bytes.iter().take(digits).fold(0, value))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers_end_at_the_first_other_byte() {
        assert_eq!(parse(b"42\n"), Some(42));
        assert_eq!(parse(b"7 8 9"), Some(7));
        assert_eq!(parse(b"99999999999999999999999"), Some(u64::MAX));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"max\n"), None);
    }
}
