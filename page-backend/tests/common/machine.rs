//! Changes to the machine that tests make, one at a time, and put back.

use page_backend::HugeSize;
use page_backend::pool::Pool;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn pool_file(size: HugeSize) -> String {
    format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", size.bytes() / 1024)
}

/// The machine, held by one test of one process.
pub(crate) struct Machine {
    _file: File,
    _guard: MutexGuard<'static, ()>,
    pools_before: Vec<(HugeSize, u64)>,
}

impl Machine {
    /// Waits for the others.
    pub(crate) fn lock() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join("stratalloc-machine.lock");
        // Another user may have made the file; reading it is enough for a lock.
        let file = File::open(&path).or_else(|_| File::create(&path)).unwrap();
        // SAFETY: the descriptor is open; the call touches no memory.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
        Self { _file: file, _guard: guard, pools_before: Vec::new() }
    }

    /// Sets the number of 2 MiB pages that nobody uses to `free`. `None`, with one line said, if the machine
    /// does not let us.
    pub(crate) fn pool_with(&mut self, free: u64) -> Option<()> {
        self.pool_of(HugeSize::Size2M, free)
    }

    /// The same for pages of any size.
    pub(crate) fn pool_of(&mut self, size: HugeSize, free: u64) -> Option<()> {
        let file = pool_file(size);
        let Some(pool) = Pool::read(size) else {
            println!("this kernel has no {file}; testing the refusal instead");
            return None;
        };
        // Surplus pages are not the machine's setting: an earlier test left a mapping behind.
        self.pools_before.push((size, pool.total - pool.surplus));
        let total = pool.total - pool.available() + free;
        if let Err(error) = fs::write(&file, total.to_string()) {
            println!("{file} cannot be written ({error}); testing the refusal instead");
            return None;
        }
        let available = Pool::read(size).map_or(0, |pool| pool.available());
        if available != free {
            println!("{file}: {available} free pages instead of {free}; testing the refusal instead");
            return None;
        }
        println!("{file}: {} before the test, {total} during it", pool.total);
        Some(())
    }

    /// Free pages that are not promised to anybody.
    pub(crate) fn available(&self) -> u64 {
        Pool::read(HugeSize::Size2M).map_or(0, |pool| pool.available())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for (size, pages) in self.pools_before.drain(..).rev() {
            let _ = fs::write(pool_file(size), pages.to_string());
        }
    }
}

/// A control group with the hugetlb controller, removed at the end.
pub(crate) struct HugetlbGroup {
    path: PathBuf,
    controller_was_off: Option<PathBuf>,
}

impl HugetlbGroup {
    /// `None`, with one line said, if the machine has no such controller or does not let us.
    pub(crate) fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mut roots = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (path, kind) = (words.nth(1)?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(path))
        });
        let has = |path: PathBuf| {
            fs::read_to_string(path).unwrap_or_default().split_whitespace().any(|name| name == "hugetlb")
        };
        let Some(root) = roots.find(|root| has(root.join("cgroup.controllers"))) else {
            println!("no cgroup2 mount with the hugetlb controller; the limit is not tested here");
            return None;
        };
        let control = root.join("cgroup.subtree_control");
        let was_off = !has(control.clone());
        if was_off && let Err(error) = fs::write(&control, "+hugetlb") {
            println!("{} cannot be written ({error}); the limit is not tested here", control.display());
            return None;
        }
        let path = root.join(format!("stratalloc-test-{}", std::process::id()));
        let group = Self { path, controller_was_off: was_off.then_some(control) };
        if let Err(error) = fs::create_dir(&group.path) {
            println!("{} cannot be made ({error}); the limit is not tested here", group.path.display());
            return None;
        }
        Some(group)
    }

    pub(crate) fn set(&self, file: &str, value: &str) {
        fs::write(self.path.join(file), value).unwrap();
    }

    /// Moves the calling process into the group. For children.
    pub(crate) fn enter(&self) {
        fs::write(self.path.join("cgroup.procs"), "0").unwrap();
    }
}

impl Drop for HugetlbGroup {
    fn drop(&mut self) {
        // The last process leaves a moment after it was waited for.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if let Some(control) = &self.controller_was_off {
            let _ = fs::write(control, "-hugetlb");
        }
    }
}
