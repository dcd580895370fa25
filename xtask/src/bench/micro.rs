//! `micro`: small loads on every allocator, in nanoseconds an operation.

use super::page::{Page, Plot};
use super::peers::{Allocator, SYSTEM};
use super::results::{Figures, Results};
use super::rounds::{Case, alternate};
use super::{Bench, plot, table};
use crate::exec::Job;
use anyhow::{Result, ensure};
use std::path::Path;

/// The loads of `micro.c` with their numbers: block sizes, the number of live blocks, or threads.
const LOADS: [(&str, &[u64]); 12] = [
    ("pair", &[8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20]),
    ("lifo", &[16, 256, 4 << 10, 32 << 10]),
    ("fifo", &[16, 256, 4 << 10, 32 << 10]),
    ("mixed", &[1 << 10, 32 << 10]),
    ("live", &[1_000, 100_000]),
    ("calloc", &[64, 4 << 10, 256 << 10, 16 << 20]),
    ("ramp", &[4 << 10, 1 << 20, 64 << 20]),
    ("append", &[64 << 10, 4 << 20]),
    ("large", &[64 << 10, 1 << 20, 64 << 20]),
    ("pipes", &[1, 8]),
    ("churn", &[1, 4, 16]),
    ("threads", &[1, 8]),
];

pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let driver = bench.tools.compile("micro", &["-fno-builtin", "-pthread"])?;
    let seconds = if bench.quick() { "0.02" } else { "0.2" };
    let mut cases = Vec::new();
    for (load, numbers) in LOADS {
        for number in numbers {
            let name = format!("{load} {}", counted(load, *number));
            if bench.wants(&name) {
                let driver = &driver;
                let words = [load.to_owned(), number.to_string(), seconds.to_owned()];
                cases.push(Case::new(name, move |allocator| cost(driver, &words, allocator)));
            }
        }
    }
    alternate(results, &bench.allocators, &mut cases, bench.rounds(3))
}

/// Runs a driver that prints one figure, the nanoseconds of an operation.
///
/// # Errors
/// As [`numbers`].
pub(crate) fn cost(driver: &Path, words: &[String], allocator: &Allocator) -> Result<Figures> {
    let figures = numbers(allocator.heap.apply(Job::new(driver).args(words)))?;
    Ok([("ns".to_owned(), figures[0])].into())
}

/// Runs a driver that prints figures; there is at least one.
///
/// # Errors
/// When it fails, or says anything on standard error, as when the library was not preloaded.
pub(crate) fn numbers(job: Job) -> Result<Vec<f64>> {
    let done = job.limit(300).run_ok()?;
    ensure!(done.stderr.is_empty(), "it complains\n{}", done.tail());
    let text = done.text();
    let figures: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(!figures.is_empty(), "no figures");
    Ok(figures)
}

/// The table, where this heap stands beside the best, and a plot.
pub(crate) fn page(results: &Results) -> Page {
    let cases = results.cases();
    let table = table::figures(results, &cases, "ns", 1.0);
    let best = table::against_best(results, &cases, "ns");
    let title = format!("Small loads, in parts of {SYSTEM}'s time (left is better)");
    Page {
        text: format!(
            "\nNanoseconds an operation:\n\n{table}\nIn parts of the best other allocator's, worst first:\n\n{best}"
        ),
        plots: vec![Plot { name: "ratios", svg: plot::ratios(results, &cases, "ns", SYSTEM, &title), title }],
    }
}

/// A number with its unit: bytes, or what the load counts.
fn counted(load: &str, number: u64) -> String {
    match load {
        "pipes" | "churn" | "threads" | "live" => number.to_string(),
        _ => bytes(number as f64),
    }
}

/// A number of bytes in the greatest unit that divides it well.
pub(crate) fn bytes(number: f64) -> String {
    let mut number = number;
    for unit in ["B", "KiB", "MiB"] {
        if number < 1024.0 {
            return format!("{number:.0} {unit}");
        }
        number /= 1024.0;
    }
    format!("{number:.0} GiB")
}
