//! Instructions of a malloc/free pair, counted with callgrind beside gperftools in the same run.

use crate::exec::Job;
use crate::launcher::Tools;
use crate::packages;
use crate::tally::Tally;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The loops of `pairs.c`: name, short and long number of rounds, pairs a round.
const LOOPS: [(&str, u64, u64, u64); 2] = [("lifo", 10_000, 60_000, 1), ("batch", 20, 70, 1_000)];

/// Counts both loops on both libraries; ours must not need more than gperftools'.
pub(crate) fn run(tally: &mut Tally, library: &Path, tools: &Tools) {
    for (name, few, many, pairs) in LOOPS {
        tally.check(&format!("malloc/free pair, {name}"), || {
            let program = tools.compile("pairs", &["-fno-builtin"])?;
            let peer = packages::tcmalloc().context("libtcmalloc_minimal is missing")?;
            let count = |library: &Path| -> Result<f64> {
                // The difference of two lengths leaves start-up and end out; the empty loop is the caller's own work.
                let slope = |name: &str| -> Result<f64> {
                    let long = instructions(&program, name, many, library)?;
                    let short = instructions(&program, name, few, library)?;
                    Ok((long - short) as f64 / ((many - few) * pairs) as f64)
                };
                Ok(slope(name)? - slope(&format!("{name}-none"))?)
            };
            let (ours, theirs) = (count(library)?, count(&peer)?);
            ensure!(ours > 0.0 && theirs > 0.0, "the counts {ours:.1} and {theirs:.1} cannot be right");
            ensure!(ours <= theirs, "{ours:.1} instructions, gperftools {theirs:.1}");
            Ok(format!("{ours:.1} instructions, gperftools {theirs:.1}"))
        });
    }
}

/// All instructions of one run.
fn instructions(program: &Path, name: &str, rounds: u64, library: &Path) -> Result<u64> {
    let job = Job::new("valgrind").args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let done = job.arg(name).arg(rounds.to_string()).env("LD_PRELOAD", library).run_ok()?;
    let text = done.errors();
    ensure!(!text.contains("cannot be preloaded"), "the library was not preloaded\n{}", done.tail());
    let line =
        text.lines().find_map(|line| line.split_once("Collected :")).context("callgrind tells no count")?;
    Ok(line.1.trim().parse()?)
}
