//! Changing settings while the program runs.
//!
//! A change makes a new copy of all settings, in memory that is never freed, and publishes it: readers keep whatever copy they
//! have. Changes are few.

use super::{HEAP, background, start};
use crate::arena::META;
use crate::front::budget;
use crate::report;
use crate::settings::{Key, Origin, Settings, apply};

/// Why a setting is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The value does not fit the key; what would have been right.
    Value(&'static str),
    /// The setting is fixed when the program starts.
    Fixed,
    /// No memory for the new settings.
    NoMemory,
}

/// Sets one key to a value in the grammar of `STRATALLOC_CONF`.
///
/// What can be changed: `release_delay`, `hard_limit`, `soft_limit`, `max_total_thread_cache_bytes`, `foreign`, `invalid_free`,
/// `stats_at_exit`, `stats_file`, and `background_thread` to true.
///
/// # Errors
/// Nothing is changed then.
pub fn change(key: Key, value: &[u8]) -> Result<(), ChangeError> {
    let changeable = matches!(
        key,
        Key::ReleaseDelay
            | Key::HardLimit
            | Key::SoftLimit
            | Key::MaxTotalThreadCacheBytes
            | Key::Foreign
            | Key::InvalidFree
            | Key::StatsAtExit
            | Key::StatsFile
            | Key::BackgroundThread
    );
    if !changeable {
        return Err(ChangeError::Fixed);
    }
    start::ensure();
    let slot = META.alloc(size_of::<Settings>(), align_of::<Settings>());
    let slot = slot.ok_or(ChangeError::NoMemory)?.cast::<Settings>();
    loop {
        let before = start::settings();
        let mut after = *before;
        apply(&mut after, key, value).map_err(|error| ChangeError::Value(error.expected))?;
        if key == Key::BackgroundThread && !after.background_thread {
            return Err(ChangeError::Fixed);
        }
        if let Some(origin) = after.origins.get_mut(key as usize) {
            *origin = Origin::Program;
        }
        // SAFETY: the slot is fresh memory of the right layout, and ours until it is published.
        unsafe { slot.write(after) };
        // SAFETY: it is written, and never again after this has succeeded.
        if unsafe { start::replace(before, slot.as_ref()) } {
            break;
        }
    }
    let settings = start::settings();
    match key {
        Key::ReleaseDelay | Key::HardLimit => HEAP.configure(settings),
        Key::MaxTotalThreadCacheBytes => {
            budget::set_total(usize::try_from(settings.max_total_thread_cache_bytes).unwrap_or(usize::MAX));
        }
        Key::Foreign | Key::InvalidFree => report::set_policy(settings.foreign, settings.invalid_free),
        Key::BackgroundThread => background::start_if_asked(),
        _ => {}
    }
    Ok(())
}
