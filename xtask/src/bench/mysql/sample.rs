//! What the kernel tells of the server's memory and time.

use crate::bench::results::Figures;
use crate::proc;
use anyhow::{Context, Result};
use std::fs;

/// The figures of one moment. Sizes are in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Resident set, without huge pages of the pool.
    pub(super) rss: u64,
    /// The largest `rss` since the start.
    pub(super) peak: u64,
    /// Page tables.
    pub(super) page_tables: u64,
    /// What mlock holds.
    pub(super) locked: u64,
    /// Huge pages of the pool.
    pub(super) huge: u64,
    /// Transparent huge pages among the resident set.
    pub(super) transparent: u64,
    /// The kernel's badness of the process, from 0 to 1000 and above.
    pub(super) oom_score: u64,
    /// Processor time since the start, in milliseconds.
    pub(super) cpu_ms: u64,
}

impl Sample {
    /// Reads the figures of a process.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn of(pid: i32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let figure = |name: &str| proc::kib_of(&status, name).with_context(|| format!("no {name}"));
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        Ok(Self {
            rss: figure("VmRSS")?,
            peak: figure("VmHWM")?,
            page_tables: figure("VmPTE")?,
            locked: figure("VmLck")?,
            huge: figure("HugetlbPages").unwrap_or(0),
            transparent: proc::kib_of(&rollup, "AnonHugePages").unwrap_or(0),
            oom_score: fs::read_to_string(format!("/proc/{pid}/oom_score"))?.trim().parse()?,
            cpu_ms: cpu_ms(pid)?,
        })
    }

    /// Adds the figures of memory to those of a run.
    pub(super) fn add_to(&self, figures: &mut Figures) {
        let all = [
            ("rss", self.rss),
            ("peak", self.peak),
            ("page_tables", self.page_tables),
            ("locked", self.locked),
            ("huge", self.huge),
            ("transparent", self.transparent),
            ("oom_score", self.oom_score),
            ("physical", self.rss + self.huge),
        ];
        figures.extend(all.map(|(name, value)| (name.to_owned(), value as f64)));
    }
}

fn cpu_ms(pid: i32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in brackets, which may hold spaces; user and system time are the 14th and 15th.
    let behind_name = stat.rsplit_once(')').context("no name in /proc/PID/stat")?.1;
    let times: Vec<u64> =
        behind_name.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    // SAFETY: sysconf only returns a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(times.iter().sum::<u64>() * 1000 / u64::try_from(ticks)?)
}
