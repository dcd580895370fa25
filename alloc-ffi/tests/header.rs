//! `include/stratalloc.h` against the library.

mod common;

use common::{Run, library, run, run_command, source};
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;

const HEADER: &str = include_str!("../include/stratalloc.h");

/// Names in the header that are followed by an argument list outside comments.
fn declared() -> BTreeSet<String> {
    let mut code = String::new();
    let mut rest = HEADER;
    while let Some(begin) = rest.find("/*") {
        let end = begin + rest[begin..].find("*/").expect("comments end") + 2;
        code += &rest[..begin];
        rest = &rest[end..];
    }
    code += rest;
    let words = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '('));
    words
        .filter_map(|w| w.split_once('('))
        .map(|(name, _)| name.to_owned())
        .filter(|n| !n.is_empty())
        .collect()
}

#[test]
fn declarations_and_exports_are_the_same() {
    let data = std::fs::read(library()).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let exported: BTreeSet<String> = file
        .dynamic_symbols()
        .filter(|s| s.is_definition())
        .filter_map(|s| s.name().ok().map(str::to_owned))
        .filter(|name| name.starts_with("stratalloc_"))
        .collect();
    assert!(exported.contains("stratalloc_version"));
    assert_eq!(declared(), exported);
}

#[test]
fn header_compiles_alone() {
    const STRICT: &[&str] = &[
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-Wstrict-prototypes",
        concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"),
        "-fsyntax-only",
    ];
    const STRICT_CXX: &[&str] = &[
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"),
        "-fsyntax-only",
    ];
    source("c/header_alone.c").flags(STRICT).strict();
    source("cxx/header_alone.cpp").flags(STRICT_CXX).strict();
}

#[test]
fn every_function_answers() {
    const FLAGS: &[&str] = &["-O1", "-fno-builtin", concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include")];
    let program = source("c/control.c").flags(FLAGS).link(library()).program();
    let preloaded = run(&program, &[], &[library()]);
    answers_are_right(&preloaded);
    // The same program without the preload: the library is one of those that it needs.
    let mut command = std::process::Command::new(&program);
    command.env("LD_LIBRARY_PATH", library().parent().unwrap()).env_remove("LD_PRELOAD");
    answers_are_right(&run_command(command, &program, 2));
}

#[test]
fn private_heaps_leak_or_mix() {
    const FLAGS: &[&str] = &["-O1", "-fno-builtin", concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include")];
    let program = source("c/heaps.c").flags(FLAGS).link(library()).program();
    let run = run(&program, &[], &[library()]);
    assert!(run.status.success(), "{run:?}");
    assert!(!run.out.contains(": no\n"), "{}", run.out);
    assert!(run.out.ends_with("\ndone\n"), "{}", run.out);
    let told = |line: &str| line.starts_with("stratalloc: program: column ") && line.contains("\"nonsense\"");
    assert!(run.err.lines().any(told), "{}", run.err);
}

fn answers_are_right(run: &Run) {
    assert!(run.status.success(), "{run:?}");
    assert!(!run.out.contains(": no\n"), "{}", run.out);
    assert_eq!(run.err, "");
    for line in run.out.lines().filter(|l| l.starts_with("errno after")) {
        assert!(line.ends_with(": 123"), "{line}");
    }
    for line in [
        "stratalloc_check() = 0",
        "MallocExtension_VerifyAllMemory() = 1",
        "stratalloc_property(\"generic.current_allocated_bytes\", &after) = 0",
        "stratalloc_property(\"generic.no_such_thing\", &none) == ENOENT && none == 5 = 1",
        "MallocExtension_GetNumericProperty(\"generic.current_allocated_bytes\", &value) = 1",
        "MallocExtension_GetNumericProperty(\"nothing\", &value) = 0",
        "mallctl(\"stats.allocated\", &value, &len, NULL, 0) = 0",
        "stratalloc_stats(77, &untouched, 0) = 0",
        "stratalloc_set(\"no_such_key\", \"1\") = 2",
        "stratalloc_set(\"hard_limit\", \"a lot\") = 22",
        "stratalloc_set(\"backend\", \"huge\") = 1",
        "stratalloc_set(\"background_thread\", \"false\") = 1",
        "stratalloc_set(\"hard_limit\", \"64MiB\") = 0",
        "stratalloc_set(\"release_delay\", \"never\") = 0",
        "stratalloc_set(\"foreign\", \"report\") = 0",
        "MallocExtension_SetNumericProperty(\"tcmalloc.max_total_thread_cache_bytes\", 1 << 20) = 1",
        "MallocExtension_SetNumericProperty(\"nothing\", 1) = 0",
        "stratalloc_get(\"check\", value, sizeof value, &error) = 3\noff\nerror = 0",
        "stratalloc_get(\"backend\", value, sizeof value, NULL) = 2\n4k",
    ] {
        assert!(run.out.contains(&format!("{line}\n")), "no {line:?} in\n{}", run.out);
    }
}
