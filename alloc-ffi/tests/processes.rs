//! Threads that end and processes that fork. Named after the hazard.

mod common;

use common::{prints, same_as_glibc, source};

#[test]
fn threads_end_in_every_way() {
    same_as_glibc(&source("c/thread_ends.c").program(), &[]);
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
