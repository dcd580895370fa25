//! A backend with real memory that keeps its own books and fails when told to.

use core::ptr::NonNull;
use page_backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
use size_classes::PAGE_SIZE;
use std::sync::Mutex;
use std::time::Duration;
use std::vec::Vec;

/// What one tier of the mock is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) caps: Capabilities,
    pub(crate) granule: usize,
    /// Touching a part of a huge page takes the whole.
    pub(crate) fills: bool,
}

impl Spec {
    /// Plain memory on 4K pages.
    pub(crate) const PLAIN: Self = Self {
        caps: Capabilities::PARTIAL_PURGE
            .union(Capabilities::ZERO_AFTER_PURGE)
            .union(Capabilities::REMAP)
            .union(Capabilities::FORK_COPIES),
        granule: 4096,
        fills: false,
    };
    /// The same under transparent huge pages.
    pub(crate) const THP: Self = Self { fills: true, ..Self::PLAIN };
    /// Memory that reads as anything after a purge, on 64K pages.
    pub(crate) const DIRTY: Self = Self {
        caps: Capabilities::PARTIAL_PURGE.union(Capabilities::FORK_COPIES),
        granule: 65536,
        fills: false,
    };
    /// Huge pages of a pool.
    pub(crate) const POOL: Self =
        Self { caps: Capabilities::POPULATED.union(Capabilities::HUGE), granule: 2 << 20, fills: false };
    /// The same, of twice the size.
    pub(crate) const POOL_4M: Self =
        Self { caps: Capabilities::POPULATED.union(Capabilities::HUGE), granule: 4 << 20, fills: false };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Unmapped,
    Mapped(u8),
    Purged(u8),
}

#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) map: usize,
    pub(crate) purge: usize,
    pub(crate) unmap: usize,
    pub(crate) restore: usize,
}

struct State {
    pages: Vec<Page>,
    /// Huge pages that are said to have holes.
    holes: Vec<bool>,
    /// Pages mapped, by tier.
    mapped: [usize; 8],
    calls: Calls,
    /// The tier that the next mappings come from.
    tier: u8,
    fail: Fail,
    /// How long a mapping takes.
    map_time: Duration,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fail {
    pub(crate) map: bool,
    pub(crate) purge: bool,
    pub(crate) unmap: bool,
    pub(crate) restore: bool,
    pub(crate) grow: bool,
}

pub(crate) struct Mock {
    base: NonNull<u8>,
    len: usize,
    specs: Vec<Spec>,
    state: Mutex<State>,
}

// SAFETY: the memory behind the pointer is shared under the mutex.
unsafe impl Sync for Mock {}
// SAFETY: as above.
unsafe impl Send for Mock {}

impl Mock {
    /// A mock with `len` bytes (a multiple of 4 MiB) to hand out.
    pub(crate) fn new(len: usize, specs: &[Spec]) -> Self {
        let base = memory::take(len);
        let state = State {
            pages: std::vec![Page::Unmapped; len / PAGE_SIZE],
            holes: std::vec![false; len.div_ceil(2 << 20)],
            mapped: [0; 8],
            calls: Calls::default(),
            tier: 0,
            fail: Fail::default(),
            map_time: Duration::ZERO,
        };
        Self { base, len, specs: specs.to_vec(), state: Mutex::new(state) }
    }

    pub(crate) fn set_fail(&self, fail: Fail) {
        self.state.lock().unwrap().fail = fail;
    }

    /// Makes mapping slow, as it is where memory is taken when it is mapped.
    pub(crate) fn set_map_time(&self, time: Duration) {
        self.state.lock().unwrap().map_time = time;
    }

    pub(crate) fn set_tier(&self, tier: usize) {
        self.state.lock().unwrap().tier = tier as u8;
    }

    pub(crate) fn calls(&self) -> Calls {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// How many huge pages are said to have holes.
    pub(crate) fn holes(&self) -> usize {
        self.state.lock().unwrap().holes.iter().filter(|&&holes| holes).count()
    }

    pub(crate) fn tier_count(&self) -> usize {
        self.specs.len()
    }

    /// Bytes mapped on a tier.
    pub(crate) fn mapped(&self, tier: usize) -> usize {
        self.state.lock().unwrap().mapped[tier] * PAGE_SIZE
    }

    /// Whether every page of the range is mapped and ready for use.
    pub(crate) fn ready(&self, ptr: NonNull<u8>, pages: usize) -> bool {
        let first = self.index(ptr);
        let state = self.state.lock().unwrap();
        state.pages[first..first + pages].iter().all(|p| matches!(p, Page::Mapped(_)))
    }

    /// Maps the lowest free place.
    fn place(&self, state: &mut State, len: usize, align: usize, tier: u8) -> Option<NonNull<u8>> {
        let count = len / PAGE_SIZE;
        let last = state.pages.len().checked_sub(count)?;
        let mut places = (0..=last).step_by(align / PAGE_SIZE);
        let first = places.find(|&p| state.pages[p..p + count].iter().all(|&p| p == Page::Unmapped))?;
        state.pages[first..first + count].fill(Page::Mapped(tier));
        state.mapped[tier as usize] += count;
        // SAFETY: inside the mock's memory.
        let ptr = unsafe { self.base.add(first * PAGE_SIZE) };
        self.zero(ptr, len);
        Some(ptr)
    }

    fn index(&self, ptr: NonNull<u8>) -> usize {
        let offset = ptr.as_ptr().addr() - self.base.as_ptr().addr();
        assert!(offset < self.len && offset.is_multiple_of(PAGE_SIZE));
        offset / PAGE_SIZE
    }

    fn zero(&self, ptr: NonNull<u8>, size: usize) {
        // SAFETY: the range is inside the mock's memory.
        unsafe { memory::zero(ptr, size) };
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // SAFETY: the range is the mock's own.
        unsafe { memory::give(self.base, self.len) };
    }
}

fn error(step: Step) -> MapError {
    MapError { reason: Reason::NoMemory, step, errno: None }
}

// SAFETY: ranges are handed out once, zeroed, until they are unmapped, under the mutex.
unsafe impl PageBackend for Mock {
    fn granule(&self) -> usize {
        4096
    }

    fn granule_of(&self, tier: Tier) -> usize {
        self.specs[tier.0 as usize].granule
    }

    fn map(&self, size: usize, align: usize) -> Result<Mapping, MapError> {
        let time = self.state.lock().unwrap().map_time;
        if !time.is_zero() {
            std::thread::sleep(time);
        }
        let mut state = self.state.lock().unwrap();
        state.calls.map += 1;
        if state.fail.map {
            return Err(error(Step::Map));
        }
        let tier = state.tier;
        let granule = self.specs[tier as usize].granule;
        assert!(align >= 2 << 20 && size > 0 && size.is_multiple_of(4096));
        let len = size.next_multiple_of(granule);
        let ptr = self.place(&mut state, len, align.max(granule), tier).ok_or(error(Step::Map))?;
        Ok(Mapping { ptr, len, tier: Tier(tier) })
    }

    unsafe fn purge(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let mut state = self.state.lock().unwrap();
        state.calls.purge += 1;
        let spec = self.specs[tier.0 as usize];
        assert!(spec.caps.contains(Capabilities::PARTIAL_PURGE), "purge of a tier that cannot");
        assert!(
            size > 0 && size.is_multiple_of(spec.granule) && ptr.as_ptr().addr().is_multiple_of(spec.granule)
        );
        let first = self.index(ptr);
        for page in &state.pages[first..first + size / PAGE_SIZE] {
            // Some may have been purged before where the unit is several pages, and where the kernel fills holes.
            let again = (spec.granule > PAGE_SIZE || spec.fills) && *page == Page::Purged(tier.0);
            assert!(again || *page == Page::Mapped(tier.0), "purge of what is not mapped, or purged already");
        }
        if state.fail.purge {
            // The content is unspecified after a failure: half of it is gone.
            self.zero(ptr, (size / 2).next_multiple_of(4096));
            return Err(error(Step::Purge));
        }
        self.zero(ptr, size);
        if !spec.caps.contains(Capabilities::ZERO_AFTER_PURGE) {
            for page in 0..size / PAGE_SIZE {
                // SAFETY: inside the range, which nothing uses.
                unsafe { ptr.add(page * PAGE_SIZE + 64).cast::<u64>().write(0xdead) };
            }
        }
        state.pages[first..first + size / PAGE_SIZE].fill(Page::Purged(tier.0));
        Ok(())
    }

    unsafe fn restore(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let mut state = self.state.lock().unwrap();
        state.calls.restore += 1;
        let first = self.index(ptr);
        for page in &state.pages[first..first + size / PAGE_SIZE] {
            assert_eq!(*page, Page::Purged(tier.0), "restore of what was not purged");
        }
        if state.fail.restore {
            return Err(error(Step::Lock));
        }
        state.pages[first..first + size / PAGE_SIZE].fill(Page::Mapped(tier.0));
        Ok(())
    }

    fn fills_huge_pages(&self, tier: Tier) -> bool {
        self.specs[tier.0 as usize].fills
    }

    unsafe fn set_holes(&self, ptr: NonNull<u8>, size: usize, _tier: Tier, holes: bool) {
        let huge = 2 << 20;
        assert!(size > 0 && size.is_multiple_of(huge) && ptr.as_ptr().addr().is_multiple_of(huge));
        let mut state = self.state.lock().unwrap();
        let (first, count) = (self.index(ptr) / (huge / PAGE_SIZE), size / huge);
        state.holes[first..first + count].fill(holes);
    }

    unsafe fn unmap(&self, ptr: NonNull<u8>, size: usize, tier: Tier) -> Result<(), MapError> {
        let mut state = self.state.lock().unwrap();
        state.calls.unmap += 1;
        let granule = self.specs[tier.0 as usize].granule;
        assert!(size > 0 && size.is_multiple_of(granule) && ptr.as_ptr().addr().is_multiple_of(granule));
        let first = self.index(ptr);
        for page in &state.pages[first..first + size / PAGE_SIZE] {
            assert!(
                *page == Page::Mapped(tier.0) || *page == Page::Purged(tier.0),
                "unmap of what is not mapped"
            );
        }
        if state.fail.unmap {
            return Err(error(Step::Unmap));
        }
        // A use after this would be seen as content that is not zero.
        for page in 0..size / PAGE_SIZE {
            // SAFETY: inside the range, which nothing uses.
            unsafe { ptr.add(page * PAGE_SIZE).cast::<u64>().write(0xdead) };
        }
        state.pages[first..first + size / PAGE_SIZE].fill(Page::Unmapped);
        let huge = (2 << 20) / PAGE_SIZE;
        state.holes[first / huge..(first + size / PAGE_SIZE) / huge].fill(false);
        state.mapped[tier.0 as usize] -= size / PAGE_SIZE;
        Ok(())
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, size: usize, extra: usize, tier: Tier) -> Result<(), MapError> {
        let mut state = self.state.lock().unwrap();
        let first = self.index(ptr) + size / PAGE_SIZE;
        let count = extra / PAGE_SIZE;
        assert!(extra > 0 && extra.is_multiple_of(self.specs[tier.0 as usize].granule));
        let room = state.pages.get(first..first + count);
        if state.fail.grow || !room.is_some_and(|room| room.iter().all(|&p| p == Page::Unmapped)) {
            return Err(error(Step::Remap));
        }
        state.pages[first..first + count].fill(Page::Mapped(tier.0));
        state.mapped[tier.0 as usize] += count;
        // As where a mapping is made longer.
        let huge = (2 << 20) / PAGE_SIZE;
        let holes = state.holes[(first - 1) / huge];
        state.holes[first / huge..(first + count) / huge].fill(holes);
        // SAFETY: inside the mock's memory.
        self.zero(unsafe { ptr.add(size) }, extra);
        Ok(())
    }

    unsafe fn remap(
        &self,
        ptr: NonNull<u8>,
        size: usize,
        new_size: usize,
        align: usize,
        tier: Tier,
    ) -> Result<Mapping, MapError> {
        let mut state = self.state.lock().unwrap();
        assert!(self.specs[tier.0 as usize].caps.contains(Capabilities::REMAP));
        assert!(new_size.is_multiple_of(2 << 20) && size.is_multiple_of(2 << 20) && new_size > size);
        let (first, count) = (self.index(ptr), size / PAGE_SIZE);
        assert!(state.pages[first..first + count].iter().all(|&p| p == Page::Mapped(tier.0)));
        if state.fail.grow {
            return Err(error(Step::Remap));
        }
        let new = self.place(&mut state, new_size, align, tier.0).ok_or(error(Step::Remap))?;
        // SAFETY: both ranges are inside the mock's memory, and apart.
        unsafe { new.copy_from_nonoverlapping(ptr, size) };
        self.zero(ptr, size);
        let huge = (2 << 20) / PAGE_SIZE;
        state.pages[first..first + count].fill(Page::Unmapped);
        for i in 0..count / huge {
            let holes = std::mem::take(&mut state.holes[first / huge + i]);
            let to = self.index(new) / huge + i;
            state.holes[to] = holes;
        }
        state.mapped[tier.0 as usize] -= count;
        Ok(Mapping { ptr: new, len: new_size, tier })
    }

    fn capabilities(&self, tier: Tier) -> Capabilities {
        self.specs[tier.0 as usize].caps
    }

    fn tiers(&self) -> usize {
        self.specs.len()
    }

    fn name(&self, _tier: Tier) -> &'static str {
        "mock"
    }

    fn usage(&self, tier: Tier) -> Usage {
        Usage { mapped: self.mapped(tier.0 as usize), ..Usage::default() }
    }
}

/// The memory behind a mock, which costs nothing while it is untouched.
#[cfg(not(miri))]
mod memory {
    use core::ptr::NonNull;
    use page_backend::sys::{self, Advice};

    const ALIGN: usize = 16 << 20;

    pub(super) fn take(len: usize) -> NonNull<u8> {
        let whole = sys::mmap_anonymous(len + ALIGN).unwrap();
        // SAFETY: at most ALIGN bytes further, which were mapped in addition and stay mapped until the test ends.
        unsafe { whole.add(whole.as_ptr().align_offset(ALIGN)) }
    }

    pub(super) unsafe fn zero(ptr: NonNull<u8>, size: usize) {
        // SAFETY: the caller's memory, from `take`.
        unsafe { sys::madvise(ptr, size, Advice::DontNeed).unwrap() };
    }

    pub(super) unsafe fn give(ptr: NonNull<u8>, len: usize) {
        // SAFETY: the caller's memory, from `take`.
        unsafe { sys::munmap(ptr, len).unwrap() };
    }
}

/// Miri knows no mappings.
#[cfg(miri)]
mod memory {
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 16 << 20).unwrap()
    }

    pub(super) fn take(len: usize) -> NonNull<u8> {
        // SAFETY: the layout is not of size zero.
        NonNull::new(unsafe { alloc_zeroed(layout(len)) }).unwrap()
    }

    pub(super) unsafe fn zero(ptr: NonNull<u8>, size: usize) {
        // SAFETY: the caller's memory, from `take`.
        unsafe { ptr.write_bytes(0, size) };
    }

    pub(super) unsafe fn give(ptr: NonNull<u8>, len: usize) {
        // SAFETY: the caller's memory, from `take`.
        unsafe { dealloc(ptr.as_ptr(), layout(len)) };
    }
}
