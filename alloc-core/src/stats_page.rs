//! The page that a tool reads from outside: a snapshot at a place that an ELF note points to.
//!
//! The core publishes at slow moments, so the page costs the fast path nothing. Pages, spans and central
//! lists change on slow paths alone, so what the page says of them is at most [`INTERVAL_NS`] of activity
//! behind (more with thousands of threads, see [`tick`]), however old it is. What moves between a program and its
//! thread's cache alone is counted as it was at the last publication. Readers print the age. Only one thread of the process writes at a time, and nothing waits: a publisher
//! that finds another at work leaves. Readers are other processes; they copy the page, and the sequence
//! word tells them whether a writer was at work meanwhile.
//!
//! The page lives in zeroed memory and costs nothing before the first publication. The note, in an
//! allocated section, holds the distance from itself to the page, so that it is found in the target's
//! memory by way of the program headers, with no symbol and no file.

use crate::snapshot::{Name, Snapshot};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use page_backend::sys;

/// First bytes of a page that has been published.
pub const MAGIC: u64 = u64::from_le_bytes(*b"strastat");

/// Version of the layout of [`StatsPage`] and of all that is in it. A reader of another version stops.
pub const LAYOUT: u32 = 2;

/// The owner name in the ELF note, with its terminating zero.
pub const NOTE_OWNER: &[u8; 11] = b"stratalloc\0";

/// The type of the ELF note.
pub const NOTE_TYPE: u32 = 1;

/// Bytes of the note's content: distance from the content to the page (i64), layout version (u32), size of
/// the page in bytes (u32).
pub const NOTE_SIZE: usize = 16;

/// Least nanoseconds between two publications by [`tick`].
pub const INTERVAL_NS: u64 = 5_000_000;

/// Publishing may take one part in so many of a thread's time.
const SHARE: u64 = 500;

/// The head of the page; a reader checks it before it believes the rest.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`] once something has been published, 0 before.
    pub magic: AtomicU64,
    /// [`LAYOUT`].
    pub layout: AtomicU32,
    /// Size of the whole page in bytes.
    pub size: AtomicU32,
    /// Odd while a writer is at work; changes with each publication.
    pub sequence: AtomicU32,
    /// Process id of the writer at work, in its own pid namespace; 0 when there is none.
    writer: AtomicU32,
    /// Process id of the last writer, in its own pid namespace. In the child of a fork that has not published
    /// yet this is the parent.
    pub pid: AtomicU32,
    _reserved: u32,
    /// CLOCK_MONOTONIC at the last publication, in nanoseconds.
    pub published: AtomicU64,
    /// Publications so far.
    pub count: AtomicU64,
}

/// A snapshot where other processes find it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StatsPage {
    /// Who wrote it, when, and whether it is whole.
    pub header: Header,
    /// Version of the crate.
    pub version: UnsafeCell<Name>,
    /// The accounts and counters.
    pub snapshot: UnsafeCell<Snapshot>,
}

// SAFETY: the cells are touched only by the holder of `header.writer`, which is taken by compare and
// exchange; readers are other processes.
unsafe impl Sync for StatsPage {}

#[unsafe(link_section = ".bss.tables")]
static PAGE: StatsPage = StatsPage {
    header: Header {
        magic: AtomicU64::new(0),
        layout: AtomicU32::new(0),
        size: AtomicU32::new(0),
        sequence: AtomicU32::new(0),
        writer: AtomicU32::new(0),
        pid: AtomicU32::new(0),
        _reserved: 0,
        published: AtomicU64::new(0),
        count: AtomicU64::new(0),
    },
    version: UnsafeCell::new(Name { bytes: [0; 24] }),
    snapshot: UnsafeCell::new(Snapshot::EMPTY),
};

/// CLOCK_MONOTONIC of the next publication by [`tick`], in nanoseconds.
static DUE: AtomicU64 = AtomicU64::new(0);

/// Called with each snapshot that [`tick`] publishes; null for nobody.
static OBSERVER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sees a fresh snapshot and the time of its publication (CLOCK_MONOTONIC, nanoseconds).
pub type Observer = fn(&Snapshot, u64);

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
core::arch::global_asm!(
    ".pushsection .note.stratalloc, \"a\", %note",
    ".balign 4",
    ".long 11",
    ".long {note_size}",
    ".long {note_type}",
    ".asciz \"stratalloc\"",
    ".balign 4",
    ".quad {page} - .",
    ".long {layout}",
    ".long {page_size}",
    ".popsection",
    note_size = const NOTE_SIZE,
    note_type = const NOTE_TYPE,
    page = sym PAGE,
    layout = const LAYOUT,
    page_size = const size_of::<StatsPage>(),
);

/// The right to publish, of one thread of the process at a time; given back when dropped.
#[derive(Debug)]
pub struct Publisher {
    pid: u32,
}

impl Publisher {
    /// Takes the right; `None` when another thread has it, or this one in an outer call (a signal handler).
    pub fn take() -> Option<Self> {
        let writer = &PAGE.header.writer;
        let pid = sys::getpid().unsigned_abs();
        let taken = |expected| writer.compare_exchange(expected, pid, Ordering::Acquire, Ordering::Relaxed);
        match taken(0) {
            Ok(_) => Some(Self { pid }),
            // A fork may have copied the page from under a writer, which does not exist on this side.
            Err(holder) if holder != pid => taken(holder).ok().map(|_| Self { pid }),
            Err(_) => None,
        }
    }

    /// Has `fill` fill in the page's snapshot, which it gets empty, and publishes it.
    ///
    /// Returns it, and the time in nanoseconds of CLOCK_MONOTONIC. The caller holds no lock that `fill` takes.
    pub fn publish(&mut self, fill: impl FnOnce(&mut Snapshot)) -> (&Snapshot, u64) {
        let header = &PAGE.header;
        let now = sys::clock_monotonic();
        let odd = header.sequence.load(Ordering::Relaxed) | 1;
        header.sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        // SAFETY: `self` is the one right to touch the cells in this process.
        let (version, snapshot) = unsafe { (&mut *PAGE.version.get(), &mut *PAGE.snapshot.get()) };
        *version = Name::new(env!("CARGO_PKG_VERSION"));
        snapshot.clear();
        fill(snapshot);
        header.layout.store(LAYOUT, Ordering::Relaxed);
        header.size.store(size_of::<StatsPage>() as u32, Ordering::Relaxed);
        header.pid.store(self.pid, Ordering::Relaxed);
        header.published.store(now, Ordering::Relaxed);
        header.count.fetch_add(1, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.sequence.store(odd.wrapping_add(1), Ordering::Release);
        (snapshot, now)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        PAGE.header.writer.store(0, Ordering::Release);
    }
}

/// Publishes a snapshot; false, with nothing called, when [`Publisher::take`] gives nothing.
pub fn publish(fill: impl FnOnce(&mut Snapshot)) -> bool {
    let Some(mut publisher) = Publisher::take() else { return false };
    publisher.publish(fill);
    true
}

/// Publishes if it is time again, at most 1/500 of the time, and shows the snapshot to the observer.
///
/// `now` is CLOCK_MONOTONIC in nanoseconds. Made for slow paths: one load when it is too early. The first call
/// only starts the clock, so that short-lived processes pay nothing. The caller holds no lock, because `fill`
/// takes some and the observer may write a file.
#[inline]
pub fn tick(now: u64, fill: impl FnOnce(&mut Snapshot)) {
    let due = DUE.load(Ordering::Relaxed);
    if now >= due {
        DUE.store(now.saturating_add(INTERVAL_NS), Ordering::Relaxed);
        if due != 0 {
            // `now` may be of the coarse clock, which is no measure.
            let start = sys::clock_monotonic();
            if let Some(mut publisher) = Publisher::take() {
                let (snapshot, published) = publisher.publish(fill);
                observe(snapshot, published);
            }
            let cost = sys::clock_monotonic().saturating_sub(start);
            let pause = cost.saturating_mul(SHARE).clamp(INTERVAL_NS, 10_000_000_000);
            DUE.store(now.saturating_add(pause), Ordering::Relaxed);
        }
    }
}

/// Makes the next call of [`tick`] the first.
pub(crate) fn begin_anew() {
    DUE.store(0, Ordering::Relaxed);
}

fn observe(snapshot: &Snapshot, now: u64) {
    let observer = OBSERVER.load(Ordering::Acquire);
    if !observer.is_null() {
        // SAFETY: only `set_observer` stores here, and it stores an `Observer`.
        let observer: Observer = unsafe { core::mem::transmute(observer) };
        observer(snapshot, now);
    }
}

/// Sets who sees each snapshot that [`tick`] publishes.
///
/// The observer runs inside allocations and frees: it must not allocate, lock, or unwind.
pub fn set_observer(observer: Observer) {
    OBSERVER.store(observer as *mut (), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, because the page is one to a process.
    #[test]
    fn publications_are_whole_and_never_wait() {
        let sequence = || PAGE.header.sequence.load(Ordering::Relaxed);
        assert_eq!((sequence(), PAGE.header.magic.load(Ordering::Relaxed)), (0, 0));

        let mut publisher = Publisher::take().unwrap();
        let (snapshot, _) = publisher.publish(|s| {
            assert_eq!(*s, Snapshot::EMPTY);
            assert_eq!(sequence() % 2, 1);
            s.soft_limit = 7;
            assert!(!publish(|_| unreachable!("a nested publication must leave")));
        });
        assert_eq!((snapshot.soft_limit, sequence()), (7, 2));
        assert!(!publish(|_| unreachable!("the right is still taken")));
        drop(publisher);
        assert_eq!(PAGE.header.magic.load(Ordering::Relaxed), MAGIC);
        assert_eq!(PAGE.header.pid.load(Ordering::Relaxed), std::process::id());

        // As a fork leaves it when another thread was writing.
        PAGE.header.writer.store(u32::MAX, Ordering::Relaxed);
        PAGE.header.sequence.store(5, Ordering::Relaxed);
        assert!(publish(|_| {}));
        assert_eq!((sequence(), PAGE.header.writer.load(Ordering::Relaxed)), (6, 0));

        static SHOWN: AtomicU64 = AtomicU64::new(0);
        set_observer(|s, now| {
            assert!(now > 0);
            SHOWN.store(s.hard_limit, Ordering::Relaxed);
        });
        tick(1000, |_| unreachable!("the first call starts the clock"));
        tick(1000 + INTERVAL_NS - 1, |_| unreachable!("too early"));
        tick(1000 + INTERVAL_NS, |s| s.hard_limit = 9);
        assert_eq!(SHOWN.load(Ordering::Relaxed), 9);
    }

    #[test]
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    fn the_note_in_this_very_process_points_to_the_page() {
        unsafe extern "C" fn visit(
            info: *mut libc::dl_phdr_info,
            _: libc::size_t,
            found: *mut libc::c_void,
        ) -> libc::c_int {
            // SAFETY: the loader passes a valid record with valid program headers; notes are mapped memory;
            // `found` is the pointer given below.
            unsafe {
                let info = &*info;
                for i in 0..info.dlpi_phnum {
                    let header = &*info.dlpi_phdr.add(i as usize);
                    if header.p_type == libc::PT_NOTE {
                        let start = (info.dlpi_addr + header.p_vaddr) as *const u8;
                        let bytes = core::slice::from_raw_parts(start, header.p_memsz as usize);
                        if let Some(at) = bytes.windows(11).position(|w| w == NOTE_OWNER) {
                            let content = at + 12;
                            let distance =
                                i64::from_le_bytes(bytes[content..content + 8].try_into().unwrap());
                            let size =
                                u32::from_le_bytes(bytes[content + 12..content + 16].try_into().unwrap());
                            assert_eq!(size as usize, size_of::<StatsPage>());
                            *found.cast() =
                                start.addr().wrapping_add(content).wrapping_add(distance as usize);
                        }
                    }
                }
            }
            0
        }
        let mut found = 0usize;
        // SAFETY: `visit` has the right type and `found` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
        assert_eq!(found, (&raw const PAGE).addr());
    }
}
