//! A page backend of one's own: a heap that lives in one region reserved up front and never leaves it.
//!
//!     cargo run --example own_backend
//!
//! Any source of pages can carry a heap: a shared segment, the memory of a device, what a hypervisor gave. The backend
//! hands out runs and takes them back; size classes, spans, central lists and checks come with the heap.

use alloc_core::Heap;
use page_backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use std::alloc::Layout;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

/// The unit of the region, in bytes.
const GRANULE: usize = 2 << 20;
/// Granules in the region: 64 MiB in all.
const GRANULES: usize = 32;

/// A region of fixed size, handed out in granules.
struct Region {
    base: NonNull<u8>,
    taken: Mutex<[bool; GRANULES]>,
}

// SAFETY: the region's memory belongs to whoever mapped it, and the table is behind a lock.
unsafe impl Sync for Region {}

impl Region {
    fn reserve() -> io::Result<Self> {
        // One granule more, so that an aligned part of full size lies within.
        let size = (GRANULES + 1) * GRANULE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { libc::mmap(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        // SAFETY: the offset is below one granule, and the mapping has one more than is used.
        let base = unsafe { NonNull::new_unchecked(start.add(start.align_offset(GRANULE))) };
        Ok(Self { base, taken: Mutex::new([false; GRANULES]) })
    }

    /// The table; nothing panics while it is locked, so it is whole in any case.
    fn taken(&self) -> std::sync::MutexGuard<'_, [bool; GRANULES]> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the content of whole pages; they read as zero afterwards.
    fn discard(ptr: NonNull<u8>, size: usize) -> Result<(), MapError> {
        // SAFETY: the callers hand on a range within the region whose content nobody uses.
        match unsafe { libc::madvise(ptr.as_ptr().cast(), size, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(MapError { reason: Reason::Unsupported, step: Step::Purge, errno: None }),
        }
    }
}

// SAFETY: a run is marked as taken before it is handed out and until it is given back, lies in the region's readable and
// writable memory, starts at a multiple of `align`, and is zero because given-back memory is discarded.
unsafe impl PageBackend for Region {
    fn granule(&self) -> usize {
        GRANULE
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        let (count, step) = (size / GRANULE, align / GRANULE);
        let first = self.base.addr().get() / GRANULE;
        let mut taken = self.taken();
        let starts = (0..GRANULES).filter(|start| (first + start).is_multiple_of(step));
        for start in starts {
            if let Some(run) = taken.get_mut(start..start + count)
                && !run.contains(&true)
            {
                run.fill(true);
                // SAFETY: the run is within the region.
                let ptr = unsafe { self.base.add(start * GRANULE) };
                return Ok(Mapping { ptr, len: size, tier: Tier(0) });
            }
        }
        Err(MapError { reason: Reason::CapReached, step: Step::Check, errno: None })
    }

    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, _tier: Tier) -> Result<(), MapError> {
        Self::discard(ptr, size)
    }

    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, _tier: Tier) -> Result<(), MapError> {
        Self::discard(ptr, size)?;
        let start = (ptr.addr().get() - self.base.addr().get()) / GRANULE;
        self.taken()[start..start + size / GRANULE].fill(false);
        Ok(())
    }

    fn capabilities(&self, _tier: Tier) -> Capabilities {
        Capabilities::PARTIAL_PURGE | Capabilities::ZERO_AFTER_PURGE | Capabilities::FORK_COPIES
    }

    fn name(&self, _tier: Tier) -> &'static str {
        "region"
    }

    fn usage(&self, _tier: Tier) -> Usage {
        let mapped = self.taken().iter().filter(|taken| **taken).count() * GRANULE;
        Usage { mapped, ..Usage::default() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the heap on the region is gone, and with it every block. What lies before the base stays mapped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), GRANULES * GRANULE) };
    }
}

fn main() -> io::Result<()> {
    let heap = Heap::new(Region::reserve()?).expect("memory for the heap's own records");
    let small = Layout::new::<[u64; 12]>();
    let large = Layout::from_size_align(5 << 20, 4096).expect("a valid layout");

    let mut blocks = Vec::new();
    for layout in [small, large].into_iter().cycle().take(16) {
        let block = heap.allocate(layout).expect("the region is large enough");
        // SAFETY: the block is fresh and has that many bytes.
        unsafe { block.write_bytes(0xa5, layout.size()) };
        blocks.push((block, layout));
    }
    let mapped = heap.backend().usage(Tier(0)).mapped;
    println!("{} KiB in blocks, {} KiB of the region taken", heap.allocated_bytes() >> 10, mapped >> 10);

    // The region is the limit: what does not fit is refused, and what is there stays whole.
    let too_large = Layout::from_size_align(GRANULES * GRANULE, 4096).expect("a valid layout");
    assert!(heap.allocate(too_large).is_none());
    for (block, layout) in blocks {
        // SAFETY: the block is live, has that many bytes, and is not used after it is freed.
        unsafe {
            assert_eq!(block.add(layout.size() - 1).read(), 0xa5);
            heap.deallocate(block, layout);
        }
    }
    assert!(heap.check());
    assert_eq!(heap.allocated_bytes(), 0);
    let given_back = heap.release();
    assert!(given_back > 0);
    println!("all freed: {} KiB given back to the region", given_back >> 10);
    Ok(())
}
