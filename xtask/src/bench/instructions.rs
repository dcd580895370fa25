//! `instructions`: the heap's calls on every allocator, counted with callgrind. Counts do not vary, so one round is
//! enough, and other work on the machine does not matter.

use super::page::Page;
use super::results::Results;
use super::rounds::{Case, alternate};
use super::{Bench, table};
use crate::instructions::{CALLS, call, calls_program, loops, pair, pairs_program};
use anyhow::Result;

pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let (pairs, calls) = (pairs_program(&bench.tools)?, calls_program(&bench.tools)?);
    let mut cases = Vec::new();
    for name in loops() {
        let pairs = &pairs;
        cases.push(Case::new(format!("pair, {name}"), move |allocator| {
            Ok([("count".to_owned(), pair(pairs, name, allocator.library())?)].into())
        }));
    }
    for (symbols, words) in CALLS {
        let calls = &calls;
        cases.push(Case::new(words, move |allocator| {
            Ok([("count".to_owned(), call(calls, &symbols[..1], symbols, allocator.library())?)].into())
        }));
    }
    cases.retain(|case| bench.wants(&case.name));
    alternate(results, &bench.allocators, &mut cases, 1)
}

/// The table of counts.
pub(crate) fn page(results: &Results) -> Page {
    let table = table::figures(results, &results.cases(), "count", 1.0);
    Page {
        text: format!("\nInstructions; `failed` where a heap has no such call:\n\n{table}"),
        plots: Vec::new(),
    }
}
