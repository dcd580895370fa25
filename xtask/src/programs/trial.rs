//! One run of one program on one heap.

use crate::exec::{Finished, Job, Running, Usage, check_interrupt, describe};
use crate::launcher::Tools;
use crate::mode::{Heap, Via};
use crate::{proc, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a run ended with.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The result, which must not depend on the heap.
    pub(crate) content: String,
    /// What the biggest process took.
    pub(crate) usage: Usage,
}

/// A run: the heap, the prepared input, and an empty folder to work in.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    /// The heap to run on.
    pub(crate) heap: &'a Heap,
    /// The prepared input; not to be changed.
    pub(crate) input: &'a Path,
    /// The working folder, removed afterwards.
    pub(crate) scratch: &'a Path,
    /// The launcher.
    pub(crate) tools: &'a Tools,
}

/// A server that runs on the heap of a trial.
pub(crate) struct Server {
    job: Running,
    ready: Instant,
    /// The id of the server's own process.
    pub(crate) pid: i32,
}

impl Trial<'_> {
    /// A job in the working folder, without a heap of ours.
    pub(crate) fn job(&self, program: impl AsRef<std::ffi::OsStr>) -> Job {
        Job::new(program).dir(self.scratch).env("HOME", self.scratch)
    }

    /// Runs a job on the heap and requires exit code 0.
    pub(crate) fn run(&self, job: Job) -> Result<Finished> {
        let line = job.line();
        let done = self.tools.measure(self.heap.apply(job))?;
        if !done.status.success() {
            bail!("`{line}` ended with {}\n{}", describe(done.status), done.tail());
        }
        self.check_effect(&done)?;
        Ok(done)
    }

    /// Runs a job on the heap; its standard output is the result.
    pub(crate) fn outcome(&self, job: Job) -> Result<Outcome> {
        let done = self.run(job)?;
        Ok(Outcome { content: done.text(), usage: done.usage })
    }

    /// Starts a server on the heap and waits until `ready` says that it is; the server itself writes its process
    /// id to `pid_file`.
    ///
    /// # Errors
    /// When it does not start, or does not show the library among its mappings and open files.
    pub(crate) fn serve(&self, job: Job, pid_file: &Path, ready: impl Fn() -> bool) -> Result<Server> {
        let mut job = self.heap.apply(job).spawn()?;
        let start = Instant::now();
        while !ready() {
            check_interrupt()?;
            if !job.alive() || start.elapsed() > Duration::from_secs(60) {
                job.signal(libc::SIGKILL);
                bail!("the server did not start\n{}", job.wait(Duration::from_secs(5))?.tail());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let text = std::fs::read_to_string(pid_file).context("the server wrote no process id")?;
        let pid = text.trim().parse()?;
        if let Heap::Ours { library, .. } | Heap::Peer { library, .. } = self.heap {
            ensure!(proc::maps(pid, library)?, "/proc/{pid}/maps does not show {}", library.display());
            let lsof = Job::new("lsof").args(["-n", "-p", &pid.to_string()]).run()?.text();
            ensure!(lsof.contains(&*library.to_string_lossy()), "lsof does not show {}", library.display());
        }
        Ok(Server { job, ready: Instant::now(), pid })
    }

    /// Takes the figures of a server, checks that its memory is of the kind asked for, has `stop` end it, and
    /// requires exit code 0.
    pub(crate) fn stop(&self, server: Server, stop: Job) -> Result<Usage> {
        let usage = proc::usage(server.pid, server.ready)?;
        if let Heap::Ours { mode, .. } = self.heap {
            mode.check_memory(|name| proc::status_kib(server.pid, name).unwrap_or(0))?;
        }
        stop.run_ok()?;
        let done = server.job.wait(Duration::from_secs(60))?;
        ensure!(done.status.success(), "the server ended with {}\n{}", describe(done.status), done.tail());
        self.check_effect(&done)?;
        Ok(usage)
    }

    fn check_effect(&self, done: &Finished) -> Result<()> {
        let errors = done.errors();
        ensure!(!errors.contains("cannot be preloaded"), "the library was not preloaded\n{}", done.tail());
        if let Heap::Ours { via: Via::Run, .. } = self.heap {
            ensure!(
                errors.contains("stratalloc: in effect in "),
                "no report that it was in effect\n{}",
                done.tail()
            );
        }
        Ok(())
    }
}

/// A script of the battery.
pub(crate) fn script(name: &str) -> PathBuf {
    workspace::root().join("xtask/battery").join(name)
}
