//! The core's tests on the other architecture that the suite is for, under qemu.
//!
//! What qemu runs has x86-64's order of memory and no rseq(2). So this shows that the portable half is right and complete there, the
//! thread-local words and the calls of the kernel among it, not that its atomic orders are strong enough: those are Miri's.

use crate::cargo_checks::counted;
use crate::exec::Job;
use crate::tally::Tally;
use crate::workspace;
use std::path::Path;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const NAME: &str = "cargo test for aarch64 under qemu";
/// Tests that start their own program again, which qemu's user mode leaves to the host's kernel.
const SKIPPED: [&str; 2] = [
    "areas_of_our_own_serve_where_libc_registers_none",
    "where_another_library_was_first_every_thread_keeps_bins_of_its_own",
];
const TESTS: [&str; 4] = ["front_end", "global_alloc", "fork", "ended_threads"];

/// Runs them; where rustup cannot bring the target, says so.
pub(crate) fn run(tally: &mut Tally) {
    if cfg!(not(target_arch = "x86_64")) {
        return tally.leave_out(NAME, "this is for x86-64 machines");
    }
    let present = || {
        let asked = Job::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).run();
        asked.is_ok_and(|done| Path::new(done.text().trim()).is_dir())
    };
    if !present() {
        let _ = Job::new("rustup").args(["target", "add", TARGET]).limit(300).run();
    }
    if !present() {
        return tally.leave_out(NAME, &format!("no standard library: run `rustup target add {TARGET}`"));
    }
    let job = Job::new("cargo")
        .args(["test", "--package", "alloc-core", "--target", TARGET, "--no-fail-fast", "--lib"])
        .args(TESTS.iter().flat_map(|test| ["--test", test]))
        .arg("--")
        .args(SKIPPED.iter().flat_map(|test| ["--skip", test]))
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu")
        .dir(workspace::root())
        .limit(1500);
    counted(tally, NAME, job);
}
