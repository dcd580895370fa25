//! `suite`: the battery's programs on every allocator; each result is checked against that on the C library's heap.

use super::page::{Page, Plot};
use super::peers::SYSTEM;
use super::results::Results;
use super::rounds::{Case, alternate, figures};
use super::{Bench, plot, table};
use crate::battery::{compare, once, system};
use crate::mode::Heap;
use crate::programs::PROGRAMS;
use anyhow::{Context, Result};

/// Times and memory that are compared, with the words for them.
const FIGURES: [(&str, &str); 5] = [
    ("wall", "Wall time"),
    ("user", "Processor time in the program"),
    ("sys", "Processor time in the kernel"),
    ("peak", "Peak resident memory"),
    ("faults", "Page faults"),
];

/// Programs of the battery that check the heap but measure nothing: the tests of Python's suite mostly wait, and the load on
/// mariadbd lasts a fixed time; the bench `mysql` measures that server.
const UNMEASURED: [&str; 2] = ["python suite", "mariadbd"];

pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let mut cases = Vec::new();
    for program in
        PROGRAMS.iter().filter(|program| bench.wants(program.name) && !UNMEASURED.contains(&program.name))
    {
        let input = bench.tools.folder()?;
        (program.prepare)(&input).with_context(|| format!("cannot prepare {}", program.name))?;
        let expected = once(program, &system(program), &input, &bench.tools)?.content;
        cases.push(Case::new(program.name, move |allocator| {
            // A program with an allocator of its own must not be measured on it.
            let forced = matches!(allocator.heap, Heap::System) && program.own_allocator;
            let heap = if forced { &Heap::SystemForced } else { &allocator.heap };
            let outcome = once(program, heap, &input, &bench.tools)?;
            compare(&expected, &outcome.content)?;
            Ok(figures(&outcome.usage))
        }));
    }
    alternate(results, &bench.allocators, &mut cases, bench.rounds(3))
}

/// The tables and the plots.
pub(crate) fn page(results: &Results) -> Page {
    let cases = results.cases();
    let mut text = String::new();
    for (figure, words) in FIGURES {
        let ratios = table::ratios(results, &cases, figure, SYSTEM);
        text += &format!("\n{words}, in parts of {SYSTEM}'s:\n\n{ratios}");
    }
    let seconds = table::figures(results, &cases, "wall", 1.0);
    let memory = table::figures(results, &cases, "peak", 1.0 / 1024.0);
    text += &format!("\nWall time in seconds:\n\n{seconds}\nPeak resident memory in MiB:\n\n{memory}");
    let plots = [FIGURES[0], FIGURES[3]].map(|(figure, words)| {
        let title = format!("{words} of real programs, in parts of {SYSTEM}'s (left is better)");
        Plot { name: figure, svg: plot::ratios(results, &cases, figure, SYSTEM, &title), title }
    });
    Page { text, plots: plots.into() }
}
