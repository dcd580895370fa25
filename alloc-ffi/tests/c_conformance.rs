//! The C interface, with glibc as the judge. Tests are named after the hazard.

mod common;

use common::{library, prints, run, same_as_glibc, source};

#[test]
fn preload_is_in_effect() {
    let run = run(&source("c/effect.c").program(), &[], &[library()]);
    let version = concat!("stratalloc ", env!("CARGO_PKG_VERSION"));
    for name in ["malloc", "free", "pthread_create", "_Znwm", "mallinfo2"] {
        assert!(run.out.contains(&format!("{name} in libstratalloc.so\n")), "{run:?}");
    }
    assert!(run.out.contains(&format!("tc_version {version} 0 1 \"\" {version}\n")), "{run:?}");
    assert!(run.out.contains(&format!("mallctl {version}\n")), "{run:?}");
}

#[test]
fn sizes_overflow_and_alignments_are_odd() {
    same_as_glibc(&source("c/edge_cases.c").program(), &[]);
}

#[test]
fn errno_changes_on_success() {
    same_as_glibc(&source("c/errno_kept.c").program(), &[]);
}

#[test]
fn errno_changes_in_free_when_the_kernel_refuses() {
    same_as_glibc(&source("c/errno_kept.c").program(), &["refuse"]);
}

#[test]
fn usable_size_shrinks_or_lies() {
    same_as_glibc(&source("c/usable_size.c").program(), &[]);
}

#[test]
fn fortified_program_aborts() {
    let program = source("c/fortified.c").flags(&["-O2", "-D_FORTIFY_SOURCE=3"]).program();
    same_as_glibc(&program, &[]);
}

#[test]
fn realloc_loses_content() {
    same_as_glibc(&source("c/realloc_grows.c").program(), &[]);
}

#[test]
fn blocks_overlap() {
    same_as_glibc(&source("c/shadow.c").program(), &[]);
}

#[test]
fn statistics_are_absent_or_glibcs() {
    let run = run(&source("c/questions.c").program(), &[], &[library()]);
    assert!(!run.out.contains(": no\n"), "{}", run.out);
    assert!(run.out.contains("malloc_info(0, stream) = 0\n"), "{}", run.out);
    assert!(run.status.success(), "{run:?}");
    assert!(!run.err.is_empty(), "malloc_stats wrote nothing");
}

#[test]
fn trim_gives_nothing_back() {
    let program = source("c/trim.c").program();
    prints(&program, &[], "malloc_trim(0) = 1\nfull - trimmed >= 50 * 1024: yes");
}

#[test]
fn foreign_pointer_crashes_or_is_silent() {
    let run = run(&source("c/foreign_pointer.c").program(), &[], &[library()]);
    assert!(run.status.success(), "{run:?}");
    assert!(run.out.ends_with("alive\n"), "{run:?}");
    assert!(!run.out.contains("errno after free(pointer): 1\n"), "{run:?}");
    assert_eq!(run.out.matches("errno after free(pointer): 123\n").count(), 9, "{run:?}");
    assert_eq!(run.out.matches("realloc(pointer, 100) == NULL: yes\n").count(), 9, "{run:?}");
    assert_eq!(run.out.matches("malloc_usable_size(pointer) = 0\n").count(), 9, "{run:?}");
    assert!((1..=18).contains(&run.err.lines().count()), "{run:?}");
    for line in run.err.lines() {
        assert!(line.starts_with("stratalloc: pointer 0x"), "{run:?}");
    }
}

#[test]
fn mlockall_makes_memory_fail_or_dirty() {
    same_as_glibc(&source("c/locked_process.c").program(), &[]);
}

#[test]
fn handler_allocates_inside_malloc() {
    prints(&source("c/signal_handler.c").program(), &["2"], "handled > 20: yes\ntwice = 0");
}
