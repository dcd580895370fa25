//! Text for C callers, made without allocating and without formatting machinery.

use alloc_core::message::decimal;

const CAPACITY: usize = 256;

/// A short text in a fixed buffer; what does not fit is cut.
pub(crate) struct Line {
    buffer: [u8; CAPACITY],
    len: usize,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self { buffer: [0; CAPACITY], len: 0 }
    }

    pub(crate) fn str(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn dec(self, value: u64) -> Self {
        let mut digits = [0; 20];
        self.bytes(decimal(value, &mut digits))
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        for (to, from) in self.buffer.iter_mut().skip(self.len).zip(bytes) {
            *to = *from;
            self.len += 1;
        }
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or(&[])
    }
}

/// Writes bytes to a C stream.
///
/// # Safety
/// `stream` is open for writing.
pub(crate) unsafe fn to_stream(stream: *mut libc::FILE, bytes: &[u8]) {
    // SAFETY: `bytes` is a live slice; the caller vouches for the stream.
    unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stream) };
}
