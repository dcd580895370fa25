//! Memory that cannot be swapped out.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use crate::counters::{Bytes, Fallbacks};
use crate::sys::{self, Errno, Limit};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether and how memory is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// Not at all: the decorator passes everything through.
    #[default]
    Off,
    /// Locked where possible, else unlocked memory on a tier of its own.
    Fallback,
    /// Locked, or an error.
    Strict,
}

/// When locked memory is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockTime {
    /// All of a run when it is mapped (mlock).
    #[default]
    AtMap,
    /// Each page when it is first touched (MLOCK_ONFAULT, Linux 4.4; older kernels: at map).
    OnTouch,
}

/// Locks the memory of another backend.
///
/// Tiers of a backend with `n` tiers are `0..n` locked and, in [`LockMode::Fallback`], `n..2n` for memory that
/// could not be locked. Memory that cannot be swapped by nature (hugetlb) is left alone: mlock would lock
/// nothing more, yet fail on RLIMIT_MEMLOCK.
///
/// Before the kernel is asked, the request is checked against the budget, and against RLIMIT_MEMLOCK unless
/// the process has CAP_IPC_LOCK. Memory that is purged stays inside the budget and locks again at touch; it
/// leaves VmLck when it is unmapped.
///
/// # Fork
/// Locks are not inherited. After [`after_fork_in_child`](PageBackend::after_fork_in_child) the child counts
/// 0 locked bytes and locks nothing ([`Reason::Forked`]).
#[derive(Debug)]
pub struct Locked<B> {
    inner: B,
    mode: LockMode,
    time: LockTime,
    budget: usize,
    /// All locked bytes, for the budget.
    total: Bytes,
    sides: [Side; SIDES],
    forked: AtomicBool,
}

/// What one inner tier holds on its two sides.
#[derive(Debug)]
struct Side {
    locked: Bytes,
    unlocked: Bytes,
    fallbacks: Fallbacks,
}

/// Inner tiers that are counted apart; any others are counted with the last of these.
const SIDES: usize = 8;

impl<B: PageBackend> Locked<B> {
    /// Locks what `inner` maps, at map time and without a budget.
    pub const fn new(inner: B, mode: LockMode) -> Self {
        Self::with_options(inner, mode, LockTime::AtMap, usize::MAX)
    }

    /// Locks at most `budget` bytes of what `inner` maps.
    pub const fn with_options(inner: B, mode: LockMode, time: LockTime, budget: usize) -> Self {
        Self {
            inner,
            mode,
            time,
            budget,
            total: Bytes::new(),
            sides: [const { Side { locked: Bytes::new(), unlocked: Bytes::new(), fallbacks: Fallbacks::new() } };
                SIDES],
            forked: AtomicBool::new(false),
        }
    }

    /// The backend whose memory is locked.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// The first request since the last call that got unlocked memory instead, and why.
    pub fn take_new_fallback(&self) -> Option<MapError> {
        self.sides.iter().find_map(|side| side.fallbacks.take())
    }

    fn side(&self, inner: Tier) -> &Side {
        &self.sides[usize::from(inner.0).min(SIDES - 1)]
    }

    fn count_locked(&self, inner: Tier, size: usize) {
        self.side(inner).locked.add(size);
    }

    fn discount_locked(&self, inner: Tier, size: usize) {
        self.total.sub(size);
        self.side(inner).locked.sub(size);
    }

    /// The inner tier, and whether this is its locked side.
    fn split(&self, tier: Tier) -> (Tier, bool) {
        let n = self.inner.tiers() as u8;
        if tier.0 < n { (tier, self.mode != LockMode::Off) } else { (Tier(tier.0 - n), false) }
    }

    /// Whether memory of an inner tier needs mlock to stay in memory.
    fn needs_lock(&self, inner: Tier) -> bool {
        self.mode != LockMode::Off && !self.inner.capabilities(inner).contains(Capabilities::LOCKED)
    }

    /// Takes `size` bytes out of the budget if fork, budget and limit allow it.
    #[cold]
    fn reserve(&self, size: usize) -> Result<(), MapError> {
        if self.forked.load(Relaxed) {
            return Err(MapError::refused(Reason::Forked, Step::Lock));
        }
        self.total.reserve(size, self.budget)?;
        let limit = sys::getrlimit(Limit::Locked).unwrap_or(u64::MAX);
        if self.total.get() as u64 > limit && !sys::has_cap_ipc_lock() {
            self.total.sub(size);
            return Err(MapError::refused(Reason::Rlimit, Step::Check));
        }
        Ok(())
    }

    /// Counts and locks a range, or neither.
    ///
    /// # Safety
    /// The range is the caller's own.
    #[cold]
    unsafe fn lock(&self, ptr: NonNull<u8>, size: usize, inner: Tier) -> Result<(), MapError> {
        self.reserve(size)?;
        // SAFETY: handed on to the caller.
        unsafe { self.lock_reserved(ptr, size, inner) }
    }

    /// Locks a range that the budget has room for, or gives the room back.
    ///
    /// # Safety
    /// The range is the caller's own, and [`reserve`](Self::reserve) has allowed it.
    unsafe fn lock_reserved(&self, ptr: NonNull<u8>, size: usize, inner: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        let Err(errno) = (unsafe { lock_range(ptr, size, self.time) }) else {
            self.count_locked(inner, size);
            return Ok(());
        };
        // A part may be locked.
        // SAFETY: as the caller vouches.
        let _ = unsafe { sys::munlock(ptr, size) };
        self.total.sub(size);
        Err(lock_error(errno))
    }
}

/// Locks a range in the way asked for, or in the way that the kernel has.
///
/// # Safety
/// The range is the caller's own.
unsafe fn lock_range(ptr: NonNull<u8>, size: usize, time: LockTime) -> Result<(), Errno> {
    // SAFETY: as the caller vouches.
    unsafe {
        match time {
            LockTime::AtMap => sys::mlock(ptr, size),
            LockTime::OnTouch => match sys::mlock_on_fault(ptr, size) {
                Err(Errno::ENOSYS | Errno::EINVAL) => sys::mlock(ptr, size),
                other => other,
            },
        }
    }
}

/// The kernel says `ENOMEM`, `EAGAIN` or, with a limit of 0, `EPERM` when RLIMIT_MEMLOCK is in the way.
#[cold]
fn lock_error(errno: Errno) -> MapError {
    let mut error = MapError::kernel(errno, Step::Lock);
    let limit = sys::getrlimit(Limit::Locked).unwrap_or(u64::MAX);
    let limited = match errno {
        Errno::ENOMEM | Errno::EAGAIN => limit != u64::MAX && !sys::has_cap_ipc_lock(),
        Errno::EPERM => limit == 0,
        _ => false,
    };
    if limited {
        error.reason = Reason::Rlimit;
    }
    error
}

// SAFETY: mappings are those of the inner backend, whose contract holds for them; locking changes neither
// content nor extent. Purging a locked range asks the inner backend, and unlocks first if the kernel wants it.
// When locking fails in strict mode, the inner mapping is given back before the error is returned.
unsafe impl<B: PageBackend> PageBackend for Locked<B> {
    fn granule(&self) -> usize {
        self.inner.granule()
    }

    fn granule_of(&self, tier: Tier) -> usize {
        self.inner.granule_of(self.split(tier).0)
    }

    #[cold]
    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        let mapping = self.inner.map(size, align)?;
        if !self.needs_lock(mapping.tier) {
            return Ok(mapping);
        }
        // SAFETY: the range was just mapped and is ours.
        let Err(error) = (unsafe { self.lock(mapping.ptr, mapping.len, mapping.tier) }) else {
            return Ok(mapping);
        };
        if self.mode == LockMode::Strict {
            // SAFETY: nobody knows of the mapping. If it cannot be given back it is lost as address space.
            let _ = unsafe { self.inner.unmap(mapping.ptr, mapping.len, mapping.tier) };
            return Err(error);
        }
        self.side(mapping.tier).fallbacks.record(error);
        self.side(mapping.tier).unlocked.add(mapping.len);
        Ok(Mapping { tier: Tier(mapping.tier.0 + self.inner.tiers() as u8), ..mapping })
    }

    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let (inner, locked) = self.split(tier);
        // SAFETY: as the caller vouches.
        let result = unsafe { self.inner.purge(ptr, size, inner) };
        match result {
            Err(MapError { errno: Some(Errno::EINVAL), .. }) if locked && self.needs_lock(inner) => {
                // A kernel before 5.18 that does not purge locked memory. Locking anew at touch, since mlock
                // would take the memory back at once.
                // SAFETY: as the caller vouches.
                unsafe {
                    sys::munlock(ptr, size).map_err(|errno| MapError::kernel(errno, Step::Purge))?;
                    let purged = self.inner.purge(ptr, size, inner);
                    // The lock was held a moment ago, so the limit allows it.
                    sys::mlock_on_fault(ptr, size).map_err(lock_error)?;
                    purged
                }
            }
            other => other,
        }
    }

    unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches.
        unsafe { self.inner.restore(ptr, size, self.split(tier).0) }
    }

    fn fills_huge_pages(&self, tier: Tier) -> bool {
        self.inner.fills_huge_pages(self.split(tier).0)
    }

    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
        // SAFETY: as the caller vouches.
        unsafe { self.inner.set_holes(ptr, size, self.split(tier).0, holes) }
    }

    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let (inner, locked) = self.split(tier);
        // SAFETY: as the caller vouches. Unmapping unlocks.
        unsafe { self.inner.unmap(ptr, size, inner)? };
        if !locked {
            self.side(inner).unlocked.sub(size);
        } else if self.needs_lock(inner) {
            self.discount_locked(inner, size);
        }
        Ok(())
    }

    #[cold]
    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, tier: Tier) -> Result<(), MapError> {
        let (inner, locked) = self.split(tier);
        let counted = locked && self.needs_lock(inner);
        if counted {
            // Before the inner backend is asked: what it maps may be locked with the run that it makes longer.
            self.reserve(extra)?;
        }
        // SAFETY: as the caller vouches. The extra range was just mapped behind the run, and nobody uses it yet.
        unsafe {
            self.inner.grow(ptr, size, extra, inner).inspect_err(|_| {
                if counted {
                    self.total.sub(extra);
                }
            })?;
            if counted {
                let behind = ptr.add(size);
                return self.lock_reserved(behind, extra, inner).inspect_err(|_| {
                    let _ = self.inner.unmap(behind, extra, inner);
                });
            }
        }
        if !locked {
            self.side(inner).unlocked.add(extra);
        }
        Ok(())
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
        let (inner, locked) = self.split(tier);
        let counted = locked && self.needs_lock(inner);
        let more = new_size.saturating_sub(size);
        if counted {
            self.reserve(more)?;
        }
        // SAFETY: as the caller vouches. The kernel moves the lock with the memory.
        match unsafe { self.inner.remap(ptr, size, new_size, align, inner) } {
            Ok(mapping) => {
                if counted {
                    self.total.resize(size + more, mapping.len);
                    self.side(inner).locked.resize(size, mapping.len);
                } else if !locked {
                    self.side(inner).unlocked.resize(size, mapping.len);
                }
                Ok(Mapping { tier, ..mapping })
            }
            Err(error) => {
                if counted {
                    self.total.sub(more);
                }
                Err(error)
            }
        }
    }

    fn capabilities(&self, tier: Tier) -> Capabilities {
        let (inner, locked) = self.split(tier);
        let mut all = self.inner.capabilities(inner);
        if locked {
            all |= Capabilities::LOCKED;
            if self.time == LockTime::AtMap {
                all |= Capabilities::POPULATED;
            }
        }
        all
    }

    fn tiers(&self) -> usize {
        if self.mode == LockMode::Fallback { 2 * self.inner.tiers() } else { self.inner.tiers() }
    }

    fn name(&self, tier: Tier) -> &'static str {
        let (inner, locked) = self.split(tier);
        let name = self.inner.name(inner);
        if !locked {
            return name;
        }
        match name {
            "mmap" => "locked-mmap",
            "mmap-thp" => "locked-mmap-thp",
            "hugetlb-2M" => "locked-hugetlb-2M",
            "hugetlb-1G" => "locked-hugetlb-1G",
            _ => "locked",
        }
    }

    #[cold]
    fn usage(&self, tier: Tier) -> Usage {
        let (inner, locked) = self.split(tier);
        let mut usage = self.inner.usage(inner);
        if self.mode == LockMode::Off {
            return usage;
        }
        let side = self.side(inner);
        if !locked {
            return Usage { mapped: side.unlocked.get(), ..Usage::default() };
        }
        usage.mapped = usage.mapped.saturating_sub(side.unlocked.get());
        usage.locked += side.locked.get();
        side.fallbacks.add_to(&mut usage.fallbacks);
        usage
    }

    fn after_fork_in_child(&self) {
        self.forked.store(true, Relaxed);
        self.total.reset();
        for side in &self.sides {
            side.locked.reset();
        }
        self.inner.after_fork_in_child();
    }
}
