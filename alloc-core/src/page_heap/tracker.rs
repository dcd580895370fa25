//! The record of one mapped huge page, and intrusive lists of such records.

use super::range_tracker::RangeTracker;
use core::ptr::{self, NonNull};
use page_backend::Tier;
use size_classes::PAGE_SIZE;

/// Base-2 logarithm of the size of a huge page.
pub(crate) const HUGE_SHIFT: u32 = 21;
/// Bytes in a huge page.
pub(crate) const HUGE_SIZE: usize = 1 << HUGE_SHIFT;
/// Allocator pages in a huge page.
pub(crate) const HUGE_PAGES: usize = HUGE_SIZE / PAGE_SIZE;

const _: () = assert!(HUGE_PAGES == super::bits::BITS);

/// Where a huge page stands; changed under the heap's lock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// In no structure: being mapped, released or moved by a thread that has dropped the lock.
    Detached,
    /// Has used pages: belongs to the filler, which lists it while it has free ones.
    Shared,
    /// Part of a range of wholly free huge pages.
    Free,
    /// Stands for a giant run of its own: the record of its first huge page is the only one.
    Giant,
}

/// The links of one intrusive list.
#[derive(Debug)]
pub(crate) struct Links {
    prev: *mut Tracker,
    next: *mut Tracker,
}

impl Links {
    const NONE: Self = Self { prev: ptr::null_mut(), next: ptr::null_mut() };
}

/// The record of one mapped huge page. Lives in type-stable memory, reached through the tracker map.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(crate) pages: RangeTracker,
    /// The filler's list or the bin of free ranges.
    pub(crate) links: Links,
    /// The filler's list of huge pages with backed free pages, or the ages of free ranges.
    pub(crate) age: Links,
    /// All huge pages of the heap.
    pub(crate) all: Links,
    /// First byte of the huge page.
    pub(crate) base: NonNull<u8>,
    /// On the first and last record of a free range: its length in huge pages. On a giant: its length.
    pub(crate) range_len: u32,
    /// The list that `links` is in, as its owner numbers them; `NOT_LISTED` for none.
    pub(crate) list: u16,
    /// The list that `age` is in; `NOT_LISTED` for none.
    pub(crate) age_list: u16,
    pub(crate) tier: Tier,
    pub(crate) state: State,
    /// Its free pages are the tail of a large run that is still in use.
    pub(crate) donated: bool,
}

/// The number of no list.
pub(crate) const NOT_LISTED: u16 = u16::MAX;

impl Tracker {
    /// The record of a huge page fresh from a backend, in no structure.
    pub(crate) fn new(base: NonNull<u8>, tier: Tier, backed: bool) -> Self {
        debug_assert!(base.as_ptr().addr().is_multiple_of(HUGE_SIZE));
        Self {
            pages: RangeTracker::fresh(backed),
            links: Links::NONE,
            age: Links::NONE,
            all: Links::NONE,
            base,
            range_len: 0,
            list: NOT_LISTED,
            age_list: NOT_LISTED,
            tier,
            state: State::Detached,
            donated: false,
        }
    }

    /// The number of the huge page: its address over 2 MiB.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.base.as_ptr().addr() >> HUGE_SHIFT
    }

    /// The address of page `pos`.
    #[inline]
    pub(crate) fn page(&self, pos: usize) -> NonNull<u8> {
        debug_assert!(pos < HUGE_PAGES);
        // SAFETY: the page lies in the mapped huge page that begins at `base`.
        unsafe { self.base.add(pos * PAGE_SIZE) }
    }
}

/// From the number of a huge page to its record.
///
/// A record is entered by the heap that mapped the huge page, under that heap's lock, and removed before the
/// huge page is unmapped.
pub(crate) trait TrackerMap {
    /// The record of the huge page with this number; null when there is none.
    fn get(&self, number: usize) -> *mut Tracker;

    /// Makes sure that `set` can be called for `count` huge pages from `number` on; may take memory.
    fn reserve(&self, number: usize, count: usize) -> bool;

    /// Enters or (null) removes a record. The place must have been reserved.
    fn set(&self, number: usize, tracker: *mut Tracker);
}

/// Which of its links a list uses.
pub(crate) trait Chain {
    /// # Safety
    /// `t` points to a live record that nobody else accesses: the heap's lock is held.
    unsafe fn links<'a>(t: *mut Tracker) -> &'a mut Links;
}

macro_rules! chain {
    ($(#[$doc:meta])* $name:ident, $field:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;
        impl Chain for $name {
            #[inline]
            unsafe fn links<'a>(t: *mut Tracker) -> &'a mut Links {
                // SAFETY: the caller vouches for the record.
                unsafe { &mut (*t).$field }
            }
        }
    };
}

chain!(
    /// Lists through [`Tracker::links`].
    ByLinks, links
);
chain!(
    /// Lists through [`Tracker::age`].
    ByAge, age
);
chain!(
    /// Lists through [`Tracker::all`].
    ByAll, all
);

/// A ring of records, newest first; one word when it is empty.
#[derive(Debug)]
pub(crate) struct List<C> {
    head: *mut Tracker,
    chain: core::marker::PhantomData<C>,
}

impl<C: Chain> List<C> {
    pub(crate) const EMPTY: Self = Self { head: ptr::null_mut(), chain: core::marker::PhantomData };

    /// The newest record; null when there is none.
    #[inline]
    pub(crate) fn head(&self) -> *mut Tracker {
        self.head
    }

    /// The oldest record; null when there is none.
    ///
    /// # Safety
    /// The heap's lock is held.
    #[inline]
    pub(crate) unsafe fn tail(&self) -> *mut Tracker {
        if self.head.is_null() {
            return self.head;
        }
        // SAFETY: records in the list are live; the caller holds the lock.
        unsafe { C::links(self.head) }.prev
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// The record behind `t`; null at the end.
    ///
    /// # Safety
    /// `t` is a live record in this list, and the heap's lock is held.
    #[inline]
    pub(crate) unsafe fn next(&self, t: *mut Tracker) -> *mut Tracker {
        // SAFETY: as the caller promises.
        let next = unsafe { C::links(t) }.next;
        if next == self.head { ptr::null_mut() } else { next }
    }

    /// Puts `t` at the front.
    ///
    /// # Safety
    /// `t` is a live record in no list of this chain, and the heap's lock is held.
    #[inline]
    pub(crate) unsafe fn push(&mut self, t: *mut Tracker) {
        // SAFETY: the caller vouches for `t`; records in the list are live and under the same lock.
        unsafe {
            debug_assert!(C::links(t).next.is_null());
            if self.head.is_null() {
                *C::links(t) = Links { prev: t, next: t };
            } else {
                let last = C::links(self.head).prev;
                *C::links(t) = Links { prev: last, next: self.head };
                C::links(self.head).prev = t;
                C::links(last).next = t;
            }
        }
        self.head = t;
    }

    /// Takes `t` out.
    ///
    /// # Safety
    /// `t` is a live record in this list, and the heap's lock is held.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, t: *mut Tracker) {
        debug_assert!(!self.head.is_null());
        // SAFETY: the caller vouches for `t`; its neighbours are live and under the same lock.
        unsafe {
            let Links { prev, next } = core::mem::replace(C::links(t), Links::NONE);
            if next == t {
                debug_assert!(self.head == t);
                self.head = ptr::null_mut();
                return;
            }
            C::links(prev).next = next;
            C::links(next).prev = prev;
            if self.head == t {
                self.head = next;
            }
        }
    }
}
