//! `run`: runs a command on the heap, passes its end on, and reports what the heap did.

use crate::run_report::Report;
use crate::{Outcome, Usage, build_preload, environment};
use anyhow::{Context, Result, bail};
use clap::Parser;
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

pub(crate) const USAGE: Usage =
    Usage { line: "run [--library FILE] [--quiet] [--] COMMAND [ARGS]", job: "run COMMAND on the heap" };

/// Runs a command with the heap preloaded.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask run", no_binary_name = true)]
struct Options {
    /// Preload this file instead of building libstratalloc.so
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Print no report at the end
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &[OsString]) -> Outcome {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return Ok(ExitCode::from(if error.use_stderr() { 2 } else { 0 }));
        }
    };
    execute(&options).map_err(|error| format!("{error:#}"))
}

fn execute(options: &Options) -> Result<ExitCode> {
    let library = library(options.library.as_deref())?;
    let mut report = Report::new(&library)?;
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    for (name, value) in environment::restored() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("LD_PRELOAD", preload_list(&library, std::env::var_os("LD_PRELOAD")));
    report.prepare(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("xtask run: {}: {error}", options.command[0].to_string_lossy());
            // As shells do: 127 for a command that is not there, 126 for one that cannot be run.
            return Ok(ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }));
        }
    };
    forward_signals(child.id())?;
    let (status, mapped) = watch(&mut child, &library, &mut report)?;
    if !options.quiet {
        report.print(&options.command[0], child.id(), mapped);
    }
    Ok(ExitCode::from(exit_code(status)))
}

/// The library to preload, as an absolute path: the file asked for, or our own, built if it is stale.
///
/// # Errors
/// When the file is not there or the build fails.
pub(crate) fn library(asked: Option<&Path>) -> Result<PathBuf> {
    let path = match asked {
        Some(path) => path.to_owned(),
        None => build_preload::build(None).map_err(anyhow::Error::msg)?,
    };
    let path = path.canonicalize().with_context(|| format!("cannot preload {}", path.display()))?;
    if path.to_string_lossy().contains([' ', ':']) {
        bail!("{}: the loader cannot preload a path with a space or a colon in it", path.display());
    }
    Ok(path)
}

/// `library` before what is already asked to be preloaded.
fn preload_list(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|list| !list.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

/// Passes signals on to the command. Those that a terminal sends reach it without our help.
fn forward_signals(pid: u32) -> Result<()> {
    use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    let terminal = std::io::stdin().is_terminal();
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if !(terminal && matches!(signal, SIGINT | SIGQUIT)) {
                // SAFETY: kill has no memory effect here.
                unsafe { libc::kill(pid as i32, signal) };
            }
        }
    });
    Ok(())
}

/// Waits for the command; the second value is whether the library was seen among its mappings.
fn watch(child: &mut Child, library: &Path, report: &mut Report) -> Result<(ExitStatus, bool)> {
    let maps = format!("/proc/{}/maps", child.id());
    let library = library.to_string_lossy();
    let start = Instant::now();
    let (mut mapped, mut swept) = (false, start);
    loop {
        mapped = mapped || std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(&*library));
        if let Some(status) = child.try_wait()? {
            return Ok((status, mapped));
        }
        if swept.elapsed() > Duration::from_millis(100) {
            report.sweep(child.id());
            swept = Instant::now();
        }
        // A command of a millisecond is seen as well as a server, which costs twenty looks a second.
        std::thread::sleep((start.elapsed() / 20).min(Duration::from_millis(50)));
    }
}

/// The command's exit code, or 128 and the number of the signal that ended it, as shells have it.
fn exit_code(status: ExitStatus) -> u8 {
    match status.code() {
        Some(code) => code as u8,
        None => 128u8.wrapping_add(status.signal().unwrap_or(0) as u8),
    }
}
