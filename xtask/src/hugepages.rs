//! The kernel's pool of 2 MiB pages, changed for a test and put back afterwards.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Held while the pool is changed, so that two test runs on one machine take turns.
const LOCK: &str = "/tmp/stratalloc-test-pool.lock";
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// A size of the pool that lasts until this is dropped; then the size before it comes back.
#[derive(Debug)]
pub(crate) struct Pool {
    before: u64,
    _heir: Heir,
    _lock: File,
}

impl Pool {
    /// Keeps the pool's size in mind while others change it.
    ///
    /// # Errors
    /// As [`Pool::set`].
    pub(crate) fn keep() -> Result<Self> {
        Self::set(read().context("the kernel has no pool of 2 MiB pages (CONFIG_HUGETLBFS)")?)
    }

    /// Sets the pool to `pages` pages of 2 MiB and says so on standard output.
    ///
    /// # Errors
    /// When the kernel has no such pool, or does not give that many pages.
    pub(crate) fn set(pages: u64) -> Result<Self> {
        let lock =
            File::create(LOCK).with_context(|| format!("cannot write {LOCK}: run the tests as root"))?;
        // SAFETY: the descriptor is open; the lock goes with it when the guard is dropped.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let before = read().context("the kernel has no pool of 2 MiB pages (CONFIG_HUGETLBFS)")?;
        let pool = Self { before, _heir: Heir::new(POOL, before)?, _lock: lock };
        if before == pages {
            return Ok(pool);
        }
        println!("    setting nr_hugepages to {pages} (was {before}, will be put back)");
        // Fragmented memory yields fewer pages at first; compaction brings more on a second try.
        for _ in 0..3 {
            fs::write(POOL, pages.to_string())
                .with_context(|| format!("cannot write {POOL}: run the tests as root"))?;
            if read()? == pages {
                return Ok(pool);
            }
            let _ = fs::write("/proc/sys/vm/compact_memory", "1");
        }
        bail!("asked for a pool of {pages} huge pages, the kernel gave {}", read()?)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if fs::write(POOL, self.before.to_string()).is_err() {
            eprintln!("cannot put nr_hugepages back: run `sysctl vm.nr_hugepages={}`", self.before);
        }
    }
}

/// Writes a number to a file when this process is killed before it could do so itself.
///
/// A shell in a process group of its own waits for a word on a pipe whose other end ends with this process.
#[derive(Debug)]
struct Heir(Child);

impl Heir {
    const SCRIPT: &str = r#"trap '' INT TERM HUP; read -r word; [ "$word" = done ] || echo "$1" >"$0""#;

    fn new(file: &str, number: u64) -> Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", Self::SCRIPT, file, &number.to_string()]);
        Ok(Self(shell.stdin(Stdio::piped()).process_group(0).spawn().context("/bin/sh")?))
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

fn read() -> Result<u64> {
    Ok(fs::read_to_string(POOL)?.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::Heir;

    #[test]
    fn the_heir_writes_when_its_maker_is_gone_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pool");
        drop(Heir::new(file.to_str().unwrap(), 7).unwrap());
        assert!(!file.exists());
        let mut heir = Heir::new(file.to_str().unwrap(), 7).unwrap();
        // What the kernel does with the pipe of a process that was killed.
        drop(heir.0.stdin.take());
        heir.0.wait().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "7\n");
    }
}
