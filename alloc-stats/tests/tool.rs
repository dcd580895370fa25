//! The tool against live processes: this one, which publishes to its own page, and others that do not.

use alloc_core::snapshot::Snapshot;
use alloc_core::stats_page;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{process, ptr, thread};

/// The page is one to a process, and so is the right to publish for a test.
static PUBLISHING: Mutex<()> = Mutex::new(());

fn tool(pid: u32, format: &str) -> Output {
    // SAFETY: the call has no pointers; it lets the tool read this process where only descendants may be read.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    command(pid, format).output().unwrap()
}

fn command(pid: u32, format: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stratalloc"));
    command.args(["stat", &pid.to_string(), "--format", format]);
    command
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(output: &Output, code: i32, words: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    assert!(output.stdout.is_empty());
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_live_process_is_read_in_all_formats() {
    let _alone = PUBLISHING.lock().unwrap();
    assert!(stats_page::publish(|s| {
        s.soft_limit = 12345;
        s.errors.double_frees = 2;
    }));
    let value = json(&tool(process::id(), "json"));
    assert_eq!(value["pid"], process::id());
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&value["limits"]["soft"], &value["errors"]["double_frees"]), (&12345.into(), &2.into()));
    assert!(value["age_ms"].as_u64().unwrap() < 60_000);
    let text = String::from_utf8(tool(process::id(), "text").stdout).unwrap();
    assert!(
        text.starts_with("in /") && text.contains("12345") && text.contains("in use by the program"),
        "{text}"
    );
    let prom = String::from_utf8(tool(process::id(), "prom").stdout).unwrap();
    assert!(prom.contains("\nstratalloc_soft_limit_bytes 12345\n"), "{prom}");
}

#[test]
fn a_busy_writer_never_shows_a_torn_page() {
    let _alone = PUBLISHING.lock().unwrap();
    assert!(stats_page::publish(|_| {}));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                assert!(stats_page::publish(|s: &mut Snapshot| {
                    s.soft_limit = n;
                    s.tier_count = 0;
                    s.class_count = 128;
                    s.classes.iter_mut().for_each(|c| c.live = n);
                    s.hard_limit = n;
                }));
                // Most of the time a writer is at rest, as in a real process.
                thread::sleep(Duration::from_micros(50));
            }
        });
        for _ in 0..30 {
            let value = json(&tool(process::id(), "json"));
            let n = value["limits"]["soft"].as_u64().unwrap();
            assert_eq!(value["limits"]["hard"], n);
            for class in value["classes"].as_array().unwrap() {
                assert_eq!(class["live"], n);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_child_of_a_fork_is_not_taken_for_its_parent() {
    let _alone = PUBLISHING.lock().unwrap();
    assert!(stats_page::publish(|_| {}));
    let executable = std::fs::File::open("/proc/self/exe").unwrap();
    // SAFETY: a new private mapping, which stays. It carries the note as data, as a backtrace's mappings do.
    let data = unsafe {
        let len = executable.metadata().unwrap().len() as usize;
        libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, executable.as_raw_fd(), 0)
    };
    assert_ne!(data, libc::MAP_FAILED);
    // SAFETY: the child makes nothing but async-signal-safe calls.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above. It ends with its parent, should that fail.
        unsafe {
            libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            libc::sleep(60);
            libc::_exit(0);
        }
    }
    let output = tool(child as u32, "text");
    // SAFETY: the child is ours and has not been waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, ptr::null_mut(), 0);
    }
    refused(&output, 6, "since it was forked");
}

#[test]
fn a_process_on_another_heap_is_named_as_such() {
    let sleeper = Killed(Command::new("sleep").arg("60").spawn().unwrap());
    refused(&tool(sleeper.0.id(), "text"), 5, "does not run on stratalloc");
}

#[test]
fn no_such_process() {
    refused(&tool(i32::MAX as u32, "text"), 3, "no process 2147483647");
}

#[test]
fn a_process_that_has_ended_but_was_not_waited_for() {
    let mut child = Command::new("true").spawn().unwrap();
    // SAFETY: the record is written by the call; the child is ours and stays to be waited for.
    unsafe {
        let mut record = std::mem::zeroed();
        libc::waitid(libc::P_PID, child.id(), &mut record, libc::WEXITED | libc::WNOWAIT);
    }
    refused(&tool(child.id(), "text"), 3, "it has ended");
    child.wait().unwrap();
}

#[test]
fn a_process_of_somebody_else_is_refused() {
    // SAFETY: no arguments, no effect.
    let root = unsafe { libc::geteuid() } == 0;
    let output = if root {
        // As nobody, with the tool where nobody can run it.
        let copy = std::env::temp_dir().join(format!("stratalloc-tool-{}", process::id()));
        std::fs::copy(env!("CARGO_BIN_EXE_stratalloc"), &copy).unwrap();
        let mut command = Command::new(&copy);
        command.args(["stat", &process::id().to_string()]).uid(65534).gid(65534);
        let output = loop {
            match command.output() {
                // A child that another test has just forked still has the copy open for writing.
                Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => thread::sleep(Duration::from_millis(10)),
                result => break result.unwrap(),
            }
        };
        std::fs::remove_file(&copy).unwrap();
        output
    } else {
        command(1, "text").output().unwrap()
    };
    refused(&output, 4, "no permission to read process");
}

#[test]
fn wrong_usage() {
    let output = Command::new(env!("CARGO_BIN_EXE_stratalloc")).args(["stat", "many"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = Command::new(env!("CARGO_BIN_EXE_stratalloc")).arg("--help").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Exit codes:"));
}
