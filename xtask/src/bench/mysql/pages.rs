//! Kinds of pages under the heap, with the server's own large pages off and on: memory, page tables, oom_score, throughput.

use super::oltp;
use super::server::{Data, Setting};
use super::sheet::{self, Row};
use crate::bench::peers::{Allocator, OURS, SYSTEM};
use crate::bench::results::{Figures, Results};
use crate::bench::rounds::{Case, alternate};
use crate::exec::Memlock;
use crate::hugepages::Pool;
use crate::mode::{Heap, Mode, Via};
use anyhow::{Context, Result};
use std::fs;

/// Clients, as in the field report.
const THREADS: u32 = 4;
/// Huge pages for the server's buffer pool and the heap together: 1 GiB.
const PAGES: u64 = 512;
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

const OFF: &str = "pages";
const ON: &str = "pages with the server's large pages";

/// What the plot compares in each case, with the words for it.
pub(super) const CASES: [(&str, [(&str, &str); 4]); 2] = [
    (
        OFF,
        [
            ("physical", "RSS and huge pages"),
            ("page_tables", "page tables"),
            ("tps", "transactions a second"),
            ("p95", "95% of latencies"),
        ],
    ),
    (
        ON,
        [
            ("physical", "with large pages: RSS and huge pages"),
            ("page_tables", "with large pages: page tables"),
            ("tps", "with large pages: transactions a second"),
            ("p95", "with large pages: 95% of latencies"),
        ],
    ),
];

/// Our heap on each kind of pages. Those that need the pool of huge pages come last.
const KINDS: [Mode; 5] = [
    Mode { name: "4K", conf: "backend:4k", pool: None, memlock: None },
    Mode { name: "THP", conf: "backend:thp,thp:madvise", pool: None, memlock: None },
    Mode { name: "locked", conf: "backend:locked", pool: None, memlock: Some(Memlock::Plenty) },
    Mode { name: "huge", conf: "backend:huge", pool: Some(PAGES), memlock: None },
    Mode {
        name: "huge + locked",
        conf: "backend:huge+locked>locked",
        pool: Some(PAGES),
        memlock: Some(Memlock::Plenty),
    },
];

/// Runs both cases on the C library's heap and on ours with each kind of pages, whichever of the two are in
/// `allocators`. With `set` it sets the pool of huge pages and puts it back on every way out.
///
/// # Errors
/// When the pool cannot be set, on an interrupt, or when the results cannot be written.
pub(super) fn run(
    data: &Data,
    results: &mut Results,
    allocators: &[Allocator],
    set: bool,
    seconds: u64,
    rounds: usize,
) -> Result<()> {
    let pool = if set { Some(Pool::set(PAGES)?) } else { None };
    let free = free().unwrap_or(0);
    let enough = free >= PAGES;
    if !enough {
        println!(
            "    {free} free huge pages, {PAGES} needed: without them (--set-hugepages sets them aside)"
        );
    }
    let mut columns: Vec<Allocator> = allocators.iter().filter(|a| a.name == SYSTEM).cloned().collect();
    if let Some(Heap::Ours { library, .. }) = allocators.iter().find(|a| a.name == OURS).map(|a| &a.heap) {
        columns.extend(KINDS.iter().filter(|mode| enough || mode.pool.is_none()).map(|mode| Allocator {
            name: mode.name.into(),
            origin: format!("{OURS} with {}", mode.conf),
            heap: Heap::Ours { library: library.clone(), mode, via: Via::Preload },
        }));
    }
    let mut cases = vec![Case::new(OFF, |allocator| once(data, &allocator.heap, &[], seconds))];
    if enough {
        let option = ["--large-pages".to_owned()];
        cases.push(Case::new(ON, move |allocator| once(data, &allocator.heap, &option, seconds)));
    }
    alternate(results, &columns, &mut cases, rounds)?;
    drop(pool);
    Ok(())
}

/// The tables.
pub(super) fn page(results: &Results) -> String {
    const MIB: f64 = 1.0 / 1024.0;
    const ROWS: [Row; 10] = [
        ("physical", "RSS and huge pages, MiB", MIB),
        ("rss", "RSS, MiB", MIB),
        ("huge", "HugetlbPages, MiB", MIB),
        ("transparent", "transparent huge pages, MiB", MIB),
        ("locked", "VmLck, MiB", MIB),
        ("page_tables", "page tables, KiB", 1.0),
        ("oom_score", "oom_score", 1.0),
        ("tps", "transactions a second", 1.0),
        ("p95", "95% of latencies, ms", 1.0),
        ("missing", "huge pages not back after the end", 1.0),
    ];
    [OFF, ON].map(|case| sheet::with_columns(results, case, &ROWS, &columns())).concat()
}

/// The names of the columns.
pub(super) fn columns() -> Vec<&'static str> {
    std::iter::once(SYSTEM).chain(KINDS.iter().map(|mode| mode.name)).collect()
}

fn once(data: &Data, heap: &Heap, options: &[String], seconds: u64) -> Result<Figures> {
    let before = free().unwrap_or(0);
    let setting = Setting { options: options.to_vec(), ..Setting::default() };
    let mut figures = oltp::once(data, heap, &setting, THREADS, seconds)?;
    let after = free().unwrap_or(0);
    figures.insert("missing".into(), before.saturating_sub(after) as f64);
    Ok(figures)
}

/// Huge pages of the pool that nobody uses.
fn free() -> Result<u64> {
    let text = fs::read_to_string(FREE).context("the kernel has no pool of 2 MiB pages")?;
    Ok(text.trim().parse()?)
}
