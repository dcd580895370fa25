//! `cargo xtask run` passes on what a command says and how it ends, and tells whether the library was loaded.
//!
//! The C library stands in for the heap: it is a library that every dynamically linked program can preload.

use std::path::PathBuf;
use std::process::{Command, Output};

fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process has mappings");
    let line = maps.lines().find(|line| line.contains("/libc.so.6")).expect("the tests use the C library");
    PathBuf::from(&line[line.find('/').expect("the line has a path")..])
}

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["run", "--library"]).arg(libc()).arg("--").args(words);
    command.output().expect("xtask can be started")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn passes_output_and_exit_code_on() {
    let output = run(&["sh", "-c", "printf out; printf 'err\\n' >&2; sleep 0.1; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out");
    assert!(errors(&output).starts_with("err\n"), "{}", errors(&output));
    assert!(errors(&output).contains("stratalloc: in effect in sh"), "{}", errors(&output));
}

#[test]
fn a_signal_becomes_an_exit_code_as_in_shells() {
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).status.code(), Some(128 + 15));
}

#[test]
fn a_command_that_is_not_there_is_told_from_one_that_cannot_run() {
    assert_eq!(run(&["/nonexistent/command"]).status.code(), Some(127));
    assert_eq!(run(&["/etc/passwd"]).status.code(), Some(126));
}

#[test]
fn a_wrong_call_is_told_from_a_failed_command() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("Usage"), "{}", errors(&output));
}

#[test]
fn keeps_what_is_preloaded_already_and_hides_what_cargo_set() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.env("LD_PRELOAD", "libm.so.6").env("CARGO_PKG_NAME", "xtask");
    command.args(["run", "--quiet", "--library"]).arg(libc()).args(["--", "env"]);
    let output = command.output().expect("xtask can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let list = text.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).expect("a preload list");
    assert_eq!(list, format!("{}:libm.so.6", libc().canonicalize().expect("a path").display()));
    assert!(!text.contains("CARGO_PKG_NAME"), "{text}");
    assert!(errors(&output).is_empty(), "{}", errors(&output));
}

#[test]
fn says_plainly_when_a_program_does_not_load_the_library() {
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("static.c");
    let program = dir.path().join("static");
    std::fs::write(&source, "int main(void) { return 3; }").expect("the source is written");
    let compiled = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler and a static C library are needed");
    let output = run(&[program.to_str().expect("a path in UTF-8")]);
    assert_eq!(output.status.code(), Some(3));
    let errors = errors(&output);
    assert!(errors.contains("NOT in effect") && errors.contains("statically linked"), "{errors}");
}
