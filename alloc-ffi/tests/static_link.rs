//! Static programs on the archive. Named after the hazard.

mod common;

use common::{Run, archive, run, source};

const STATIC: &[&str] = &["-static", "-O1", "-fno-builtin"];

/// Links a program statically with glibc and the archive and runs it.
fn run_static(file: &'static str, args: &[&str]) -> Run {
    let program = source(file).flags(STATIC).link(archive()).program();
    let run = run(&program, args, &[]);
    assert!(run.status.success() && run.err.is_empty(), "{run:?}");
    run
}

/// The same program, dynamically linked with glibc alone.
fn run_plain(file: &'static str, args: &[&str]) -> Run {
    run(&source(file).program(), args, &[])
}

#[test]
fn libcs_malloc_is_pulled_in_beside_ours() {
    // Uses every name of malloc.h, each of which would pull libc's own object in.
    let run = run_static("c/static_names.c", &[]);
    assert!(run.out.contains("in a block of ours: yes"), "{run:?}");
}

#[test]
fn edge_cases_differ_in_static_programs() {
    assert_eq!(run_static("c/edge_cases.c", &[]).out, run_plain("c/edge_cases.c", &[]).out);
}

#[test]
fn threads_and_forks_have_no_hooks_in_static_programs() {
    assert_eq!(run_static("c/thread_ends.c", &[]).out, run_plain("c/thread_ends.c", &[]).out);
    assert_eq!(run_static("c/fork_storm.c", &["160"]).out, "failed = 0\n");
    assert_eq!(run_static("c/shadow.c", &["3000"]).out, "faults = 0\n");
    assert!(run_static("c/key_destructors.c", &["20000"]).out.contains("grown < 2048: yes"));
}
