//! Transparent huge pages: what is asked for, and whether the kernel gives any.

use crate::numbers;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What a backend asks of transparent huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThpPolicy {
    /// Whatever the system does by itself.
    #[default]
    Default,
    /// None (MADV_NOHUGEPAGE).
    Never,
    /// Welcome (MADV_HUGEPAGE).
    Madvise,
    /// Welcome, and [`Mmap::collapse`](crate::Mmap::collapse) may make them.
    Collapse,
}

const UNKNOWN: u8 = 0;
const SYSTEM_NEVER: u8 = 1;
const SYSTEM_MADVISE: u8 = 2;
const SYSTEM_ALWAYS: u8 = 3;

/// Whether memory under this policy may get huge pages on this system.
pub(crate) fn in_use(policy: ThpPolicy) -> bool {
    static SYSTEM: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut system = SYSTEM.load(Relaxed);
    if system == UNKNOWN {
        system = read_system();
        SYSTEM.store(system, Relaxed);
    }
    match policy {
        ThpPolicy::Never => false,
        ThpPolicy::Default => system == SYSTEM_ALWAYS,
        ThpPolicy::Madvise | ThpPolicy::Collapse => system != SYSTEM_NEVER,
    }
}

/// The word in brackets; a system that does not say has none.
fn read_system() -> u8 {
    if cfg!(miri) {
        return SYSTEM_NEVER;
    }
    let mut buffer = [0; 64];
    let text = numbers::read_into(c"/sys/kernel/mm/transparent_hugepage/enabled", &mut buffer);
    match text.and_then(|text| text.iter().position(|&byte| byte == b'[').and_then(|at| text.get(at + 1))) {
        Some(b'a') => SYSTEM_ALWAYS,
        Some(b'm') => SYSTEM_MADVISE,
        _ => SYSTEM_NEVER,
    }
}
