//! The ways in which a program is put on the heap, and those on which tests run it.

use crate::exec::{Job, Memlock};
use anyhow::{Result, ensure};
use std::ffi::OsString;
use std::path::PathBuf;

/// A backend setting and the state of the machine that it meets.
#[derive(Debug)]
pub(crate) struct Mode {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// The value of STRATALLOC_CONF.
    pub(crate) conf: &'static str,
    /// The size of the pool of 2 MiB pages; `None` leaves it alone.
    pub(crate) pool: Option<u64>,
    /// What the program may lock.
    pub(crate) memlock: Option<Memlock>,
}

impl Mode {
    /// Checks that a process's memory is of the kind that the mode asks for; `kib` tells figures of `/proc/PID/status`.
    pub(crate) fn check_memory(&self, kib: impl Fn(&str) -> u64) -> Result<String> {
        let (huge, locked) = (kib("HugetlbPages"), kib("VmLck"));
        let said = format!("HugetlbPages {huge} kB, VmLck {locked} kB");
        let right = match self.name {
            "huge" => huge > 0,
            "locked" => locked > 1024 && huge == 0,
            "locked, no limit" => locked <= 64 && huge == 0,
            _ => huge == 0 && locked == 0,
        };
        ensure!(right, "the memory is not of the kind asked for: {said}");
        Ok(said)
    }
}

/// Huge pages set aside while a test uses them.
pub(crate) const TEST_POOL: u64 = 512;

/// All modes; the first is the one that is measured.
///
/// Fallbacks are silent here, because programs under test compare what their children write to standard error;
/// the bad-input battery checks the warnings.
pub(crate) const MODES: [Mode; 5] = [
    Mode { name: "4k", conf: "backend:4k", pool: None, memlock: None },
    Mode { name: "huge", conf: "backend:huge,fallback:silent", pool: Some(TEST_POOL), memlock: None },
    Mode { name: "huge, no pool", conf: "backend:huge,fallback:silent", pool: Some(0), memlock: None },
    Mode {
        name: "locked",
        conf: "backend:locked,fallback:silent",
        pool: None,
        memlock: Some(Memlock::Plenty),
    },
    Mode {
        name: "locked, no limit",
        conf: "backend:locked,fallback:silent",
        pool: None,
        memlock: Some(Memlock::Bytes(64 << 10)),
    },
];

/// How the library gets into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// LD_PRELOAD in the environment.
    Preload,
    /// `cargo xtask run`.
    Run,
}

/// The heap that a job runs on.
#[derive(Clone, Debug)]
pub(crate) enum Heap {
    /// That of the C library.
    System,
    /// That of the C library, also where the program brings an allocator of its own.
    SystemForced,
    /// That of another library.
    Peer {
        /// The library to preload.
        library: PathBuf,
        /// A variable that it needs.
        variable: Option<(&'static str, &'static str)>,
    },
    /// Ours.
    Ours {
        /// The library to preload.
        library: PathBuf,
        /// The settings.
        mode: &'static Mode,
        /// How it gets in.
        via: Via,
    },
}

impl Heap {
    /// Puts a job on this heap.
    pub(crate) fn apply(&self, job: Job) -> Job {
        match self {
            Self::System => job,
            // First in the search order, the C library's own functions win over those of another allocator.
            Self::SystemForced => job.env("LD_PRELOAD", "libc.so.6"),
            Self::Peer { library, variable } => {
                let job = job.env("LD_PRELOAD", library);
                variable.iter().fold(job, |job, (name, value)| job.env(name, value))
            }
            Self::Ours { library, mode, via } => {
                let job = job.env("STRATALLOC_CONF", mode.conf);
                let job = match mode.memlock {
                    Some(memlock) => job.memlock(memlock),
                    None => job,
                };
                match via {
                    Via::Preload => job.env("LD_PRELOAD", library),
                    Via::Run => {
                        // This very program, even when a build has put another one in its place.
                        let xtask = format!("/proc/{}/exe", std::process::id());
                        let words =
                            [xtask.into(), "run".into(), "--library".into(), library.into(), "--".into()];
                        job.wrapped_in(words.map(|word: OsString| word))
                    }
                }
            }
        }
    }
}
