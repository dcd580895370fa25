//! What the kernel tells of a running process.

use crate::exec::Usage;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A figure of `/proc/PID/status` in KiB, for example `VmHWM`.
///
/// # Errors
/// When the process is gone or the figure is not there.
pub(crate) fn status_kib(pid: i32, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    kib_of(&status, name).with_context(|| format!("/proc/{pid}/status has no {name}"))
}

/// The figure `name` in the text of a status file.
pub(crate) fn kib_of(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// What a running process has taken since `started`.
///
/// # Errors
/// When the process is gone.
pub(crate) fn usage(pid: i32, started: Instant) -> Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in brackets, which may hold spaces; the rest start with the third.
    let behind_name = stat.rsplit_once(')').context("no name in /proc/PID/stat")?.1;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let field = |number: usize| -> Result<u64> {
        Ok(fields.get(number - 3).context("/proc/PID/stat is short")?.parse()?)
    };
    // SAFETY: sysconf only returns a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    let time = |number| Ok::<_, anyhow::Error>(Duration::from_millis(field(number)? * 1_000 / ticks));
    Ok(Usage {
        peak_kib: status_kib(pid, "VmHWM")?,
        faults: field(10)?,
        wall: started.elapsed(),
        user: time(14)?,
        system: time(15)?,
    })
}

/// Whether a process has a file mapped.
pub(crate) fn maps(pid: i32, file: &Path) -> Result<bool> {
    Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?.contains(&*file.to_string_lossy()))
}
