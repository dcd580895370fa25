//! `docs/memory.md`: what the battery's programs take on this heap and on the C library's, measured in turn.

use crate::battery::{once, system};
use crate::exec::{Usage, check_interrupt};
use crate::launcher::Tools;
use crate::mode::{Heap, MODES, Via};
use crate::programs::PROGRAMS;
use crate::tally::Tally;
use crate::workspace;
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;

/// Runs of each program on each heap; medians count.
const RUNS: usize = 3;
/// The goal: peak resident memory in parts of that on the C library's heap.
const GOAL: f64 = 1.15;

/// Measures and writes the page.
///
/// # Errors
/// When a program fails or the page cannot be written; a missed goal is a failed check.
pub(crate) fn write(tally: &mut Tally, library: &Path, tools: &Tools, chosen: &[String]) -> Result<()> {
    let heap = Heap::Ours { library: library.to_owned(), mode: &MODES[0], via: Via::Preload };
    let mut rows = String::new();
    for program in &PROGRAMS {
        if !chosen.is_empty() && !chosen.iter().any(|name| program.name.contains(name.as_str())) {
            continue;
        }
        let input = tools.folder()?;
        (program.prepare)(&input)?;
        let mut usages = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            check_interrupt()?;
            for (heap, usages) in [&system(program), &heap].into_iter().zip(&mut usages) {
                usages.push(once(program, heap, &input, tools)?.usage);
            }
        }
        let [system, ours] = usages.map(|usages| median(&usages));
        let ratio = ours.peak_kib as f64 / system.peak_kib as f64;
        writeln!(
            rows,
            "| {} | {} | {} | {ratio:.2} | {} | {} |",
            program.name, system.peak_kib, ours.peak_kib, system.faults, ours.faults
        )?;
        tally.check(&format!("peak of {}", program.name), || {
            anyhow::ensure!(ratio <= GOAL, "{ratio:.2} of the C library's, the goal is {GOAL}");
            Ok(format!("{ratio:.2} of the C library's"))
        });
    }
    if chosen.is_empty() {
        std::fs::write(workspace::root().join("docs/memory.md"), page(&rows))?;
    } else {
        print!("{rows}");
    }
    Ok(())
}

fn median(usages: &[Usage]) -> Usage {
    let middle = |figure: fn(&Usage) -> u64| {
        let mut figures: Vec<_> = usages.iter().map(figure).collect();
        figures.sort_unstable();
        figures[figures.len() / 2]
    };
    Usage { peak_kib: middle(|usage| usage.peak_kib), faults: middle(|usage| usage.faults), ..usages[0] }
}

fn page(rows: &str) -> String {
    format!(
        "# What real programs take\n\n\
         Written by `cargo xtask test --write-docs`. Each program of the test battery ran {RUNS} times on each heap, in turn, \
         with `backend:4k`; the figures are medians. Peak is the largest resident set of the biggest process (`ru_maxrss`; for \
         servers `VmHWM` after the load), faults are minor page faults of all processes. \
         redis brings jemalloc; it is compared with the C library's heap all the same.\n\n\
         | program | peak KiB, glibc | peak KiB, stratalloc | ratio | faults, glibc | faults, stratalloc |\n\
         |---|---|---|---|---|---|\n{rows}\n{AT_THE_START}"
    )
}

/// What the page says of start-up; its figures are those of the `startup` step and of the same count with other libraries.
const AT_THE_START: &str = "\
## At the start

`cargo xtask test --only startup` counts the page faults that the library adds to the start of a program; an empty library
adds 5 to 7. On the machine of the table above:

| program | added | target | |
|---|---|---|---|
| `true` | 14 | 15 | |
| `bash -c :` | 30 | 25 | missed |
| `python3 -c ''` | 125 | 25 | missed |

With a Python 3.11 of its own build, where this heap adds 163, jemalloc 5.3 adds 201 and mimalloc 2.0 adds 279. Python's start
uses some sixty size classes. Each has pages of its own, where glibc packs blocks of all sizes side by side: about 25 faults are
first pages of classes below 1 KiB, about 75 are free objects in the touched pages of larger classes, about 25 are the rounding to
classes, and about 20 are the library's own pages. Serving a class that has nothing free from the free objects of the next larger
ones was tried: of Python's faults that saves 4 to 11, too few for blocks that lie in another class than their size has.

The pages of the library itself that `true` touches are two of relocated constants and their addresses, four of variables, the table
of symbols, and two stretches of code; bash touches two more of variables, one of which is read before it is written and so faults
twice, a third stretch of code, and six of the page map and the metadata arena.
";
