//! The page map: from an address to what the heap knows of it.
//!
//! A two-level radix over 48 bits: a root of 2^19 words, each for 512 MiB (2^16 pages), and leaves made when their part is
//! first used. A leaf keeps a table of class bytes, one a page, which is all that `free` reads, and a table of huge pages, each
//! with its tracker and its pages' spans side by side, so that a small heap touches few pages of it. Reads take no lock.
//!
//! A root word is the distance from one shared all-zero leaf to the leaf of its part. Zero-filled memory is
//! thus a valid map in which every address has class 0, "no class", and `free` needs no test for null or for
//! a pointer that is not ours.

use crate::arena::META;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::front::per_cpu::Tables;
use crate::lock::{Lock, Rank};
use crate::span::Span;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use size_classes::PAGE_SIZE;

/// Bytes in a huge page, the unit of the page heap.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// An address shifted right by so many bits is its page's number.
pub const PAGE_SHIFT: u32 = PAGE_SIZE.trailing_zeros();
/// And by so many, the number of its root word.
pub const LEAF_SHIFT: u32 = 29;
const ADDRESS_BITS: u32 = 48;
/// Words of the root.
pub const ROOT_LEN: usize = 1 << (ADDRESS_BITS - LEAF_SHIFT);
const LEAF_PAGES: usize = 1 << (LEAF_SHIFT - PAGE_SHIFT);
const LEAF_HUGE_PAGES: usize = (1 << LEAF_SHIFT) / HUGE_PAGE;

type ClassBytes = [AtomicU8; LEAF_PAGES];

/// What is known of 512 MiB of addresses.
#[repr(C)]
struct Leaf {
    classes: ClassBytes,
    huge: [HugePageEntry; LEAF_HUGE_PAGES],
}

/// What is known of one huge page of addresses.
#[repr(C)]
struct HugePageEntry {
    tracker: AtomicPtr<()>,
    spans: [AtomicPtr<Span>; HUGE_PAGE / PAGE_SIZE],
}

impl HugePageEntry {
    const fn empty() -> Self {
        Self {
            tracker: AtomicPtr::new(core::ptr::null_mut()),
            spans: [const { AtomicPtr::new(core::ptr::null_mut()) }; HUGE_PAGE / PAGE_SIZE],
        }
    }
}

impl Leaf {
    /// The entry of the huge page that holds `address`, which lies in this leaf's part.
    #[inline]
    fn huge(&self, address: usize) -> &HugePageEntry {
        &self.huge[(address / HUGE_PAGE) % LEAF_HUGE_PAGES]
    }

    /// The span word of the page that holds `address`.
    #[inline]
    fn span(&self, address: usize) -> &AtomicPtr<Span> {
        &self.huge(address).spans[(address >> PAGE_SHIFT) % (HUGE_PAGE / PAGE_SIZE)]
    }
}

/// The process's page map; see [`PAGE_MAP`].
#[repr(C)]
pub struct PageMap {
    root: [AtomicUsize; ROOT_LEN],
    zero: ClassBytes,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) cpus: Tables,
}

/// Where in the map the zero table is.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub const ZERO_AT: usize = core::mem::offset_of!(PageMap, zero);
/// Where in the map the tables of the CPUs' caches are.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) const CPUS_AT: usize = core::mem::offset_of!(PageMap, cpus);

/// Held while a leaf is made; apart from the map, which is all zero at first and so takes no room in the file.
static GROWING: Lock<()> = Lock::new(Rank::PageMap, ());

/// The one page map of the process: every heap's pages are in it.
#[unsafe(link_section = ".bss.tables")]
pub static PAGE_MAP: PageMap = PageMap {
    root: [const { AtomicUsize::new(0) }; ROOT_LEN],
    zero: [const { AtomicU8::new(0) }; LEAF_PAGES],
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    cpus: Tables::new(),
};

/// The first leaf is part of the program image, so that a small process maps nothing for it.
#[unsafe(link_section = ".bss.tables")]
static FIRST_LEAF: Leaf = Leaf {
    classes: [const { AtomicU8::new(0) }; LEAF_PAGES],
    huge: [const { HugePageEntry::empty() }; LEAF_HUGE_PAGES],
};
/// 1 until the first leaf is taken. Not zero at first, so that it lies with the other small variables and not alone on a page.
static FIRST_LEAF_FREE: AtomicU8 = AtomicU8::new(1);

/// Some huge page was retired; see [`PageMap::retire`].
static RETIRED: AtomicBool = AtomicBool::new(false);

/// Leaves put by: a gigabyte may lie across three. Changed under [`GROWING`].
static RESERVED: [AtomicPtr<u8>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

/// Which root word is an address's, and which page of the leaf.
#[inline(always)]
pub(crate) fn split(address: usize) -> (usize, usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (part, index);
        // Left to itself the compiler tests for 48 bits apart from the shift, and masks: two instructions more.
        const {
            assert!(LEAF_SHIFT - PAGE_SHIFT == 16, "a page's index in its leaf is the low half of a register")
        };
        // SAFETY: computes with registers alone.
        unsafe {
            core::arch::asm!(
                "shr {part}, {page_shift}",
                "movzx {index:e}, {part:x}",
                "shr {part}, {leaf_shift}",
                part = inout(reg) address => part,
                index = out(reg) index,
                page_shift = const PAGE_SHIFT,
                leaf_shift = const LEAF_SHIFT - PAGE_SHIFT,
                options(pure, nomem, nostack)
            );
        }
        (part, index)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    (address >> LEAF_SHIFT, (address >> PAGE_SHIFT) & (LEAF_PAGES - 1))
}

fn new_leaf() -> Option<NonNull<u8>> {
    META.alloc(size_of::<Leaf>(), 64)
}

fn take_reserved(place: &AtomicPtr<u8>) -> Option<NonNull<u8>> {
    NonNull::new(place.swap(core::ptr::null_mut(), Ordering::Relaxed))
}

impl PageMap {
    /// The class of the page that holds `address`; 0 for every address outside a small span of the global heap.
    #[inline(always)]
    pub(crate) fn class_of(&self, address: usize) -> u8 {
        self.class_in_reach(address).unwrap_or(0) as u8
    }

    /// As [`class_of`](Self::class_of); `None` for an address beyond 48 bits, which has no entry.
    #[inline(always)]
    pub(crate) fn class_in_reach(&self, address: usize) -> Option<usize> {
        let (part, index) = split(address);
        // Beyond 48 bits the root has no word.
        let distance = self.root.get(part)?.load(Ordering::Relaxed);
        // SAFETY: distance leads to the zero table or to the class bytes of a leaf, which are never freed.
        Some(unsafe { self.class_at(distance, index) })
    }

    /// The class of a page, as [`split`] gives it.
    ///
    /// # Safety
    /// `part` is below [`ROOT_LEN`], `page` that of a page in a leaf.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(crate) unsafe fn class_of_page(&self, part: usize, page: usize) -> usize {
        debug_assert!(part < ROOT_LEN);
        // SAFETY: the caller's contract; as in `class_in_reach`.
        unsafe { self.class_at(self.root.get_unchecked(part).load(Ordering::Relaxed), page) }
    }

    /// The class byte `index` of the leaf that lies at `distance` from the zero table.
    ///
    /// # Safety
    /// `distance` is a root word, `index` that of a page in a leaf.
    #[inline(always)]
    unsafe fn class_at(&self, distance: usize, index: usize) -> usize {
        debug_assert!(index < LEAF_PAGES);
        // The byte's address is computed from the map's own address: one register serves both loads.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let class: usize;
            // SAFETY: the caller's contract. Bytes are loaded whole.
            unsafe {
                core::arch::asm!(
                    "add {index}, {map}",
                    "movzx {class:e}, byte ptr [{index} + {distance} + {zero}]",
                    index = inout(reg) index => _,
                    map = in(reg) core::ptr::from_ref(self),
                    distance = in(reg) distance,
                    zero = const ZERO_AT,
                    class = lateout(reg) class,
                    options(nostack, readonly)
                );
            }
            class
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            let classes = (&raw const self.zero).addr().wrapping_add(distance);
            let byte = core::ptr::with_exposed_provenance::<AtomicU8>(classes.wrapping_add(index));
            // SAFETY: the caller's contract.
            unsafe { &*byte }.load(Ordering::Relaxed).into()
        }
    }

    fn leaf(&self, address: usize) -> Option<&'static Leaf> {
        let distance = self.root.get(address >> LEAF_SHIFT)?.load(Ordering::Acquire);
        if distance == 0 {
            return None;
        }
        let leaf = (&raw const self.zero).addr().wrapping_add(distance);
        // SAFETY: a distance other than zero leads to a leaf, which is never freed.
        Some(unsafe { &*core::ptr::with_exposed_provenance::<Leaf>(leaf) })
    }

    /// The span that holds `address`: for a small span any address in it, for a large one its first page.
    #[inline]
    pub(crate) fn span_of(&self, address: usize) -> Option<NonNull<Span>> {
        NonNull::new(self.leaf(address)?.span(address).load(Ordering::Acquire))
    }

    /// The page heap's record of the huge page that holds `address`; null when there is none.
    pub(crate) fn tracker(&self, address: usize) -> *mut () {
        let Some(leaf) = self.leaf(address) else { return core::ptr::null_mut() };
        leaf.huge(address).tracker.load(Ordering::Acquire)
    }

    /// Sets the page heap's record of the huge page that holds `address`.
    ///
    /// The leaf must be there: see [`ensure`](Self::ensure).
    pub(crate) fn set_tracker(&self, address: usize, tracker: *mut ()) {
        let Some(leaf) = self.leaf(address) else {
            debug_assert!(false, "the leaf of a mapped huge page exists");
            return;
        };
        leaf.huge(address).tracker.store(tracker, Ordering::Release);
    }

    /// Makes the leaves of a range, so that setting entries in it cannot fail.
    ///
    /// `false` when an address is out of the map's reach or the system has no more memory.
    pub(crate) fn ensure(&self, address: usize, len: usize) -> bool {
        debug_assert!(len > 0);
        let Some(last) = address.checked_add(len - 1) else { return false };
        (address >> LEAF_SHIFT..=last >> LEAF_SHIFT).all(|index| self.ensure_leaf(index))
    }

    fn ensure_leaf(&self, index: usize) -> bool {
        let Some(word) = self.root.get(index) else { return false };
        // A write at once, for a first read would cost a page fault of its own; a word that is not zero stays.
        if word.compare_exchange(0, 0, Ordering::Acquire, Ordering::Acquire).is_err() {
            return true;
        }
        let _growing = GROWING.lock();
        if word.load(Ordering::Acquire) != 0 {
            return true;
        }
        let leaf = if FIRST_LEAF_FREE.swap(0, Ordering::Relaxed) == 1 {
            (&raw const FIRST_LEAF).expose_provenance()
        } else {
            let Some(leaf) = new_leaf().or_else(|| RESERVED.iter().find_map(take_reserved)) else {
                return false;
            };
            leaf.as_ptr().expose_provenance()
        };
        (&raw const self.zero).expose_provenance();
        word.store(leaf.wrapping_sub((&raw const self.zero).addr()), Ordering::Release);
        true
    }

    /// Puts leaves by, so that the next call of [`ensure`](Self::ensure) for up to a gigabyte cannot fail: for memory whose
    /// address is known only when it is too late to do without it. `false` when the system has no more memory.
    pub(crate) fn reserve_leaves(&self) -> bool {
        let _growing = GROWING.lock();
        RESERVED.iter().all(|place| {
            if place.load(Ordering::Relaxed).is_null() {
                let Some(leaf) = new_leaf() else { return false };
                place.store(leaf.as_ptr(), Ordering::Relaxed);
            }
            true
        })
    }

    /// Enters a span: `pages` pages from `address` lead to it, with `class` as their class byte.
    ///
    /// The leaves must be there: see [`ensure`](Self::ensure).
    pub(crate) fn set_span(&self, address: usize, pages: usize, span: *mut Span, class: u8) {
        for page in 0..pages {
            let address = address + page * PAGE_SIZE;
            let Some(leaf) = self.leaf(address) else {
                debug_assert!(false, "the leaf of a span exists");
                return;
            };
            let index = (address >> PAGE_SHIFT) & (LEAF_PAGES - 1);
            leaf.span(address).store(span, Ordering::Release);
            leaf.classes[index].store(class, Ordering::Release);
        }
    }

    /// Removes what [`set_span`](Self::set_span) entered.
    pub(crate) fn clear_span(&self, address: usize, pages: usize) {
        self.set_span(address, pages, core::ptr::null_mut(), 0);
    }

    /// Takes the class bytes of the huge page that holds `address` away. Its small blocks miss every cache when they are freed,
    /// and its spans hand out no more: see [`is_retired`](Self::is_retired).
    pub(crate) fn retire(&self, address: usize) {
        let Some(leaf) = self.leaf(address) else { return };
        RETIRED.store(true, Ordering::Relaxed);
        let first = (address >> PAGE_SHIFT) & (LEAF_PAGES - HUGE_PAGE / PAGE_SIZE);
        for class in &leaf.classes[first..][..HUGE_PAGE / PAGE_SIZE] {
            class.store(0, Ordering::Relaxed);
        }
    }

    /// Whether `address`, in a small span of the global heap, lies in a huge page that was retired.
    #[inline]
    pub(crate) fn is_retired(&self, address: usize) -> bool {
        RETIRED.load(Ordering::Relaxed) && self.class_of(address) == 0
    }

    pub(crate) fn lock_for_fork(&self) {
        GROWING.lock_for_fork();
    }

    /// # Safety
    /// As [`Lock::unlock_after_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: handed on to the caller.
        unsafe { GROWING.unlock_after_fork() }
    }
}
