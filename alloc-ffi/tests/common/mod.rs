//! Builds the preload library and the C and C++ programs, and runs them with and without it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Long enough for any program on a busy machine; a run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The preload library, built and checked once a test binary.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build_preload(&[]))
}

/// The archive for static programs.
pub(crate) fn archive() -> &'static Path {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| build_preload(&["--static"]))
}

fn build_preload(args: &[&str]) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--package", "xtask", "--", "build-preload"])
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    let text = String::from_utf8(output.stdout).expect("the path is UTF-8");
    assert!(output.status.success(), "build-preload failed:\n{text}");
    PathBuf::from(text.lines().last().expect("build-preload prints the library's path"))
}

/// A program or module of this directory, compiled with the system's compiler.
pub(crate) struct Source {
    file: &'static str,
    flags: &'static [&'static str],
    library: Option<&'static Path>,
}

/// `file` is relative to `tests`; `.c` is compiled as C, `.cpp` as C++.
pub(crate) fn source(file: &'static str) -> Source {
    Source { file, flags: &["-O1", "-fno-builtin"], library: None }
}

impl Source {
    /// Other flags than the usual ones.
    pub(crate) fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    /// Links a library.
    pub(crate) fn link(mut self, library: &'static Path) -> Self {
        self.library = Some(library);
        self
    }

    /// Compiles a program.
    pub(crate) fn program(&self) -> PathBuf {
        self.compile("", &[])
    }

    /// Compiles a shared library.
    pub(crate) fn module(&self) -> PathBuf {
        self.compile(".so", &["-shared", "-fPIC"])
    }

    /// Compiles with the flags given and no others: to look at warnings.
    pub(crate) fn strict(&self) {
        self.call_compiler(&[], None);
    }

    fn compile(&self, suffix: &str, extra: &[&str]) -> PathBuf {
        let stem = Path::new(self.file).file_stem().and_then(|s| s.to_str()).expect("a file name");
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test").replace("::", "-");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}-{test}{suffix}"));
        let usual = ["-g", "-D_GNU_SOURCE", "-w", "-pthread"];
        self.call_compiler(&[&usual, extra].concat(), Some(&out));
        out
    }

    fn call_compiler(&self, extra: &[&str], out: Option<&Path>) {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).join(self.file);
        let (compiler, standard) =
            if self.file.ends_with(".cpp") { ("c++", "-std=gnu++17") } else { ("cc", "-std=gnu17") };
        let mut command = Command::new(compiler);
        command.arg(standard).args(self.flags).args(extra).arg(&path).args(self.library);
        if let Some(out) = out {
            command.arg("-o").arg(out).arg("-ldl");
        }
        let status = command
            .status()
            .unwrap_or_else(|e| panic!("cannot run {compiler}: {e} (apt-get install gcc g++)"));
        assert!(status.success(), "{compiler} failed on {}", path.display());
    }
}

/// How a program ended and what it wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a program with libraries preloaded in that order; one that hangs is killed and fails the test.
pub(crate) fn run(program: &Path, args: &[&str], preload: &[&Path]) -> Run {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).env_remove("LD_PRELOAD");
    if !preload.is_empty() {
        let list: Vec<&str> = preload.iter().map(|p| p.to_str().expect("a UTF-8 path")).collect();
        command.env("LD_PRELOAD", list.join(":"));
    }
    run_command(command, program, preload.len())
}

/// Runs a program under the library with settings.
pub(crate) fn run_with_settings(program: &Path, args: &[&str], settings: &str) -> Run {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).env("LD_PRELOAD", library()).env("STRATALLOC_CONF", settings);
    run_command(command, program, 9)
}

/// Runs a command that is set up already.
pub(crate) fn run_command(mut command: Command, program: &Path, tag: usize) -> Run {
    let capture = |stream: &str| program.with_extension(format!("{tag}.{stream}"));
    let create = |path: &Path| File::create(path).expect("a file for the output");
    let (out, err) = (capture("out"), capture("err"));
    let mut child = command.stdout(create(&out)).stderr(create(&err)).spawn().expect("the program starts");
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("waiting works") {
            Some(status) => break status,
            None if begin.elapsed() > LIMIT => {
                child.kill().expect("a child can be killed");
                panic!("{} hangs; it wrote:\n{}", program.display(), read(&out));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    Run { status, out: read(&out), err: read(&err) }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Runs a program under glibc and under the library: both write the same and end in the same way.
#[track_caller]
pub(crate) fn same_as_glibc(program: &Path, args: &[&str]) {
    let glibc = run(program, args, &[]);
    let ours = run(program, args, &[library()]);
    assert!(!glibc.out.is_empty(), "{} observed nothing: {glibc:?}", program.display());
    assert!(glibc.status.code().is_some_and(|code| code != 99), "the program itself is wrong: {glibc:?}");
    assert_same_lines(&glibc.out, &ours.out);
    assert_eq!(glibc.err, ours.err, "standard error differs");
    assert_eq!(glibc.status, ours.status, "the exit status differs");
}

#[track_caller]
fn assert_same_lines(glibc: &str, ours: &str) {
    let (mut left, mut right) = (glibc.lines(), ours.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (a, b) => assert_eq!(a, b, "line {number}: glibc's on the left, ours on the right"),
        }
    }
}

/// Runs a program under the library alone: it succeeds with exactly this output, and silently on standard error.
#[track_caller]
pub(crate) fn prints(program: &Path, args: &[&str], expected: &str) {
    let run = run(program, args, &[library()]);
    assert_eq!((run.out.trim_end(), run.err.as_str()), (expected.trim_end(), ""));
    assert!(run.status.success(), "{:?}", run.status);
}
