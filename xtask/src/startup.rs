//! Page faults that the library adds to the start of small programs.

use crate::exec::Job;
use crate::launcher::Tools;
use crate::mode::{Heap, MODES, Via};
use crate::programs::interpreter;
use crate::tally::Tally;
use anyhow::{Result, ensure};
use std::path::Path;

/// A program with the faults that the library should add at most, and those that it must not exceed.
///
/// They differ: bash and Python use many size classes, each of them with pages of its own, where glibc packs blocks of all
/// sizes side by side.
type Case = (&'static str, u64, u64, fn() -> Result<Job>);

/// Runs of each program on each heap; their median counts, because the kernel's placement adds noise.
const RUNS: usize = 15;

/// Counts the faults of `true`, `bash -c :` and `python3 -c ''` with and without the library.
pub(crate) fn run(tally: &mut Tally, library: &Path, tools: &Tools) {
    let programs: [Case; 3] = [
        ("true", 15, 18, || Ok(Job::new("true"))),
        ("bash -c :", 25, 30, || Ok(Job::new("bash").args(["-c", ":"]))),
        ("python3 -c ''", 25, 40, || Ok(Job::new(interpreter()?).args(["-c", ""]))),
    ];
    let heap = Heap::Ours { library: library.to_owned(), mode: &MODES[0], via: Via::Preload };
    for (name, target, limit, job) in programs {
        tally.check(&format!("page faults of `{name}`"), || {
            let mut faults = [Vec::new(), Vec::new()];
            for _ in 0..RUNS {
                for (heap, faults) in [&Heap::System, &heap].into_iter().zip(&mut faults) {
                    let done = tools.measure(heap.apply(job()?))?;
                    ensure!(done.status.success() && done.stderr.is_empty(), "it failed\n{}", done.tail());
                    faults.push(done.usage.faults);
                }
            }
            let [system, ours] = faults.map(|mut faults| {
                faults.sort_unstable();
                faults[RUNS / 2]
            });
            let more = ours.saturating_sub(system);
            ensure!(more <= limit, "{ours}, {system} without the library: {more} more, the limit is {limit}");
            let verdict = if more <= target { "within" } else { "MISSED:" };
            Ok(format!("{ours}, {system} without the library: {more} more, {verdict} the target of {target} (limit {limit})"))
        });
    }
}
