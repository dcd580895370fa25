//! One line to standard error, from any state: no allocation, no locks, no libc, no formatting machinery.
//!
//! A [`Message`] is a fixed buffer on the stack that is written with a single `write(2)`, so that lines
//! of several threads or processes do not mix. Text that does not fit is cut and marked with `...`.

use page_backend::sys;

/// Bytes of a line, with prefix and newline.
pub const CAPACITY: usize = 512;
const PREFIX: &str = "stratalloc: ";
const CUT: &[u8] = b"...\n";

/// Takes text piece by piece; numbers are spelled without the formatting machinery of `core::fmt`.
pub trait Sink {
    /// Appends bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// Appends text.
    #[cold]
    fn put_str(&mut self, text: &str) {
        self.put(text.as_bytes());
    }

    /// Appends an unsigned decimal.
    #[cold]
    fn put_dec(&mut self, value: u64) {
        let mut digits = [0; 20];
        self.put(decimal(value, &mut digits));
    }

    /// Appends `0x` and hexadecimal digits.
    #[cold]
    fn put_hex(&mut self, value: u64) {
        self.put(b"0x");
        let digits = (16 - value.leading_zeros() / 4).max(1);
        for place in (0..digits).rev() {
            let nibble = (value >> (4 * place)) as u8 & 15;
            self.put(&[if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }]);
        }
    }

    /// Appends a number of bytes in the largest binary unit that divides it, for example `64KiB`.
    #[cold]
    fn put_size(&mut self, bytes: u64) {
        let (count, unit) = binary_unit(bytes);
        self.put_dec(count);
        self.put_str(unit);
    }
}

impl Sink for Message {
    /// Control characters become `?`, so that text from outside cannot steer a terminal.
    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.push(if byte < b' ' || byte == 0x7f { b'?' } else { byte });
        }
    }
}

/// A line in the making; sent by [`Message::send`].
#[must_use = "a message is written by `send`"]
pub struct Message {
    buffer: [u8; CAPACITY],
    len: usize,
    cut: bool,
}

impl Default for Message {
    fn default() -> Self {
        Self::new()
    }
}

impl Message {
    /// A line that begins with `stratalloc: `.
    #[inline(never)]
    pub fn new() -> Self {
        Self { buffer: [0; CAPACITY], len: 0, cut: false }.str(PREFIX)
    }

    /// Appends text.
    pub fn str(mut self, text: &str) -> Self {
        self.put_str(text);
        self
    }

    /// Appends bytes from outside: control characters become `?`.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.put(bytes);
        self
    }

    /// Appends an unsigned decimal.
    pub fn dec(mut self, value: u64) -> Self {
        self.put_dec(value);
        self
    }

    /// Appends `0x` and hexadecimal digits.
    pub fn hex(mut self, value: u64) -> Self {
        self.put_hex(value);
        self
    }

    /// Appends a pointer's address.
    pub fn ptr<T>(self, pointer: *const T) -> Self {
        self.hex(pointer.addr() as u64)
    }

    /// Appends a number of bytes in the largest binary unit that divides it, for example `64KiB`.
    pub fn size(mut self, bytes: u64) -> Self {
        self.put_size(bytes);
        self
    }

    /// The line as it would be written, without the newline.
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or(&[])
    }

    /// Writes the line to standard error; what the kernel refuses is dropped.
    #[cold]
    pub fn send(mut self) {
        if self.cut {
            let start = CAPACITY - CUT.len();
            if let Some(end) = self.buffer.get_mut(start..) {
                end.copy_from_slice(CUT);
            }
            self.len = CAPACITY;
        } else if let Some(end) = self.buffer.get_mut(self.len) {
            *end = b'\n';
            self.len += 1;
        }
        let _ = sys::write_all(2, self.as_bytes());
    }

    fn push(&mut self, byte: u8) {
        // The last byte is kept for the newline.
        if self.len < CAPACITY - 1 {
            if let Some(slot) = self.buffer.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        } else {
            self.cut = true;
        }
    }
}

/// Ends the process by SIGABRT, without running anything of libc; by exit if the signal is held back.
#[cold]
pub fn abort() -> ! {
    // SAFETY: these calls take no pointers and change no memory of ours.
    unsafe {
        let (process, thread) = (sys::getpid() as usize, sys::gettid() as usize);
        let _ = sys::syscall(libc::SYS_tgkill as usize, [process, thread, libc::SIGABRT as usize, 0, 0, 0]);
        loop {
            let _ = sys::syscall(libc::SYS_exit_group as usize, [134, 0, 0, 0, 0, 0]);
        }
    }
}

/// Writes decimal digits to the end of `digits` and returns them.
pub fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    for (place, slot) in digits.iter_mut().enumerate().rev() {
        *slot = b'0' + (value % 10) as u8;
        value /= 10;
        start = place;
        if value == 0 {
            break;
        }
    }
    digits.get(start..).unwrap_or(&[])
}

/// Splits a number of bytes into a count and the largest binary unit that divides it.
#[cold]
pub fn binary_unit(bytes: u64) -> (u64, &'static str) {
    let (mut count, mut unit) = (bytes, "");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if count == 0 || !count.is_multiple_of(1024) {
            break;
        }
        (count, unit) = (count / 1024, next);
    }
    (count, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &Message) -> &str {
        core::str::from_utf8(message.as_bytes()).unwrap()
    }

    #[test]
    fn numbers_and_sizes() {
        let m = Message::new().dec(0).str(" ").dec(u64::MAX).str(" ").hex(0).str(" ").hex(0x7fff_dead_0010);
        assert_eq!(text(&m), "stratalloc: 0 18446744073709551615 0x0 0x7fffdead0010");
        let m = Message::new().size(0).str(" ").size(65536).str(" ").size(1000).str(" ").size(3 << 40);
        assert_eq!(text(&m), "stratalloc: 0 64KiB 1000 3TiB");
        assert_eq!(text(&Message::new().hex(u64::MAX)), "stratalloc: 0xffffffffffffffff");
    }

    #[test]
    fn long_text_is_cut_and_marked() {
        let long = [b'x'; 2 * CAPACITY];
        let m = Message::new().bytes(&long);
        assert!(m.cut);
        assert_eq!(m.as_bytes().len(), CAPACITY - 1);
        let exact = Message::new().bytes(&long[..CAPACITY - 1 - PREFIX.len()]);
        assert!(!exact.cut);
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(text(&Message::new().bytes(b"a\x1b[0m\n")), "stratalloc: a?[0m?");
    }
}
