//! A limit on what a backend maps.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Tier, Usage};
use crate::counters::Bytes;
use crate::error::align_up;
use core::ptr::NonNull;

/// Lets another backend map at most so many bytes; then it refuses with
/// [`Reason::CapReached`](crate::Reason::CapReached).
///
/// Requests are rounded up to the backend's granule here, so that backends with pages of different sizes can
/// stand behind one another.
#[derive(Debug)]
pub struct Capped<B> {
    inner: B,
    cap: usize,
    held: Bytes,
}

impl<B: PageBackend> Capped<B> {
    /// Caps `inner` at `cap` bytes of all its tiers together; `usize::MAX` is no limit.
    pub const fn new(inner: B, cap: usize) -> Self {
        Self { inner, cap, held: Bytes::new() }
    }

    /// The backend that is capped.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// Runs `call` with `bytes` more counted, and takes them back if it fails.
    fn counted<T>(&self, bytes: usize, call: impl FnOnce() -> Result<T, MapError>) -> Result<T, MapError> {
        self.held.reserve(bytes, self.cap)?;
        call().inspect_err(|_| self.held.sub(bytes))
    }
}

// SAFETY: every call goes to the inner backend, whose contract holds, with a size and an alignment that are
// multiples of its granule if they were multiples of a smaller one.
unsafe impl<B: PageBackend> PageBackend for Capped<B> {
    fn granule(&self) -> usize {
        self.inner.granule()
    }

    fn granule_of(&self, tier: Tier) -> usize {
        self.inner.granule_of(tier)
    }

    #[cold]
    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        let granule = self.inner.granule();
        // An overflow gives 0, which the inner backend refuses.
        let size = align_up(size, granule).unwrap_or(0);
        let mapping = self.counted(size, || self.inner.map(size, align.max(granule)))?;
        self.held.resize(size, mapping.len);
        Ok(mapping)
    }

    #[cold]
    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.inner.purge(ptr, size, tier) }
    }

    #[cold]
    unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.inner.restore(ptr, size, tier) }
    }

    fn fills_huge_pages(&self, tier: Tier) -> bool {
        self.inner.fills_huge_pages(tier)
    }

    #[cold]
    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
        // SAFETY: as the caller vouches.
        unsafe { self.inner.set_holes(ptr, size, tier, holes) }
    }

    #[cold]
    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.inner.unmap(ptr, size, tier)? };
        self.held.sub(size);
        Ok(())
    }

    #[cold]
    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        self.counted(extra, || unsafe { self.inner.grow(ptr, size, extra, tier) })
    }

    #[cold]
    unsafe fn remap(
        &self,
        ptr: NonNull<u8>,
        size: usize,
        new_size: usize,
        align: usize,
        tier: Tier,
    ) -> Result<Mapping, MapError> {
        let granule = self.inner.granule_of(tier);
        let new_size = align_up(new_size, granule).unwrap_or(0);
        let more = new_size.saturating_sub(size);
        // SAFETY: as the caller vouches.
        let mapping = self
            .counted(more, || unsafe { self.inner.remap(ptr, size, new_size, align.max(granule), tier) })?;
        self.held.resize(size + more, mapping.len);
        Ok(mapping)
    }

    fn capabilities(&self, tier: Tier) -> Capabilities {
        self.inner.capabilities(tier)
    }

    fn tiers(&self) -> usize {
        self.inner.tiers()
    }

    #[cold]
    fn name(&self, tier: Tier) -> &'static str {
        self.inner.name(tier)
    }

    fn usage(&self, tier: Tier) -> Usage {
        self.inner.usage(tier)
    }

    fn after_fork_in_child(&self) {
        self.inner.after_fork_in_child();
    }
}
