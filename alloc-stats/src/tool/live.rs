//! A consistent copy of a live process's stats page.

use crate::elf::{self, Note};
use crate::error::Error;
use crate::target::Target;
use alloc_core::snapshot::Snapshot;
use alloc_core::stats_page::{LAYOUT, MAGIC, StatsPage};
use page_backend::sys;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

/// Attempts to find no writer at work, and the pause between two.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(200);

/// The copy, and where it came from.
pub(crate) struct Live {
    page: Box<StatsPage>,
    object: String,
}

impl Live {
    /// Reads the page of a process.
    pub(crate) fn read(pid: u32) -> Result<Self, Error> {
        let mut target = Target::new(pid);
        // Of several copies in one process the one that publishes counts: a library and an executable, but also
        // an object's file mapped as data, as backtraces do, where the note leads nowhere.
        let mut best = Error::NotOnStratalloc(pid);
        for object in target.objects()? {
            if let Some(note) = elf::find(&mut target, &object)? {
                match Self::read_page(&mut target, note) {
                    Ok(page) => return Ok(Self { page, object: object.path }),
                    Err(error @ (Error::NoProcess(_) | Error::NoPermission(_))) => return Err(error),
                    Err(error) if error.knows_more_than(&best) => best = error,
                    Err(_) => {}
                }
            }
        }
        Err(best)
    }

    fn read_page(target: &mut Target, note: Note) -> Result<Box<StatsPage>, Error> {
        let pid = target.pid();
        if note.layout != LAYOUT || note.size as usize != size_of::<StatsPage>() {
            return Err(Error::OtherLayout { pid, theirs: note.layout, ours: LAYOUT });
        }
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                thread::sleep(PAUSE);
            }
            let page = match copy(target, note.page) {
                Err(Error::Io(_)) => return Err(Error::NotOnStratalloc(pid)),
                result => result?,
            };
            let header = &page.header;
            match header.magic.load(Relaxed) {
                MAGIC => {}
                0 => return Err(Error::NothingPublished(pid)),
                _ => return Err(Error::NotOnStratalloc(pid)),
            }
            let sequence = header.sequence.load(Relaxed);
            if sequence % 2 == 0 && copy(target, note.page)?.header.sequence.load(Relaxed) == sequence {
                let layout = header.layout.load(Relaxed);
                if layout != LAYOUT || header.size.load(Relaxed) != note.size {
                    return Err(Error::OtherLayout { pid, theirs: layout, ours: LAYOUT });
                }
                let writer = header.pid.load(Relaxed);
                if writer != target.own_pid()? {
                    return Err(Error::OnlyParents { pid, parent: writer });
                }
                return Ok(page);
            }
        }
        Err(Error::Busy(pid))
    }

    /// The object that the allocator is part of.
    pub(crate) fn object(&self) -> &str {
        &self.object
    }

    /// The version that the process runs.
    pub(crate) fn version(&self) -> &str {
        // SAFETY: the page is a private copy that nothing writes any more.
        unsafe { &*self.page.version.get() }.as_str()
    }

    /// The numbers.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        // SAFETY: as above.
        unsafe { &*self.page.snapshot.get() }
    }

    /// How old they are.
    pub(crate) fn age_ms(&self) -> u64 {
        sys::clock_monotonic().saturating_sub(self.page.header.published.load(Relaxed)) / 1_000_000
    }
}

fn copy(target: &mut Target, address: u64) -> Result<Box<StatsPage>, Error> {
    let mut page = Box::new(MaybeUninit::<StatsPage>::zeroed());
    let start = page.as_mut_ptr().cast::<u8>();
    // SAFETY: the box holds that many bytes, all initialised to zero, and nobody else has it.
    target.read(address, unsafe { std::slice::from_raw_parts_mut(start, size_of::<StatsPage>()) })?;
    // SAFETY: the page is made of integers, for which all bytes are valid.
    Ok(unsafe { Box::from_raw(Box::into_raw(page).cast()) })
}
