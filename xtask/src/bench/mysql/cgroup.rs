//! A memory cgroup of the bench's own, of version 1 or 2, that is gone at the end.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the folders of all such groups begin with; the id of the bench's process follows.
const PREFIX: &str = "stratalloc-bench-";

/// A cgroup. Dropping it removes it, once it is empty.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
    files: &'static Files,
}

/// The names of a version's files.
#[derive(Debug)]
struct Files {
    limit: &'static str,
    peak: &'static str,
    /// The file with the number of times that the limit was met, and the number's name in it where there are more.
    failures: (&'static str, &'static str),
    /// The file with the number of processes that the kernel killed at the limit, under `oom_kill`.
    kills: &'static str,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    failures: ("memory.failcnt", ""),
    kills: "memory.oom_control",
};

const VERSION_2: Files = Files {
    limit: "memory.max",
    peak: "memory.peak",
    failures: ("memory.events", "max"),
    kills: "memory.events",
};

impl Group {
    /// Makes a cgroup, with a limit of `bytes` on memory if one is given, and removes those that a killed bench left.
    ///
    /// # Errors
    /// When there is no memory controller, or this user may not make cgroups.
    pub(super) fn new(bytes: Option<u64>) -> Result<Self> {
        let (root, files) = controller()?;
        remove_orphans(&root);
        let folder = root.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder)
            .with_context(|| format!("cannot make the cgroup {}: run as root", folder.display()))?;
        let group = Self { folder, files };
        if let Some(bytes) = bytes {
            fs::write(group.folder.join(files.limit), bytes.to_string())
                .with_context(|| format!("cannot limit the memory of {}", group.folder.display()))?;
        }
        Ok(group)
    }

    /// Its folder, whose `cgroup.procs` takes processes.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The most that it was charged for at once, in bytes: resident and page-cache pages, page tables, the kernel's stacks, sockets.
    ///
    /// # Errors
    /// When the kernel does not tell (version 2 before Linux 5.19).
    pub(super) fn peak(&self) -> Result<u64> {
        self.number(self.files.peak, "")
    }

    /// How often it met the limit, whether the kernel then found pages to take back or not.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn failures(&self) -> Result<u64> {
        self.number(self.files.failures.0, self.files.failures.1)
    }

    /// How many of its processes the kernel killed at the limit.
    ///
    /// # Errors
    /// When the kernel does not tell (version 1 before Linux 4.13).
    pub(super) fn kills(&self) -> Result<u64> {
        self.number(self.files.kills, "oom_kill")
    }

    /// The number in a file, or behind `name` in a file of several.
    fn number(&self, file: &str, name: &str) -> Result<u64> {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let number = text.lines().find_map(|line| {
            if name.is_empty() { Some(line) } else { line.strip_prefix(name)?.strip_prefix(' ') }
        });
        Ok(number.with_context(|| format!("no {name} in {}", path.display()))?.trim().parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel keeps a group until it has noticed the end of the last process.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        eprintln!("cannot remove the cgroup {}", self.folder.display());
    }
}

/// Removes the groups of benches that are gone; one that is not empty stays, as the kernel sees to.
fn remove_orphans(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner.to_string()).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The folder for new cgroups with a memory controller, and the names of its files.
fn controller() -> Result<(PathBuf, &'static Files)> {
    let version1 = Path::new("/sys/fs/cgroup/memory");
    if version1.join(VERSION_1.limit).exists() {
        return Ok((version1.to_owned(), &VERSION_1));
    }
    let root = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        return Ok((root.to_owned(), &VERSION_2));
    }
    bail!("no memory controller under {}", root.display())
}
