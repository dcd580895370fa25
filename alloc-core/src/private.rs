//! Private heaps: an engine of one's own over a backend of one's own.

use crate::arena::META;
use crate::front;
use crate::heap::Engine;
use crate::lock::{Lock, Rank};
use crate::page_heap::ReleaseMode;
use crate::page_map::PAGE_MAP;
use crate::report::{self, Fault};
use crate::settings::Settings;
use crate::span::{Owner, Span};
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};
use page_backend::{PageBackend, System};
use size_classes::{CLASSES, PAGE_SIZE};

/// A heap apart from the process-wide one, over any page backend.
///
/// It can be used from all threads at once; each call goes to the central lists, under one lock per size class. Its records are
/// in the process's metadata arena, its blocks in pages of its backend alone. Dropping it gives every page back to the
/// backend, whatever is still live.
///
/// ```
/// use alloc_core::Heap;
/// use core::alloc::Layout;
///
/// let heap = Heap::new(page_backend::Mmap::new()).expect("memory for the heap's own records");
/// let layout = Layout::new::<[u64; 100]>();
/// let block = heap.allocate(layout).expect("memory");
/// // SAFETY: the block came from this heap with this layout, and is not used again.
/// unsafe { heap.deallocate(block, layout) };
/// ```
pub struct Heap<B: PageBackend> {
    record: NonNull<Record<B>>,
    owns: PhantomData<Record<B>>,
}

/// What a heap is made of, at an address that does not change.
#[repr(C)]
struct Record<B: PageBackend> {
    /// Leads from spans to the engine.
    owner: Owner,
    engine: Engine<B>,
}

// SAFETY: the engine is made to be shared, and its backend is `Sync`; what a heap owns can be dropped on any thread when the
// backend can be sent there.
unsafe impl<B: PageBackend + Send> Send for Heap<B> {}
// SAFETY: as above.
unsafe impl<B: PageBackend> Sync for Heap<B> {}

impl<B: PageBackend> Heap<B> {
    /// A heap over `backend`; `None` when there is no memory for its records (some 10 KiB).
    pub fn new(backend: B) -> Option<Self> {
        let record = records::take(Layout::new::<Record<B>>())?.cast::<Record<B>>();
        // SAFETY: the record is fresh and ours; the owner points into it, and it does not move.
        unsafe {
            let engine = &raw mut (*record.as_ptr()).engine;
            engine.write(Engine::new(backend));
            let owner = &raw mut (*record.as_ptr()).owner;
            owner.write(Owner { heap: engine.cast_const().cast(), free: free_through_owner::<B> });
            (*engine).set_owner(owner);
        }
        Some(Self { record, owns: PhantomData })
    }

    fn engine(&self) -> &Engine<B> {
        // SAFETY: the record lives as long as the heap.
        unsafe { &self.record.as_ref().engine }
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        self.engine().pages.backend()
    }

    /// A block for `layout`; `None` when the backend has no more memory. A size of 0 gives a block of the smallest class.
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let _inside = front::enter_without_cache();
        Some(self.engine().alloc(layout.size(), layout.align())?.ptr)
    }

    /// As [`allocate`](Self::allocate), with the first `layout.size()` bytes zero.
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let block = {
            let _inside = front::enter_without_cache();
            self.engine().alloc(layout.size(), layout.align())?
        };
        // SAFETY: the block is fresh and has that many bytes.
        Some(unsafe { block.zero(layout.size()) })
    }

    /// Frees a block. One that is not a live block of this heap is told of on standard error and left.
    ///
    /// # Safety
    /// `block` came from this heap and is not used again.
    pub unsafe fn deallocate(&self, block: NonNull<u8>, _layout: Layout) {
        let _inside = front::enter_without_cache();
        match PAGE_MAP.span_of(block.as_ptr().addr()) {
            // SAFETY: a span in the page map is valid, and this one is ours; the caller gives the block away.
            Some(span) if unsafe { span.as_ref() }.owner == self.engine().owner() => unsafe {
                self.engine().free(block, span);
            },
            _ => report::fault(Fault::Foreign, block.as_ptr()),
        }
    }

    /// Changes the size of a block, which may move; `None` when memory is out: the old block is kept then.
    ///
    /// # Safety
    /// `block` is a live block of this heap that was asked with `layout`; it is not used again when the result is not `None`.
    pub unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        layout: Layout,
        new_size: usize,
    ) -> Option<NonNull<u8>> {
        let usable = self.usable_size(block);
        if new_size <= usable && new_size > usable / 2 {
            return Some(block);
        }
        let new_layout = Layout::from_size_align(new_size, layout.align()).ok()?;
        let new = self.allocate(new_layout)?;
        // SAFETY: both blocks have that many bytes; the old one is given away.
        unsafe {
            new.copy_from_nonoverlapping(block, layout.size().min(new_size));
            self.deallocate(block, layout);
        }
        Some(new)
    }

    /// Bytes that a block of this heap may be used with; 0 for any other pointer.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        let Some(span) = PAGE_MAP.span_of(block.as_ptr().addr()) else { return 0 };
        // SAFETY: a span in the page map is valid.
        let span = unsafe { span.as_ref() };
        match span.class {
            _ if span.owner != self.engine().owner() => 0,
            0 => span.pages * PAGE_SIZE,
            class => CLASSES.size_of(class),
        }
    }

    /// Bytes in live blocks, the rounding to classes and pages included.
    pub fn allocated_bytes(&self) -> usize {
        let engine = self.engine();
        let small: usize = engine
            .centrals()
            .map(|(class, central)| {
                let (info, counts) = (CLASSES.class(class), central.counts());
                let live = counts.spans * info.objects as usize - counts.free_in_spans - counts.in_transfer;
                live * info.size as usize
            })
            .sum();
        small + engine.large_counts().1 * PAGE_SIZE
    }

    /// Gives all free memory back to the backend; returns how many bytes went.
    pub fn release(&self) -> usize {
        let _inside = front::enter_without_cache();
        self.engine().empty_transfers();
        self.engine().release(usize::MAX, ReleaseMode::Everything)
    }

    /// Whether every list of the heap agrees with its counts, bitmaps and the page map.
    pub fn check(&self) -> bool {
        let _inside = front::enter_without_cache();
        self.engine().check().is_ok() && self.engine().pages.check()
    }
}

impl Heap<System> {
    /// A heap over the pages that `settings` describe, with their release delay and hard limit; `None` when there is no memory
    /// for its records.
    pub fn with_settings(settings: &Settings) -> Option<Self> {
        let heap = Self::new(System::new())?;
        settings.with_system_config(|config| heap.backend().configure(config));
        heap.engine().pages.configure(settings);
        Some(heap)
    }
}

/// Frees a block of a private heap that came to `free`.
///
/// # Safety
/// `heap` is the engine of the span's owner; the caller gives the block away.
unsafe fn free_through_owner<B: PageBackend>(heap: *const (), block: NonNull<u8>, span: NonNull<Span>) {
    // SAFETY: the owner's engine outlives its spans; the rest is handed on to the caller.
    unsafe { (*heap.cast::<Engine<B>>()).free(block, span) };
}

impl<B: PageBackend> Drop for Heap<B> {
    fn drop(&mut self) {
        {
            let _inside = front::enter_without_cache();
            // SAFETY: the heap ends: nothing uses its blocks any more, and no other thread the heap.
            unsafe {
                self.engine().forget_all();
                self.engine().pages.unmap_all();
            }
        }
        // SAFETY: the record is ours and not used again; the backend is dropped with the engine.
        unsafe {
            core::ptr::drop_in_place(&raw mut (*self.record.as_ptr()).engine);
            records::give_back(self.record.cast(), Layout::new::<Record<B>>());
        }
    }
}

impl<B: PageBackend> fmt::Debug for Heap<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("allocated_bytes", &self.allocated_bytes()).finish_non_exhaustive()
    }
}

/// The memory of heaps' records: taken from the metadata arena, reused by heaps of the same layout.
mod records {
    use super::{Layout, Lock, META, NonNull, Rank, null_mut};

    struct Unused {
        next: *mut Unused,
        layout: Layout,
    }
    struct List {
        head: *mut Unused,
    }
    // SAFETY: the list owns its records.
    unsafe impl Send for List {}
    static UNUSED: Lock<List> = Lock::new(Rank::Pool, List { head: null_mut() });

    pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
        let mut unused = UNUSED.lock();
        let mut link: *mut *mut Unused = &mut unused.head;
        // SAFETY: records in the list are unused and start with their link.
        unsafe {
            while let Some(record) = NonNull::new(*link) {
                if record.as_ref().layout == layout {
                    *link = record.as_ref().next;
                    return Some(record.cast());
                }
                link = &raw mut (*record.as_ptr()).next;
            }
        }
        drop(unused);
        META.alloc(layout.size().max(size_of::<Unused>()), layout.align().max(align_of::<Unused>()))
    }

    /// # Safety
    /// The record came from `take` with this layout and is not used again.
    pub(super) unsafe fn give_back(record: NonNull<u8>, layout: Layout) {
        let record = record.cast::<Unused>().as_ptr();
        let mut unused = UNUSED.lock();
        // SAFETY: the record is ours and has room for a link.
        unsafe { record.write(Unused { next: unused.head, layout }) };
        unused.head = record;
    }
}
