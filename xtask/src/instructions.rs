//! Instructions of the heap's calls, counted with callgrind: pairs beside gperftools in the same run, and each call
//! against the golden file.

use crate::exec::Job;
use crate::launcher::Tools;
use crate::tally::Tally;
use crate::{golden, packages, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The loops of `pairs.c`: name, short and long number of rounds, pairs a round.
const LOOPS: [(&str, u64, u64, u64); 2] = [("lifo", 10_000, 60_000, 1), ("batch", 20, 520, 1_000)];

/// The calls of `calls.c`, by their symbols, with the words for them. A second symbol is what callgrind may call the
/// function where the first is a name for it too.
pub(crate) const CALLS: [(&[&str], &str); 8] = [
    (&["malloc"], "malloc"),
    (&["free"], "free"),
    (&["free_sized"], "free_sized"),
    (&["_Znwm", "malloc"], "operator new"),
    (&["_ZdlPv", "free"], "operator delete"),
    (&["_ZdlPvm", "free"], "operator delete, sized"),
    (&["calloc"], "calloc"),
    (&["realloc"], "realloc, same class"),
];

/// The functions of alloc-core's bench `instructions`, with the words for them.
const RUST: [(&[&str], &str); 2] =
    [(&["global_alloc"], "GlobalAlloc::alloc"), (&["global_dealloc"], "GlobalAlloc::dealloc")];

/// The caller's own instructions in a pair: two jumps through the linkage table, and what prepares them.
const CALLERS: usize = 5;
/// The most instructions of a pair on the CPUs' caches.
const PER_CPU: usize = 45;

/// Counts pairs on both libraries, of which ours must not need more, and all calls, which must agree with the golden
/// file; `write` makes that file anew.
pub(crate) fn run(tally: &mut Tally, library: &Path, tools: &Tools, write: bool) {
    for row in LOOPS {
        tally.check(&format!("malloc/free pair, {}", row.0), || {
            let program = pairs_program(tools)?;
            let peer = packages::tcmalloc().context("libtcmalloc_minimal is missing")?;
            let (ours, theirs) = (pair(&program, row.0, Some(library))?, pair(&program, row.0, Some(&peer))?);
            ensure!(ours > 0.0 && theirs > 0.0, "the counts {ours:.1} and {theirs:.1} cannot be right");
            ensure!(ours <= theirs, "{ours:.1} instructions, gperftools {theirs:.1}");
            Ok(format!("{ours:.1} instructions, gperftools {theirs:.1}"))
        });
    }
    if cfg!(target_arch = "x86_64") {
        tally.check("malloc/free pair, per CPU, in the disassembly", || {
            let (malloc, free) = crate::straight::per_cpu(library)?;
            let pair = malloc + free + CALLERS;
            ensure!(pair <= PER_CPU, "{pair} instructions (malloc {malloc}, free {free}), at most {PER_CPU}");
            Ok(format!("{pair} instructions (malloc {malloc}, free {free})"))
        });
    }
    tally.check("golden counts", || {
        let counts = counts(library, tools)?;
        if write { golden::write(&counts) } else { golden::compare(&counts) }
    });
}

/// The program of the loops of pairs.
///
/// # Errors
/// When it cannot be compiled.
pub(crate) fn pairs_program(tools: &Tools) -> Result<PathBuf> {
    tools.compile("pairs", &["-fno-builtin"])
}

/// The program of the loops of single calls.
///
/// # Errors
/// When it cannot be compiled.
pub(crate) fn calls_program(tools: &Tools) -> Result<PathBuf> {
    tools.compile("calls", &["-fno-builtin", "-lstdc++"])
}

/// The names of the loops of pairs.
pub(crate) fn loops() -> impl Iterator<Item = &'static str> {
    LOOPS.into_iter().map(|row| row.0)
}

/// Instructions of a pair in one of the loops, without the caller's own work.
///
/// # Errors
/// When callgrind fails, or the library is not preloaded.
pub(crate) fn pair(program: &Path, name: &str, library: Option<&Path>) -> Result<f64> {
    let (_, few, many, pairs) =
        LOOPS.into_iter().find(|row| row.0 == name).with_context(|| format!("no loop {name}"))?;
    // The difference of two lengths leaves start-up and end out; the empty loop is the caller's own work.
    let slope = |name: &str| -> Result<f64> {
        let count = |rounds: u64| instructions(&[], program, &[name, &rounds.to_string()], library);
        Ok((count(many)? - count(few)?) as f64 / ((many - few) * pairs) as f64)
    };
    Ok(slope(name)? - slope(&format!("{name}-none"))?)
}

/// Instructions of one call, from its first to its return, with all it calls; the first of `symbols` that is seen counts.
///
/// # Errors
/// As [`pair`]; also when the heap has no such function.
pub(crate) fn call(program: &Path, words: &[&str], symbols: &[&str], library: Option<&Path>) -> Result<f64> {
    for symbol in symbols {
        let toggle = format!("--toggle-collect={symbol}");
        let options = ["--collect-atstart=no", "--demangle=no", &toggle];
        let count = |rounds: u64| {
            let rounds = rounds.to_string();
            let words: Vec<&str> = words.iter().copied().chain([rounds.as_str()]).collect();
            instructions(&options, program, &words, library)
        };
        let (few, many) = (2_000, 202_000);
        let cost = (count(many)? - count(few)?) as f64 / (many - few) as f64;
        // Less is what a function costs that is called at start-up alone.
        if cost >= 1.0 {
            return Ok(cost);
        }
    }
    bail!("no instruction of {} was seen", symbols.join(" or "))
}

/// All counts of the golden file.
fn counts(library: &Path, tools: &Tools) -> Result<Vec<golden::Count>> {
    let mut counts = Vec::new();
    let pairs = pairs_program(tools)?;
    for name in loops() {
        counts.push((format!("pair, {name}"), pair(&pairs, name, Some(library))?));
    }
    let program = calls_program(tools)?;
    for (symbols, words) in CALLS {
        counts.push((words.to_owned(), call(&program, &symbols[..1], symbols, Some(library))?));
    }
    let program = rust_program()?;
    for (symbols, words) in RUST {
        counts.push((words.to_owned(), call(&program, &[], symbols, None)?));
    }
    Ok(counts)
}

/// Builds alloc-core's bench `instructions` and returns its path.
fn rust_program() -> Result<PathBuf> {
    let job = Job::new("cargo").args(["bench", "--quiet", "--no-run", "--package", "alloc-core"]);
    let job = job.args(["--bench", "instructions", "--message-format=json"]).dir(workspace::root());
    let text = job.limit(900).run_ok()?.text();
    let built = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let path = built.filter(|m| m["target"]["name"] == "instructions").find_map(|m| {
        let path = m["executable"].as_str()?;
        Some(PathBuf::from(path))
    });
    path.context("cargo names no program")
}

/// All instructions of one run that callgrind collects.
fn instructions(options: &[&str], program: &Path, words: &[&str], library: Option<&Path>) -> Result<u64> {
    let mut job = Job::new("valgrind").args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    job = job.args(options).arg(program).args(words);
    if let Some(library) = library {
        job = job.env("LD_PRELOAD", OsString::from(library));
    }
    let done = job.run_ok()?;
    let text = done.errors();
    ensure!(!text.contains("cannot be preloaded"), "the library was not preloaded\n{}", done.tail());
    let line =
        text.lines().find_map(|line| line.split_once("Collected :")).context("callgrind tells no count")?;
    Ok(line.1.trim().parse()?)
}
