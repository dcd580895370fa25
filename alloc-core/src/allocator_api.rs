//! Private heaps as allocators of collections: the traits of `allocator-api2`.

use crate::private::Heap;
use allocator_api2::alloc::{AllocError, Allocator};
use core::alloc::Layout;
use core::ptr::NonNull;
use page_backend::PageBackend;

// SAFETY: a block stays valid until it is freed or the heap is dropped, and a reference keeps the heap alive; copies of the
// reference stand for the same heap.
unsafe impl<B: PageBackend> Allocator for &Heap<B> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = Heap::allocate(self, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = Heap::allocate_zeroed(self, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: handed on to the caller.
        unsafe { Heap::deallocate(self, block, layout) }
    }
}
