//! The crates' tests with the oldest toolchain that they promise to build with.

use crate::cargo_checks::counted;
use crate::exec::Job;
use crate::tally::Tally;
use crate::workspace;

/// The `rust-version` of the workspace.
const VERSION: &str = env!("CARGO_PKG_RUST_VERSION");
const CRATES: [&str; 5] = ["size-classes", "page-backend", "alloc-core", "alloc-ffi", "alloc-stats"];

/// Builds everything without a warning and runs the crates' tests; where there is no such toolchain, says so.
pub(crate) fn run(tally: &mut Tally) {
    let name = format!("cargo test with Rust {VERSION}");
    let Some(toolchain) = provide() else {
        tally.leave_out(&name, &format!("it is missing: run `rustup {}`", install().join(" ")));
        return;
    };
    let cargo = || {
        let job = Job::new("rustup").args(["run", &toolchain, "cargo"]).dir(workspace::root()).limit(1500);
        // Of its own: in the usual folder each toolchain would build everything again after the other.
        job.env("CARGO_TARGET_DIR", workspace::root().join("target/oldest")).env("RUSTFLAGS", "-D warnings")
    };
    tally.check(&format!("cargo check of xtask with Rust {VERSION}"), || {
        cargo().args(["check", "--quiet", "--package", "xtask"]).run_ok()?;
        Ok(toolchain.clone())
    });
    let packages = CRATES.iter().flat_map(|name| ["--package", name]);
    counted(tally, &name, cargo().args(["test", "--all-features", "--no-fail-fast"]).args(packages));
}

/// The toolchain's full name, installed if need be.
fn provide() -> Option<String> {
    installed().or_else(|| {
        let _ = Job::new("rustup").args(install()).limit(300).run();
        installed()
    })
}

fn install() -> [&'static str; 5] {
    ["toolchain", "install", VERSION, "--profile", "minimal"]
}

fn installed() -> Option<String> {
    let list = Job::new("rustup").args(["toolchain", "list"]).run().ok()?.text();
    let is_it = |name: &&str| {
        name.strip_prefix(VERSION).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    list.lines().filter_map(|line| line.split_whitespace().next()).find(is_it).map(str::to_owned)
}
