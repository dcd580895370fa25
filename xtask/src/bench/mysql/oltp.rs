//! sysbench's OLTP load with 16 threads: throughput, latency, deadlocks, and what the server takes for each transaction.

use super::server::{Data, Server, Setting};
use super::sheet::{self, Row};
use crate::bench::results::{Figures, Results};
use crate::bench::rounds::Case;
use crate::exec::Finished;
use crate::mode::Heap;
use anyhow::{Context, Result, ensure};

/// Concurrent clients, as in the field report.
pub(super) const THREADS: u32 = 16;
const CASE: &str = "oltp";

/// The case of a load of `seconds` seconds.
pub(super) fn case(data: &Data, seconds: u64) -> Case<'_> {
    Case::new(CASE, move |allocator| once(data, &allocator.heap, &Setting::default(), THREADS, seconds))
}

/// The table.
pub(super) fn page(results: &Results) -> String {
    const ROWS: [Row; 8] = [
        ("tps", "transactions a second", 1.0),
        ("requests", "requests a second", 1.0),
        ("mean", "mean latency, ms", 1.0),
        ("p95", "95% of latencies, ms", 1.0),
        ("deadlocks", "deadlocks", 1.0),
        ("cpu", "processor time of the server for a transaction, ms", 1.0),
        ("rss", "RSS at the end, MiB", 1.0 / 1024.0),
        ("page_tables", "page tables, KiB", 1.0),
    ];
    sheet::of(results, CASE, &ROWS)
}

/// Runs the load for `seconds` on a fresh server, after a tenth of that to warm it up.
///
/// # Errors
/// When the server or sysbench fails.
pub(super) fn once(
    data: &Data,
    heap: &Heap,
    setting: &Setting,
    threads: u32,
    seconds: u64,
) -> Result<Figures> {
    observed(data, heap, setting, threads, seconds, |_| Ok(Figures::new()))
}

/// The same, with figures of one's own taken from the server behind the load, while it idles.
///
/// # Errors
/// When the server, sysbench or `look` fails.
pub(super) fn observed(
    data: &Data,
    heap: &Heap,
    setting: &Setting,
    threads: u32,
    seconds: u64,
    look: impl FnOnce(&mut Server) -> Result<Figures>,
) -> Result<Figures> {
    let mut server = data.start(heap, setting)?;
    load(data, &server, threads, (seconds / 10).max(2))?;
    let before = server.sample()?;
    let text = load(data, &server, threads, seconds)?.text();
    let after = server.sample()?;
    let own = look(&mut server)?;
    server.stop()?;
    let mut figures = read(&text)?;
    let transactions = figure(&text, "transactions:")?;
    ensure!(transactions > 0.0, "sysbench made no transaction\n{text}");
    figures.insert("cpu".into(), (after.cpu_ms - before.cpu_ms) as f64 / transactions);
    after.add_to(&mut figures);
    figures.extend(own);
    Ok(figures)
}

/// Runs the load for `seconds` on a server.
pub(super) fn load(data: &Data, server: &Server, threads: u32, seconds: u64) -> Result<Finished> {
    let job = data.sysbench(server, "oltp_read_write", threads);
    job.args([&format!("--time={seconds}"), "--rand-seed=7", "run"]).limit(seconds + 120).run_ok()
}

/// Takes the figures out of sysbench's report.
fn read(text: &str) -> Result<Figures> {
    let all = [
        ("tps", rate(text, "transactions:")?),
        ("requests", rate(text, "queries:")?),
        ("mean", figure(text, "avg:")?),
        ("p95", figure(text, "95th percentile:")?),
        ("deadlocks", figure(text, "ignored errors:")?),
    ];
    Ok(all.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The first number behind a name.
fn figure(text: &str, name: &str) -> Result<f64> {
    let rest = text.split_once(name).with_context(|| format!("sysbench tells no {name}"))?.1;
    Ok(rest.split_whitespace().next().with_context(|| format!("no figure behind {name}"))?.parse()?)
}

/// The rate in brackets behind a name.
fn rate(text: &str, name: &str) -> Result<f64> {
    let rest = text.split_once(name).with_context(|| format!("sysbench tells no {name}"))?.1;
    figure(rest, "(")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "
        queries performed:
            total:                           17640
        transactions:                        882    (437.86 per sec.)
        queries:                             17640  (8757.20 per sec.)
        ignored errors:                      3      (1.49 per sec.)
    Latency (ms):
             min:                                    8.60
             avg:                                   36.43
             max:                                  164.89
             95th percentile:                       63.32
    ";

    #[test]
    fn reads_the_report() {
        let load = read(REPORT).unwrap();
        let expected =
            [("deadlocks", 3.0), ("mean", 36.43), ("p95", 63.32), ("requests", 8757.20), ("tps", 437.86)];
        assert_eq!(load, expected.map(|(name, value)| (name.to_owned(), value)).into());
        assert!(read("").is_err());
    }
}
