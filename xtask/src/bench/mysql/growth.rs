//! A dump of all tables and a big sort, again and again during OLTP: does the resident set come back?

use super::server::{DATABASE, Data, Server, Setting};
use super::sheet;
use crate::bench::results::{Figures, Results};
use crate::bench::rounds::Case;
use crate::exec::{Job, check_interrupt};
use crate::mode::Heap;
use anyhow::{Context, Result, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CASE: &str = "growth";
/// Disturbances in a run.
const TIMES: u32 = 4;
/// Points in time of the table, besides the one at the start.
const POINTS: u32 = 12;
/// Clients of the load beside it.
const THREADS: u32 = 8;

/// The case of a load of `seconds` seconds with a disturbance in each quarter.
pub(super) fn case(data: &Data, seconds: u64) -> Case<'_> {
    Case::new(CASE, move |allocator| once(data, &allocator.heap, seconds))
}

/// The table.
pub(super) fn page(results: &Results) -> String {
    const MIB: f64 = 1.0 / 1024.0;
    let points =
        (0..=POINTS).map(|point| (key(point), format!("RSS after {point}/{POINTS} of the load, MiB")));
    let points: Vec<_> = points.collect();
    let mut rows: Vec<sheet::Row> = points.iter().map(|(key, words)| (&**key, &**words, MIB)).collect();
    rows.extend([
        ("peak", "peak RSS, MiB", MIB),
        ("after", "RSS 5 s after the load, MiB", MIB),
        ("kept", "the same in parts of the peak", 1.0),
        ("done", "dumps and sorts", 1.0),
    ]);
    sheet::of(results, CASE, &rows)
}

/// The resident set in MiB over the load, as parts of its length.
pub(super) fn points(results: &Results, name: &str) -> Vec<(f64, f64)> {
    let point = |point: u32| {
        let spread = results.spread(CASE, name, &key(point))?;
        Some((f64::from(point) / f64::from(POINTS), spread.median / 1024.0))
    };
    (0..=POINTS).filter_map(point).collect()
}

fn key(point: u32) -> String {
    format!("rss_{point:02}")
}

/// One run.
///
/// # Errors
/// When the server, the load, the dump or the sort fails.
fn once(data: &Data, heap: &Heap, seconds: u64) -> Result<Figures> {
    let mut server = data.start(heap, &Setting::default())?;
    let load = data.sysbench(&server, "oltp_read_write", THREADS);
    let mut load = load.args([&format!("--time={seconds}"), "--rand-seed=7", "run"]).spawn()?;
    let start = Instant::now();
    let over = AtomicBool::new(false);
    let mut figures = Figures::new();
    let (period, step) =
        (Duration::from_secs(seconds) / TIMES, Duration::from_secs(seconds).div_f64(POINTS.into()));
    let mut session = server.session(DATABASE)?;
    session.rows("SET sort_buffer_size = 64 << 20").ok();
    let socket = server.socket().to_owned();
    let done = std::thread::scope(|scope| -> Result<u32> {
        let disturber = scope.spawn(|| -> Result<u32> {
            let mut session = session;
            let mut done = 0;
            while !over.load(Ordering::Relaxed) && done < TIMES {
                // In the middle of each quarter, so that there is time to come back within it.
                if start.elapsed() < period * done + period / 4 {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                dump(&socket)?;
                let rows = session.rows(&sort(data.tables()))?;
                ensure!(rows.len() == 1, "the sort gave {} rows", rows.len());
                done += 1;
            }
            Ok(done)
        });
        let watched = watch(&mut server, &mut figures, step, seconds, start, || load.alive());
        over.store(true, Ordering::Relaxed);
        let done = disturber.join().expect("the client does not panic")?;
        watched.map(|()| done)
    })?;
    let load = load.wait(Duration::from_secs(60))?;
    ensure!(load.status.success(), "sysbench failed\n{}", load.tail());
    std::thread::sleep(Duration::from_secs(5));
    let last = server.sample()?;
    server.stop()?;
    figures.insert("peak".into(), last.peak as f64);
    figures.insert("after".into(), last.rss as f64);
    figures.insert("kept".into(), last.rss as f64 / last.peak as f64);
    figures.insert("done".into(), done.into());
    Ok(figures)
}

/// Takes the resident set at each point in time while the load runs.
fn watch(
    server: &mut Server,
    figures: &mut Figures,
    step: Duration,
    seconds: u64,
    start: Instant,
    mut alive: impl FnMut() -> bool,
) -> Result<()> {
    for point in 0..=POINTS {
        while start.elapsed() < step * point && alive() {
            check_interrupt()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        figures.insert(key(point), server.sample()?.rss as f64);
    }
    while alive() {
        check_interrupt()?;
        ensure!(start.elapsed() < Duration::from_secs(seconds + 120), "sysbench does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Dumps all tables into nothing.
fn dump(socket: &std::path::Path) -> Result<()> {
    let job = Job::new("mariadb-dump").args(["--no-defaults", "--user=root", "--single-transaction"]);
    let job = job.arg(format!("--socket={}", socket.display()));
    job.args(["--result-file=/dev/null", DATABASE]).limit(120).run_ok().map(drop).context("the dump")
}

/// A sort of all rows by a column without an index, whose answer is one row.
fn sort(tables: u32) -> String {
    let all: Vec<_> = (1..=tables).map(|table| format!("SELECT c, pad FROM sbtest{table}")).collect();
    format!(
        "SELECT SUM(LENGTH(c)) FROM (SELECT c, pad FROM ({}) AS a ORDER BY c LIMIT 1000000000) AS b",
        all.join(" UNION ALL ")
    )
}
