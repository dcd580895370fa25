//! The record of one mapped huge page, and intrusive lists of such records.

use super::range_tracker::RangeTracker;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
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
#[repr(C)]
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
    /// On the first and last record of a free range: its length in huge pages.
    pub(crate) range_len: u32,
    /// The number of the heap; 0 while the record belongs to none. The one field that other heaps read.
    pub(crate) owner: AtomicU32,
    /// The list that `links` is in, as its owner numbers them; `NOT_LISTED` for none.
    pub(crate) list: u16,
    /// The list that `age` is in; `NOT_LISTED` for none.
    pub(crate) age_list: u16,
    /// What the filler has counted of its free pages: backed ones, and those of a donated tail.
    pub(crate) counted_backed: u16,
    pub(crate) counted_donated: u16,
    pub(crate) tier: Tier,
    pub(crate) state: State,
    /// Its free pages are the tail of a large run that is still in use.
    pub(crate) donated: bool,
    /// The backend was told that the huge page has purged holes.
    pub(crate) holes: bool,
}

/// The number of no list.
pub(crate) const NOT_LISTED: u16 = u16::MAX;

impl Tracker {
    /// Makes `t` the record of a huge page fresh from a backend, in no structure.
    ///
    /// # Safety
    /// `t` is a record from the pool, in no map; the lock of the heap with number `owner` is held.
    pub(crate) unsafe fn init(t: *mut Self, owner: u32, base: NonNull<u8>, tier: Tier, backed: bool) {
        debug_assert!(base.as_ptr().addr().is_multiple_of(HUGE_SIZE) && owner != 0);
        // SAFETY: the caller owns the record. Another heap may still read `owner` through a stale pointer,
        // so that field is only ever accessed atomically.
        unsafe {
            (&raw mut (*t).pages).write(RangeTracker::fresh(backed));
            (&raw mut (*t).links).write(Links::NONE);
            (&raw mut (*t).age).write(Links::NONE);
            (&raw mut (*t).all).write(Links::NONE);
            (&raw mut (*t).base).write(base);
            (&raw mut (*t).range_len).write(0);
            (&raw mut (*t).list).write(NOT_LISTED);
            (&raw mut (*t).age_list).write(NOT_LISTED);
            (&raw mut (*t).counted_backed).write(0);
            (&raw mut (*t).counted_donated).write(0);
            (&raw mut (*t).tier).write(tier);
            (&raw mut (*t).state).write(State::Detached);
            (&raw mut (*t).donated).write(false);
            (&raw mut (*t).holes).write(false);
            (*t).owner.store(owner, Ordering::Relaxed);
        }
    }

    /// Clears the links of a record from the pool, so that it can be listed.
    ///
    /// # Safety
    /// `t` is a record from the pool, in no map and no list.
    pub(crate) unsafe fn clear_links(t: *mut Self) {
        // SAFETY: the caller owns the record.
        unsafe { (&raw mut (*t).links).write(Links::NONE) };
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

/// From the number of a huge page to the record that one heap keeps of it.
pub(crate) trait TrackerMap {
    /// The heap's record of the huge page with this number; null when there is none, and when the huge page is
    /// another heap's.
    fn get(&self, number: usize) -> *mut Tracker;
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

    /// The record before `t`; null at the front.
    ///
    /// # Safety
    /// `t` is a live record in this list, and the heap's lock is held.
    pub(crate) unsafe fn prev(&self, t: *mut Tracker) -> *mut Tracker {
        // SAFETY: as the caller promises.
        if t == self.head { ptr::null_mut() } else { unsafe { C::links(t) }.prev }
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

    /// Puts `new` in the place of `old`.
    ///
    /// # Safety
    /// `old` is a live record in this list, `new` one in no list of this chain; the heap's lock is held.
    pub(crate) unsafe fn replace(&mut self, old: *mut Tracker, new: *mut Tracker) {
        // SAFETY: the caller vouches for both; neighbours are live and under the same lock.
        unsafe {
            let Links { prev, next } = core::mem::replace(C::links(old), Links::NONE);
            if next == old {
                *C::links(new) = Links { prev: new, next: new };
            } else {
                *C::links(new) = Links { prev, next };
                C::links(prev).next = new;
                C::links(next).prev = new;
            }
        }
        if self.head == old {
            self.head = new;
        }
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
