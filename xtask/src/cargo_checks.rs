//! The checks that cargo and its tools make.

use crate::exec::Job;
use crate::tally::Tally;
use crate::{check_abi, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::Instant;

fn cargo() -> Job {
    Job::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).dir(workspace::root()).limit(1500)
}

/// The nightly toolchain, which has Miri; it is reached through rustup's own `cargo`.
fn nightly() -> Job {
    Job::new("cargo").dir(workspace::root()).arg("+nightly").limit(1500)
}

/// Formatting.
pub(crate) fn fmt(tally: &mut Tally) {
    tally.check("cargo fmt", || {
        cargo().args(["fmt", "--all", "--check"]).run_ok()?;
        Ok(String::new())
    });
}

/// Lints of all targets, of the library as it is built for preloading, and of the crates' documentation.
pub(crate) fn clippy(tally: &mut Tally) {
    tally.check("cargo clippy, all targets and features", || {
        let job = cargo().args(["clippy", "--workspace", "--all-targets", "--all-features", "--quiet"]);
        job.args(["--", "-D", "warnings"]).run_ok()?;
        Ok(String::new())
    });
    tally.check("cargo clippy, preload build", || {
        let job =
            cargo().args(["clippy", "--package", "alloc-ffi", "--lib", "--profile", "preload", "--quiet"]);
        job.args(["--", "-D", "warnings", "--cfg", "preload"]).run_ok()?;
        Ok(String::new())
    });
    tally.check("cargo doc", || {
        let job = cargo().args(["doc", "--workspace", "--no-deps", "--quiet"]);
        job.env("RUSTDOCFLAGS", "-D warnings").run_ok()?;
        Ok(String::new())
    });
}

/// All crates' tests, with doc tests and examples.
pub(crate) fn unit(tally: &mut Tally) {
    counted(tally, "cargo test", cargo().args(["test", "--workspace", "--all-features", "--no-fail-fast"]));
    for example in ["global_allocator", "own_backend", "secrets"] {
        tally.check(&format!("example {example}"), || {
            let job = cargo().args(["run", "--quiet", "--package", "alloc-core", "--example", example]);
            let text = job.run_ok()?.text();
            Ok(text.lines().last().context("the example says nothing")?.to_owned())
        });
    }
}

/// What runs in Miri, and the checks that it leaves out.
///
/// Aliasing checks are off for the core: its page map is one static of some hundred thousand atomics, and each borrow
/// of it would visit them all. Bounds, lifetimes, data races, initialisation, alignment and leaks are checked.
const MIRI: [(&str, &[&str], &str); 3] = [
    ("the core on a fixed buffer", &["--package", "alloc-core", "--test", "fixed_buffer"], CORE),
    // The parts that work on raw memory or share it between threads. What is arithmetic, or needs a system that unmaps
    // parts of mappings, is left to the ordinary run.
    ("the core's parts", PARTS, CORE),
    ("page sources", &["--package", "page-backend"], "-Zmiri-permissive-provenance -Zmiri-disable-isolation"),
];
const PARTS: &[&str] = &[
    "--package",
    "alloc-core",
    "--lib",
    "--",
    "central",
    "front",
    "page_heap::tests::filler",
    "page_heap::tests::range_tracker",
    "page_heap::tests::small",
    "snapshot",
    "stats_page",
];
const CORE: &str = "-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-disable-stacked-borrows";

/// The tests that can run in Miri; in a quick run, the heap on a fixed buffer alone.
pub(crate) fn miri(tally: &mut Tally, quick: bool) {
    if !tally.check("miri is there", provide_miri) {
        return;
    }
    for (name, args, flags) in &MIRI[..if quick { 1 } else { MIRI.len() }] {
        // Property tests look for few cases here; the ordinary run looks for many.
        let job =
            nightly().args(["miri", "test"]).args(*args).env("MIRIFLAGS", flags).env("PROPTEST_CASES", "2");
        counted(tally, &format!("miri, {name}"), job);
    }
}

fn provide_miri() -> Result<String> {
    let there = || nightly().args(["miri", "--version"]).run().is_ok_and(|done| done.status.success());
    if there() {
        return Ok(String::new());
    }
    let install = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"];
    if Job::new("rustup").args(install).limit(900).run().is_ok_and(|done| done.status.success()) && there() {
        return Ok("installed".into());
    }
    bail!("Miri is missing: run `rustup {}`", install.join(" "))
}

/// Exports, dependencies and layout of the preload library.
pub(crate) fn abi(library: &Path) -> Result<String> {
    let report = check_abi::check(library).map_err(anyhow::Error::msg)?;
    ensure!(report.passed(), "\n{report}");
    Ok(format!("{} checks", report.to_string().lines().count()))
}

/// Runs tests and counts each of them.
pub(crate) fn counted(tally: &mut Tally, name: &str, job: Job) {
    let start = Instant::now();
    let done = match job.run() {
        Ok(done) => done,
        Err(error) => {
            tally.record(name, Err(error), start);
            return;
        }
    };
    let text = done.text();
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for line in text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let count = |word: &str| -> u64 {
            let before = line.split(word).next().unwrap_or_default();
            before.split_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        passed += count(" passed");
        failed += count(" failed");
        ignored += count(" ignored");
    }
    let result = if !done.status.success() || failed > 0 {
        // A panic's message is on the lines after its place.
        let lines: Vec<_> = text.lines().collect();
        let tells = |at: usize| {
            lines[at].ends_with("... FAILED")
                || lines[at.saturating_sub(3)..=at].iter().any(|line| line.contains("panicked at"))
        };
        let failures: Vec<_> =
            (0..lines.len()).filter(|&at| tells(at)).map(|at| lines[at]).take(60).collect();
        Err(anyhow::anyhow!("{passed} passed, {failed} failed\n{}\n{}", failures.join("\n"), done.tail()))
    } else if passed == 0 {
        Err(anyhow::anyhow!("no test ran\n{}", done.tail()))
    } else if ignored > 0 {
        Err(anyhow::anyhow!("{ignored} tests are ignored; each test must run"))
    } else {
        tally.passed += passed - 1;
        Ok(format!("{passed} tests"))
    };
    tally.record(name, result, start);
}
