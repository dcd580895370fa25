//! The names: keys, aliases from other allocators, and what is known but does nothing here.

/// A setting. The order is that of every listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "each key is documented at its field in `Settings`")]
pub enum Key {
    Backend,
    Fallback,
    Programs,
    Thp,
    Hugetlbfs,
    Lock,
    LockTime,
    LockBudget,
    ReleaseDelay,
    BackgroundThread,
    MaxTotalThreadCacheBytes,
    PercpuCache,
    SoftLimit,
    HardLimit,
    Check,
    Foreign,
    InvalidFree,
    StatsAtExit,
    StatsFile,
    StatsInterval,
    AbortConf,
    ConfirmConf,
}

impl Key {
    /// How many keys there are.
    pub const COUNT: usize = 22;

    /// All keys.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Backend,
        Self::Fallback,
        Self::Programs,
        Self::Thp,
        Self::Hugetlbfs,
        Self::Lock,
        Self::LockTime,
        Self::LockBudget,
        Self::ReleaseDelay,
        Self::BackgroundThread,
        Self::MaxTotalThreadCacheBytes,
        Self::PercpuCache,
        Self::SoftLimit,
        Self::HardLimit,
        Self::Check,
        Self::Foreign,
        Self::InvalidFree,
        Self::StatsAtExit,
        Self::StatsFile,
        Self::StatsInterval,
        Self::AbortConf,
        Self::ConfirmConf,
    ];

    /// The key's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Fallback => "fallback",
            Self::Programs => "programs",
            Self::Thp => "thp",
            Self::Hugetlbfs => "hugetlbfs",
            Self::Lock => "lock",
            Self::LockTime => "lock_time",
            Self::LockBudget => "lock_budget",
            Self::ReleaseDelay => "release_delay",
            Self::BackgroundThread => "background_thread",
            Self::MaxTotalThreadCacheBytes => "max_total_thread_cache_bytes",
            Self::PercpuCache => "percpu_cache",
            Self::SoftLimit => "soft_limit",
            Self::HardLimit => "hard_limit",
            Self::Check => "check",
            Self::Foreign => "foreign",
            Self::InvalidFree => "invalid_free",
            Self::StatsAtExit => "stats_at_exit",
            Self::StatsFile => "stats_file",
            Self::StatsInterval => "stats_interval",
            Self::AbortConf => "abort_conf",
            Self::ConfirmConf => "confirm_conf",
        }
    }
}

/// Where a value came from; later ones overrule earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A variable of gperftools; the index is into [`VARIABLES`].
    Variable(u8),
    /// `MALLOC_CONF`.
    MallocConf,
    /// The settings file.
    File,
    /// `STRATALLOC_CONF`.
    StratallocConf,
    /// The program, through an interface of ours.
    Program,
}

impl Origin {
    /// The name to print.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Variable(index) => VARIABLES.get(index as usize).map_or("environment", |v| v.name),
            Self::MallocConf => "MALLOC_CONF",
            Self::File => "/etc/stratalloc.conf",
            Self::StratallocConf => "STRATALLOC_CONF",
            Self::Program => "program",
        }
    }
}

/// How the value of an alias becomes a value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// As it stands.
    Same,
    /// Milliseconds without a unit, -1 for never (`dirty_decay_ms`).
    Millis,
    /// jemalloc's old ratio: only -1, never, has a counterpart.
    LgDirtyMult,
    /// gperftools' release rate, 0 (never) to 10 (fast).
    ReleaseRate,
    /// Mebibytes without a unit.
    Mebibytes,
    /// A true value, or a number above 0, means `text`.
    TextIfTrue,
    /// A true value means a delay of 0.
    AtOnceIfTrue,
}

/// Another allocator's name for a key.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The other name.
    pub name: &'static str,
    /// Our key.
    pub key: Key,
    /// What its value means.
    pub meaning: Meaning,
}

const fn alias(name: &'static str, key: Key, meaning: Meaning) -> Alias {
    Alias { name, key, meaning }
}

/// Names of jemalloc and gperftools, accepted beside ours.
pub const ALIASES: [Alias; 5] = [
    alias("dirty_decay_ms", Key::ReleaseDelay, Meaning::Millis),
    alias("lg_dirty_mult", Key::ReleaseDelay, Meaning::LgDirtyMult),
    alias("release_rate", Key::ReleaseDelay, Meaning::ReleaseRate),
    alias("stats_print", Key::StatsAtExit, Meaning::TextIfTrue),
    alias("heap_limit_mb", Key::HardLimit, Meaning::Mebibytes),
];

/// Variables of gperftools.
pub const VARIABLES: [Alias; 5] = [
    alias("TCMALLOC_RELEASE_RATE", Key::ReleaseDelay, Meaning::ReleaseRate),
    alias("TCMALLOC_AGGRESSIVE_DECOMMIT", Key::ReleaseDelay, Meaning::AtOnceIfTrue),
    alias("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", Key::MaxTotalThreadCacheBytes, Meaning::Same),
    alias("TCMALLOC_HEAP_LIMIT_MB", Key::HardLimit, Meaning::Mebibytes),
    alias("MALLOCSTATS", Key::StatsAtExit, Meaning::TextIfTrue),
];

/// Keys of jemalloc that have no counterpart: accepted, so that a line written for it stays whole.
pub const WITHOUT_EFFECT: [&str; 34] = [
    "abort",
    "cache_oblivious",
    "dss",
    "experimental_hpa_max_purge_nhp",
    "hpa",
    "hpa_dirty_mult",
    "hpa_slab_max_alloc",
    "junk",
    "lg_chunk",
    "lg_extent_max_active_fit",
    "lg_tcache_max",
    "lg_tcache_nslots_mul",
    "max_background_threads",
    "metadata_thp",
    "mutex_max_spin",
    "muzzy_decay_ms",
    "narenas",
    "oversize_threshold",
    "percpu_arena",
    "prof",
    "prof_accum",
    "prof_active",
    "prof_final",
    "prof_gdump",
    "prof_leak",
    "prof_prefix",
    "lg_prof_interval",
    "lg_prof_sample",
    "retain",
    "tcache",
    "tcache_max",
    "utrace",
    "xmalloc",
    "zero",
];

/// What a word on the left of a colon stands for.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// A key of ours, or an alias of one.
    Key(Key, Meaning),
    /// Known elsewhere, without effect here.
    WithoutEffect,
    /// Nothing.
    Unknown,
}

/// Looks a word up.
pub fn look_up(word: &[u8]) -> Word {
    if let Some(key) = Key::ALL.into_iter().find(|k| k.name().as_bytes() == word) {
        return Word::Key(key, Meaning::Same);
    }
    if let Some(alias) = ALIASES.iter().find(|a| a.name.as_bytes() == word) {
        return Word::Key(alias.key, alias.meaning);
    }
    if WITHOUT_EFFECT.iter().any(|name| name.as_bytes() == word) {
        Word::WithoutEffect
    } else {
        Word::Unknown
    }
}

/// The key or alias that a misspelled word is nearest to, if one is near.
pub fn nearest_key(word: &[u8]) -> Option<&'static str> {
    let names = Key::ALL.iter().map(|k| k.name()).chain(ALIASES.iter().map(|a| a.name));
    nearest(word, names)
}

/// The variable that our settings stand in.
pub const OUR_VARIABLE: &str = "STRATALLOC_CONF";

/// Whether a variable's name is ours with up to three mistakes in it, letter case aside, but not ours.
pub fn is_near_our_variable(name: &[u8]) -> bool {
    const HEAD: usize = 5;
    let ours = OUR_VARIABLE.as_bytes();
    let heads_agree = match (name.get(..HEAD), ours.get(..HEAD)) {
        (Some(head), Some(our_head)) => head.eq_ignore_ascii_case(our_head),
        _ => false,
    };
    heads_agree && name != ours && edit_distance(name, ours) <= 3
}

/// Longest word that is compared.
const LONGEST: usize = 40;

/// The candidate with the smallest edit distance, if at most a third of the word has to change.
#[cold]
pub fn nearest(word: &[u8], candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let mut best = None;
    let mut least = (word.len() / 3).max(1) + 1;
    for candidate in candidates {
        let distance = edit_distance(word, candidate.as_bytes());
        if distance < least {
            (best, least) = (Some(candidate), distance);
        }
    }
    best
}

/// Insertions, deletions and changes that turn one word into the other, letter case aside; `usize::MAX` for
/// words that are too long to be a misspelling.
#[cold]
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    // `row[j]` is the distance of the part of `a` seen so far to the first `j` bytes of `b`.
    let mut row = [0usize; LONGEST + 1];
    for (j, cell) in row.iter_mut().enumerate() {
        *cell = j;
    }
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut cells = row.iter_mut();
        if let Some(first) = cells.next() {
            *first = left;
        }
        for (cell, y) in cells.zip(b) {
            let changed = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = *cell;
            left = changed.min(*cell + 1).min(left + 1);
            *cell = left;
        }
    }
    row.get(b.len()).copied().unwrap_or(usize::MAX)
}
