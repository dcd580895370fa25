//! Values: numbers with units, times, words.

use super::Delay;
use super::keys::nearest;

/// How long freed pages are kept when nothing is set, in milliseconds.
pub const DEFAULT_DELAY_MS: u32 = 1000;

/// A value that does not fit its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// Where in the value the trouble starts, in bytes.
    pub offset: usize,
    /// What would have been right.
    pub expected: &'static str,
    /// The word that was probably meant.
    pub nearest: Option<&'static str>,
}

/// An error at the start of the value.
pub const fn expected<T>(expected: &'static str) -> Result<T, ValueError> {
    Err(ValueError { offset: 0, expected, nearest: None })
}

/// One of a list of words.
#[cold]
pub fn word<T: Copy>(
    value: &[u8],
    words: &'static [&'static str],
    all: &[T],
    hint: &'static str,
) -> Result<T, ValueError> {
    match words.iter().position(|w| w.as_bytes() == value).and_then(|i| all.get(i)) {
        Some(&found) => Ok(found),
        None => Err(ValueError { offset: 0, expected: hint, nearest: nearest(value, words.iter().copied()) }),
    }
}

/// `true` or `false`, and the usual other spellings.
#[cold]
pub fn boolean(value: &[u8]) -> Result<bool, ValueError> {
    match value {
        b"true" | b"1" | b"yes" | b"on" => Ok(true),
        b"false" | b"0" | b"no" | b"off" => Ok(false),
        _ => expected("true or false"),
    }
}

/// Splits leading decimal digits off; `None` without digits or on overflow.
#[cold]
pub fn number(value: &[u8]) -> Option<(u64, &[u8])> {
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let (head, tail) = value.split_at_checked(digits)?;
    if head.is_empty() {
        return None;
    }
    let mut n = 0u64;
    for digit in head {
        n = n.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some((n, tail))
}

/// A number of bytes: `4096`, `64k`, `2MiB`, `1g`. Units are powers of 1024, in any letter case.
#[cold]
pub fn size(value: &[u8]) -> Result<u64, ValueError> {
    const HINT: &str = "a size such as 4096, 64k, 2MiB or 1GiB";
    let Some((count, unit)) = number(value) else { return expected(HINT) };
    let mut lower = [0u8; 3];
    for (to, from) in lower.iter_mut().zip(unit) {
        *to = from.to_ascii_lowercase();
    }
    let shift = match lower.get(..unit.len()) {
        Some(b"" | b"b") => 0,
        Some(b"k" | b"kb" | b"kib") => 10,
        Some(b"m" | b"mb" | b"mib") => 20,
        Some(b"g" | b"gb" | b"gib") => 30,
        Some(b"t" | b"tb" | b"tib") => 40,
        _ => {
            return Err(ValueError { offset: value.len() - unit.len(), expected: HINT, nearest: None });
        }
    };
    match count.checked_mul(1 << shift) {
        // Addresses end below 2^63: more is a slip of the pen.
        Some(bytes) if bytes <= i64::MAX as u64 => Ok(bytes),
        _ => expected("a size below 8388608TiB"),
    }
}

/// A time with a unit (`500ms`, `10s`, `2m`, `1h`), or 0.
#[cold]
pub fn millis(value: &[u8]) -> Result<u32, ValueError> {
    const HINT: &str = "a time with a unit, such as 500ms, 10s or 2m, or 0";
    let Some((count, unit)) = number(value) else { return expected(HINT) };
    let factor = match unit {
        b"ms" => 1,
        b"s" => 1000,
        b"m" | b"min" => 60_000,
        b"h" => 3_600_000,
        b"" if count == 0 => 1,
        _ => {
            return Err(ValueError { offset: value.len() - unit.len(), expected: HINT, nearest: None });
        }
    };
    match count.checked_mul(factor).map(u32::try_from) {
        Some(Ok(ms)) => Ok(ms),
        _ => expected("a time of at most 49 days"),
    }
}

/// A time with a unit, or `never`.
#[cold]
pub fn delay(value: &[u8]) -> Result<Delay, ValueError> {
    match value {
        b"never" | b"-1" => Ok(Delay::Never),
        _ => match millis(value) {
            Ok(ms) => Ok(Delay::Millis(ms)),
            Err(e) => Err(ValueError { expected: "a time such as 500ms or 10s, 0, or never", ..e }),
        },
    }
}

/// Milliseconds without a unit as jemalloc writes them (a unit is accepted), or -1 for never.
pub fn decay(value: &[u8]) -> Result<Delay, ValueError> {
    match number(value) {
        Some((ms, b"")) => match u32::try_from(ms) {
            Ok(ms) => Ok(Delay::Millis(ms)),
            Err(_) => expected("a time of at most 49 days"),
        },
        _ => delay(value),
    }
}

/// jemalloc's `lg_dirty_mult`: -1 keeps everything; its ratios of pages have no counterpart in time, so
/// they mean the default delay.
pub fn lg_dirty_mult(value: &[u8]) -> Result<Delay, ValueError> {
    match value {
        b"-1" => Ok(Delay::Never),
        _ => match number(value) {
            Some((0..=63, b"")) => Ok(Delay::Millis(DEFAULT_DELAY_MS)),
            _ => expected("-1, or a number from 0 to 63"),
        },
    }
}

/// gperftools' release rate: 0 never releases, 1 is the default delay, 10 a tenth of it.
pub fn release_rate(value: &[u8]) -> Result<Delay, ValueError> {
    const HINT: &str = "a rate from 0 to 10, such as 1.0";
    let Some((whole, tail)) = number(value) else { return expected(HINT) };
    let mut thousandths = match whole {
        0..=10 => whole * 1000,
        _ => return expected(HINT),
    };
    if let Some(digits) = tail.strip_prefix(b".") {
        let mut weight = 100;
        for digit in digits {
            if !digit.is_ascii_digit() {
                return expected(HINT);
            }
            thousandths += u64::from(digit - b'0') * weight;
            weight /= 10;
        }
    } else if !tail.is_empty() {
        return expected(HINT);
    }
    match thousandths {
        0 => Ok(Delay::Never),
        1..=10_000 => Ok(Delay::Millis((u64::from(DEFAULT_DELAY_MS) * 1000 / thousandths) as u32)),
        _ => expected(HINT),
    }
}
