//! Memory out of one buffer, for programs without an operating system and for tests.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use crate::bitmap::Bitmap;
use crate::counters::Bytes;
use crate::error::{align_up, check_request};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

/// A page source on a buffer that the caller provides.
///
/// The front of the buffer keeps a bitmap of the granules behind it. Runs are found first-fit and zeroed when
/// they are handed out. It needs neither an operating system nor another allocator, and works under Miri.
pub struct FixedBuffer<'a> {
    base: NonNull<u8>,
    /// The granule is two to this power, so that no division is needed.
    shift: u32,
    lock: AtomicBool,
    used: UnsafeCell<Bitmap>,
    mapped: Bytes,
    purge_zeroes: bool,
    buffer: PhantomData<&'a mut [u8]>,
}

// SAFETY: the bitmap is touched under `lock` alone; the memory behind it belongs to whoever mapped it.
unsafe impl Sync for FixedBuffer<'_> {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl Send for FixedBuffer<'_> {}

impl<'a> FixedBuffer<'a> {
    /// The granule that [`new`](Self::new) uses, in bytes.
    pub const GRANULE: usize = 4096;

    /// Takes over a buffer, in granules of [`GRANULE`](Self::GRANULE).
    pub fn new(buffer: &'a mut [MaybeUninit<u8>]) -> Self {
        Self::with_granule(buffer, Self::GRANULE)
    }

    /// Takes over a buffer. One that is too small for a granule refuses every request.
    ///
    /// # Panics
    /// If `granule` is not a power of two of at least 64.
    pub fn with_granule(buffer: &'a mut [MaybeUninit<u8>], granule: usize) -> Self {
        assert!(granule.is_power_of_two() && granule >= 64);
        let shift = granule.trailing_zeros();
        let len = buffer.len();
        let start = NonNull::from(buffer).cast::<u8>();
        // Offsets from the start of the buffer, never beyond its end.
        let aligned = |offset: usize, align: usize| {
            let at = align_up(start.addr().get().saturating_add(offset), align);
            at.map_or(len, |at| (at - start.addr().get()).min(len))
        };
        let words_at = aligned(0, align_of::<u64>());
        // Bits for the whole rest, a few of which the bitmap itself makes superfluous.
        let words = Bitmap::words((len - words_at) >> shift);
        let base_at = aligned(words_at + words * size_of::<u64>(), granule);
        let granules = (len - base_at) >> shift;
        // SAFETY: if there is a granule, the words lie before it, aligned and within the buffer, and if there
        // is none, none are used; `base_at <= len`.
        let (used, base) = unsafe {
            let words = if granules == 0 { 0 } else { words };
            (Bitmap::new(start.add(words_at).cast(), words, granules), start.add(base_at))
        };
        Self {
            base,
            shift,
            lock: AtomicBool::new(false),
            used: UnsafeCell::new(used),
            mapped: Bytes::new(),
            purge_zeroes: false,
            buffer: PhantomData,
        }
    }

    /// Lets `purge` fill memory with zeros, instead of refusing. It gives nothing back, but lets a test see
    /// what a heap does with purged memory.
    pub fn purge_zeroes(self) -> Self {
        Self { purge_zeroes: true, ..self }
    }

    /// Bytes that can be mapped at most, in all.
    pub fn capacity(&self) -> usize {
        self.with_bitmap(|used| used.len()) << self.shift
    }

    fn with_bitmap<T>(&self, work: impl FnOnce(&mut Bitmap) -> T) -> T {
        while self.lock.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
        }
        // SAFETY: the lock is held, and this is the only place that makes a reference.
        let result = work(unsafe { &mut *self.used.get() });
        self.lock.store(false, Ordering::Release);
        result
    }

    /// The granules that a range covers; `None` if it is not made of granules of the buffer.
    fn granules(&self, ptr: NonNull<u8>, size: usize) -> Option<(usize, usize)> {
        let offset = ptr.addr().get().checked_sub(self.base.addr().get())?;
        let whole = (offset | size) & (self.granule() - 1) == 0;
        (whole && offset.checked_add(size)? <= self.capacity())
            .then_some((offset >> self.shift, size >> self.shift))
    }
}

// SAFETY: a granule is handed out only while its bit says that nobody has it, and zeroed first; all memory
// was there from the start; unmap and purge touch the given range only, and an error comes before any effect.
unsafe impl PageBackend for FixedBuffer<'_> {
    fn granule(&self) -> usize {
        1 << self.shift
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        check_request(size, align, self.granule())?;
        let base = self.base.addr().get();
        // The first granule that is aligned, and how many lie between two such granules.
        let first = align_up(base, align).map(|at| (at - base) >> self.shift);
        let first = first.ok_or(MapError::refused(Reason::BadRequest, Step::Check))?;
        let found = self.with_bitmap(|used| used.take_first(size >> self.shift, first, align >> self.shift));
        let at = found.ok_or(MapError::refused(Reason::NoMemory, Step::Map))?;
        // SAFETY: the granules lie within the buffer, and their bits made them ours.
        let ptr = unsafe {
            let ptr = self.base.add(at << self.shift);
            ptr.write_bytes(0, size);
            ptr
        };
        self.mapped.add(size);
        Ok(Mapping { ptr, len: size, tier: Tier(0) })
    }

    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, _tier: Tier) -> Result<(), MapError> {
        if !self.purge_zeroes {
            return Err(MapError::refused(Reason::Unsupported, Step::Purge));
        }
        // SAFETY: the range is mapped and its content unused, as the caller vouches.
        unsafe { ptr.write_bytes(0, size) };
        Ok(())
    }

    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, _tier: Tier) -> Result<(), MapError> {
        let bad = MapError::refused(Reason::BadRequest, Step::Unmap);
        let (at, count) = self.granules(ptr, size).ok_or(bad)?;
        self.with_bitmap(|used| {
            debug_assert!(used.all(at, count, true), "unmapped twice");
            used.set(at, count, false);
        });
        self.mapped.sub(size);
        Ok(())
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, _tier: Tier) -> Result<(), MapError> {
        check_request(extra, self.granule(), self.granule())?;
        let bad = MapError::refused(Reason::BadRequest, Step::Check);
        let (at, count) = self.granules(ptr, size).ok_or(bad)?;
        let more = extra >> self.shift;
        let taken = self.with_bitmap(|used| {
            let free = used.all(at + count, more, false);
            if free {
                used.set(at + count, more, true);
            }
            free
        });
        if !taken {
            return Err(MapError::refused(Reason::NoMemory, Step::Remap));
        }
        // SAFETY: the granules behind the run lie within the buffer, and their bits made them ours.
        unsafe { self.base.add((at + count) << self.shift).write_bytes(0, extra) };
        self.mapped.add(extra);
        Ok(())
    }

    fn capabilities(&self, _tier: Tier) -> Capabilities {
        if self.purge_zeroes {
            Capabilities::PARTIAL_PURGE | Capabilities::ZERO_AFTER_PURGE
        } else {
            Capabilities::empty()
        }
    }

    fn name(&self, _tier: Tier) -> &'static str {
        "buffer"
    }

    fn usage(&self, _tier: Tier) -> Usage {
        Usage { mapped: self.mapped.get(), ..Usage::default() }
    }
}
