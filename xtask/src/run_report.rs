//! The report at the end of `run`: whether the heap was in effect, and what it did.

use anyhow::Result;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Collects the statistics that each process writes when it exits.
pub(crate) struct Report {
    dir: TempDir,
    library: PathBuf,
    /// Whether the user has statistics written to a file of their own, which is left alone.
    users_file: bool,
    processes: u64,
    mistakes: u64,
}

impl Report {
    /// A report on the processes that will run with `library` preloaded.
    pub(crate) fn new(library: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("stratalloc-run-").tempdir()?;
        // The command may change its user; the sticky bit keeps the files of one from the others.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1733))?;
        Ok(Self { dir, library: library.to_owned(), users_file: false, processes: 0, mistakes: 0 })
    }

    /// Asks the heap, through its settings, to leave statistics for this report.
    pub(crate) fn prepare(&mut self, command: &mut Command) {
        let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        // The heap reads MALLOC_CONF only while its own variable is not set.
        let mut settings = set("STRATALLOC_CONF").or_else(|| set("MALLOC_CONF")).unwrap_or_default();
        if settings.to_string_lossy().contains("stats_file:") {
            self.users_file = true;
            return;
        }
        if !settings.is_empty() {
            settings.push(",");
        }
        settings.push("stats_file:");
        settings.push(self.dir.path());
        settings.push("/%p.json");
        command.env("STRATALLOC_CONF", settings);
    }

    /// Counts and removes the statistics of processes that are gone, except those of `main`.
    pub(crate) fn sweep(&mut self, main: u32) {
        let Ok(files) = fs::read_dir(self.dir.path()) else { return };
        for path in files.flatten().map(|file| file.path()) {
            let Some(pid) = path.file_stem().and_then(OsStr::to_str).and_then(|pid| pid.parse::<u32>().ok())
            else {
                continue;
            };
            if pid != main && !Path::new(&format!("/proc/{pid}")).exists() {
                if let Some(stats) = read(&path) {
                    self.processes += 1;
                    self.mistakes += mistakes(&stats);
                }
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Writes the report to standard error. `mapped` says that the library was seen among the mappings of `main`.
    pub(crate) fn print(mut self, program: &OsStr, main: u32, mapped: bool) {
        self.sweep(main);
        let stats = read(&self.dir.path().join(format!("{main}.json")));
        let name = program.to_string_lossy();
        let others = match self.processes {
            0 => String::new(),
            1 => " and 1 other process".into(),
            n => format!(" and {n} other processes"),
        };
        let library = self.library.display();
        match (&stats, mapped) {
            (Some(_), _) | (None, true) => eprintln!("stratalloc: in effect in {name}{others} ({library})"),
            (None, false) if self.processes > 0 => {
                eprintln!(
                    "stratalloc: NOT in effect in {name} itself; in effect in{}",
                    others.trim_start_matches(" and")
                );
            }
            (None, false) => match why_not(program) {
                Some(why) => eprintln!("stratalloc: NOT in effect: {name} did not load {library}: {why}"),
                None => {
                    eprintln!("stratalloc: {name} ended too soon to tell whether {library} was in effect")
                }
            },
        }
        match stats {
            Some(stats) => summary(&stats).iter().for_each(|line| eprintln!("stratalloc: {line}")),
            None if self.users_file => {
                eprintln!("stratalloc: statistics are in the file that stats_file names")
            }
            None if mapped => eprintln!("stratalloc: {name} ended without writing statistics"),
            None => {}
        }
        if self.mistakes > 0 {
            eprintln!("stratalloc: {} invalid frees in other processes", self.mistakes);
        }
    }
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn mistakes(stats: &Value) -> u64 {
    ["foreign_frees", "double_frees", "invalid_frees"]
        .iter()
        .map(|name| number(stats, &["errors", name]))
        .sum()
}

fn number(stats: &Value, path: &[&str]) -> u64 {
    path.iter().try_fold(stats, |value, name| value.get(name)).and_then(Value::as_u64).unwrap_or(0)
}

/// What the heap of one process did, in a few lines.
fn summary(stats: &Value) -> Vec<String> {
    let of = |path: &[&str]| number(stats, path);
    let property = |name: &str| of(&["properties", name]);
    let tiers = stats.get("tiers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let used: Vec<&Value> =
        tiers.iter().filter(|tier| number(tier, &["mapped"]) > 0 || !fallbacks(tier).is_empty()).collect();
    let mut lines = vec![format!(
        "at its end {} were in use, {} in caches; {} were mapped, and {} for the heap's own records",
        size(property("generic.current_allocated_bytes")),
        size(property("tcmalloc.thread_cache_free_bytes") + property("tcmalloc.transfer_cache_free_bytes")),
        size(used.iter().map(|tier| number(tier, &["mapped"])).sum()),
        size(of(&["metadata", "mapped"])),
    )];
    for tier in used {
        let mut line = format!("  {}: {}", name(tier), size(number(tier, &["mapped"])));
        for part in ["huge", "locked", "pinned"] {
            let bytes = number(tier, &[part]);
            if bytes > 0 {
                line += &format!(", {part} {}", size(bytes));
            }
        }
        for (reason, count) in fallbacks(tier) {
            line += &format!(", refused {count} times ({reason})");
        }
        lines.push(line);
    }
    let counter = |name: &str| of(&["counters", name]);
    if counter("decommit_bytes") > 0 {
        lines.push(format!(
            "{} went back to the system, in {} steps",
            size(counter("decommit_bytes")),
            counter("decommit_count")
        ));
    }
    if counter("failed_allocations") > 0 {
        lines.push(format!("{} requests failed for want of memory", counter("failed_allocations")));
    }
    if mistakes(stats) > 0 {
        lines.push(format!("{} invalid frees were noticed and left without effect", mistakes(stats)));
    }
    lines
}

fn name(tier: &Value) -> &str {
    tier.get("name").and_then(Value::as_str).unwrap_or("unnamed")
}

/// Why a tier gave no memory, and how often.
fn fallbacks(tier: &Value) -> Vec<(&String, u64)> {
    let reasons = tier.get("fallbacks").and_then(Value::as_object);
    let counts = reasons.into_iter().flatten().map(|(reason, count)| (reason, count.as_u64().unwrap_or(0)));
    counts.filter(|&(_, count)| count > 0).collect()
}

/// Bytes in a unit that keeps the number short.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Why the loader cannot preload a library into `program`; `None` if it can.
fn why_not(program: &OsStr) -> Option<&'static str> {
    let Some(path) = find(program) else { return Some("it could not be found") };
    let Ok(file) = fs::read(&path) else { return Some("its file cannot be read") };
    if fs::metadata(&path).is_ok_and(|meta| meta.mode() & 0o6000 != 0) || has_capabilities(&path) {
        return Some(
            "it is set-user-ID, set-group-ID or has file capabilities, so the loader ignores LD_PRELOAD",
        );
    }
    match dynamically_linked(&file) {
        Some(true) => None,
        Some(false) => Some("it is statically linked"),
        None if file.starts_with(b"#!") => None,
        None => Some("it is no program of this architecture"),
    }
}

/// The file that running `program` starts.
fn find(program: &OsStr) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(program.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn has_capabilities(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end with a zero byte; with no buffer the call only tells the attribute's size.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Whether an ELF file names a loader; `None` if it is no ELF file that can be read.
fn dynamically_linked(file: &[u8]) -> Option<bool> {
    use object::read::elf::{ElfFile64, ProgramHeader};
    let elf = ElfFile64::<object::Endianness>::parse(file).ok()?;
    Some(elf.elf_program_headers().iter().any(|header| header.p_type(elf.endian()) == object::elf::PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::{size, summary, why_not};
    use serde_json::json;
    use std::ffi::OsStr;

    #[test]
    fn tells_what_each_tier_gave_and_why_not() {
        let stats = json!({
            "properties": {"generic.current_allocated_bytes": 1500},
            "tiers": [
                {"name": "hugetlb-2M", "mapped": 4 << 20, "huge": 4 << 20, "fallbacks": {"pool_empty": 3, "rlimit": 0}},
                {"name": "4k", "mapped": 0, "fallbacks": {}},
            ],
            "errors": {"double_frees": 2},
        });
        let lines = summary(&stats);
        assert!(
            lines[0].contains("1 KiB were in use") && lines[0].contains("4.0 MiB were mapped"),
            "{}",
            lines[0]
        );
        assert_eq!(lines[1], "  hugetlb-2M: 4.0 MiB, huge 4.0 MiB, refused 3 times (pool_empty)");
        assert_eq!(lines[2], "2 invalid frees were noticed and left without effect");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn sizes_keep_to_short_numbers() {
        assert_eq!([size(7), size(2048), size(3 << 19)], ["7 bytes", "2 KiB", "1.5 MiB"]);
    }

    #[test]
    fn says_why_a_program_loads_no_library() {
        assert_eq!(why_not(OsStr::new("/nonexistent/program")), Some("its file cannot be read"));
        assert_eq!(why_not(OsStr::new("no-such-program-anywhere")), Some("it could not be found"));
        assert_eq!(why_not(OsStr::new("/etc/passwd")), Some("it is no program of this architecture"));
        assert_eq!(why_not(OsStr::new("sh")), None);
    }
}
