//! The contract between a heap and its source of pages.

use crate::sys::Errno;
use core::ptr::NonNull;

bitflags::bitflags! {
    /// What a tier of a backend can do with the memory that it has mapped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Capabilities: u32 {
        /// [`PageBackend::purge`] accepts any part made of whole operating-system pages.
        const PARTIAL_PURGE = 1 << 0;
        /// Purged memory reads as zero when it is touched again.
        const ZERO_AFTER_PURGE = 1 << 1;
        /// [`PageBackend::remap`] can move a mapping without copying.
        const REMAP = 1 << 2;
        /// The memory is on huge pages.
        const HUGE = 1 << 3;
        /// The memory cannot be swapped out.
        const LOCKED = 1 << 4;
        /// A forked child gets its own copy on write, of small pages, that cannot fail for want of huge pages.
        const FORK_COPIES = 1 << 5;
        /// Physical memory is taken when the run is mapped, not when it is touched.
        const POPULATED = 1 << 6;
    }
}

/// Which source of a composed backend a mapping came from; a single backend has tier 0 alone.
///
/// A heap keeps the tier beside each mapping and hands it back with every later call on that memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tier(pub u8);

/// Memory fresh from a backend: zeroed, readable and writable.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// First byte, aligned as asked.
    pub ptr: NonNull<u8>,
    /// Length in bytes: what was asked for, rounded up to the granule of the tier.
    pub len: usize,
    /// Where it came from.
    pub tier: Tier,
}

/// The step of a backend call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Checking the request, a cap or a limit, before any system call.
    Check,
    /// Mapping address space.
    Map,
    /// Taking physical memory for it.
    Populate,
    /// Locking it into memory.
    Lock,
    /// Giving physical memory back.
    Purge,
    /// Giving address space back.
    Unmap,
    /// Growing or moving a mapping.
    Remap,
}

/// Why a backend did not give memory; each fallback of a chain is counted under one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The pool of huge pages is empty.
    PoolEmpty,
    /// A control group's limit.
    CgroupLimit,
    /// RLIMIT_MEMLOCK, RLIMIT_AS or RLIMIT_DATA.
    Rlimit,
    /// EPERM or EACCES.
    Permission,
    /// The kernel does not know the call or the page size (ENOSYS, EINVAL, ENODEV).
    Unsupported,
    /// The cap set for this backend is reached.
    CapReached,
    /// The process is the child of a plain fork, where huge pages are not used.
    Forked,
    /// The settings exclude this program.
    Excluded,
    /// No address space, no memory, or too many mappings.
    NoMemory,
    /// The request itself cannot be met: size or alignment out of range.
    BadRequest,
}

impl Reason {
    /// How many reasons there are.
    pub const COUNT: usize = 10;
}

/// A backend call that failed: what, where and the kernel's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapError {
    /// Why, in the terms that fallbacks are counted in.
    pub reason: Reason,
    /// The step that failed.
    pub step: Step,
    /// The kernel's error number; `None` when the backend itself refused.
    pub errno: Option<Errno>,
}

/// What a tier holds at this moment, in bytes, and its history in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Address space mapped.
    pub mapped: usize,
    /// Mapped bytes that are on huge pages of a pool.
    pub huge: usize,
    /// Mapped bytes that mlock holds in memory.
    pub locked: usize,
    /// Mapped bytes that cannot be swapped by nature (hugetlb), counted apart from `locked`.
    pub pinned: usize,
    /// Requests that this tier refused and that were passed on to the next, by [`Reason`].
    pub fallbacks: [u64; Reason::COUNT],
}

/// A source of memory for a heap.
///
/// A heap asks for *runs* whose size and alignment are multiples of [`granule`](Self::granule); it may
/// later give back (unmap) or purge parts of them. All methods take `&self`, may be called from any
/// thread at once, never allocate from a heap, never unwind, and leave `errno` as it was.
///
/// # Safety
/// The implementer guarantees that
/// 1. a [`Mapping`] is exclusively the caller's, readable and writable, zeroed, and aligned as asked,
///    from `map` until `unmap`, and touching it never raises a signal for want of memory that
///    `map` could have reported;
/// 2. `unmap` and `purge` affect no byte outside the range given;
/// 3. after `purge` returned `Ok`, the range reads as zero if the tier has
///    [`Capabilities::ZERO_AFTER_PURGE`], and as anything otherwise; after `Err` its content is unspecified
///    but it stays mapped and usable;
/// 4. a failed `map`, `grow` or `remap` has no effect, and a failed `unmap` leaves the range mapped.
pub unsafe trait PageBackend: Sync {
    /// The unit of `map`, in bytes: a power of two, at least the operating system's page.
    fn granule(&self) -> usize;

    /// The unit of `unmap` and `grow` for memory of `tier`; larger than [`granule`](Self::granule) when
    /// tiers have pages of different sizes.
    fn granule_of(&self, tier: Tier) -> usize {
        let _ = tier;
        self.granule()
    }

    /// Maps `size` bytes aligned to `align`, or more: [`Mapping::len`] is rounded up to the granule of the tier
    /// that served the request.
    ///
    /// `size` is a non-zero multiple of the granule, `align` a power of two of at least the granule.
    ///
    /// # Errors
    /// [`MapError`] says why nothing was mapped.
    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError>;

    /// Gives the physical memory of a range back and drops its content; the range stays mapped.
    ///
    /// # Errors
    /// [`Reason::Unsupported`] when the tier cannot purge this range (see [`Capabilities::PARTIAL_PURGE`]).
    ///
    /// # Safety
    /// The range lies within memory mapped by this backend on `tier`, is made of whole operating-system
    /// pages, and nothing uses its content.
    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError>;

    /// Makes a purged range ready for use again: takes or locks its memory where the tier does that.
    ///
    /// The default does nothing, which is right for memory that comes back at first touch.
    ///
    /// # Errors
    /// The range stays purged.
    ///
    /// # Safety
    /// The range was purged and not restored since.
    unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let _ = (ptr, size, tier);
        Ok(())
    }

    /// Whether touching a part of a huge page can take the physical memory of the whole of it: transparent huge
    /// pages. The answer may take a system call when it is first asked for.
    fn fills_huge_pages(&self, tier: Tier) -> bool {
        let _ = tier;
        false
    }

    /// Tells that a range of whole huge pages has purged holes, or has none any more.
    ///
    /// A heap may call it when the first part of a huge page is purged and when the whole is in use or free
    /// again, so that the kernel does not fill the holes with memory behind the heap's back. The default
    /// does nothing.
    ///
    /// # Safety
    /// The range lies within memory mapped by this backend on `tier` and is made of whole operating-system pages.
    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
        let _ = (ptr, size, tier, holes);
    }

    /// Gives address space back.
    ///
    /// # Errors
    /// The range is still mapped and still the caller's.
    ///
    /// # Safety
    /// The range lies within memory mapped by this backend on `tier`, begins and ends on granules of that
    /// tier ([`granule_of`](Self::granule_of)), and is not used again.
    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError>;

    /// Maps `extra` bytes of zeroed memory directly behind a run, or nothing. What was said of the run's end with
    /// [`set_holes`](Self::set_holes) may hold for the new memory too.
    ///
    /// # Errors
    /// The default, and any backend whose neighbour addresses are taken, refuses.
    ///
    /// # Safety
    /// The run is mapped by this backend on `tier`; `extra` is a multiple of that tier's granule.
    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, tier: Tier) -> Result<(), MapError> {
        let _ = (ptr, size, extra, tier);
        Err(MapError { reason: Reason::Unsupported, step: Step::Remap, errno: None })
    }

    /// Moves the physical memory of a run to a new address, with `new_size` bytes, zeroed behind the old content.
    ///
    /// # Errors
    /// The default refuses; the old run is untouched.
    ///
    /// # Safety
    /// As for `unmap` on success: the old range is gone. `new_size` is a multiple of the granule.
    unsafe fn remap(
        &self,
        ptr: NonNull<u8>,
        size: usize,
        new_size: usize,
        align: usize,
        tier: Tier,
    ) -> Result<Mapping, MapError> {
        let _ = (ptr, size, new_size, align, tier);
        Err(MapError { reason: Reason::Unsupported, step: Step::Remap, errno: None })
    }

    /// What memory of `tier` can do.
    fn capabilities(&self, tier: Tier) -> Capabilities;

    /// How many tiers there are; tiers are numbered from 0.
    fn tiers(&self) -> usize {
        1
    }

    /// A short name of a tier for reports, for example `hugetlb-2M`.
    fn name(&self, tier: Tier) -> &'static str;

    /// What `tier` holds now.
    fn usage(&self, tier: Tier) -> Usage;

    /// Called in the child of a fork before it allocates: the place to stop using what fork does not copy.
    fn after_fork_in_child(&self) {}
}
