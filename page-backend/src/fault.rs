//! Failures on demand.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use crate::sys::Errno;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

/// The calls of a [`PageBackend`] that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`PageBackend::map`].
    Map,
    /// [`PageBackend::purge`].
    Purge,
    /// [`PageBackend::restore`].
    Restore,
    /// [`PageBackend::unmap`].
    Unmap,
    /// [`PageBackend::grow`].
    Grow,
    /// [`PageBackend::remap`].
    Remap,
}

impl Call {
    const COUNT: usize = 6;

    const fn step(self) -> Step {
        match self {
            Self::Map => Step::Map,
            Self::Purge => Step::Purge,
            Self::Restore => Step::Populate,
            Self::Unmap => Step::Unmap,
            Self::Grow | Self::Remap => Step::Remap,
        }
    }
}

/// What is to happen to calls of one kind.
#[derive(Debug)]
struct Plan {
    calls: AtomicU64,
    /// The number of the call that fails, from 1; 0: none.
    at: AtomicU64,
    /// Every call whose number is a multiple fails; 0: none.
    every: AtomicU64,
    errno: AtomicI32,
}

/// Passes calls to another backend, and fails those that a test names.
#[derive(Debug)]
pub struct FaultInjector<B> {
    inner: B,
    plans: [Plan; Call::COUNT],
    short_purge: AtomicBool,
    injected: AtomicU64,
}

impl<B: PageBackend> FaultInjector<B> {
    /// Fails nothing yet.
    pub const fn new(inner: B) -> Self {
        Self {
            inner,
            plans: [const {
                Plan {
                    calls: AtomicU64::new(0),
                    at: AtomicU64::new(0),
                    every: AtomicU64::new(0),
                    errno: AtomicI32::new(libc::ENOMEM),
                }
            }; Call::COUNT],
            short_purge: AtomicBool::new(false),
            injected: AtomicU64::new(0),
        }
    }

    /// The backend that serves what does not fail.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    fn plan(&self, call: Call) -> &Plan {
        &self.plans[call as usize]
    }

    /// Fails the `n`-th call of a kind from now on, 1 being the next, with an error number.
    pub fn fail_nth(&self, call: Call, n: u64, errno: Errno) {
        let plan = self.plan(call);
        plan.errno.store(errno.0, Relaxed);
        plan.at.store(plan.calls.load(Relaxed) + n, Relaxed);
    }

    /// Fails every `n`-th call of a kind with an error number; 1 fails all.
    pub fn fail_every(&self, call: Call, n: u64, errno: Errno) {
        let plan = self.plan(call);
        plan.errno.store(errno.0, Relaxed);
        plan.every.store(n, Relaxed);
    }

    /// Lets purges that fail purge the first half of their range, as an interrupted madvise(2) does.
    pub fn short_purges(&self, on: bool) {
        self.short_purge.store(on, Relaxed);
    }

    /// Fails nothing any more.
    pub fn heal(&self) {
        for plan in &self.plans {
            plan.at.store(0, Relaxed);
            plan.every.store(0, Relaxed);
        }
    }

    /// How many calls of a kind there were.
    pub fn calls(&self, call: Call) -> u64 {
        self.plan(call).calls.load(Relaxed)
    }

    /// How many calls were made to fail.
    pub fn injected(&self) -> u64 {
        self.injected.load(Relaxed)
    }

    /// Counts a call, and fails it if it is its turn.
    fn check(&self, call: Call) -> Result<(), MapError> {
        let plan = self.plan(call);
        let number = plan.calls.fetch_add(1, Relaxed) + 1;
        let every = plan.every.load(Relaxed);
        if number != plan.at.load(Relaxed) && (every == 0 || !number.is_multiple_of(every)) {
            return Ok(());
        }
        self.injected.fetch_add(1, Relaxed);
        Err(MapError {
            reason: Reason::NoMemory,
            step: call.step(),
            errno: Some(Errno(plan.errno.load(Relaxed))),
        })
    }
}

// SAFETY: calls that do not fail go to the inner backend, whose contract holds; calls that do have no effect,
// but for a short purge, which purges a part of the range given, as an error allows.
unsafe impl<B: PageBackend> PageBackend for FaultInjector<B> {
    fn granule(&self) -> usize {
        self.inner.granule()
    }

    fn granule_of(&self, tier: Tier) -> usize {
        self.inner.granule_of(tier)
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        self.check(Call::Map)?;
        self.inner.map(size, align)
    }

    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        // SAFETY: as the caller vouches; the half is rounded down to granules, so to whole pages.
        unsafe {
            self.check(Call::Purge).inspect_err(|_| {
                let granule = self.inner.granule_of(tier);
                let half = size / 2 / granule * granule;
                if self.short_purge.load(Relaxed) && half > 0 {
                    let _ = self.inner.purge(ptr, half, tier);
                }
            })?;
            self.inner.purge(ptr, size, tier)
        }
    }

    unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        self.check(Call::Restore)?;
        // SAFETY: as the caller vouches.
        unsafe { self.inner.restore(ptr, size, tier) }
    }

    fn fills_huge_pages(&self, tier: Tier) -> bool {
        self.inner.fills_huge_pages(tier)
    }

    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, tier: Tier, holes: bool) {
        // SAFETY: as the caller vouches.
        unsafe { self.inner.set_holes(ptr, size, tier, holes) }
    }

    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        self.check(Call::Unmap)?;
        // SAFETY: as the caller vouches.
        unsafe { self.inner.unmap(ptr, size, tier) }
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, tier: Tier) -> Result<(), MapError> {
        self.check(Call::Grow)?;
        // SAFETY: as the caller vouches.
        unsafe { self.inner.grow(ptr, size, extra, tier) }
    }

    unsafe fn remap(
        &self,
        ptr: NonNull<u8>,
        size: usize,
        new_size: usize,
        align: usize,
        tier: Tier,
    ) -> Result<Mapping, MapError> {
        self.check(Call::Remap)?;
        // SAFETY: as the caller vouches.
        unsafe { self.inner.remap(ptr, size, new_size, align, tier) }
    }

    fn capabilities(&self, tier: Tier) -> Capabilities {
        self.inner.capabilities(tier)
    }

    fn tiers(&self) -> usize {
        self.inner.tiers()
    }

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
