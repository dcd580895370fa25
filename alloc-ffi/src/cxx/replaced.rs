//! Has the program replaced a plain operator?
//!
//! The loader's table says so: it has the address that the symbol is bound to, ours or another's. The answer never changes, so
//! it is worked out at the first question.

#[cfg(all(preload, not(archive)))]
use crate::interposed::bound_to;
use crate::interposed::is_ours;
use core::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const OURS: u8 = 1;
const REPLACED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether it is known that all of them are ours. The test of the fast paths.
#[inline(always)]
pub(super) fn surely_ours() -> bool {
    STATE.load(Ordering::Relaxed) == OURS
}

/// Whether one of the throwing forms of `operator new` is another's.
#[cold]
pub(super) fn any() -> bool {
    let mut state = STATE.load(Ordering::Relaxed);
    if state == UNKNOWN {
        state = if bound().into_iter().all(is_ours) { OURS } else { REPLACED };
        STATE.store(state, Ordering::Relaxed);
    }
    state == REPLACED
}

#[cfg(all(preload, not(archive)))]
fn bound() -> [usize; 4] {
    [
        bound_to!("_Znwm"),
        bound_to!("_Znam"),
        bound_to!("_ZnwmSt11align_val_t"),
        bound_to!("_ZnamSt11align_val_t"),
    ]
}

/// Without exported names nobody can replace anything.
#[cfg(any(not(preload), archive))]
fn bound() -> [usize; 4] {
    [any as *const () as usize; 4]
}
