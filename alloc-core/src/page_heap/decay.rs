//! How much free memory is kept, and for how long.
//!
//! Time is cut into epochs of half the delay. What lay idle through a whole epoch, which is the least that was
//! free at any moment of it, is due for release in the next; so memory goes back between half the delay and
//! the whole of it after its last use, and memory that a program keeps taking and giving back stays.
//!
//! Where time passes with the calls of the program, it stands still while the program sleeps. A gap of an epoch or
//! more between two looks at the clock therefore counts for all that is free behind it.
//!
//! Between epochs the cache of free huge pages has a limit. It grows when huge pages that were evicted over
//! the limit are missed soon after, and shrinks again to what the cache then holds.

use super::tracker::HUGE_PAGES;

/// The least limit of the cache: 4 MiB, and a part of the pages in use.
const BASE_LIMIT: usize = 2 * HUGE_PAGES;
const BASE_PART: usize = 16;
/// The limit may grow to this in any case (256 MiB), and to a quarter of the pages in use.
const GROWN_LIMIT: usize = 128 * HUGE_PAGES;
/// Backed free pages that the filler always keeps.
const FILLER_RESERVE: usize = 32;

/// The delay of a new heap: a second.
pub(crate) const DEFAULT_DELAY: u64 = 1_000_000_000;
/// The delay that means "never".
pub(crate) const NEVER: u64 = u64::MAX;

/// See the module's page. All amounts are in pages.
#[derive(Debug)]
pub(crate) struct Decay {
    /// Nanoseconds; 0 gives back at once.
    delay: u64,
    epoch_start: u64,
    started: bool,
    low_cache: usize,
    low_filler: usize,
    /// Still to be released in this epoch.
    pub(crate) due_cache: usize,
    pub(crate) due_filler: usize,
    limit: usize,
    /// Evicted over the limit in this epoch or the last, and not missed since.
    evicted: usize,
    /// The most backed pages that the cache had in this epoch.
    high_cache: usize,
    /// What is due has been so for a while: no time passed.
    overdue: bool,
}

impl Decay {
    pub(crate) const fn new() -> Self {
        Self {
            delay: DEFAULT_DELAY,
            epoch_start: 0,
            started: false,
            low_cache: 0,
            low_filler: 0,
            due_cache: 0,
            due_filler: 0,
            limit: BASE_LIMIT,
            evicted: 0,
            high_cache: 0,
            overdue: false,
        }
    }

    /// Whether something is due since before the last gap in the calls that let time pass.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue && (self.due_cache > 0 || self.due_filler > 0)
    }

    pub(crate) fn delay(&self) -> u64 {
        self.delay
    }

    pub(crate) fn set_delay(&mut self, nanos: u64) {
        self.delay = nanos;
        self.started = false;
        self.due_cache = 0;
        self.due_filler = 0;
    }

    /// The filler's backed free pages have become fewer.
    #[inline]
    pub(crate) fn note_filler(&mut self, backed: usize) {
        self.low_filler = self.low_filler.min(backed);
    }

    /// `len` huge pages were taken from the cache, whose backed pages went from `before` to `after`.
    pub(crate) fn note_taken(&mut self, len: usize, before: usize, after: usize) {
        self.low_cache = self.low_cache.min(after);
        if before == after && self.evicted > 0 {
            // Memory without pages behind it had to be taken. With a higher limit, what was evicted would
            // still be here.
            let missed = (len * HUGE_PAGES).min(self.evicted);
            self.limit += missed;
            self.evicted -= missed;
        }
    }

    /// How many pages to evict from a cache of `backed` pages, when `in_use` are handed out.
    #[inline]
    pub(crate) fn excess(&mut self, backed: usize, in_use: usize) -> usize {
        match self.delay {
            NEVER => 0,
            0 => backed,
            _ => {
                let limit = self.limit.min(GROWN_LIMIT.max(in_use / 4)).max(in_use / BASE_PART);
                self.high_cache = self.high_cache.max(backed.min(limit));
                backed.saturating_sub(limit)
            }
        }
    }

    /// Notes that pages have been evicted over the limit.
    pub(crate) fn note_evicted(&mut self, pages: usize) {
        self.evicted += pages;
    }

    /// Lets time pass, when the last look at the clock was at `before`; returns when the epoch ends that runs now.
    /// `None` when nothing is released by time.
    pub(crate) fn advance(&mut self, now: u64, before: u64, cache: usize, filler: usize) -> Option<u64> {
        if self.delay == NEVER || self.delay == 0 {
            return None;
        }
        let epoch = (self.delay / 2).max(1);
        if !self.started {
            self.started = true;
            self.epoch_start = now;
            self.low_cache = cache;
            self.low_filler = filler;
        } else if now.saturating_sub(self.epoch_start) >= epoch {
            self.epoch_start = now;
            self.overdue = now.saturating_sub(before) >= epoch;
            if self.overdue {
                (self.low_cache, self.low_filler) = (cache, filler);
            }
            self.due_cache = self.low_cache;
            self.due_filler = self.low_filler.saturating_sub(FILLER_RESERVE);
            self.low_cache = cache;
            self.low_filler = filler;
            // What the cache did not need of its limit, it loses by and by.
            let spare = self.limit - self.high_cache.max(BASE_LIMIT).min(self.limit);
            self.limit -= spare.div_ceil(4);
            self.high_cache = cache;
            self.evicted /= 2;
        }
        // What has been used since is no longer idle.
        self.due_cache = self.due_cache.min(cache);
        self.due_filler = self.due_filler.min(filler);
        Some(self.epoch_start.saturating_add(epoch))
    }
}
