//! From text to settings. Pure: no system calls, no panics, no memory but its arguments.

use super::keys::{self, Key, Meaning, Origin, Word};
use super::value::{self, ValueError, expected};
use super::{Chain, Check, Delay, Fallback, Format, LockMode, LockTime, PerCpu, Policy, Settings, Text, Thp};

/// What is wrong with a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// There is no such key.
    UnknownKey,
    /// A word without a colon.
    NoColon,
    /// A variable of the environment whose name looks like a misspelling of ours.
    UnknownVariable,
    /// The settings file is there and cannot be read.
    Unreadable,
    /// A line of the settings file is too long; it is skipped whole.
    LongLine,
    /// The settings file is too long; the lines that end before the limit apply.
    LongFile,
    /// A section of the settings file without names; its lines are skipped.
    BadSection,
    /// The value does not fit the key.
    BadValue(Key),
    /// Nothing is wrong: a key of another allocator that has no effect here.
    WithoutEffect,
}

/// A pair that was not applied, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem<'a> {
    /// What is wrong.
    pub kind: ProblemKind,
    /// Where the text came from.
    pub origin: Origin,
    /// Line of the settings file, counted from 1; 0 for a variable, which has no lines.
    pub line: usize,
    /// Column of the trouble, in bytes, counted from 1.
    pub column: usize,
    /// The whole key, word or value.
    pub word: &'a [u8],
    /// What would have been right; empty for an unknown key.
    pub expected: &'static str,
    /// The word that was probably meant.
    pub nearest: Option<&'static str>,
}

/// Reads `key:value,key:value` into `settings`; what is wrong is reported and skipped, the rest applies.
///
/// Blanks around keys, values and pairs are skipped, as are empty pairs. Words without a colon directly behind
/// `programs:` are further programs. A later pair overrules an earlier one.
#[cold]
pub fn parse<'a>(
    settings: &mut Settings,
    text: &'a [u8],
    origin: Origin,
    report: &mut dyn FnMut(&Problem<'a>),
) {
    let mut start = 0;
    let mut in_programs = false;
    for raw in text.split(|&b| b == b',') {
        let (at, pair) = trim(start, raw);
        start += raw.len() + 1;
        if pair.is_empty() {
            continue;
        }
        let Some(colon) = pair.iter().position(|&b| b == b':') else {
            if in_programs {
                if let Err(e) = add_programs(settings, pair) {
                    report(&bad_value(Key::Programs, origin, at, pair, e));
                }
                continue;
            }
            report(&Problem {
                kind: ProblemKind::NoColon,
                origin,
                line: 0,
                column: at + 1,
                word: pair,
                expected: "key:value",
                nearest: keys::nearest_key(pair).filter(|nearest| nearest.as_bytes() != pair),
            });
            continue;
        };
        let (_, key_word) = trim(at, pair.get(..colon).unwrap_or(&[]));
        let (value_at, value) = trim(at + colon + 1, pair.get(colon + 1..).unwrap_or(&[]));
        let found = keys::look_up(key_word);
        in_programs = matches!(found, Word::Key(Key::Programs, _));
        match found {
            Word::Key(key, meaning) => match apply_as(settings, key, meaning, value) {
                Ok(()) => set_origin(settings, key, origin),
                Err(e) => report(&bad_value(key, origin, value_at, value, e)),
            },
            Word::WithoutEffect => report(&Problem {
                kind: ProblemKind::WithoutEffect,
                origin,
                line: 0,
                column: at + 1,
                word: key_word,
                expected: "",
                nearest: None,
            }),
            Word::Unknown => report(&Problem {
                kind: ProblemKind::UnknownKey,
                origin,
                line: 0,
                column: at + 1,
                word: key_word,
                expected: "",
                nearest: keys::nearest_key(key_word),
            }),
        }
    }
}

/// Applies the value of a variable of gperftools.
#[cold]
pub fn parse_variable<'a>(
    settings: &mut Settings,
    index: u8,
    value: &'a [u8],
    report: &mut dyn FnMut(&Problem<'a>),
) {
    let Some(variable) = keys::VARIABLES.get(usize::from(index)) else { return };
    let origin = Origin::Variable(index);
    let (at, value) = trim(0, value);
    match apply_as(settings, variable.key, variable.meaning, value) {
        Ok(()) => set_origin(settings, variable.key, origin),
        Err(e) => report(&bad_value(variable.key, origin, at, value, e)),
    }
}

fn trim(at: usize, bytes: &[u8]) -> (usize, &[u8]) {
    (at + (bytes.len() - bytes.trim_ascii_start().len()), bytes.trim_ascii())
}

fn bad_value(key: Key, origin: Origin, at: usize, value: &[u8], e: ValueError) -> Problem<'_> {
    Problem {
        kind: ProblemKind::BadValue(key),
        origin,
        line: 0,
        column: at + e.offset + 1,
        word: value,
        expected: e.expected,
        nearest: e.nearest,
    }
}

fn set_origin(settings: &mut Settings, key: Key, origin: Origin) {
    if let Some(slot) = settings.origins.get_mut(key as usize) {
        *slot = origin;
    }
}

#[cold]
fn apply_as(settings: &mut Settings, key: Key, meaning: Meaning, value: &[u8]) -> Result<(), ValueError> {
    match meaning {
        Meaning::Same => apply(settings, key, value)?,
        Meaning::Millis => settings.release_delay = value::decay(value)?,
        Meaning::LgDirtyMult => settings.release_delay = value::lg_dirty_mult(value)?,
        Meaning::ReleaseRate => settings.release_delay = value::release_rate(value)?,
        Meaning::Mebibytes => settings.hard_limit = mebibytes(value)?,
        Meaning::AtOnceIfTrue => {
            if value::boolean(value)? {
                settings.release_delay = Delay::Millis(0);
            }
        }
        Meaning::TextIfTrue => {
            let wanted = match value::number(value) {
                Some((level, b"")) => level > 0,
                _ => value::boolean(value)?,
            };
            settings.stats_at_exit = if wanted { Format::Text } else { Format::Off };
        }
    }
    Ok(())
}

fn mebibytes(value: &[u8]) -> Result<u64, ValueError> {
    match value::number(value) {
        Some((mib, b"")) if mib <= (i64::MAX as u64) >> 20 => Ok(mib << 20),
        _ => expected("a number of MiB"),
    }
}

/// Sets one key of ours.
///
/// # Errors
/// The value does not fit; nothing is changed.
#[cold]
pub fn apply(settings: &mut Settings, key: Key, value: &[u8]) -> Result<(), ValueError> {
    match key {
        Key::Backend => settings.backend = Chain::parse(value)?,
        Key::Fallback => {
            settings.fallback = value::word(value, Fallback::WORDS, Fallback::ALL, "warn, silent or never")?;
        }
        Key::Programs => {
            let old = core::mem::replace(&mut settings.programs, Text::EMPTY);
            if let Err(e) = add_programs(settings, value) {
                settings.programs = old;
                return Err(e);
            }
        }
        Key::Thp => settings.thp = thp(value)?,
        Key::Hugetlbfs => settings.hugetlbfs = path(value)?,
        Key::Lock => {
            settings.lock = value::word(value, LockMode::WORDS, LockMode::ALL, "fallback or strict")?;
        }
        Key::LockTime => {
            settings.lock_time = value::word(value, LockTime::WORDS, LockTime::ALL, "touch or map")?;
        }
        Key::LockBudget => settings.lock_budget = value::size(value)?,
        Key::ReleaseDelay => settings.release_delay = value::delay(value)?,
        Key::BackgroundThread => settings.background_thread = value::boolean(value)?,
        Key::MaxTotalThreadCacheBytes => settings.max_total_thread_cache_bytes = value::size(value)?,
        Key::PercpuCache => settings.percpu_cache = per_cpu(value)?,
        Key::SoftLimit => settings.soft_limit = value::size(value)?,
        Key::HardLimit => settings.hard_limit = value::size(value)?,
        Key::Check => settings.check = value::word(value, Check::WORDS, Check::ALL, "off or full")?,
        Key::Foreign => settings.foreign = policy(value)?,
        Key::InvalidFree => settings.invalid_free = policy(value)?,
        Key::StatsAtExit => settings.stats_at_exit = format(value)?,
        Key::StatsFile => settings.stats_file = path(value)?,
        Key::StatsInterval => settings.stats_interval = value::millis(value)?,
        Key::AbortConf => settings.abort_conf = value::boolean(value)?,
        Key::ConfirmConf => settings.confirm_conf = value::boolean(value)?,
    }
    Ok(())
}

fn per_cpu(value: &[u8]) -> Result<PerCpu, ValueError> {
    if value == b"auto" {
        return Ok(PerCpu::Auto);
    }
    match value::boolean(value) {
        Ok(true) => Ok(PerCpu::Always),
        Ok(false) => Ok(PerCpu::Never),
        Err(e) => Err(ValueError { expected: "auto, true or false", ..e }),
    }
}

fn policy(value: &[u8]) -> Result<Policy, ValueError> {
    value::word(value, Policy::WORDS, Policy::ALL, "report, ignore or abort")
}

fn thp(value: &[u8]) -> Result<Thp, ValueError> {
    // jemalloc's word for the same.
    if value == b"always" {
        return Ok(Thp::Madvise);
    }
    value::word(value, Thp::WORDS, Thp::ALL, "default, never, madvise (or always) or collapse")
}

fn format(value: &[u8]) -> Result<Format, ValueError> {
    match value {
        b"true" | b"1" => Ok(Format::Text),
        b"false" | b"0" => Ok(Format::Off),
        _ => value::word(value, Format::WORDS, Format::ALL, "off, text, json or prom"),
    }
}

#[cold]
fn path<const N: usize>(value: &[u8]) -> Result<Text<N>, ValueError> {
    match Text::new(value) {
        Some(text) if value.is_empty() || (value.starts_with(b"/") && !value.contains(&b',')) => Ok(text),
        _ => expected("an absolute path without commas, of at most 240 bytes"),
    }
}

/// Appends names separated by `|`, leaving empty ones out; all or none.
#[cold]
fn add_programs(settings: &mut Settings, value: &[u8]) -> Result<(), ValueError> {
    let mut programs = settings.programs;
    for name in value.split(|&b| b == b'|').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
        let fits = (programs.is_empty() || programs.append(b"|")) && programs.append(name);
        if !fits || name.contains(&b'/') {
            return expected("names of executables without a path, at most 160 bytes in all");
        }
    }
    settings.programs = programs;
    Ok(())
}
