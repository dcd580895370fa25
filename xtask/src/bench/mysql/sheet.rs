//! Markdown: all figures of one case, a row for each figure and a column for each allocator.

use crate::bench::peers::SYSTEM;
use crate::bench::results::{Results, Spread};
use crate::bench::table::short;

/// What a cell holds.
pub(super) const LEGEND: &str = "
Each cell is the median of the rounds, in brackets the extremes, and behind the sign the median of its ratios to glibc in the same round.
";

/// A figure of a case: its name, its words, and what it is multiplied by for the table.
pub(super) type Row<'a> = (&'a str, &'a str, f64);

/// The medians of a case, with the extremes of the rounds; nothing when the case was not run.
pub(super) fn of(results: &Results, case: &str, rows: &[Row]) -> String {
    with_columns(results, case, rows, &results.allocators())
}

/// The same with columns other than the allocators of the head; those that the case was not run on are left out.
pub(super) fn with_columns(results: &Results, case: &str, rows: &[Row], columns: &[&str]) -> String {
    if !results.cases().contains(&case) {
        return String::new();
    }
    let allocators: Vec<&str> = columns.iter().copied().filter(|name| results.has(case, name, 0)).collect();
    let mut text =
        format!("\n{case}:\n\n| | {} |\n|---|{}\n", allocators.join(" | "), "---|".repeat(allocators.len()));
    let measured = |figure: &str| allocators.iter().any(|a| results.spread(case, a, figure).is_some());
    for (figure, words, scale) in rows.iter().filter(|row| measured(row.0)) {
        let cells = allocators.iter().map(|allocator| {
            let ratio = results.ratio(case, allocator, SYSTEM, figure).filter(|_| *allocator != SYSTEM);
            results
                .spread(case, allocator, figure)
                .map_or("failed".into(), |spread| cell(&spread, ratio, *scale))
        });
        text += &format!("| {words} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

fn cell(spread: &Spread, ratio: Option<Spread>, scale: f64) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(|figure| short(figure * scale));
    let ratio = ratio.map_or(String::new(), |ratio| format!(" × {:.2}", ratio.median));
    if min == max { median + &ratio } else { format!("{median} ({min}-{max}){ratio}") }
}
