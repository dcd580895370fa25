//! `dist`: a Debian package and a tarball in `target/dist`, the same from the same sources.
//!
//! What they hold is listed in [`tree`]; texts that are not made here stand in `packaging/`.

mod deb;
mod roff;
mod settings;
mod tree;

use crate::exec::Job;
use crate::{Outcome, Usage, build_preload, workspace};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) const USAGE: Usage = Usage { line: "dist", job: "make a .deb and a .tar.gz in target/dist" };

/// The suite's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What was made.
#[derive(Debug)]
pub(crate) struct Made {
    /// The Debian package.
    pub(crate) package: PathBuf,
    /// The tarball.
    pub(crate) tarball: PathBuf,
}

/// The words that depend on the machine and the moment.
#[derive(Debug)]
pub(crate) struct Place {
    /// The architecture as Debian calls it.
    pub(crate) arch: &'static str,
    /// The system's folder for libraries of this architecture.
    pub(crate) library_folder: String,
    /// Seconds since 1970 that stand for the sources' age.
    pub(crate) epoch: u64,
}

impl Place {
    /// # Errors
    /// When the architecture is not one of the library's, or nothing tells the sources' age.
    pub(crate) fn here() -> Result<Self> {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => bail!("no packages for {other}"),
        };
        let library_folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        Ok(Self { arch, library_folder, epoch: epoch()? })
    }

    /// The sources' age in the words of `format`, as date(1) has them.
    fn date(&self, format: &str) -> Result<String> {
        let date = Job::new("date").args(["-u", &format!("-d@{}", self.epoch), &format!("+{format}")]);
        Ok(date.run_ok()?.text().trim().to_owned())
    }
}

pub(crate) fn run(args: &[OsString]) -> Outcome {
    if !args.is_empty() {
        return USAGE.misused(args);
    }
    let made = build_preload::build(None)
        .map_err(anyhow::Error::msg)
        .and_then(|library| make(&library))
        .map_err(|error| format!("{error:#}"))?;
    println!("{}\n{}", made.package.display(), made.tarball.display());
    Ok(ExitCode::SUCCESS)
}

/// Makes the packages around a library.
///
/// # Errors
/// When the tool cannot be built, a text is missing, or `dpkg-deb` or `tar` is not there.
pub(crate) fn make(library: &Path) -> Result<Made> {
    let place = Place::here()?;
    let folder = workspace::target_dir().join("dist");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let work = tempfile::tempdir_in(&folder)?;
    let tool = tool(work.path())?;
    let tree = tree::Tree::new(&place, library, &tool)?;
    Ok(Made { package: deb::make(&tree, &place, &folder)?, tarball: tarball(&tree, &place, &folder)? })
}

/// Builds `stratalloc` and strips it.
///
/// # Errors
/// When it cannot be built or stripped.
pub(crate) fn tool(work: &Path) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--quiet", "--release", "--package", "alloc-stats", "--features", "tool"]);
    workspace::succeed(cargo.args(["--bin", "stratalloc"]), "").map_err(anyhow::Error::msg)?;
    let stripped = work.join("stratalloc");
    let built = workspace::target_dir().join("release/stratalloc");
    Job::new("objcopy").arg("--strip-all").args([&built, &stripped]).run_ok()?;
    Ok(stripped)
}

/// Everything but the settings in /etc, below one folder named after the version.
fn tarball(tree: &tree::Tree, place: &Place, folder: &Path) -> Result<PathBuf> {
    let work = tempfile::tempdir_in(folder)?;
    let name = format!("stratalloc-{VERSION}-{}", place.arch);
    tree.write(&work.path().join(&name))?;
    std::fs::remove_dir_all(work.path().join(&name).join("etc"))?;
    let file = folder.join(format!("{name}.tar.gz"));
    // Without gzip's own stamp, and in one order.
    let tar = Job::new("tar").args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    let tar = tar.arg(format!("--mtime=@{}", place.epoch)).args(["--use-compress-program=gzip -9n", "-cf"]);
    tar.arg(&file).arg("-C").arg(work.path()).arg(&name).run_ok()?;
    Ok(file)
}

/// The variable that reproducible builds use, or the time of the last commit.
fn epoch() -> Result<u64> {
    if let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let text = text.to_string_lossy();
        return text.parse().with_context(|| format!("SOURCE_DATE_EPOCH is {text}"));
    }
    let time = Job::new("git").args(["log", "-1", "--format=%ct"]).dir(workspace::root()).run_ok();
    let text = time.context("set SOURCE_DATE_EPOCH where there is no git repository")?.text();
    Ok(text.trim().parse()?)
}
