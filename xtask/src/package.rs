//! The packages under test: made, checked, really installed, a packaged server put on the heap and taken back, and purged
//! again on every way out.

use crate::dist::{self, Made, Place};
use crate::exec::{Job, describe};
use crate::hugepages::Pool;
use crate::proc;
use crate::service::{Database, Service, Unit};
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files that no installation of ours may touch.
const UNTOUCHED: [&str; 3] = ["/etc/ld.so.preload", "/etc/systemd/system", "/etc/mysql"];
/// The example that the guide tells to copy.
pub(crate) const DROP_IN: &str = "/usr/share/stratalloc/systemd.conf";

/// The installed package. Dropping it purges it.
#[derive(Debug)]
pub(crate) struct Installed {
    /// The library as programs find it by its name alone.
    pub(crate) library: PathBuf,
    /// Held so that two test runs on one machine take turns.
    _lock: fs::File,
}

const LOCK: &str = "/tmp/stratalloc-test-package.lock";

impl Installed {
    /// Makes sure that none is installed, so that the guard purges what the test brought.
    ///
    /// # Errors
    /// When this is not root, or one is installed already.
    pub(crate) fn guard() -> Result<Self> {
        // SAFETY: geteuid only returns a number.
        ensure!(unsafe { libc::geteuid() } == 0, "installing a package takes root: run the tests as root");
        let lock = fs::File::create(LOCK).with_context(|| LOCK.to_owned())?;
        // SAFETY: the descriptor is open; the lock goes with it when the guard is dropped.
        let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } == 0;
        ensure!(locked, "{LOCK}: {}", std::io::Error::last_os_error());
        let known = Job::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", "stratalloc"]).run()?;
        if known.text() == "installed" {
            bail!("stratalloc is installed here, and the test would purge it: `apt purge stratalloc` first");
        }
        Ok(Self { library: Path::new(&Place::here()?.library_folder).join("libstratalloc.so"), _lock: lock })
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // Not as a job, which an interrupt would keep from its start.
        let purged = Command::new("dpkg").args(["--purge", "stratalloc"]).output();
        if !purged.is_ok_and(|done| done.status.success()) {
            eprintln!("cannot purge the package again: run `dpkg --purge stratalloc`");
        }
    }
}

/// Runs all checks.
pub(crate) fn run(tally: &mut Tally, library: &Path) {
    let mut made = None;
    tally.check("two packages of the same sources", || {
        let one = dist::make(library)?;
        let bytes = |made: &Made| anyhow::Ok((fs::read(&made.package)?, fs::read(&made.tarball)?));
        let first = bytes(&one)?;
        ensure!(first == bytes(&dist::make(library)?)?, "they differ");
        made = Some(one);
        Ok(format!("the same bytes, {} KiB and {} KiB", first.0.len() >> 10, first.1.len() >> 10))
    });
    let Some(made) = made else { return };
    tally.check("control data", || control_data(&made.package));
    tally.check("lintian", || lintian(&made.package));
    tally.check("manual pages", || manual_pages(&made.package));
    tally.check("links of the pages", || links(&made.package));
    tally.check("tarball", || tarball(&made.tarball));
    installed(tally, &made.package);
}

fn control_data(package: &Path) -> Result<String> {
    let list =
        Job::new("/bin/sh").args(["-c", r#"dpkg-deb --ctrl-tarfile "$0" | tar -t"#]).arg(package).run_ok()?;
    let names: Vec<String> = list
        .text()
        .lines()
        .map(|line| line.trim_start_matches("./").to_owned())
        .filter(|n| !n.is_empty())
        .collect();
    let known = ["control", "conffiles", "md5sums", "shlibs", "triggers"];
    let others: Vec<_> = names.iter().filter(|name| !known.contains(&name.as_str())).collect();
    ensure!(others.is_empty(), "the package has {others:?}, and scripts of it would act at installation");
    Ok("no scripts".into())
}

/// Whether a program is there; what the check says otherwise.
fn absent(program: &str) -> Option<String> {
    let there = Job::new("/bin/sh").args(["-c", &format!("command -v {program}")]).run();
    (!there.is_ok_and(|done| done.status.success())).then(|| format!("NOT RUN, {program} is not installed"))
}

fn lintian(package: &Path) -> Result<String> {
    if let Some(reason) = absent("lintian") {
        return Ok(reason);
    }
    let done = Job::new("lintian")
        .args(["--fail-on", "error,warning", "--tag-display-limit", "0"])
        .arg(package)
        .run_ok();
    done.map(|_| "no error or warning".into())
}

fn manual_pages(package: &Path) -> Result<String> {
    let dir = unpacked(package)?;
    if let Some(reason) = absent("groff") {
        return Ok(reason);
    }
    let script = r#"for page in usr/share/man/man*/*.gz; do gzip -dc "$page" | groff -man -Tutf8 -ww -z || exit; done; ls usr/share/man/man*/*.gz"#;
    let done = Job::new("/bin/sh").args(["-c", script]).dir(dir.path()).run_ok()?;
    ensure!(done.stderr.is_empty(), "groff warns\n{}", done.tail());
    let pages = done.text().lines().count();
    ensure!(pages == 3, "{pages} pages");
    Ok(format!("{pages} pages"))
}

fn unpacked(package: &Path) -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    Job::new("dpkg-deb").arg("-x").args([package, dir.path()]).run_ok()?;
    Ok(dir)
}

/// What the shipped pages refer to is shipped beside them.
fn links(package: &Path) -> Result<String> {
    let dir = unpacked(package)?;
    let folder = dir.path().join("usr/share/doc/stratalloc");
    let mut found = 0;
    for entry in fs::read_dir(&folder)? {
        let page = entry?.path();
        if page.extension().is_none_or(|ending| ending != "md") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let there = target.contains("://") || folder.join(target).exists();
            ensure!(there, "{} refers to {target}, which is not in the package", page.display());
            found += 1;
        }
    }
    Ok(format!("{found} links"))
}

/// Unpacked below a folder, the library serves a program by its name, and nothing is in /etc.
fn tarball(file: &Path) -> Result<String> {
    let root = tempfile::tempdir()?;
    let tar = Job::new("tar").arg("-C").arg(root.path()).args(["--strip-components=1", "-xzf"]).arg(file);
    tar.run_ok()?;
    ensure!(!root.path().join("etc").exists(), "it has files in /etc");
    let folder = root.path().join(&Place::here()?.library_folder[1..]);
    let seen = Job::new("cat")
        .arg("/proc/self/maps")
        .env("LD_LIBRARY_PATH", &folder)
        .env("LD_PRELOAD", "libstratalloc.so");
    let seen = seen.run_ok()?;
    ensure!(
        seen.text().contains("libstratalloc.so") && seen.stderr.is_empty(),
        "not preloaded\n{}",
        seen.tail()
    );
    Ok(String::new())
}

/// All that takes an installed package, and its end.
fn installed(tally: &mut Tally, package: &Path) {
    let mut installed = None;
    tally.check("install", || {
        let guard = Installed::guard()?;
        let before = untouched()?;
        apt(&["install"]).arg(package).run_ok()?;
        ensure!(untouched()? == before, "the installation changed one of {UNTOUCHED:?}");
        let verify = Job::new("dpkg").args(["-V", "stratalloc"]).run_ok()?;
        ensure!(verify.stdout.is_empty(), "dpkg -V: {}", verify.text());
        let maps = Job::new("cat").arg("/proc/self/maps").env("LD_PRELOAD", "libstratalloc.so").run_ok()?;
        ensure!(
            maps.text().contains("libstratalloc.so") && maps.stderr.is_empty(),
            "not preloaded\n{}",
            maps.tail()
        );
        installed = Some(guard);
        Ok("LD_PRELOAD=libstratalloc.so works without a path".into())
    });
    let Some(guard) = installed else { return };
    let mut prepared = None;
    tally.check("the packaged server's unit", || {
        let unit = Unit::packaged()?;
        prepared = Some((Database::new(&unit)?, unit));
        Ok(String::new())
    });
    if let Some((database, unit)) = prepared {
        servers(tally, &database, &unit, &guard.library);
    }
    tally.check("purge", || {
        let files = Job::new("dpkg").args(["-L", "stratalloc"]).run_ok()?.text();
        apt(&["purge", "stratalloc"]).run_ok()?;
        let left: Vec<_> =
            files.lines().filter(|file| file.contains("stratalloc") && Path::new(file).exists()).collect();
        ensure!(left.is_empty() && files.contains("/etc/stratalloc.conf"), "left: {left:?}");
        Ok("nothing of it is left".into())
    });
}

/// apt-get with a command, without questions.
fn apt(words: &[&str]) -> Job {
    Job::new("apt-get").args(["-q", "-y"]).args(words).env("DEBIAN_FRONTEND", "noninteractive").limit(300)
}

/// Names, sizes and times of what is not ours.
fn untouched() -> Result<String> {
    let script = r#"for path; do [ ! -e "$path" ] || find "$path" -printf '%p %s %T@\n'; done | sort"#;
    Ok(Job::new("/bin/sh").args(["-c", script, "sh"]).args(UNTOUCHED).run_ok()?.text())
}

/// The server on the heap and back, as the guide tells.
fn servers(tally: &mut Tally, database: &Database, unit: &Unit, library: &Path) {
    tally.check("a server without the drop-in", || {
        let server = database.start(unit)?;
        runs_on_glibc(&server)?;
        server.stop()?;
        Ok(String::new())
    });
    tally.check("a server with the drop-in", || {
        let server = database.start(&unit.with(&fs::read_to_string(DROP_IN)?))?;
        let version = runs_on_ours(&server, library)?;
        server.stop()?;
        Ok(version)
    });
    tally.check("locked memory with the drop-in", || {
        let drop_in =
            fs::read_to_string(DROP_IN)? + "Environment=STRATALLOC_CONF=programs:mariadbd,backend:locked\n";
        let server = database.start(&unit.with(&drop_in))?;
        runs_on_ours(&server, library)?;
        let locked = proc::status_kib(server.pid, "VmLck")?;
        ensure!(locked > 0, "nothing is locked");
        server.stop()?;
        Ok(format!("{locked} KiB"))
    });
    tally.check("variables from a sysconfig file", || {
        let file = fs::read_to_string("/usr/share/stratalloc/sysconfig-mysql")?;
        let lines =
            file.lines().filter(|line| !line.starts_with('#')).map(|line| format!("Environment={line}\n"));
        let server = database.start(&unit.with(&format!("[Service]\n{}", lines.collect::<String>())))?;
        let version = runs_on_ours(&server, library)?;
        server.stop()?;
        Ok(version)
    });
    tally.check("mariadbd-safe with its option file", || {
        if let Some(reason) = absent("mariadbd-safe") {
            return Ok(reason);
        }
        let server = under_mariadbd_safe(database, unit.user())?;
        let version = runs_on_ours(&server, library)?;
        server.stop()?;
        Ok(version)
    });
    wrong_settings(tally, database, unit, library);
    tally.check("a server after the drop-in is gone", || {
        let server = database.start(unit)?;
        runs_on_glibc(&server)?;
        server.stop()?;
        Ok(String::new())
    });
}

/// Starts a server by mariadbd-safe, which finds the library in the shipped option file.
fn under_mariadbd_safe(database: &Database, user: &str) -> Result<Service> {
    let options = fs::read_to_string("/usr/share/stratalloc/mariadbd-safe.cnf")?;
    let own: String = database.options().iter().map(|option| format!("{option}\n")).collect();
    let file = database.folder().join("options.cnf");
    fs::write(&file, format!("{options}\n[mariadbd]\n{own}"))?;
    let job = Job::new("mariadbd-safe").arg(format!("--defaults-file={}", file.display()));
    let log = database.folder().join("log");
    database.launch(job.arg(format!("--user={user}")).arg(format!("--log-error={}", log.display())))
}

/// Settings that are wrong or impossible: the server starts all the same, and its log says why they do not hold.
fn wrong_settings(tally: &mut Tally, database: &Database, unit: &Unit, library: &Path) {
    const CASES: [(&str, &str, &str, &str); 6] = [
        ("an unknown key", "bakend:huge", "", "unknown key \"bakend\"; did you mean \"backend\"?"),
        ("a bad value", "soft_limit:12parsecs,check:full", "", "bad value \"12parsecs\" for soft_limit"),
        ("no pool of huge pages", "backend:huge", "", "raise vm.nr_hugepages"),
        ("no mount of huge pages", "backend:huge,hugetlbfs:/nonexistent", "", "from the mount /nonexistent"),
        (
            "no limit for locked memory",
            "backend:locked",
            "AmbientCapabilities=\nLimitMEMLOCK=65536\n",
            "raise RLIMIT_MEMLOCK (LimitMEMLOCK= in a unit)",
        ),
        (
            "locked huge pages without either",
            "backend:huge+locked",
            "AmbientCapabilities=\nLimitMEMLOCK=0\n",
            "stratalloc: no memory",
        ),
    ];
    for (name, settings, more, reason) in CASES {
        tally.check(&format!("{name} never stops a server"), || {
            let _pool = Pool::set(0)?;
            let drop_in = format!("[Service]\nEnvironment=LD_PRELOAD=libstratalloc.so STRATALLOC_CONF={settings},programs:mariadbd\n{more}");
            starts_and_says(database.start(&unit.with(&drop_in))?, library, reason)
        });
    }
    tally.check("a bad line in /etc/stratalloc.conf never stops a server", || {
        let bad = database.folder().join("stratalloc.conf");
        fs::write(&bad, "percpu_cache:1\nbackend huge\nabort_conf:true\n")?;
        // In a name space of mounts of its own, so that other programs read the installed file.
        let script = r#"mount --bind "$0" /etc/stratalloc.conf && LD_PRELOAD=libstratalloc.so exec "$@""#;
        let job = Job::new("unshare").args(["--mount", "/bin/sh", "-c", script]).arg(&bad);
        let job = job.args(["mariadbd", "--no-defaults", &format!("--user={}", unit.user())]);
        let options = database.options().into_iter().map(|option| format!("--{option}"));
        let reason = "/etc/stratalloc.conf: line 2, column 1: no value for \"backend huge\"";
        starts_and_says(database.launch(job.args(options))?, library, reason)
    });
}

fn starts_and_says(mut server: Service, library: &Path, reason: &str) -> Result<String> {
    runs_on_ours(&server, library)?;
    let log = server.log()?;
    let line = log.lines().find(|line| line.starts_with("stratalloc: ") && line.contains(reason));
    let line = line.with_context(|| format!("its log does not say `{reason}`:\n{log}"))?.to_owned();
    server.stop()?;
    Ok(line)
}

/// Checks by all means that the guide names that a server runs on this heap; returns its own word for it.
fn runs_on_ours(server: &Service, library: &Path) -> Result<String> {
    let version = server.ask("select @@version_malloc_library")?;
    ensure!(version.contains("stratalloc"), "@@version_malloc_library is {version}");
    let file = library.canonicalize()?;
    ensure!(proc::maps(server.pid, &file)?, "/proc/{}/maps has no {}", server.pid, file.display());
    let stat = Job::new("stratalloc").args(["stat", &server.pid.to_string()]).run_ok()?;
    ensure!(
        stat.text().contains("libstratalloc.so"),
        "`stratalloc stat` does not name the library\n{}",
        stat.tail()
    );
    Ok(version)
}

/// The same for the C library's heap.
fn runs_on_glibc(server: &Service) -> Result<()> {
    let version = server.ask("select @@version_malloc_library")?;
    ensure!(version == "system", "@@version_malloc_library is {version}");
    let stat = Job::new("stratalloc").args(["stat", &server.pid.to_string()]).run()?;
    ensure!(stat.status.code() == Some(5), "`stratalloc stat` ended with {}", describe(stat.status));
    Ok(())
}
