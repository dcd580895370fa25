//! The heaps that are compared: ours, the C library's, the distribution's packages and published crates.

use super::shims;
use crate::exec::Job;
use crate::mode::{Heap, MODES, Mode, Via};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A heap to measure.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    /// Its name in tables.
    pub(crate) name: String,
    /// Its version and where it comes from.
    pub(crate) origin: String,
    /// How programs are put on it.
    pub(crate) heap: Heap,
}

/// The name of this project's heap in tables.
pub(crate) const OURS: &str = "stratalloc";
/// The name of the C library's heap in tables.
pub(crate) const SYSTEM: &str = "glibc";

/// A distribution's library: its name here, its file and its package.
const PACKAGES: [(&str, &str, &str); 3] = [
    ("gperftools", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    ("mimalloc 2", "libmimalloc.so.2.0", "libmimalloc2.0"),
];

impl Allocator {
    /// The library to preload; `None` for the C library's own heap.
    pub(crate) fn library(&self) -> Option<&Path> {
        match &self.heap {
            Heap::Ours { library, .. } | Heap::Peer { library, .. } => Some(library),
            Heap::System | Heap::SystemForced => None,
        }
    }
}

/// A peer that is neither packaged nor published in its present version, and why.
const UNPUBLISHED: (&str, &str) = ("rpmalloc", "the published crate is version 1");

/// A peer that could not be had.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    /// Its name.
    pub(crate) name: String,
    /// Why, and what brings it.
    pub(crate) reason: String,
}

/// All heaps that can be had, ours first, and those that cannot. `own` are the user's, as `NAME=FILE`. Where `only` has
/// names, no others are built.
///
/// # Errors
/// When a user's library is not there.
pub(crate) fn find(
    library: &Path,
    own: &[String],
    only: &[String],
) -> Result<(Vec<Allocator>, Vec<Missing>)> {
    let ours = Heap::Ours { library: library.to_owned(), mode: &MODES[0], via: Via::Preload };
    let allocator = |name: &str, origin, heap| Allocator { name: name.into(), origin, heap };
    let mut found = vec![allocator(OURS, revision()?, ours), allocator(SYSTEM, c_library()?, Heap::System)];
    let mut missing = Vec::new();
    let mut miss = |name: &str, reason| missing.push(Missing { name: name.into(), reason });
    for (name, file, package) in PACKAGES {
        match packaged(file) {
            Some(library) => {
                let origin = format!("{package} {}", package_version(package));
                found.push(allocator(name, origin, Heap::Peer { library, variable: None }));
            }
            None => miss(name, format!("no {file}: apt-get install {package}")),
        }
    }
    let asked = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    for shim in shims::SHIMS.iter().filter(|shim| asked(shim.name)) {
        match shims::build(shim) {
            Ok((library, origin)) => {
                let heap = Heap::Peer { library, variable: shim.variable };
                found.push(allocator(shim.name, origin, heap));
            }
            Err(error) => miss(shim.name, format!("{error:#}")),
        }
    }
    for pair in own {
        let (name, file) = pair.split_once('=').context("a peer is given as NAME=FILE")?;
        let library = Path::new(file).canonicalize().with_context(|| format!("no library {file}"))?;
        found.push(allocator(name, "own build".into(), Heap::Peer { library, variable: None }));
    }
    let (name, reason) = UNPUBLISHED;
    if asked(name) && !found.iter().any(|a| a.name == name) {
        miss(name, format!("{reason}; give a build of it with --peer {name}=FILE"));
    }
    Ok((found, missing))
}

/// Ours under settings of the user's, as `NAME=SETTINGS`; `library` is ours.
///
/// # Errors
/// When there is no equals sign in it.
pub(crate) fn with_settings(library: &Path, pair: &str) -> Result<Allocator> {
    let (name, conf) = pair.split_once('=').context("settings are given as NAME=SETTINGS")?;
    // Modes are constants elsewhere; these few bytes stay until the bench ends.
    let conf: &'static str = String::leak(conf.to_owned());
    let name: &'static str = String::leak(name.to_owned());
    let mode: &'static Mode = Box::leak(Box::new(Mode { name, conf, pool: None, memlock: None }));
    let heap = Heap::Ours { library: library.to_owned(), mode, via: Via::Preload };
    Ok(Allocator { name: name.to_owned(), origin: format!("{OURS} with {conf}"), heap })
}

/// The commit that our library was built from.
fn revision() -> Result<String> {
    let root = crate::workspace::root();
    let git = |args: &[&str]| Job::new("git").args(args).dir(&root).run();
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?.text().trim().to_owned();
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.stdout.is_empty();
    Ok(commit + if changed { " with changes" } else { "" })
}

fn c_library() -> Result<String> {
    let done = Job::new("getconf").arg("GNU_LIBC_VERSION").run()?;
    Ok(done.text().trim().to_owned())
}

fn packaged(file: &str) -> Option<PathBuf> {
    let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = [triplet.as_str(), "/usr/lib64", "/usr/lib"];
    folders.iter().map(|dir| Path::new(dir).join(file)).find(|path| path.exists())
}

fn package_version(package: &str) -> String {
    let query = Job::new("dpkg-query").args(["-W", "-f", "${Version}", package]).run();
    query.map(|done| done.text()).unwrap_or_default()
}
