//! Bounded child processes: each runs in a process group of its own, under a time limit, with its output captured,
//! and nothing of the group is left when it is over.

use crate::environment;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A limit on the memory that a job may lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memlock {
    /// RLIMIT_MEMLOCK raised as far as it goes, and CAP_IPC_LOCK kept where the caller has it.
    Plenty,
    /// At most this many bytes, and no CAP_IPC_LOCK.
    Bytes(u64),
}

/// A command to run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    argv: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    dir: Option<PathBuf>,
    input: Vec<u8>,
    limit: Duration,
    memlock: Option<Memlock>,
    address_space: Option<u64>,
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// All it wrote to its standard output.
    pub(crate) stdout: Vec<u8>,
    /// All it wrote to its standard error.
    pub(crate) stderr: Vec<u8>,
    /// What it took, with all descendants that were waited for.
    pub(crate) usage: Usage,
}

/// Resources that a job and its descendants took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Peak resident set of the biggest process, in KiB.
    pub(crate) peak_kib: u64,
    /// Minor page faults of all processes.
    pub(crate) faults: u64,
    /// From the start to the end.
    pub(crate) wall: Duration,
    /// Processor time in programs.
    pub(crate) user: Duration,
    /// Processor time in the kernel.
    pub(crate) system: Duration,
}

impl Usage {
    /// Of two jobs one after the other.
    pub(crate) fn and(self, next: Self) -> Self {
        Self {
            peak_kib: self.peak_kib.max(next.peak_kib),
            faults: self.faults + next.faults,
            wall: self.wall + next.wall,
            user: self.user + next.user,
            system: self.system + next.system,
        }
    }
}

/// A job that runs in the background; dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct Running {
    pid: i32,
    name: String,
    stdout: File,
    stderr: File,
    started: Instant,
    reaped: Option<(ExitStatus, Usage)>,
}

/// Watches for interrupts from now on: jobs then end early with an error, so that every guard runs.
///
/// A second interrupt ends this process at once.
pub(crate) fn watch_interrupts() -> Result<()> {
    let flag = interrupt_flag();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

fn interrupt_flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(Arc::default)
}

/// Fails once the user has interrupted this process.
pub(crate) fn check_interrupt() -> Result<()> {
    if interrupt_flag().load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

impl Job {
    /// A job that runs `program` with no standard input, for at most two minutes.
    ///
    /// Its environment is this process's without what cargo added, without any setting that acts on an allocator,
    /// and with the C locale, so that results can be compared.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut env = environment::restored();
        for name in ["LD_PRELOAD", "STRATALLOC_CONF", "MALLOC_CONF", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"] {
            env.push((name.into(), None));
        }
        env.push(("LC_ALL".into(), Some("C".into())));
        env.push(("TZ".into(), Some("UTC".into())));
        Self {
            argv: vec![program.as_ref().to_owned()],
            env,
            dir: None,
            input: Vec::new(),
            limit: Duration::from_secs(120),
            memlock: None,
            address_space: None,
        }
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.argv.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Puts a wrapper with its own arguments before the command.
    pub(crate) fn wrapped_in(mut self, wrapper: impl IntoIterator<Item = OsString>) -> Self {
        self.argv.splice(0..0, wrapper);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Sets the working folder.
    pub(crate) fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Gives the job this text as its standard input.
    pub(crate) fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = text.into();
        self
    }

    /// Sets the time limit.
    pub(crate) fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Sets what the job may lock.
    pub(crate) fn memlock(mut self, memlock: Memlock) -> Self {
        self.memlock = Some(memlock);
        self
    }

    /// Sets RLIMIT_AS, in bytes.
    pub(crate) fn address_space(mut self, bytes: u64) -> Self {
        self.address_space = Some(bytes);
        self
    }

    /// The command line, for messages.
    pub(crate) fn line(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|a| a.to_string_lossy()).collect();
        let mut line = words.join(" ");
        if let Some((end, _)) = line.char_indices().nth(160) {
            line.truncate(end);
            line.push_str(" ...");
        }
        line
    }

    /// Runs the job to its end.
    ///
    /// # Errors
    /// When it cannot be started, when its time runs out, or on an interrupt. An exit code is no error.
    pub(crate) fn run(self) -> Result<Finished> {
        let limit = self.limit;
        self.spawn()?.wait(limit)
    }

    /// Runs the job and requires exit code 0.
    ///
    /// # Errors
    /// As [`Job::run`], and with the tail of its output on any other end.
    pub(crate) fn run_ok(self) -> Result<Finished> {
        let line = self.line();
        let done = self.run()?;
        if !done.status.success() {
            bail!("`{line}` ended with {}\n{}", describe(done.status), done.tail());
        }
        Ok(done)
    }

    /// Starts the job in the background.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn spawn(self) -> Result<Running> {
        check_interrupt()?;
        let name = self.line();
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).process_group(0);
        for (key, value) in &self.env {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        if self.input.is_empty() {
            command.stdin(Stdio::null());
        } else {
            let mut file = tempfile::tempfile()?;
            file.write_all(&self.input)?;
            file.seek(SeekFrom::Start(0))?;
            command.stdin(file);
        }
        command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let (memlock, address_space) = (self.memlock, self.address_space);
        // SAFETY: the closure makes plain system calls and touches no memory but its own copies.
        unsafe {
            command.pre_exec(move || prepare_child(memlock, address_space));
        }
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
        Ok(Running { pid: child.id() as i32, name, stdout, stderr, started, reaped: None })
    }
}

/// Sets limits in the child, between fork and exec.
fn prepare_child(memlock: Option<Memlock>, address_space: Option<u64>) -> std::io::Result<()> {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let check = |code: libc::c_int| match code {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: prctl with these operations, getrlimit and setrlimit read and write only what is passed.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong))?;
        match memlock {
            Some(Memlock::Bytes(bytes)) => {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit))?;
                if libc::prctl(libc::PR_CAPBSET_READ, CAP_IPC_LOCK) == 1 && libc::geteuid() == 0 {
                    check(libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK))?;
                }
            }
            Some(Memlock::Plenty) => {
                let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
                if libc::setrlimit(libc::RLIMIT_MEMLOCK, &all) != 0 {
                    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    check(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut now))?;
                    now.rlim_cur = now.rlim_max;
                    check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &now))?;
                }
            }
            None => {}
        }
        if let Some(bytes) = address_space {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            check(libc::setrlimit(libc::RLIMIT_AS, &limit))?;
        }
    }
    Ok(())
}

impl Running {
    /// Whether it has not ended yet.
    pub(crate) fn alive(&mut self) -> bool {
        self.reap();
        self.reaped.is_none()
    }

    /// What it has written to standard output and standard error so far.
    pub(crate) fn output(&mut self) -> Result<(Vec<u8>, Vec<u8>)> {
        Ok((read_all(&mut self.stdout)?, read_all(&mut self.stderr)?))
    }

    /// Sends a signal to the first process.
    pub(crate) fn signal(&self, signal: i32) {
        if self.reaped.is_none() {
            // SAFETY: kill has no memory effect here, and the process is not reaped, so the id is its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Waits for the end, kills what is left of the group, and hands the output over.
    ///
    /// # Errors
    /// When `limit` runs out (the group is killed then), or on an interrupt.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Finished> {
        let start = Instant::now();
        let mut nap = Duration::from_micros(200);
        while self.alive() {
            check_interrupt()?;
            if start.elapsed() > limit {
                self.kill_group();
                let tail = self.finish()?.tail();
                bail!("`{}` was still running after {} s and was killed\n{tail}", self.name, limit.as_secs());
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(20));
        }
        self.kill_group();
        self.finish()
    }

    fn finish(&mut self) -> Result<Finished> {
        while self.alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (stdout, stderr) = self.output()?;
        let (status, usage) = self.reaped.expect("the job has ended");
        Ok(Finished { status, stdout, stderr, usage })
    }

    fn reap(&mut self) {
        if self.reaped.is_some() {
            return;
        }
        let mut status = 0;
        // SAFETY: rusage is plain data for which zeros are valid, and wait4 fills what it is given.
        let (reaped, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(self.pid, &mut status, libc::WNOHANG, &mut usage), usage)
        };
        if reaped == self.pid {
            let usage = Usage {
                peak_kib: usage.ru_maxrss as u64,
                faults: usage.ru_minflt as u64,
                wall: self.started.elapsed(),
                user: duration(usage.ru_utime),
                system: duration(usage.ru_stime),
            };
            self.reaped = Some((ExitStatus::from_raw(status), usage));
        }
    }

    fn kill_group(&self) {
        // SAFETY: kill has no memory effect here; the group was made for this job alone.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.alive() {
            self.kill_group();
            while self.alive() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Finished {
    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The last lines of both outputs, for a message.
    pub(crate) fn tail(&self) -> String {
        let mut tail = String::new();
        for text in [self.text(), self.errors()] {
            let lines: Vec<_> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(25)..] {
                let line: String = line.chars().take(400).collect();
                tail.push_str(&format!("    | {line}\n"));
            }
        }
        tail
    }
}

/// An exit status in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000)
}

fn read_all(file: &mut File) -> Result<Vec<u8>> {
    // The file offset is shared with the writer, so it is read through a handle of its own.
    let mut own = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))?;
    let mut bytes = Vec::new();
    own.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Job, Memlock};
    use std::time::{Duration, Instant};

    fn sh(script: &str) -> Job {
        Job::new("sh").args(["-c", script])
    }

    #[test]
    fn output_and_exit_code_are_kept() {
        let done = sh("cat; echo err >&2; exit 3").input("in").run().expect("sh runs");
        assert_eq!((done.text().as_str(), done.errors().as_str()), ("in", "err\n"));
        assert_eq!(done.status.code(), Some(3));
        assert!(done.usage.faults > 0 && done.usage.peak_kib > 0);
    }

    #[test]
    fn a_job_over_its_limit_is_killed_with_its_children() {
        let start = Instant::now();
        let error =
            sh("sleep 50 & echo $!; sleep 50").limit(1).run().expect_err("it takes too long").to_string();
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(error.contains("still running after 1 s"), "{error}");
        let child =
            error.lines().find_map(|line| line.trim_start().strip_prefix("| ")).expect("the child's id");
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            assert!(start.elapsed() < Duration::from_secs(20), "the child {child} is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn limits_reach_the_job() {
        let job = sh("ulimit -l; ulimit -v").memlock(Memlock::Bytes(64 << 10)).address_space(1 << 30);
        assert_eq!(job.run_ok().expect("sh runs").text(), "64\n1048576\n");
    }

    #[test]
    fn a_failed_command_is_an_error_with_its_output() {
        let error = sh("echo why >&2; exit 1").run_ok().expect_err("exit code 1").to_string();
        assert!(error.contains("exit code 1") && error.contains("| why"), "{error}");
    }
}
