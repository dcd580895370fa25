//! Text for C callers, made without allocating and without formatting machinery.

use alloc_stats::Sink;
use alloc_stats::sink::SliceSink;
use core::ffi::c_char;
use core::ptr;

/// Text into a caller's buffer, with the manners of `snprintf`.
pub(crate) struct CText<'a> {
    sink: SliceSink<'a>,
    end: *mut u8,
    room: usize,
}

impl CText<'_> {
    /// # Safety
    /// `buffer` has room for `size` bytes, and nobody else uses them while this value lives.
    pub(crate) unsafe fn new(buffer: *mut c_char, size: usize) -> Self {
        let buffer = buffer.cast::<u8>();
        let room = if buffer.is_null() { 0 } else { size };
        let text = match room {
            0 => &mut [],
            // SAFETY: the caller's contract. The last byte is kept for the zero. Zeroed first, as Rust wants it initialised.
            _ => unsafe {
                ptr::write_bytes(buffer, 0, room);
                core::slice::from_raw_parts_mut(buffer, room - 1)
            },
        };
        Self { sink: SliceSink::new(text), end: buffer, room }
    }

    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        &mut self.sink
    }

    /// Ends the text with a zero byte; returns the length that the whole of it has.
    pub(crate) fn finish(self) -> usize {
        let needed = self.sink.needed();
        if self.room > 0 {
            // SAFETY: the position is within the buffer, which is ours until the end of this call.
            unsafe { self.end.add(needed.min(self.room - 1)).write(0) };
        }
        needed
    }
}

/// A C stream.
pub(crate) struct Stream {
    file: *mut libc::FILE,
}

impl Stream {
    /// # Safety
    /// `file` is open for writing as long as this value lives.
    pub(crate) unsafe fn new(file: *mut libc::FILE) -> Self {
        Self { file }
    }
}

impl Sink for Stream {
    fn put(&mut self, bytes: &[u8]) {
        // SAFETY: `bytes` is a live slice, and the stream is open.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.file) };
    }
}
