//! C programs of the tests, compiled when they are needed, and measured runs through the launcher.

use crate::exec::{Finished, Job, Usage};
use crate::workspace;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder for the compiled programs, and the launcher in it.
#[derive(Debug)]
pub(crate) struct Tools {
    dir: tempfile::TempDir,
}

impl Tools {
    /// Compiles the launcher.
    ///
    /// # Errors
    /// When there is no C compiler.
    pub(crate) fn new() -> Result<Self> {
        let tools = Self { dir: tempfile::tempdir()? };
        tools.compile("launch", &["-static"])?;
        Ok(tools)
    }

    /// Compiles `xtask/c/NAME.c` and returns the program's path.
    ///
    /// # Errors
    /// With the compiler's messages.
    pub(crate) fn compile(&self, name: &str, options: &[&str]) -> Result<PathBuf> {
        let source = workspace::root().join("xtask/c").join(format!("{name}.c"));
        let program = self.dir.path().join(name);
        Job::new("cc")
            .args(["-O2", "-Wall", "-Werror"])
            .arg("-o")
            .arg(&program)
            .arg(source)
            .args(options)
            .run_ok()?;
        Ok(program)
    }

    /// A new empty folder that lives as long as these tools.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        Ok(tempfile::tempdir_in(self.dir.path())?.keep())
    }

    /// Runs a job through the launcher: its usage is then that of the job alone.
    ///
    /// # Errors
    /// As [`Job::run`].
    pub(crate) fn measure(&self, job: Job) -> Result<Finished> {
        let figures = self.dir.path().join(format!("usage-{:?}", std::thread::current().id()));
        let launcher = self.dir.path().join("launch");
        let mut done = job.wrapped_in([launcher.into_os_string(), figures.clone().into_os_string()]).run()?;
        done.usage = read_usage(&figures).context("the launcher left no figures")?;
        Ok(done)
    }
}

fn read_usage(file: &Path) -> Result<Usage> {
    let text = std::fs::read_to_string(file)?;
    std::fs::remove_file(file)?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || -> Result<u64> { Ok(numbers.next().context("a figure is missing")??) };
    Ok(Usage {
        peak_kib: next()?,
        faults: next()?,
        wall: Duration::from_micros(next()?),
        user: Duration::from_micros(next()?),
        system: Duration::from_micros(next()?),
    })
}
