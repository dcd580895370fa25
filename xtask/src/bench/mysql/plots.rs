//! Plots of what was measured: ratios to the C library's heap, and curves over clients and over time.

use super::{growth, pages, slap};
use crate::bench::page::Plot;
use crate::bench::peers::SYSTEM;
use crate::bench::plot::{Axes, Curve, Ratio, curves, ratios_of};
use crate::bench::results::Results;

/// Figures of the first plot: the case, the figure, and its words.
const FIGURES: [(&str, &str, &str); 13] = [
    ("oltp", "tps", "oltp: transactions a second (more is better)"),
    ("oltp", "p95", "oltp: 95% of latencies"),
    ("oltp", "cpu", "oltp: server time a transaction"),
    ("oltp", "rss", "oltp: RSS"),
    ("oltp", "page_tables", "oltp: page tables"),
    ("hold", "peak", "hold: peak RSS"),
    ("hold", "page_tables", "hold: page tables"),
    ("hold", "after_5", "hold: RSS 5 s after"),
    ("hold", "after_60", "hold: RSS 60 s after"),
    ("cgroup", "held", "cgroup: sessions held (more is better)"),
    ("cgroup", "peak", "cgroup: peak RSS"),
    ("growth", "peak", "growth: peak RSS"),
    ("growth", "after", "growth: RSS 5 s after"),
];

/// Every plot that there are figures for.
pub(super) fn all(results: &Results) -> Vec<Plot> {
    let allocators = results.allocators();
    let has = |row: &Ratio| results.ratio(row.case, SYSTEM, SYSTEM, row.figure).is_some();
    let mut plots = Vec::new();
    let mut add_ratios = |name, title: &str, columns: &[&str], rows: Vec<Ratio>| {
        let rows: Vec<Ratio> = rows.into_iter().filter(has).collect();
        if !rows.is_empty() {
            let svg = ratios_of(results, columns, &rows, SYSTEM, title);
            plots.push(Plot { name, title: title.to_owned(), svg });
        }
    };
    let rows = FIGURES.iter().map(|(case, figure, name)| Ratio { name, case, figure });
    let title = "A database server, in parts of glibc's figures (left is better but where it says otherwise)";
    add_ratios("ratios", title, &allocators, rows.collect());
    let rows = pages::CASES
        .iter()
        .flat_map(|(case, words)| words.iter().map(|(figure, name)| Ratio { name, case, figure }));
    let title = "Kinds of pages under the server's heap, in parts of glibc's figures";
    add_ratios("pages", title, &pages::columns(), rows.collect());
    let mut add_curves = |name, axes: Axes, lines: Vec<Curve>| {
        if !lines.is_empty() {
            plots.push(Plot { name, title: axes.title.to_owned(), svg: curves(&axes, &lines) });
        }
    };
    let figures =
        [("slap-peak", "peak", "peak RSS, MiB", 1.0 / 1024.0), ("slap-time", "seconds", "elapsed, s", 1.0)];
    for (name, figure, y, scale) in figures {
        let word = |clients: f64| format!("{clients:.0}");
        let axes =
            Axes { title: "mysqlslap with rising numbers of clients", x: "clients", y, word, linear: false };
        add_curves(name, axes, lines(&allocators, |name| slap::points(results, name, figure, scale)));
    }
    let word = |part: f64| format!("{:.0}%", part * 100.0);
    let title = "Resident set under OLTP with four dumps and sorts";
    let axes = Axes { title, x: "part of the load", y: "RSS, MiB", word, linear: true };
    add_curves("growth", axes, lines(&allocators, |name| growth::points(results, name)));
    plots
}

/// A curve for each allocator that has points.
fn lines<'a>(allocators: &[&'a str], points: impl Fn(&str) -> Vec<(f64, f64)>) -> Vec<Curve<'a>> {
    let curves = allocators.iter().map(|name| Curve { name, points: points(name) });
    curves.filter(|curve| !curve.points.is_empty()).collect()
}
