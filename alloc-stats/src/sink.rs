//! Places to render to: a buffer of the caller, a file descriptor.

use alloc_core::message::Sink;
use page_backend::sys;

/// A caller's buffer; what does not fit is counted and dropped, as by `snprintf`.
#[derive(Debug)]
pub struct SliceSink<'a> {
    buffer: &'a mut [u8],
    needed: usize,
}

impl<'a> SliceSink<'a> {
    /// Writes from the start of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, needed: 0 }
    }

    /// Bytes that the whole text takes; more than the buffer has when the text was cut.
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.get(..self.needed.min(self.buffer.len())).unwrap_or(&[])
    }
}

impl Sink for SliceSink<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let room = self.buffer.get_mut(self.needed..).unwrap_or(&mut []);
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.needed = self.needed.saturating_add(bytes.len());
    }
}

/// A file descriptor behind a small buffer. Call [`FdSink::finish`] at the end.
#[derive(Debug)]
pub struct FdSink {
    fd: i32,
    buffer: [u8; 1024],
    len: usize,
    error: Option<sys::Errno>,
}

impl FdSink {
    /// Writes to `fd`, which stays the caller's.
    pub const fn new(fd: i32) -> Self {
        Self { fd, buffer: [0; 1024], len: 0, error: None }
    }

    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = sys::write_all(self.fd, self.buffer.get(..self.len).unwrap_or(&[])).err();
        }
        self.len = 0;
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The first error of any write; nothing was written after it.
    pub fn finish(mut self) -> Result<(), sys::Errno> {
        self.flush();
        self.error.map_or(Ok(()), Err)
    }
}

impl Sink for FdSink {
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.len == self.buffer.len() {
                self.flush();
            }
            let room = self.buffer.get_mut(self.len..).unwrap_or(&mut []);
            let count = room.len().min(bytes.len());
            for (to, from) in room.iter_mut().zip(bytes) {
                *to = *from;
            }
            self.len += count;
            bytes = bytes.get(count..).unwrap_or(&[]);
        }
    }
}
