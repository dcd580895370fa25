//! Threads that end and processes that fork. Named after the hazard.

mod common;

use common::{prints, run, run_with_settings, same_as_glibc, source};

#[test]
fn threads_end_in_every_way() {
    same_as_glibc(&source("c/thread_ends.c").program(), &[]);
}

#[test]
fn stack_of_the_least_size_overflows() {
    same_as_glibc(&source("c/least_stack.c").program(), &[]);
}

#[test]
fn key_destructors_allocate_and_threads_leak() {
    same_as_glibc(&source("c/key_destructors.c").program(), &[]);
}

#[test]
fn child_of_a_threaded_fork_hangs() {
    // glibc passes too, but takes minutes.
    prints(&source("c/fork_storm.c").program(), &["800"], "failed = 0");
}

#[test]
fn fork_meets_release_and_popen() {
    prints(&source("c/fork_storm.c").program(), &["400", "trim"], "failed = 0");
}

#[test]
fn children_of_every_kind_allocate() {
    same_as_glibc(&source("c/child_processes.c").program(), &[]);
}

#[test]
fn interrupted_calls_lose_or_double_blocks() {
    let program = source("c/interrupted_cpu.c").program();
    for settings in ["percpu_cache:1", "percpu_cache:0", "percpu_cache:auto"] {
        let run = run_with_settings(&program, &["2"], settings);
        assert_eq!(run.out, "turns > THREADS: yes\ntwice = 0\n", "{settings}: {run:?}");
    }
}

/// The programs that work hardest, with settings that change who gives memory back, when, and on which thread.
#[test]
fn settings_that_move_work_break_threads_or_forks() {
    let storm = source("c/fork_storm.c").program();
    let children = source("c/child_processes.c").program();
    let shadow = source("c/shadow.c").program();
    let plain = run(&children, &[], &[]);
    for settings in [
        "background_thread:true,release_delay:0",
        "release_delay:0",
        "check:full",
        "max_total_thread_cache_bytes:512KiB",
        "percpu_cache:1",
        "percpu_cache:1,background_thread:true,release_delay:0",
    ] {
        for (program, args, expected) in [
            (&storm, &["160", "trim"][..], "failed = 0\n"),
            (&shadow, &["4000"][..], "faults = 0\n"),
            (&children, &[][..], plain.out.as_str()),
        ] {
            let run = run_with_settings(program, args, settings);
            assert_eq!((run.out.as_str(), run.err.as_str()), (expected, ""), "{settings}");
            assert!(run.status.success(), "{settings}: {:?}", run.status);
        }
    }
}
