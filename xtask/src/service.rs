//! A packaged database server, started by hand from its unit: the command line, user, limits, capabilities and variables
//! that systemd would give it, on a data folder of its own. No service manager is asked, and no service touched.

use crate::exec::{Finished, Job, Running, check_interrupt};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the packages of distributions put it.
const UNITS: [&str; 2] = ["/lib/systemd/system/mariadb.service", "/usr/lib/systemd/system/mariadb.service"];

/// The `[Service]` part of a unit, with its drop-ins behind it.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    entries: Vec<(String, String)>,
}

/// A data folder that servers are started on, one at a time.
#[derive(Debug)]
pub(crate) struct Database {
    dir: tempfile::TempDir,
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Service {
    job: Running,
    /// The server's process.
    pub(crate) pid: i32,
    socket: PathBuf,
}

impl Unit {
    /// MariaDB's unit as the distribution packages it: the installed one, or, so as not to install a service, that of the
    /// package's file.
    ///
    /// # Errors
    /// When there is neither.
    pub(crate) fn packaged() -> Result<Self> {
        if let Some(unit) = UNITS.iter().find(|unit| Path::new(unit).exists()) {
            return Self::parse(&fs::read_to_string(unit)?).with_a_user();
        }
        let dir = tempfile::tempdir()?;
        let download = Job::new("apt-get").args(["-q", "download", "mariadb-server"]).dir(dir.path());
        download.run_ok().context("mariadb-server is not installed, and its package cannot be had")?;
        let unpack = r#"dpkg-deb -x mariadb-server_*.deb . && cat ./lib/systemd/system/mariadb.service"#;
        let text = Job::new("/bin/sh").args(["-c", unpack]).dir(dir.path()).run_ok()?.text();
        Self::parse(&text).with_a_user()
    }

    /// The unit as it is, or for the user `nobody` where its package has not made its own.
    fn with_a_user(self) -> Result<Self> {
        let known = Job::new("id").arg(self.user()).run()?.status.success();
        Ok(if known { self } else { self.with("[Service]\nUser=nobody\nGroup=nogroup\n") })
    }

    /// The user that the server runs as.
    pub(crate) fn user(&self) -> &str {
        self.last("User").unwrap_or("root")
    }

    fn parse(text: &str) -> Self {
        let text = text.replace("\\\n", " ");
        let mut inside = false;
        let mut entries = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if line.starts_with('[') {
                inside = line == "[Service]";
            } else if let Some((key, value)) = line.split_once('=').filter(|_| inside) {
                entries.push((key.to_owned(), value.to_owned()));
            }
        }
        Self { entries }
    }

    /// The unit with a drop-in.
    pub(crate) fn with(&self, drop_in: &str) -> Self {
        let mut unit = self.clone();
        unit.entries.extend(Self::parse(drop_in).entries);
        unit
    }

    /// The values of a list, which an empty one begins anew.
    fn list(&self, key: &str) -> Vec<&str> {
        let all = self.entries.iter().filter(|entry| entry.0 == key).map(|entry| entry.1.as_str());
        let mut list = Vec::new();
        for value in all {
            if value.is_empty() { list.clear() } else { list.push(value) }
        }
        list
    }

    fn last(&self, key: &str) -> Option<&str> {
        self.list(key).pop()
    }

    /// The command line and what stands around it, as words for execution; the variable `MYSQLD_OPTS` has `options`.
    fn command(&self, options: &str) -> Result<Vec<String>> {
        let line = self.last("ExecStart").context("the unit has no ExecStart")?;
        let line = words(line.trim_start_matches(['@', '-', ':', '+', '!']));
        let mut command = vec!["prlimit".to_owned()];
        let limits = [
            ("LimitNOFILE", "nofile", libc::RLIMIT_NOFILE),
            ("LimitMEMLOCK", "memlock", libc::RLIMIT_MEMLOCK),
        ];
        for (key, name, limit) in limits {
            if let Some(value) = self.last(key) {
                command.push(format!("--{name}={}", within(limit, value)?));
            }
        }
        command.push("setpriv".into());
        let user = self.user();
        if user != "root" {
            command.extend([
                format!("--reuid={user}"),
                format!("--regid={}", self.last("Group").unwrap_or(user)),
            ]);
            command.push("--init-groups".into());
        }
        let ambient: Vec<String> = self
            .list("AmbientCapabilities")
            .iter()
            .flat_map(|names| names.split_whitespace())
            .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
            .collect();
        if !ambient.is_empty() {
            let names = ambient.join(",");
            command.extend([format!("--inh-caps={names}"), format!("--ambient-caps={names}")]);
        }
        command.push("env".into());
        for assignments in self.list("Environment") {
            command.extend(words(assignments));
        }
        command.push(format!("MYSQLD_OPTS={options}"));
        command.extend(line.into_iter().filter(|word| !word.starts_with('$')));
        Ok(command)
    }
}

/// Makes a data folder for servers that run as `user`, with redo logs of size `log`.
///
/// Temporary files go to `temporary`: a server removes what looks like its own from that folder when it starts, and `/tmp`
/// may hold those of the machine's own server.
///
/// # Errors
/// When the server's programs are missing, or the folder cannot be made.
pub(crate) fn install(data: &Path, temporary: &Path, user: &str, log: &str) -> Result<()> {
    let job =
        Job::new("mariadb-install-db").args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    let job =
        job.args(["--skip-test-db", &format!("--user={user}"), &format!("--innodb-log-file-size={log}")]);
    let folders = [("datadir", data), ("tmpdir", temporary)];
    let folders = folders.map(|(name, folder)| format!("--{name}={}", folder.display()));
    job.args(folders).dir(temporary).run_ok().map(drop)
}

impl Database {
    /// A fresh data folder, owned by the user of `unit`.
    ///
    /// # Errors
    /// When this is not root, or the server's programs are missing.
    pub(crate) fn new(unit: &Unit) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("stratalloc-service-").tempdir()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let user = unit.user();
        let id = |option: &str| -> Result<u32> {
            let text = Job::new("id").args([option, user]).run_ok().context("the unit's user")?.text();
            Ok(text.trim().parse()?)
        };
        chown(dir.path(), Some(id("-u")?), Some(id("-g")?)).context("run this test as root")?;
        install(&dir.path().join("data"), dir.path(), user, "16M")?;
        Ok(Self { dir })
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Where a server on it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Options for a server on it, as words without blanks.
    pub(crate) fn options(&self) -> Vec<String> {
        let folder = self.dir.path().display();
        let mut options: Vec<String> = ["datadir=data", "socket=socket", "pid-file=pid", "tmpdir="]
            .map(|pair| pair.replace('=', &format!("={folder}/")))
            .into();
        options.extend(
            ["skip-networking", "innodb-buffer-pool-size=64M", "innodb-log-file-size=16M"].map(str::to_owned),
        );
        options
    }

    /// Starts a server by the command line of a unit.
    ///
    /// # Errors
    /// As [`Database::launch`].
    pub(crate) fn start(&self, unit: &Unit) -> Result<Service> {
        let options: Vec<String> = self.options().iter().map(|option| format!("--{option}")).collect();
        let command = unit.command(&format!("--no-defaults {}", options.join(" ")))?;
        self.launch(Job::new(&command[0]).args(&command[1..]))
    }

    /// Starts a server by a job that ends up as one, and waits until it answers.
    ///
    /// # Errors
    /// With its last words, when it ends or does not answer within a minute.
    pub(crate) fn launch(&self, job: Job) -> Result<Service> {
        let mut job = job.dir("/").spawn()?;
        let start = Instant::now();
        while !self.sql("select 1").is_ok_and(|done| done.status.success()) {
            check_interrupt()?;
            if !job.alive() || start.elapsed() > Duration::from_secs(60) {
                job.signal(libc::SIGKILL);
                bail!("the server did not start\n{}", job.wait(Duration::from_secs(5))?.tail());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let pid =
            fs::read_to_string(self.dir.path().join("pid")).context("the server wrote no process id")?;
        Ok(Service { job, pid: pid.trim().parse()?, socket: self.socket() })
    }

    fn sql(&self, query: &str) -> Result<Finished> {
        client(&self.socket()).args(["--execute", query]).run()
    }
}

impl Service {
    /// The first value of a query.
    ///
    /// # Errors
    /// When the query fails.
    pub(crate) fn ask(&self, query: &str) -> Result<String> {
        Ok(client(&self.socket).args(["--execute", query]).run_ok()?.text().trim().to_owned())
    }

    /// What it has written to its log so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn log(&mut self) -> Result<String> {
        let (out, err) = self.job.output()?;
        Ok(String::from_utf8_lossy(&[out, err].concat()).into_owned())
    }

    /// Ends the server in good order.
    ///
    /// # Errors
    /// When it does not end within a minute, or not well.
    pub(crate) fn stop(self) -> Result<()> {
        self.ask("shutdown")?;
        let done = self.job.wait(Duration::from_secs(60))?;
        ensure!(done.status.success(), "the server did not end well\n{}", done.tail());
        Ok(())
    }
}

/// A limit of a unit for prlimit(1), cut to what this process may give: in containers root cannot raise all limits.
fn within(limit: libc::__rlimit_resource_t, value: &str) -> Result<String> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to what it is given.
    let known = unsafe { libc::getrlimit(limit, &mut now) } == 0;
    ensure!(known, "getrlimit: {}", std::io::Error::last_os_error());
    let wanted = if value == "infinity" { libc::RLIM_INFINITY } else { value.parse()? };
    Ok(match wanted.min(now.rlim_max) {
        libc::RLIM_INFINITY => "unlimited".into(),
        bytes => bytes.to_string(),
    })
}

/// A client of the server that listens there.
fn client(socket: &Path) -> Job {
    let job = Job::new("mariadb").args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"]);
    job.arg(format!("--socket={}", socket.display()))
}

/// Splits a line of a unit into words, as systemd does: at blanks, with quotes around words.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut started, mut quote) = (String::new(), false, None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => word.push(c),
            None if c == '"' || c == '\'' => (quote, started) = (Some(c), true),
            None if c.is_whitespace() => {
                if started {
                    words.push(std::mem::take(&mut word));
                    started = false;
                }
            }
            None => {
                word.push(c);
                started = true;
            }
        }
    }
    if started {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_becomes_a_command_line() {
        let unit = Unit::parse(
            "[Unit]\nUser=no\n[Service]\nUser=mysql\n#User=x\nEnvironment=A=1\nLimitMEMLOCK=524288\nExecStart=/bin/sh -c \"a \\\n $B\" $C\n",
        );
        let unit = unit.with("[Service]\nEnvironment=\nEnvironment='B=x y' C=2\nLimitMEMLOCK=infinity\nAmbientCapabilities=CAP_IPC_LOCK\n");
        let expected = [
            "prlimit",
            &format!("--memlock={}", within(libc::RLIMIT_MEMLOCK, "infinity").unwrap()),
            "setpriv",
            "--reuid=mysql",
            "--regid=mysql",
            "--init-groups",
            "--inh-caps=+ipc_lock",
            "--ambient-caps=+ipc_lock",
            "env",
            "B=x y",
            "C=2",
            "MYSQLD_OPTS=--no-defaults",
            "/bin/sh",
            "-c",
            "a   $B",
        ];
        assert_eq!(unit.command("--no-defaults").unwrap(), expected);
    }
}
