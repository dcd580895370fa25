//! mysqlslap with rising numbers of clients and queries: time, and what the server holds at the peak and afterwards.
//!
//! Its clients leave after their share of the queries, so that only a part of a large number is ever there at once.

use super::server::{Data, Setting};
use super::sheet::{self, Row};
use crate::bench::results::{Figures, Results};
use crate::bench::rounds::Case;
use crate::exec::Job;
use crate::mode::Heap;
use anyhow::{Context, Result};
use std::time::Duration;

/// Clients, and queries of all of them together, of which each client takes at least one.
const LOADS: [(u32, u32); 7] = [
    (100, 1_000),
    (100, 10_000),
    (1_000, 1_000),
    (1_000, 10_000),
    (10_000, 10_000),
    (10_000, 50_000),
    (10_000, 200_000),
];
const QUICK: [(u32, u32); 2] = [(10, 200), (100, 1_000)];
/// Seconds for one load. Every other query reads a table that the others fill, so that their cost is quadratic.
const PATIENCE: u64 = 600;
/// File descriptors of the client.
const FILES: u32 = 20_000;

/// The cases of all loads.
pub(super) fn cases(data: &Data, quick: bool) -> Vec<Case<'_>> {
    loads(quick)
        .iter()
        .map(|(clients, queries)| {
            Case::new(name(*clients, *queries), move |allocator| {
                once(data, &allocator.heap, *clients, *queries)
            })
        })
        .collect()
}

/// The tables.
pub(super) fn page(results: &Results, quick: bool) -> String {
    const MIB: f64 = 1.0 / 1024.0;
    const ROWS: [Row; 7] = [
        ("seconds", "elapsed, s", 1.0),
        ("sessions", "sessions at once, at most", 1.0),
        ("refused", "clients that a full queue of the kernel refused", 1.0),
        ("errors", "other complaints of the client", 1.0),
        ("peak", "peak RSS, MiB", MIB),
        ("rss", "RSS 2 s after the last client left, MiB", MIB),
        ("page_tables", "page tables then, KiB", 1.0),
    ];
    let all = loads(quick).iter().map(|(c, q)| sheet::of(results, &name(*c, *q), &ROWS));
    all.collect()
}

/// A figure against the number of clients, at the greatest number of queries of each.
pub(super) fn points(results: &Results, name: &str, figure: &str, scale: f64) -> Vec<(f64, f64)> {
    let measured = |(c, q): &&(u32, u32)| results.cases().contains(&&*self::name(*c, *q));
    let loads: Vec<_> = loads(results.quick()).iter().filter(measured).collect();
    let greatest = loads.iter().filter(|(c, q)| loads.iter().all(|(other, more)| other != c || more <= q));
    greatest
        .filter_map(|(c, q)| {
            let spread = results.spread(&self::name(*c, *q), name, figure)?;
            Some((f64::from(*c), spread.median * scale))
        })
        .collect()
}

fn loads(quick: bool) -> &'static [(u32, u32)] {
    if quick { &QUICK } else { &LOADS }
}

fn name(clients: u32, queries: u32) -> String {
    format!("slap {clients} clients {queries} queries")
}

/// One load on a fresh server.
///
/// # Errors
/// When the server or the client fails, or the time runs out.
fn once(data: &Data, heap: &Heap, clients: u32, queries: u32) -> Result<Figures> {
    let mut server = data.start(heap, &Setting::default())?;
    let job =
        Job::new("/bin/sh").args(["-c", &format!("ulimit -n {FILES}; exec \"$@\""), "sh", "mariadb-slap"]);
    let job = job.args(["--no-defaults", "--user=root", "--iterations=1", "--auto-generate-sql"]).args([
        "--auto-generate-sql-load-type=mixed",
        "--auto-generate-sql-add-autoincrement",
        "--engine=innodb",
    ]);
    let job = job.arg(format!("--socket={}", server.socket().display()));
    let job = job.arg(format!("--concurrency={clients}")).arg(format!("--number-of-queries={queries}"));
    let done = job.limit(PATIENCE).run_ok()?;
    let seconds = elapsed(&done.text())?;
    std::thread::sleep(Duration::from_secs(2));
    let after = server.sample()?;
    let sessions = server.status("Max_used_connections")?;
    server.stop()?;
    let said = done.errors();
    let (refused, others) = complaints(&said);
    for complaint in others.iter().take(3) {
        println!("    the client: {complaint}");
    }
    let counts = [("refused", refused), ("errors", others.len()), ("sessions", sessions as usize)];
    let mut figures = Figures::from([("seconds".to_owned(), seconds)]);
    figures.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
    after.add_to(&mut figures);
    Ok(figures)
}

/// The client's complaints: how many say that the kernel's queue of sessions to accept was full (EAGAIN; its length is
/// `net.core.somaxconn` at most), which no heap can help, and the others.
fn complaints(text: &str) -> (usize, Vec<&str>) {
    let all = text.lines().filter(|line| line.contains("rror"));
    let (refused, others): (Vec<&str>, Vec<&str>) = all
        .partition(|line| line.contains("connecting to server: 2002") && line.trim_end().ends_with("(11)"));
    (refused.len(), others)
}

/// The time in the client's report.
fn elapsed(text: &str) -> Result<f64> {
    let (_, rest) = text
        .split_once("Average number of seconds to run all queries:")
        .context("mysqlslap tells no time")?;
    Ok(rest.split_whitespace().next().context("no time in mysqlslap's report")?.parse()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn refusals_and_other_complaints_are_told_apart() {
        let text = "mariadb-slap: Error when connecting to server: 2002 Can't connect to local server through socket '/s' (11)\n\
                    mariadb-slap: Error when connecting to server: 2013 Lost connection\nno matter\n";
        let (refused, others) = super::complaints(text);
        assert_eq!((refused, others.len()), (1, 1));
        assert!(others[0].contains("2013"));
    }

    #[test]
    fn reads_the_time() {
        let report = "Benchmark\n\tAverage number of seconds to run all queries: 0.042 seconds\n\tMinimum";
        assert_eq!(super::elapsed(report).unwrap(), 0.042);
        assert!(super::elapsed("").is_err());
    }
}
