//! A memory cgroup of the bench's own, of version 1 or 2, that is gone at the end.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup with a limit. Dropping it removes it, once it is empty.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes a cgroup with a limit of `bytes` on memory.
    ///
    /// # Errors
    /// When there is no memory controller, or this user may not make cgroups.
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let name = format!("stratalloc-bench-{}", std::process::id());
        let (root, limit) = controller()?;
        let folder = root.join(name);
        fs::create_dir(&folder)
            .with_context(|| format!("cannot make the cgroup {}: run as root", folder.display()))?;
        let group = Self { folder };
        fs::write(group.folder.join(limit), bytes.to_string())
            .with_context(|| format!("cannot limit the memory of {}", group.folder.display()))?;
        Ok(group)
    }

    /// Its folder, whose `cgroup.procs` takes processes.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
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

/// The folder for new cgroups with a memory controller, and the name of the limit's file.
fn controller() -> Result<(PathBuf, &'static str)> {
    let version1 = Path::new("/sys/fs/cgroup/memory");
    if version1.join("memory.limit_in_bytes").exists() {
        return Ok((version1.to_owned(), "memory.limit_in_bytes"));
    }
    let root = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        return Ok((root.to_owned(), "memory.max"));
    }
    bail!("no memory controller under {}", root.display())
}
