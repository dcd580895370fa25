//! A private mariadbd: its own data folder, socket and port on loopback, started on an allocator and killed on every way out.

use super::protocol::Session;
use super::sample::Sample;
use crate::exec::{Job, Memlock, Running, check_interrupt, describe};
use crate::mode::Heap;
use crate::{proc, service};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a server is started with, besides the allocator.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    /// Options of the server, behind the common ones.
    pub(super) options: Vec<String>,
    /// The folder of a memory cgroup to start it in.
    pub(super) cgroup: Option<PathBuf>,
}

/// Data folders: one prepared, and a copy for each run.
#[derive(Debug)]
pub(super) struct Data {
    dir: tempfile::TempDir,
    tables: u32,
    rows: u32,
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Server {
    job: Running,
    /// The id of the server's process.
    pub(super) pid: i32,
    socket: PathBuf,
    /// The copy of the data folder, removed at the end.
    _scratch: tempfile::TempDir,
}

/// The database that the loads use.
pub(super) const DATABASE: &str = "bench";
/// File descriptors for 10,240 sessions and 4,000 tables.
const FILES: u32 = 20_000;

impl Data {
    /// Makes a data folder with `tables` sysbench tables of `rows` rows.
    ///
    /// # Errors
    /// When mariadbd, sysbench or the disk space is missing.
    pub(super) fn prepare(tables: u32, rows: u32) -> Result<Self> {
        let data = Self { dir: tempfile::tempdir()?, tables, rows };
        service::install(&data.template(), data.dir.path(), "root", "96M")?;
        let server = data.start_on(data.template(), &Heap::System, &Setting::default())?;
        server.session("")?.rows(&format!("CREATE DATABASE {DATABASE}"))?;
        data.sysbench(&server, "oltp_read_write", 2).arg("prepare").limit(600).run_ok()?;
        server.stop()?;
        Ok(data)
    }

    /// Starts a server on a fresh copy of the prepared data.
    ///
    /// # Errors
    /// When it does not start, or does not have the allocator mapped.
    pub(super) fn start(&self, heap: &Heap, setting: &Setting) -> Result<Server> {
        let scratch = tempfile::tempdir_in(self.dir.path())?;
        Job::new("cp")
            .args(["-a", "--sparse=always", "--reflink=auto"])
            .arg(self.template())
            .arg(scratch.path())
            .run_ok()?;
        let data = scratch.path().join("data");
        self.launch(scratch, &data, heap, setting)
    }

    /// A sysbench load on the prepared tables, to be given its command.
    pub(super) fn sysbench(&self, server: &Server, load: &str, threads: u32) -> Job {
        let job = Job::new("sysbench").args([load, "--db-driver=mysql", "--mysql-user=root"]);
        job.arg(flag("mysql-socket", &server.socket))
            .arg(format!("--mysql-db={DATABASE}"))
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows))
            .arg(format!("--threads={threads}"))
    }

    /// Rows of each table.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// Tables.
    pub(super) fn tables(&self) -> u32 {
        self.tables
    }

    fn template(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn start_on(&self, data: PathBuf, heap: &Heap, setting: &Setting) -> Result<Server> {
        self.launch(tempfile::tempdir_in(self.dir.path())?, &data, heap, setting)
    }

    fn launch(
        &self,
        scratch: tempfile::TempDir,
        data: &Path,
        heap: &Heap,
        setting: &Setting,
    ) -> Result<Server> {
        let socket = scratch.path().join("socket");
        let placed = Placed::of(heap);
        let job = Job::new("/bin/sh").args(["-c", &prelude(setting), "sh", "/usr/bin/env"]);
        let job = job.args(&placed.environment).arg(program()?);
        let job = job.args(["--no-defaults", "--user=root", "--bind-address=127.0.0.1"]);
        let job = job.arg(format!("--port={}", free_port()?));
        let job = job
            .arg(flag("datadir", data))
            .arg(flag("socket", &socket))
            .arg(flag("tmpdir", scratch.path()))
            .arg(flag("pid-file", &scratch.path().join("pid")))
            .arg(format!("--open-files-limit={FILES}"))
            .args([
                "--innodb-buffer-pool-size=128M",
                "--innodb-log-file-size=96M",
                "--innodb-flush-log-at-trx-commit=0",
                "--max-connections=10240",
                "--back-log=10240",
                "--skip-name-resolve",
            ])
            .args(&setting.options);
        let job = match placed.memlock {
            Some(memlock) => job.memlock(memlock),
            None => job,
        };
        let mut job = job.dir(scratch.path()).env("HOME", scratch.path()).spawn()?;
        let start = Instant::now();
        while Session::open(&socket, "", Duration::ZERO).is_err() {
            check_interrupt()?;
            if !job.alive() || start.elapsed() > Duration::from_secs(60) {
                job.signal(libc::SIGKILL);
                bail!("the server did not start\n{}", job.wait(Duration::from_secs(5))?.tail());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let text =
            std::fs::read_to_string(scratch.path().join("pid")).context("the server wrote no process id")?;
        let pid = text.trim().parse()?;
        if let Some(library) = placed.library {
            ensure!(proc::maps(pid, library)?, "/proc/{pid}/maps does not show {}", library.display());
        }
        Ok(Server { job, pid, socket, _scratch: scratch })
    }
}

impl Server {
    /// Opens a session.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(super) fn session(&self, database: &str) -> Result<Session> {
        Ok(Session::open(&self.socket, database, Duration::from_secs(10))?.0)
    }

    /// The socket's path.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its memory and time now.
    ///
    /// # Errors
    /// With the server's last words, when it is gone.
    pub(super) fn sample(&mut self) -> Result<Sample> {
        match Sample::of(self.pid) {
            Ok(sample) => Ok(sample),
            Err(error) => {
                let (_, log) = self.job.output()?;
                let log = String::from_utf8_lossy(&log);
                let last: Vec<&str> = log.lines().rev().take(10).collect();
                Err(error.context(format!("the server is gone\n{}", last.join("\n"))))
            }
        }
    }

    /// A number among the server's own counters.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(super) fn status(&self, name: &str) -> Result<u64> {
        let rows = self.session("")?.rows(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        let value =
            rows.first().and_then(|row| row.get(1)?.as_deref()).with_context(|| format!("no {name}"))?;
        Ok(value.parse()?)
    }

    /// Ends the server in good order and returns what it wrote to standard error.
    ///
    /// # Errors
    /// When it does not end within a minute, or with another exit code than 0.
    pub(super) fn stop(self) -> Result<String> {
        self.session("")?.rows("SHUTDOWN")?;
        let done = self.job.wait(Duration::from_secs(60))?;
        ensure!(done.status.success(), "the server ended with {}\n{}", describe(done.status), done.tail());
        Ok(done.errors())
    }
}

/// How a server is put on a heap: by variables for it alone, not for the shell that raises its limits.
struct Placed<'a> {
    environment: Vec<String>,
    library: Option<&'a Path>,
    memlock: Option<Memlock>,
}

impl<'a> Placed<'a> {
    fn of(heap: &'a Heap) -> Self {
        let (library, variable, memlock) = match heap {
            Heap::System | Heap::SystemForced => (None, None, None),
            Heap::Peer { library, variable } => (Some(&**library), *variable, None),
            Heap::Ours { library, mode, .. } => {
                (Some(&**library), Some(("STRATALLOC_CONF", mode.conf)), mode.memlock)
            }
        };
        let preload = library.map(|library| format!("LD_PRELOAD={}", library.display()));
        let settings = variable.map(|(name, value)| format!("{name}={value}"));
        Self { environment: preload.into_iter().chain(settings).collect(), library, memlock }
    }
}

/// What the shell does before it becomes the server.
fn prelude(setting: &Setting) -> String {
    let mut text = format!("ulimit -n {FILES}; ");
    if let Some(group) = &setting.cgroup {
        text += &format!("echo $$ > '{}/cgroup.procs' && ", group.display());
    }
    text + "exec \"$@\""
}

/// The server's program, which is not on every user's path.
fn program() -> Result<&'static str> {
    let places = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/libexec/mariadbd"];
    places.into_iter().find(|place| Path::new(place).exists()).context("mariadbd is not installed")
}

/// A TCP port on loopback that nobody listens on.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
