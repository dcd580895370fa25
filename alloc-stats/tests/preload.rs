//! The tool and the outputs of the preload library, with an unmodified program on it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["run", "--quiet", "--package", "xtask", "--", "build-preload"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        PathBuf::from(text.lines().last().unwrap())
    })
}

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("stratalloc-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A shell that allocates until it is told to stop by a line, then exits in order.
struct Busy(Child);

impl Busy {
    fn start(library: &Path, settings: &str) -> Self {
        const SCRIPT: &str =
            "for ((i = 0; ; i++)); do a[i % 20000]=$i$i$i$i; ((i % 5000)) || { read -t 0 && exit; }; done";
        let mut command = Command::new("bash");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped());
        command.env("LD_PRELOAD", library).env("STRATALLOC_CONF", settings);
        // SAFETY: the call between fork and exec allocates nothing. It lets the tool, a sibling, read the program where
        // only descendants may be read.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0);
                Ok(())
            })
        };
        Self(command.spawn().unwrap())
    }

    fn stat(&self) -> Output {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_stratalloc"));
        tool.args(["stat", &self.0.id().to_string()]).output().unwrap()
    }

    /// The tool's answer when the process has published.
    fn stat_when_published(&self) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let output = self.stat();
            // 5: it is not yet that program; 6: it has not published yet.
            if output.status.success() || Instant::now() > end {
                assert!(output.status.success(), "{output:?}");
                return String::from_utf8(output.stdout).unwrap();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn finish(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Has an effect only when the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_unmodified_program_is_read_even_when_the_library_file_is_gone() {
    let folder = Folder::new("gone");
    let copy = folder.0.join("libstratalloc.so");
    fs::copy(library(), &copy).unwrap();
    let busy = Busy::start(&copy, "");
    let before = busy.stat_when_published();
    assert!(before.starts_with(&format!("in {}\n", copy.display())), "{before}");
    fs::remove_file(&copy).unwrap();
    let after = busy.stat_when_published();
    assert!(after.lines().next().unwrap().ends_with("libstratalloc.so (deleted)"), "{after}");
    let in_use: u64 = after.lines().nth(2).unwrap()[..17].trim().parse().unwrap();
    assert!(in_use > 100_000, "{after}");
    busy.finish();
}

#[test]
fn the_interval_file_follows_the_program_and_is_written_once_more_at_exit() {
    let folder = Folder::new("interval");
    let file = folder.0.join("heap.json");
    let busy = Busy::start(library(), &format!("stats_file:{},stats_interval:10ms", file.display()));
    let read = || -> serde_json::Value { serde_json::from_slice(&fs::read(&file).unwrap()).unwrap() };
    busy.stat_when_published();
    let end = Instant::now() + Duration::from_secs(30);
    while !file.exists() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    let pid = u64::from(busy.0.id());
    // However often it is replaced, each read finds a whole file.
    let allocations = |value: &serde_json::Value| value["counters"]["commit_count"].as_u64().unwrap();
    let mut last = 0;
    for _ in 0..100 {
        let value = read();
        assert_eq!(value["pid"].as_u64(), Some(pid));
        assert!(allocations(&value) >= last);
        last = allocations(&value);
        thread::sleep(Duration::from_millis(3));
    }
    fs::remove_file(&file).unwrap();
    busy.finish();
    assert_eq!(read()["pid"].as_u64(), Some(pid));
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["heap.json"]);
}

#[test]
fn statistics_at_exit_go_to_standard_error_for_the_programs_named() {
    let run = |settings: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", "echo out"]).env("LD_PRELOAD", library()).env("STRATALLOC_CONF", settings);
        let output = command.output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, b"out\n");
        output.stderr
    };
    let value: serde_json::Value = serde_json::from_slice(&run("stats_at_exit:json,programs:bash")).unwrap();
    assert!(value["properties"]["generic.current_allocated_bytes"].as_u64().unwrap() > 0);
    assert!(run("stats_at_exit:text").starts_with(b"stratalloc "));
    assert_eq!(run("stats_at_exit:json,programs:mysqld"), b"");
    assert_eq!(run(""), b"");
}
