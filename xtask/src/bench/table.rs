//! Markdown tables: a row for each case, a column for each allocator.

use super::results::{Results, Spread};
use std::fmt::Write;

/// The head and the row of dashes for a first column and the allocators.
fn head(first: &str, allocators: &[&str]) -> String {
    format!("| {first} | {} |\n|---|{}\n", allocators.join(" | "), "---|".repeat(allocators.len()))
}

/// A figure of every case; `scale` multiplies it. The least of a row is bold.
pub(crate) fn figures(results: &Results, cases: &[&str], figure: &str, scale: f64) -> String {
    let allocators = results.allocators();
    let mut text = head("", &allocators);
    for case in cases {
        let cells = allocators.iter().map(|a| results.spread(case, a, figure).map(|s| s.median * scale));
        write_row(&mut text, case, cells.map(|cell| cell.map(|value| (value, short(value)))));
    }
    text
}

/// Several figures of one case, each with its word.
pub(crate) fn one_case(results: &Results, case: &str, figures: &[(String, &str)]) -> String {
    let allocators = results.allocators();
    let mut text = head("", &allocators);
    for (figure, word) in figures {
        let cells = allocators.iter().map(|a| results.spread(case, a, figure).map(|s| s.median));
        write_row(&mut text, word, cells.map(|cell| cell.map(|value| (value, short(value)))));
    }
    text
}

/// A figure of every case in parts of `base`'s, with the extremes of the rounds, and the geometric mean below.
pub(crate) fn ratios(results: &Results, cases: &[&str], figure: &str, base: &str) -> String {
    let allocators = results.allocators();
    let mut text = head(&format!("parts of {base}"), &allocators);
    for case in cases {
        let cells = allocators.iter().map(|a| results.ratio(case, a, base, figure));
        write_row(&mut text, case, cells.map(|cell| cell.map(|spread| (spread.median, ranged(&spread)))));
    }
    let means: Vec<_> =
        allocators.iter().map(|a| results.mean_ratio(cases, &allocators, a, base, figure)).collect();
    let count = means.iter().flatten().map(|(_, count)| *count).max().unwrap_or(0);
    let cells = means.iter().map(|mean| mean.map(|(value, _)| (value, format!("{value:.3}"))));
    write_row(&mut text, &format!("geometric mean of {count}"), cells);
    text
}

/// The first allocator's figure in parts of the least other one's, the worst first, with that one's name.
pub(crate) fn against_best(results: &Results, cases: &[&str], figure: &str) -> String {
    let allocators = results.allocators();
    let Some((first, others)) = allocators.split_first() else { return String::new() };
    let mut rows: Vec<(f64, String)> = Vec::new();
    for case in cases {
        let median = |name: &str| results.spread(case, name, figure).map(|spread| spread.median);
        let best =
            others.iter().filter_map(|name| Some((median(name)?, *name))).min_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some(own), Some((_, best))) = (median(first), best)
            && let Some(ratio) = results.ratio(case, first, best, figure)
        {
            rows.push((ratio.median, format!("| {case} | {} | {} | {best} |\n", ranged(&ratio), short(own))));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let rows: String = rows.into_iter().map(|row| row.1).collect();
    format!("| | ratio | {first} | best other |\n|---|---|---|---|\n{rows}")
}

/// Writes a row of figures and their words; cells without a figure say `failed`, and the least figure is bold.
fn write_row(text: &mut String, name: &str, cells: impl Iterator<Item = Option<(f64, String)>>) {
    let cells: Vec<_> = cells.collect();
    let best = cells.iter().flatten().map(|(value, _)| *value).min_by(f64::total_cmp);
    let _ = write!(text, "| {name} |");
    for cell in cells {
        let _ = match cell {
            Some((value, word)) if Some(value) == best => write!(text, " **{word}** |"),
            Some((_, word)) => write!(text, " {word} |"),
            None => write!(text, " failed |"),
        };
    }
    text.push('\n');
}

/// A ratio, and the extremes where they differ visibly.
fn ranged(spread: &Spread) -> String {
    let Spread { median, min, max } = spread;
    if max - min < 0.005 { format!("{median:.2}") } else { format!("{median:.2} ({min:.2}-{max:.2})") }
}

/// A figure with three digits that matter.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
