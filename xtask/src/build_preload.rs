//! `build-preload`: builds `libstratalloc.so`, splits its debug information off, and checks its ABI.
//!
//! `alloc-ffi` is an ordinary library for `cargo test` and `clippy`; only this command builds it as a
//! `no_std` cdylib, where `--cfg preload` brings its exports, panic handler and global allocator to life.

use crate::{Outcome, Usage, check_abi, workspace};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) const USAGE: Usage = Usage {
    line: "build-preload [--target TRIPLE] [--static]",
    job: "build and check libstratalloc.so, or build the archive",
};

const LIBRARY: &str = "libstratalloc.so";

/// crossbeam-epoch's bags of 64 deferred calls make each thread's record 2 KiB larger, and the end of a thread need some
/// 13 KiB of stack, which threads of the least stack size do not have. Under this name the bags hold four.
const SMALL_EPOCHS: &str = "crossbeam_sanitize";

const LINK_ARGS: &[&str] = &[
    "-Wl,-soname,libstratalloc.so.0",
    // A key destructor or a fork handler of ours may run long after a dlclose.
    "-Wl,-z,nodelete",
    "-Wl,-z,now",
    "-Wl,-z,noexecstack",
    // The C start files have nothing for a library that is never unloaded, and their code and data cost pages at each start.
    "-nostartfiles",
    // Each segment from a page boundary on: no page of data more than its size needs.
    "-Wl,-z,separate-loadable-segments",
];

pub(crate) fn run(args: &[OsString]) -> Outcome {
    let (mut target, mut archive) = (None, false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("--static") => archive = true,
            Some("--target") => {
                target = Some(rest.next().and_then(|t| t.to_str()).ok_or("--target takes a triple")?);
            }
            _ => return USAGE.misused(args),
        }
    }
    if archive {
        println!("{}", build_archive(target)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    let path = build(target)?;
    let report = check_abi::check(&path)?;
    print!("{report}");
    println!("{}", path.display());
    if report.passed() { Ok(ExitCode::SUCCESS) } else { Err("the ABI check failed".into()) }
}

/// Builds the library, and returns the path of the stripped file; its debug information stands beside it.
///
/// # Errors
/// A message that says which step failed.
pub(crate) fn build(target: Option<&str>) -> Result<PathBuf, String> {
    let mut args = vec!["--cfg".to_owned(), "preload".to_owned()];
    args.extend(LINK_ARGS.iter().flat_map(|arg| ["-C".to_owned(), format!("link-arg={arg}")]));
    let layout = workspace::root().join("alloc-ffi/layout.ld");
    args.extend(["-C".to_owned(), format!("link-arg=-Wl,-T,{}", layout.display())]);
    let dir = build_crate("cdylib", target, &workspace::target_dir(), &args)?;
    let library = split_debug(&dir.join("liballoc_ffi.so"), &dir, target)?;
    link_soname(&dir)?;
    Ok(library)
}

/// Lets a program that was linked with the library find it beside it, by its soname.
fn link_soname(dir: &Path) -> Result<(), String> {
    let link = dir.join(check_abi::SONAME);
    match std::os::unix::fs::symlink(LIBRARY, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("{}: {error}", link.display()))
        }
        _ => Ok(()),
    }
}

/// Builds `libstratalloc.a`, for programs that are linked statically, and returns its path.
///
/// It has the malloc family alone: no C++ operators, which a static program takes from its C++ runtime, and no
/// `pthread_create`, which would clash with libc's.
fn build_archive(target: Option<&str>) -> Result<PathBuf, String> {
    let args = ["--cfg", "preload", "--cfg", "archive"].map(str::to_owned);
    // A folder of its own: both builds of the crate have the same file names for cargo.
    let dir = build_crate("staticlib", target, &workspace::target_dir().join("archive"), &args)?;
    let mut archive = workspace::target_dir();
    archive.extend(target);
    archive.extend(["preload", "libstratalloc.a"]);
    let strip = format!("{}strip", target.and_then(cross_prefix).unwrap_or_default());
    let built = dir.join("liballoc_ffi.a");
    std::fs::create_dir_all(archive.with_file_name("")).map_err(|e| format!("{}: {e}", archive.display()))?;
    let mut command = Command::new(strip);
    command.arg("--strip-debug").arg("-o").args([&archive, &built]);
    workspace::succeed(&mut command, " (apt-get install binutils)")?;
    Ok(archive)
}

/// Runs cargo for one kind of the crate; returns the folder of the result.
fn build_crate(kind: &str, target: Option<&str>, dir: &Path, args: &[String]) -> Result<PathBuf, String> {
    let mut command = workspace::cargo();
    // The variable, where it is set, hides what any configuration says.
    match std::env::var("RUSTFLAGS") {
        Ok(flags) => command.env("RUSTFLAGS", format!("{flags} --cfg {SMALL_EPOCHS}")),
        Err(_) => command
            .args(["--config", &format!(r#"target.'cfg(all())'.rustflags=["--cfg", "{SMALL_EPOCHS}"]"#)]),
    };
    command.args(["rustc", "--quiet", "--package", "alloc-ffi", "--lib", "--profile", "preload"]);
    command.args(["--crate-type", kind, "--target-dir"]).arg(dir);
    let mut dir = dir.to_owned();
    if let Some(target) = target {
        command.args(["--target", target]);
        dir.push(target);
        let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
        if let Some(prefix) = cross_prefix(target)
            && std::env::var_os(&linker).is_none()
        {
            command.env(linker, format!("{prefix}gcc"));
        }
    }
    command.arg("--").args(args);
    workspace::succeed(&mut command, "")?;
    dir.push("preload");
    Ok(dir)
}

/// The prefix of the GNU tools for another architecture than the one we run on.
fn cross_prefix(target: &str) -> Option<String> {
    let arch = target.split('-').next()?;
    (arch != std::env::consts::ARCH).then(|| format!("{arch}-linux-gnu-"))
}

/// Makes the stripped library and its `.debug` file from cargo's output.
///
/// The library is put in place by renaming: a process that has the old one mapped keeps it.
fn split_debug(built: &Path, dir: &Path, target: Option<&str>) -> Result<PathBuf, String> {
    let objcopy = format!("{}objcopy", target.and_then(cross_prefix).unwrap_or_default());
    let library = dir.join(LIBRARY);
    let debug = dir.join(format!("{LIBRARY}.debug"));
    if newer(&library, built) && newer(&debug, built) {
        return Ok(library);
    }
    // The link to the debug file holds its base name, so that file is made under its name in a directory of its own.
    let work = dir.join(format!("split-{}", std::process::id()));
    std::fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let stripped = work.join(LIBRARY);
    let split = work.join(format!("{LIBRARY}.debug"));
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(&split);
    let steps: [&[&OsStr]; 2] = [
        &["--only-keep-debug".as_ref(), built.as_ref(), split.as_ref()],
        &["--strip-all".as_ref(), &link, built.as_ref(), stripped.as_ref()],
    ];
    for step in steps {
        workspace::succeed(Command::new(&objcopy).args(step), " (apt-get install binutils)")?;
    }
    for (from, to) in [(&split, &debug), (&stripped, &library)] {
        std::fs::rename(from, to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    let _ = std::fs::remove_dir(&work);
    Ok(library)
}

/// Whether `file` exists and was made after `source`.
fn newer(file: &Path, source: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|m| m.modified());
    matches!((modified(file), modified(source)), (Ok(file), Ok(source)) if file > source)
}
