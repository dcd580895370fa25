//! local stub
use crate::lock::{Lock, Rank};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use page_backend::PageBackend;
pub(crate) struct Run {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) pages: usize,
    pub(crate) zeroed: bool,
}
pub(crate) enum ReleaseMode {
    Everything,
}
struct In {
    next: usize,
    left: usize,
    free: [usize; 64],
}
pub(crate) struct PageHeap<B> {
    b: B,
    l: Lock<In>,
}
unsafe impl<B> Sync for PageHeap<B> {}
impl<B: PageBackend> PageHeap<B> {
    pub(crate) const fn new(b: B) -> Self {
        Self { b, l: Lock::new(Rank::PageHeap, In { next: 0, left: 0, free: [0; 64] }) }
    }
    pub(crate) fn alloc(&self, pages: usize, align: usize) -> Option<Run> {
        let mut l = self.l.lock();
        if pages < 64 && align == 1 && l.free[pages] != 0 {
            let p = l.free[pages];
            l.free[pages] = unsafe { *(p as *const usize) };
            return Some(Run { ptr: NonNull::new(p as *mut u8)?, pages, zeroed: false });
        }
        let mut need = pages * 8192;
        let pad = l.next.next_multiple_of(align * 8192) - l.next;
        need += pad;
        if need > l.left {
            let sz = (pages * 8192 + align * 8192).next_multiple_of(64 << 20);
            let p = page_backend::sys::mmap_anonymous(sz).ok()?.as_ptr() as usize;
            if !crate::page_map::PAGE_MAP.ensure(p, sz) {
                return None;
            }
            l.next = p.next_multiple_of(8192.max(align * 8192));
            l.left = sz - (l.next - p);
            need = pages * 8192;
        } else {
            l.next += pad;
        }
        let p = l.next;
        l.next += pages * 8192;
        l.left -= need;
        Some(Run { ptr: NonNull::new(p as *mut u8)?, pages, zeroed: true })
    }
    pub(crate) unsafe fn free(&self, ptr: NonNull<u8>, pages: usize) {
        if pages < 64 {
            let mut l = self.l.lock();
            unsafe {
                *(ptr.as_ptr() as *mut usize) = l.free[pages];
            }
            l.free[pages] = ptr.as_ptr() as usize;
        } else {
            unsafe {
                let _ = page_backend::sys::madvise(ptr, pages * 8192, page_backend::sys::Advice::DontNeed);
            }
        }
    }
    pub(crate) unsafe fn grow_in_place(&self, _p: NonNull<u8>, _pages: usize, _extra: usize) -> bool {
        false
    }
    pub(crate) fn release(&self, _b: usize, _m: ReleaseMode) -> usize {
        0
    }
    pub(crate) unsafe fn unmap_all(&self) {}
    pub(crate) fn tick(&self, _now: u64) {}
    pub(crate) fn check(&self) -> bool {
        true
    }
    pub(crate) fn backend(&self) -> &B {
        &self.b
    }
    pub(crate) fn lock_for_fork(&self) {
        self.l.lock_for_fork()
    }
    pub(crate) unsafe fn unlock_after_fork(&self) {
        unsafe { self.l.unlock_after_fork() }
    }
}
