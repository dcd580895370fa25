//! Every command of `docs/mysql.md`, run as it stands there but for what would touch this machine's own server.
//!
//! What is done otherwise, and nothing else:
//! - files below the folders of [`MOVED`] go to a folder of the test, and so does what is unpacked to `/`;
//! - `systemctl` is not run: `restart` ends the test's own server and starts it by the packaged unit's command line, with the
//!   drop-ins and the variables from those files;
//! - `mariadb` and `pidof` mean that server, `apt` asks no questions, and `cargo xtask` is this very program;
//! - benches run with a short load on two allocators;
//! - the commands below "Take it back" come last.
//!
//! Blocks of settings (`ini`) are drop-ins: a server is started with each. A block of another kind fails the test.

use crate::exec::Job;
use crate::hugepages::Pool;
use crate::package::Installed;
use crate::service::{Database, Service, Unit};
use crate::tally::Tally;
use crate::{proc, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/mysql.md";
const LAST: &str = "Take it back";
/// Folders of the system whose files stand in a folder of the test.
const MOVED: [&str; 4] = ["/etc/systemd/system/", "/etc/sysconfig/", "/etc/mysql/conf.d/", "/etc/sysctl.d/"];
/// How the page's lines begin that unpack the tarball to the system's folders.
const UNPACK: &str = "tar -C / ";
const SHORT: &str =
    " --quick --rounds 1 --sessions 50 --seconds 2 --settle 1 --allocator glibc --allocator stratalloc";

/// A fenced block of the page.
#[derive(Debug, PartialEq, Eq)]
struct Block<'a> {
    /// The heading above it.
    heading: &'a str,
    /// The word behind the fence.
    kind: &'a str,
    /// Its lines.
    lines: Vec<&'a str>,
}

/// Runs all commands.
///
/// # Errors
/// When the page cannot be read, or has a block that is neither commands nor a drop-in.
pub(crate) fn run(tally: &mut Tally, library: &Path) -> Result<()> {
    let page = fs::read_to_string(workspace::root().join(PAGE))?;
    let mut blocks = blocks(&page)?;
    blocks.sort_by_key(|block| block.heading == LAST);
    let mut machine = None;
    tally.check("a server of the test's own", || {
        machine = Some(Machine::new(library)?);
        Ok(String::new())
    });
    let Some(mut machine) = machine else { return Ok(()) };
    for block in &blocks {
        if block.kind == "ini" {
            tally.check(&format!("a drop-in of \"{}\"", block.heading), || machine.serve_with(&block.lines));
            continue;
        }
        for line in &block.lines {
            let (command, expected) = line.split_once("# prints ").unwrap_or((line, ""));
            let command = command.split("  #").next().unwrap_or(command).trim();
            tally.check(command, || machine.run(command, expected.trim()));
        }
    }
    Ok(())
}

/// The page's blocks.
fn blocks(page: &str) -> Result<Vec<Block<'_>>> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut heading, mut inside) = ("", false);
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some("") if inside => inside = false,
            Some(kind) => {
                ensure!(
                    !inside && matches!(kind, "sh" | "ini"),
                    "{PAGE}: a block of `{kind}` under {heading}"
                );
                blocks.push(Block { heading, kind, lines: Vec::new() });
                inside = true;
            }
            None if inside => blocks.last_mut().context("a block")?.lines.push(line),
            None if line.starts_with("    ") => bail!("{PAGE}: text that looks like a block: {line}"),
            None => heading = line.strip_prefix("## ").unwrap_or(heading),
        }
    }
    ensure!(!inside && !blocks.is_empty(), "{PAGE}: a block has no end, or there is none");
    Ok(blocks)
}

/// What the commands see.
struct Machine {
    server: Option<Service>,
    database: Database,
    unit: Unit,
    /// Stands for the root of what is not to be touched.
    root: tempfile::TempDir,
    library: PathBuf,
    pool: Option<Pool>,
    installed: Installed,
}

impl Machine {
    fn new(library: &Path) -> Result<Self> {
        let installed = Installed::guard()?;
        let unit = Unit::packaged()?;
        let database = Database::new(&unit)?;
        let root = tempfile::tempdir()?;
        for folder in MOVED.iter().chain(&["/bin"]) {
            fs::create_dir_all(root.path().join(&folder[1..]))?;
        }
        let folder = database.folder().display();
        let programs = [
            (
                "mariadb",
                format!("exec /usr/bin/mariadb --no-defaults --user=root --socket={folder}/socket \"$@\""),
            ),
            ("pidof", format!("cat {folder}/pid")),
            ("apt", "DEBIAN_FRONTEND=noninteractive exec apt-get -q -y \"$@\"".to_owned()),
            (
                "cargo",
                format!(
                    "[ \"$1\" = xtask ] || PATH=${{PATH#*:}} exec cargo \"$@\"\nshift\nexec /proc/{}/exe \"$@\"",
                    std::process::id()
                ),
            ),
            ("systemctl", "echo 'not to be run here' >&2\nexit 1".to_owned()),
        ];
        for (name, text) in programs {
            let file = root.path().join("bin").join(name);
            fs::write(&file, format!("#!/bin/sh\n{text}\n"))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { server: None, database, unit, root, library: library.to_owned(), pool: None, installed })
    }

    /// Runs a line of the page; its output must have `expected` in it.
    fn run(&mut self, line: &str, expected: &str) -> Result<String> {
        let mut shell = Vec::new();
        let mut output = String::new();
        for part in line.split(" && ") {
            match part.strip_prefix("systemctl ") {
                None => shell.push(part),
                Some(words) => {
                    output += &self.shell(&std::mem::take(&mut shell).join(" && "))?;
                    self.systemctl(words)?;
                }
            }
        }
        output += &self.shell(&shell.join(" && "))?;
        ensure!(output.contains(expected), "it does not print `{expected}`\n{output}");
        Ok(output
            .lines()
            .find(|line| line.contains(expected))
            .filter(|_| !expected.is_empty())
            .unwrap_or("")
            .to_owned())
    }

    fn shell(&mut self, command: &str) -> Result<String> {
        if command.is_empty() {
            return Ok(String::new());
        }
        let bench = command.starts_with("cargo xtask bench ");
        let unpacked = command.starts_with(UNPACK).then(|| self.root.path().join("usr"));
        if let Some(folder) = unpacked.as_ref().filter(|folder| folder.exists()) {
            fs::remove_dir_all(folder)?;
        }
        if command.contains("sysctl -w vm.nr_hugepages") {
            self.pool = Some(Pool::keep()?);
        } else if bench {
            // It keeps the pool itself.
            self.pool = None;
        }
        let path =
            format!("{}/bin:{}", self.root.path().display(), std::env::var("PATH").unwrap_or_default());
        let mut job = Job::new("/bin/sh").args(["-e", "-c", &self.adapted(command)]).env("PATH", path);
        if bench {
            // Its results are none to keep.
            job = job.env("CARGO_TARGET_DIR", self.root.path().join("target"));
        }
        let text = job.dir(workspace::root()).limit(600).run_ok()?.text();
        if let Some(folder) = unpacked {
            self.option_files_hold(&folder.join("share/stratalloc"))?;
        }
        Ok(text)
    }

    /// Start scripts refuse to start a server when an option file names a library that is not there.
    fn option_files_hold(&self, folder: &Path) -> Result<()> {
        for name in ["mariadbd-safe.cnf", "mysqld_safe.cnf"] {
            let text = fs::read_to_string(folder.join(name))?;
            let library = text.split("malloc-lib = /").nth(1).and_then(|rest| rest.lines().next());
            let library = library.with_context(|| format!("{name} names no library"))?;
            ensure!(self.root.path().join(library).exists(), "{name} names /{library}, which is not there");
        }
        Ok(())
    }

    /// A command with the places and sizes of the test.
    fn adapted(&self, command: &str) -> String {
        let root = self.root.path().display();
        let mut command = command.to_owned();
        for folder in MOVED {
            command = command.replace(folder, &format!("{root}{folder}"));
        }
        let packages = format!(" {}/dist/", workspace::target_dir().display());
        command = command.replace(" ./target/dist/", &packages).replace(" target/dist/", &packages);
        command = command
            .replace(" -C / ", &format!(" -C {root} "))
            .replace("'s,^[^/]*,,'", &format!("'s,^[^/]*,{root},'"));
        if command.starts_with("tar ") {
            command = command.replace(" /usr/", &format!(" {root}/usr/"));
        }
        if command.starts_with("cargo xtask bench ") {
            command = command.replace(" --quick", "").replace(" --rounds 5", "");
            command += &format!("{SHORT} --library {}", self.library.display());
        }
        command
    }

    /// Does by hand what a service manager would.
    fn systemctl(&mut self, words: &str) -> Result<()> {
        match words.split_once(' ') {
            // Files are read when a server is started.
            None if words == "daemon-reload" => Ok(()),
            Some(("restart", name @ ("mariadb" | "mysqld"))) => {
                let mut unit = self.with_drop_ins(name)?;
                if name == "mysqld" {
                    let file = fs::read_to_string(self.root.path().join("etc/sysconfig/mysql"))?;
                    let pairs = file.lines().filter(|line| !line.starts_with('#'));
                    let pairs: String = pairs.map(|line| format!("Environment={line}\n")).collect();
                    unit = unit.with(&format!("[Service]\n{pairs}"));
                }
                self.restart(&unit)
            }
            _ => bail!("the test knows no `systemctl {words}`"),
        }
    }

    /// The packaged unit with the drop-ins of a name, in their order.
    fn with_drop_ins(&self, name: &str) -> Result<Unit> {
        let folder = self.root.path().join(format!("etc/systemd/system/{name}.service.d"));
        let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
            Ok(entries) => entries.map(|entry| anyhow::Ok(entry?.path())).collect::<Result<_>>()?,
            Err(_) => Vec::new(),
        };
        files.sort();
        files.iter().try_fold(self.unit.clone(), |unit, file| Ok(unit.with(&fs::read_to_string(file)?)))
    }

    fn restart(&mut self, unit: &Unit) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        self.server = Some(self.database.start(unit)?);
        Ok(())
    }

    /// Starts a server with the copied drop-in and one more, which must hold as it stands.
    fn serve_with(&mut self, drop_in: &[&str]) -> Result<String> {
        let unit = self.with_drop_ins("mariadb")?.with(&drop_in.join("\n"));
        self.restart(&unit)?;
        let server = self.server.as_mut().context("a server was started")?;
        ensure!(proc::maps(server.pid, &self.installed.library.canonicalize()?)?, "it is not on this heap");
        let log = server.log()?;
        let complaint =
            log.lines().find(|line| line.starts_with("stratalloc: ") && line.contains("(ignored)"));
        ensure!(complaint.is_none(), "{}", complaint.unwrap_or_default());
        let [locked, huge] =
            ["VmLck", "HugetlbPages"].map(|name| proc::status_kib(server.pid, name).unwrap_or(0));
        ensure!(locked + huge > 0, "neither locked nor huge pages");
        Ok(format!("VmLck {locked} KiB, HugetlbPages {huge} KiB"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_a_kind_and_a_heading() {
        let page = "# T\n\n## A\n\n```sh\nx\n\ny # prints z\n```\n\n## B\n```ini\n[S]\n```\n";
        let blocks = blocks(page).unwrap();
        assert_eq!(blocks[0], Block { heading: "A", kind: "sh", lines: vec!["x", "", "y # prints z"] });
        assert_eq!(blocks[1], Block { heading: "B", kind: "ini", lines: vec!["[S]"] });
        for page in ["```\nx\n```\n", "```sh\nx\n", "    x\n\n```sh\n```\n", "nothing\n"] {
            assert!(super::blocks(page).is_err(), "{page}");
        }
    }

    #[test]
    fn the_guide_has_commands_in_every_part() {
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        let blocks = blocks(&page).unwrap();
        for heading in ["Install it", "Put a server on it", "Prove it", LAST, "Huge pages", "What to watch"] {
            assert!(blocks.iter().any(|block| block.heading == heading), "{heading}");
        }
    }
}
