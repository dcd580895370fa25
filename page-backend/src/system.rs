//! The sources of a process-wide heap, chosen at run time.

use crate::backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use crate::capped::Capped;
use crate::counters::Fallbacks;
use crate::forward::{AnyPages, forward_by_tier};
use crate::hugetlb::{HugeSource, Hugetlb};
use crate::locked::{LockMode, LockTime, Locked};
use crate::mmap::Mmap;
use crate::pool::HugeSize;
use crate::sys;
use crate::thp::ThpPolicy;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The most links that a [`SystemConfig`] can have.
pub const MAX_LINKS: usize = 7;

/// What a link maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Ordinary anonymous memory.
    Mmap(ThpPolicy),
    /// Pages of a huge page pool.
    Hugetlb(HugeSize, HugeSource),
}

/// One source in a [`SystemConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// What it maps.
    pub kind: LinkKind,
    /// Whether it locks.
    pub lock: LockMode,
    /// When it locks.
    pub lock_time: LockTime,
    /// The most bytes that it locks; `usize::MAX`: no limit but the system's.
    pub lock_budget: usize,
    /// The most bytes that it maps; `usize::MAX`: no limit.
    pub cap: usize,
}

impl LinkConfig {
    /// Ordinary memory, as the system gives it.
    pub const PLAIN: Self = Self::new(LinkKind::Mmap(ThpPolicy::Default));
    /// The pool of 2 MiB pages.
    pub const HUGE_2M: Self = Self::new(LinkKind::Hugetlb(HugeSize::Size2M, HugeSource::Anonymous));
    /// The pool of 1 GiB pages.
    pub const HUGE_1G: Self = Self::new(LinkKind::Hugetlb(HugeSize::Size1G, HugeSource::Anonymous));

    /// A link that neither locks nor ends.
    pub const fn new(kind: LinkKind) -> Self {
        Self {
            kind,
            lock: LockMode::Off,
            lock_time: LockTime::AtMap,
            lock_budget: usize::MAX,
            cap: usize::MAX,
        }
    }

    /// The same link with a cap in bytes.
    pub const fn cap(self, bytes: usize) -> Self {
        Self { cap: bytes, ..self }
    }

    /// The same link, locked.
    pub const fn locked(self, mode: LockMode, time: LockTime) -> Self {
        Self { lock: mode, lock_time: time, ..self }
    }

    /// Whether this is memory that every program may have, not huge pages of a pool and not locked.
    const fn is_ordinary(&self) -> bool {
        matches!((self.kind, self.lock), (LinkKind::Mmap(_), LockMode::Off))
    }
}

/// What happens when a link refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FallbackPolicy {
    /// The next link is asked, and [`System::take_new_fallback`] tells it once.
    #[default]
    Warn,
    /// The next link is asked.
    Silent,
    /// The request fails. In a forked child and in an excluded program the next link is asked all the same.
    Never,
}

/// An ordered list of sources. Nothing is added to it: a list that should end in ordinary memory says so.
#[derive(Clone, Copy, Debug)]
pub struct SystemConfig<'a> {
    /// At most [`MAX_LINKS`] sources in the order in which they are asked; further ones are ignored.
    pub links: &'a [LinkConfig],
    /// What happens when one refuses.
    pub fallback: FallbackPolicy,
    /// This program is to get ordinary memory only: the other links refuse with [`Reason::Excluded`].
    pub excluded: bool,
}

/// A link at work.
struct Link {
    pages: Capped<Locked<AnyPages>>,
    fallbacks: Fallbacks,
    /// The tier of the system that is this link's tier 0.
    base: u8,
    refused: bool,
}

/// The composition of backends that the process-wide heap uses.
///
/// Before [`configure`](Self::configure) all memory is ordinary memory, on tier 0. The links' tiers follow in
/// the order of the list, two for a link that may fall back to unlocked memory, else one.
pub struct System {
    plain: Mmap,
    links: UnsafeCell<[MaybeUninit<Link>; MAX_LINKS]>,
    /// How many links are initialised and published.
    count: AtomicU8,
    policy: AtomicU8,
    configured: AtomicBool,
}

// SAFETY: `links` is written only by the one call of `configure` that wins `configured`, before it publishes
// `count`, and read only below `count`; everything else is atomic or `Sync` by itself.
unsafe impl Sync for System {}

const WARN: u8 = 0;
const SILENT: u8 = 1;
const NEVER: u8 = 2;

impl Default for System {
    fn default() -> Self {
        Self::new()
    }
}

impl System {
    /// Ordinary memory until configured.
    pub const fn new() -> Self {
        Self {
            plain: Mmap::new(),
            links: UnsafeCell::new([const { MaybeUninit::uninit() }; MAX_LINKS]),
            count: AtomicU8::new(0),
            policy: AtomicU8::new(WARN),
            configured: AtomicBool::new(false),
        }
    }

    /// Puts a list of sources in effect for later `map` calls. Memory mapped before stays valid on its tier.
    ///
    /// Returns whether it did: only the first call with a list that is not empty has an effect.
    #[cold]
    pub fn configure(&self, config: &SystemConfig<'_>) -> bool {
        if config.links.is_empty() || self.configured.swap(true, Ordering::Relaxed) {
            return false;
        }
        let policy = match config.fallback {
            FallbackPolicy::Warn => WARN,
            FallbackPolicy::Silent => SILENT,
            FallbackPolicy::Never => NEVER,
        };
        self.policy.store(policy, Ordering::Relaxed);
        let mut base = 1;
        let mut count = 0;
        for (i, link) in config.links.iter().take(MAX_LINKS).enumerate() {
            let pages = build(link);
            let tiers = pages.tiers() as u8;
            let refused = config.excluded && !link.is_ordinary();
            let link = Link { pages, fallbacks: Fallbacks::new(), base, refused };
            // SAFETY: `configured` makes this the only writer, and no reader looks beyond `count`, which is
            // still 0. The index is below MAX_LINKS.
            unsafe { self.links.get().cast::<Link>().add(i).write(link) };
            base += tiers;
            count += 1;
        }
        self.count.store(count, Ordering::Release);
        true
    }

    /// The first fallback since the last call: the tier that refused, and why. `None` unless the policy is
    /// [`FallbackPolicy::Warn`]. Refusals in a forked child or an excluded program are counted but not told.
    pub fn take_new_fallback(&self) -> Option<(Tier, MapError)> {
        if self.policy.load(Ordering::Relaxed) != WARN {
            return None;
        }
        self.links().iter().find_map(|link| {
            let error = link.fallbacks.take().or_else(|| link.pages.inner().take_new_fallback())?;
            Some((Tier(link.base), error))
        })
    }

    /// Asks for huge pages under a range now; see [`Mmap::collapse`].
    ///
    /// # Errors
    /// [`Reason::Unsupported`] for tiers that cannot; else as [`Mmap::collapse`].
    ///
    /// # Safety
    /// As [`Mmap::collapse`].
    pub unsafe fn collapse(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        match self.find(tier).map(|link| link.pages.inner().inner()) {
            // SAFETY: as the caller vouches.
            Some(AnyPages::Mmap(pages)) => unsafe { pages.collapse(ptr, size) },
            _ => Err(MapError::refused(Reason::Unsupported, Step::Populate)),
        }
    }

    fn links(&self) -> &[Link] {
        let count = usize::from(self.count.load(Ordering::Acquire));
        // SAFETY: the first `count` links are initialised and never written again.
        unsafe { core::slice::from_raw_parts(self.links.get().cast::<Link>(), count) }
    }

    /// The link that a tier belongs to; `None` for tier 0.
    fn find(&self, tier: Tier) -> Option<&Link> {
        self.links().iter().rev().find(|link| link.base <= tier.0)
    }

    /// The backend that a tier belongs to, with its own number of the tier.
    fn route(&self, tier: Tier) -> (&dyn PageBackend, Tier) {
        match self.find(tier) {
            Some(link) => (&link.pages, Tier(tier.0 - link.base)),
            None => (&self.plain, Tier(0)),
        }
    }
}

fn build(link: &LinkConfig) -> Capped<Locked<AnyPages>> {
    let pages = match link.kind {
        LinkKind::Mmap(thp) => AnyPages::Mmap(Mmap::with_thp(thp)),
        LinkKind::Hugetlb(size, source) => AnyPages::Hugetlb(Hugetlb::with_source(size, source)),
    };
    Capped::new(Locked::with_options(pages, link.lock, link.lock_time, link.lock_budget), link.cap)
}

impl Link {
    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        if self.refused {
            return Err(MapError::refused(Reason::Excluded, Step::Check));
        }
        let mapping = self.pages.map(size, align)?;
        Ok(Mapping { tier: Tier(mapping.tier.0 + self.base), ..mapping })
    }
}

// SAFETY: every call goes to the backend that the tier belongs to, whose contract holds; tiers never change
// their backend, since links are only ever added behind tier 0, once.
unsafe impl PageBackend for System {
    forward_by_tier!(Self::route);

    fn granule(&self) -> usize {
        sys::page_size()
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        let mut links = self.links().iter().peekable();
        if links.peek().is_none() {
            return self.plain.map(size, align);
        }
        let mut last = MapError::refused(Reason::BadRequest, Step::Check);
        while let Some(link) = links.next() {
            let error = match link.map(size, align) {
                Ok(mapping) => return Ok(mapping),
                Err(error) => error,
            };
            let by_rule = matches!(error.reason, Reason::Forked | Reason::Excluded);
            if self.policy.load(Ordering::Relaxed) == NEVER && !by_rule {
                return Err(error);
            }
            if links.peek().is_some() || by_rule {
                link.fallbacks.record(error);
            }
            last = error;
        }
        // A list without ordinary memory leaves a forked child or an excluded program with this.
        if matches!(last.reason, Reason::Forked | Reason::Excluded) {
            return self.plain.map(size, align);
        }
        Err(last)
    }

    fn tiers(&self) -> usize {
        self.links().last().map_or(1, |link| usize::from(link.base) + link.pages.tiers())
    }

    fn usage(&self, tier: Tier) -> Usage {
        let (pages, own) = self.route(tier);
        let mut usage = pages.usage(own);
        if own.0 == 0
            && let Some(link) = self.find(tier)
        {
            link.fallbacks.add_to(&mut usage.fallbacks);
        }
        usage
    }

    #[cold]
    fn after_fork_in_child(&self) {
        for link in self.links() {
            link.pages.after_fork_in_child();
        }
    }
}
