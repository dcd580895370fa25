//! Threads that end and processes that fork. Named after the hazard.

mod common;

use common::{same_as_glibc, source};

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
    same_as_glibc(&source("c/fork_storm.c").program(), &["1600"]);
}

#[test]
fn fork_meets_release_and_popen() {
    same_as_glibc(&source("c/fork_storm.c").program(), &["400", "trim"]);
}

#[test]
fn children_of_every_kind_allocate() {
    same_as_glibc(&source("c/child_processes.c").program(), &[]);
}
