//! The C++ operators, with libstdc++ over glibc as the judge. Tests are named after the hazard.

mod common;

use common::{library, run, same_as_glibc, source};
use std::os::unix::process::ExitStatusExt;

#[test]
fn new_ignores_handlers_or_cannot_throw() {
    same_as_glibc(&source("cxx/new_delete.cpp").program(), &[]);
}

#[test]
fn exception_passes_through_the_allocator() {
    same_as_glibc(&source("cxx/handler_stack.cpp").program(), &[]);
}

#[test]
fn sized_delete_states_a_wrong_size() {
    same_as_glibc(&source("cxx/wrong_size_delete.cpp").program(), &[]);
}

#[test]
fn program_replaces_some_operators() {
    same_as_glibc(&source("cxx/own_operators.cpp").program(), &[]);
}

#[test]
fn static_destructors_free_after_exit_handlers() {
    same_as_glibc(&source("cxx/static_destructors.cpp").program(), &[]);
}

#[test]
fn threads_unwind_through_the_interposed_create() {
    same_as_glibc(&source("cxx/thread_exceptions.cpp").program(), &[]);
}

#[test]
fn no_cxx_runtime_can_throw() {
    let run = run(&source("c/no_runtime.c").program(), &[], &[library()]);
    assert!(!run.out.contains(": no") && !run.out.contains("not reached"), "{run:?}");
    assert_eq!(run.out.matches(": yes").count(), 3, "{run:?}");
    assert!(
        run.err.starts_with("stratalloc: operator new: no memory for 9223372036854775707 bytes"),
        "{run:?}"
    );
    assert_eq!(run.err.lines().count(), 1, "{run:?}");
    assert_eq!(run.status.signal(), Some(6), "{run:?}");
}
