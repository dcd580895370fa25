//! `latency`: every small call timed while memory is being given back.

use super::micro::numbers;
use super::page::Page;
use super::peers::Allocator;
use super::results::Results;
use super::rounds::{Case, alternate};
use super::{Bench, table};
use crate::exec::Job;
use anyhow::{Result, ensure};

/// What the driver prints, of malloc and then of free.
const PERCENTILES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];

pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let driver = bench.tools.compile("latency", &["-fno-builtin", "-pthread"])?;
    let seconds = if bench.quick() { "0.2" } else { "2" };
    let mut cases = Vec::new();
    for threads in ["1", "2", "8"] {
        let driver = &driver;
        let run = move |allocator: &Allocator| {
            let job = Job::new(driver).args([threads, seconds]);
            let figures = numbers(allocator.heap.apply(job))?;
            ensure!(figures.len() == 2 * PERCENTILES.len(), "not all percentiles: {figures:?}");
            let names =
                ["malloc", "free"].into_iter().flat_map(|call| PERCENTILES.map(|p| format!("{call} {p}")));
            Ok(names.zip(figures).collect())
        };
        cases.push(Case::new(format!("{threads} threads"), run));
    }
    cases.retain(|case| bench.wants(&case.name));
    alternate(results, &bench.allocators, &mut cases, bench.rounds(3))
}

/// A table for each number of threads and each call.
pub(crate) fn page(results: &Results) -> Page {
    let mut page = Page::default();
    for case in results.cases() {
        for call in ["malloc", "free"] {
            let figures = PERCENTILES.map(|p| (format!("{call} {p}"), p));
            let table = table::one_case(results, case, &figures);
            page.text += &format!("\n{call}, {case}, nanoseconds:\n\n{table}");
        }
    }
    page
}
