//! What a user can set: the keys, their grammar and their values.
//!
//! `STRATALLOC_CONF="key:value,key:value"` rules; below it comes the [`mod@file`]; `MALLOC_CONF` is read when our variable is
//! not set; gperftools' variables come last. A bad pair costs one line on standard error and nothing else: the rest
//! still applies. Parsing is pure; only [`environment`] and [`mod@file`] look at the system.

pub mod chain;
pub mod environment;
pub mod file;
pub mod keys;
mod pages;
pub mod parse;
pub mod show;
pub mod text;
pub mod value;

pub use chain::{Chain, Link, Pages};
pub use keys::{Key, Origin};
pub(crate) use parse::apply;
pub use parse::{Problem, ProblemKind, parse};
pub use text::Text;

/// Declares an enum whose values are words in the settings.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// The words, in the order of [`Self::ALL`].
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            /// The values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for this value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

choice! {
    /// What happens when the backend's chain is exhausted.
    Fallback {
        /// Go on with plain 4K pages; one line for the first time of each reason.
        Warn = "warn",
        /// Go on with plain 4K pages; only counted.
        Silent = "silent",
        /// Refuse: the request fails with ENOMEM.
        Never = "never",
    }
}

choice! {
    /// What to do about transparent huge pages on memory from mmap.
    Thp {
        /// Leave it to the system's policy.
        Default = "default",
        /// Ask for small pages.
        Never = "never",
        /// Ask for huge pages.
        Madvise = "madvise",
        /// Ask for huge pages and collapse well-used ranges.
        Collapse = "collapse",
    }
}

choice! {
    /// How much the heap checks on each free.
    Check {
        /// What costs nothing on the fast path.
        Off = "off",
        /// Every free at once, at the price of speed.
        Full = "full",
    }
}

choice! {
    /// What to do about a pointer that should not have come.
    Policy {
        /// Leave it alone and write one line with its address.
        Report = "report",
        /// Leave it alone and only count it.
        Ignore = "ignore",
        /// Write the line and abort.
        Abort = "abort",
    }
}

choice! {
    /// What to do when memory cannot be locked.
    LockMode {
        /// Go on unlocked; one line and a counter.
        Fallback = "fallback",
        /// Refuse: the request fails with ENOMEM, or the next link of the chain is taken.
        Strict = "strict",
    }
}

choice! {
    /// When memory that is to be locked is taken from the system.
    LockTime {
        /// Each page when the program first touches it; from then on it stays.
        Touch = "touch",
        /// All of a run when it is mapped, so that no later touch can fault.
        Map = "map",
    }
}

choice! {
    /// Whose caches of free objects are used.
    PerCpu {
        /// Each thread's while there are few threads, the CPUs' when there are many.
        Auto = "auto",
        /// The CPUs', where kernel and libc allow it.
        Always = "true",
        /// Each thread's.
        Never = "false",
    }
}

choice! {
    /// How statistics are written.
    Format {
        /// Not at all.
        Off = "off",
        /// For people.
        Text = "text",
        /// JSON.
        Json = "json",
        /// The text format of Prometheus.
        Prom = "prom",
    }
}

/// How long freed memory is kept before it goes back to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Milliseconds; 0 gives back at once.
    Millis(u32),
    /// For ever, until someone asks.
    Never,
}

/// Most bytes of a path in the settings.
pub const PATH_LEN: usize = 240;
/// Most bytes of the list of programs.
pub const PROGRAMS_LEN: usize = 160;

/// All settings of a process, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which pages to use, in order of preference.
    pub backend: Chain,
    /// What happens behind the end of the chain.
    pub fallback: Fallback,
    /// Executables that get the chain, the locks and the outputs; all others get plain 4K. Empty for all.
    pub programs: Text<PROGRAMS_LEN>,
    /// Transparent huge pages.
    pub thp: Thp,
    /// Mount point of hugetlbfs to take huge pages from; empty for anonymous ones.
    pub hugetlbfs: Text<PATH_LEN>,
    /// What to do when memory cannot be locked.
    pub lock: LockMode,
    /// When locked memory is taken.
    pub lock_time: LockTime,
    /// Most bytes to lock; 0 for no bound but RLIMIT_MEMLOCK.
    pub lock_budget: u64,
    /// How long freed pages are kept.
    pub release_delay: Delay,
    /// Whether a helper thread releases memory while the program idles.
    pub background_thread: bool,
    /// Bytes that all threads' caches together may hold.
    pub max_total_thread_cache_bytes: u64,
    /// Whether caches are per CPU or per thread.
    pub percpu_cache: PerCpu,
    /// Heap size in bytes above which memory is released eagerly; 0 for none.
    pub soft_limit: u64,
    /// Heap size in bytes above which requests fail; 0 for none.
    pub hard_limit: u64,
    /// How much to check.
    pub check: Check,
    /// Frees of pointers that are not ours.
    pub foreign: Policy,
    /// Double frees and frees into the middle of a block.
    pub invalid_free: Policy,
    /// Statistics on standard error when the process exits.
    pub stats_at_exit: Format,
    /// File that statistics are written to; empty for none. `.prom` and `.json` choose the format, `%p` is
    /// the process id.
    pub stats_file: Text<PATH_LEN>,
    /// Milliseconds between two writes of `stats_file`; 0 for one write at exit alone.
    pub stats_interval: u32,
    /// Abort when a setting is bad.
    pub abort_conf: bool,
    /// Print every value and where it came from.
    pub confirm_conf: bool,
    /// Whether `programs` excludes this process; set by [`Settings::restrict_to`].
    pub excluded: bool,
    /// Where each value came from; the index is the [`Key`].
    pub origins: [Origin; Key::COUNT],
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Settings {
    /// What holds when nothing is set.
    pub const DEFAULT: Self = Self {
        backend: Chain::SMALL,
        fallback: Fallback::Warn,
        programs: Text::EMPTY,
        thp: Thp::Default,
        hugetlbfs: Text::EMPTY,
        lock: LockMode::Fallback,
        lock_time: LockTime::Touch,
        lock_budget: 0,
        release_delay: Delay::Millis(value::DEFAULT_DELAY_MS),
        background_thread: false,
        max_total_thread_cache_bytes: 32 << 20,
        percpu_cache: PerCpu::Auto,
        soft_limit: 0,
        hard_limit: 0,
        check: Check::Off,
        foreign: Policy::Report,
        invalid_free: Policy::Report,
        stats_at_exit: Format::Off,
        stats_file: Text::EMPTY,
        stats_interval: 0,
        abort_conf: false,
        confirm_conf: false,
        excluded: false,
        origins: [Origin::Default; Key::COUNT],
    };

    /// Where the value of `key` came from.
    pub fn origin(&self, key: Key) -> Origin {
        self.origins.get(key as usize).copied().unwrap_or(Origin::Default)
    }

    /// Whether `programs` names this process: by its executable (the last part of the path counts), or by its command
    /// name, which is that of a symbolic link to the executable and cut to 15 bytes. An empty list names all.
    pub fn names_program(&self, executable: &[u8], command: &[u8]) -> bool {
        self.programs.is_empty() || names(self.programs.as_bytes(), executable, command)
    }

    /// Falls back to plain 4K pages, unlocked, and no outputs, if `programs` does not name this process.
    #[cold]
    pub fn restrict_to(&mut self, executable: &[u8], command: &[u8]) {
        self.excluded = !self.names_program(executable, command);
        if self.excluded {
            self.backend = Chain::SMALL;
            self.stats_at_exit = Format::Off;
            self.stats_file = Text::EMPTY;
        }
    }
}

/// Whether a list of names, separated by `|`, has a process's executable or command name in it.
#[cold]
fn names(list: &[u8], executable: &[u8], command: &[u8]) -> bool {
    let name = executable.rsplit(|&b| b == b'/').next().unwrap_or(executable);
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    list.split(|&b| b == b'|')
        .map(<[u8]>::trim_ascii)
        .any(|p| p == name || p == command || (command.len() == 15 && p.starts_with(command)))
}

#[cfg(test)]
mod tests;
