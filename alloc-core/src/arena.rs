//! The metadata arena: where every record of the heap lives, apart from user memory, always on 4K pages.
//!
//! Memory is taken from the system in chunks and never given back; pools above it reuse records of one type, so a
//! stale pointer into metadata always finds a record of the type it expects. One arena serves the whole process.

use crate::lock::{Lock, Rank};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use page_backend::sys;

/// What the arena takes from the system at a time.
const CHUNK: usize = 256 << 10;
/// Requests of at least this size get a mapping of their own.
const LARGE: usize = 64 << 10;
/// The first chunk is part of the program image: a small process needs no other and makes no system call for it.
const FIRST_CHUNK: usize = 48 << 10;

#[repr(align(64))]
struct FirstChunk(UnsafeCell<[u8; FIRST_CHUNK]>);
// SAFETY: handed out piece by piece under the arena's lock; each piece has one owner.
unsafe impl Sync for FirstChunk {}
// Tables lie together, so that the small variables around them share pages.
#[unsafe(link_section = ".bss.tables")]
static FIRST: FirstChunk = FirstChunk(UnsafeCell::new([0; FIRST_CHUNK]));

/// The unused part of the newest chunk.
struct Bump {
    next: *mut u8,
    left: usize,
    started: bool,
}
// SAFETY: the pointer is to memory that the arena owns.
unsafe impl Send for Bump {}

/// The process's metadata arena; see [`META`].
pub(crate) struct Arena {
    bump: Lock<Bump>,
    mapped: AtomicUsize,
    used: AtomicUsize,
}

/// The one arena of the process.
pub(crate) static META: Arena = Arena {
    bump: Lock::new(Rank::Arena, Bump { next: core::ptr::null_mut(), left: 0, started: false }),
    mapped: AtomicUsize::new(FIRST_CHUNK),
    used: AtomicUsize::new(0),
};

impl Arena {
    /// Takes `size` zeroed bytes aligned to `align` (a power of two up to 8 KiB); they are never given back.
    ///
    /// `None` when the system has no more memory.
    pub(crate) fn alloc(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        debug_assert!(align.is_power_of_two() && align <= 8192 && size > 0);
        if size >= LARGE {
            return self.map(size, align);
        }
        let mut bump = self.bump.lock();
        if !bump.started {
            bump.started = true;
            bump.next = FIRST.0.get().cast();
            bump.left = FIRST_CHUNK;
        }
        let mut pad = bump.next.align_offset(align);
        if pad.saturating_add(size) > bump.left {
            // The rest of the old chunk, less than one request, is lost; requests are small beside chunks.
            bump.next = self.map(CHUNK, 4096)?.as_ptr();
            bump.left = CHUNK;
            pad = bump.next.align_offset(align);
        }
        // SAFETY: pad + size <= left, so both offsets stay inside the chunk.
        let piece = unsafe { bump.next.add(pad) };
        // SAFETY: as above.
        bump.next = unsafe { piece.add(size) };
        bump.left -= pad + size;
        self.used.fetch_add(pad + size, Ordering::Relaxed);
        NonNull::new(piece)
    }

    /// Makes sure that the next small requests, `bytes` in all, need nothing from the system.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        debug_assert!(bytes < CHUNK);
        let mut bump = self.bump.lock();
        if bump.left >= bytes {
            return true;
        }
        let Some(chunk) = self.map(CHUNK, 4096) else { return false };
        bump.next = chunk.as_ptr();
        bump.left = CHUNK;
        bump.started = true;
        true
    }

    fn map(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        // Mappings are aligned to the system's page, of 4 KiB at least.
        let extra = if align > 4096 { align } else { 0 };
        let size = size.next_multiple_of(sys::page_size());
        let ptr = sys::mmap_anonymous(size + extra).ok()?;
        self.mapped.fetch_add(size + extra, Ordering::Relaxed);
        if size >= LARGE && size != CHUNK {
            self.used.fetch_add(size + extra, Ordering::Relaxed);
        }
        // SAFETY: at most `align` bytes further, which were mapped in addition.
        NonNull::new(unsafe { ptr.as_ptr().add(ptr.as_ptr().align_offset(align)) })
    }

    /// Bytes taken from the system, the first chunk included.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped.load(Ordering::Relaxed)
    }

    /// Bytes handed out.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn lock_for_fork(&self) {
        self.bump.lock_for_fork();
    }

    /// # Safety
    /// As [`Lock::unlock_after_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: handed on to the caller.
        unsafe { self.bump.unlock_after_fork() }
    }
}

/// A free record, linked through its own first word: it is metadata, not user memory.
struct FreeRecord {
    next: *mut FreeRecord,
}

struct FreeList {
    head: *mut FreeRecord,
}
// SAFETY: the list owns its records.
unsafe impl Send for FreeList {}

/// Records of one size and alignment, reused but never given back.
///
/// `TAIL` bytes of room follow each record, for data whose length is not part of its type.
pub(crate) struct Pool<T, const TAIL: usize = 0> {
    free: Lock<FreeList>,
    of: PhantomData<fn() -> T>,
}

impl<T, const TAIL: usize> Pool<T, TAIL> {
    const SIZE: usize = (size_of::<T>() + TAIL).next_multiple_of(16);
    const ALIGN: usize = if align_of::<T>() > 16 { align_of::<T>() } else { 16 };

    pub(crate) const fn new() -> Self {
        Self { free: Lock::new(Rank::Pool, FreeList { head: core::ptr::null_mut() }), of: PhantomData }
    }

    /// A record with unspecified content of valid memory, or `None` when the system has no more memory.
    pub(crate) fn alloc(&self) -> Option<NonNull<T>> {
        let mut free = self.free.lock();
        if let Some(record) = NonNull::new(free.head) {
            // SAFETY: a record in the list is free and starts with its link.
            free.head = unsafe { record.as_ref().next };
            return Some(record.cast());
        }
        drop(free);
        META.alloc(Self::SIZE, Self::ALIGN).map(NonNull::cast)
    }

    /// Gives a record back.
    ///
    /// # Safety
    /// `record` came from `alloc` of this pool and is not used again.
    pub(crate) unsafe fn free(&self, record: NonNull<T>) {
        let record = record.cast::<FreeRecord>().as_ptr();
        let mut free = self.free.lock();
        // SAFETY: the caller owns the record, which has room for a link.
        unsafe { record.write(FreeRecord { next: free.head }) };
        free.head = record;
    }

    pub(crate) fn lock_for_fork(&self) {
        self.free.lock_for_fork();
    }

    /// # Safety
    /// As [`Lock::unlock_after_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: handed on to the caller.
        unsafe { self.free.unlock_after_fork() }
    }
}
