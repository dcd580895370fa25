//! Kinds of pages under the heap, with the server's own large pages off and on: memory, page tables, oom_score, throughput.

use super::oltp;
use super::server::{Data, Server, Setting};
use super::sheet::{self, Row};
use crate::bench::peers::{Allocator, OURS, SYSTEM};
use crate::bench::results::{Figures, Results};
use crate::bench::rounds::{Case, alternate};
use crate::dist;
use crate::exec::{Job, Memlock};
use crate::hugepages::Pool;
use crate::mode::{Heap, Mode, Via};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::Duration;
use std::{fs, mem, thread};

/// Clients, as in the field report.
const THREADS: u32 = 4;
/// Size of a page of the pool, in KiB.
const PAGE_KIB: u64 = 2048;
/// Huge pages for the server's buffer pool and the heap together: 1 GiB.
const PAGES: u64 = 512;
/// Counts of the server's huge pages until they agree, and the time between two: more than what the heap says is behind.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);
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
/// When the tool that reads the heap's accounts cannot be built, the pool cannot be set, on an interrupt, or when the
/// results cannot be written.
pub(super) fn run(
    data: &Data,
    results: &mut Results,
    allocators: &[Allocator],
    set: bool,
    seconds: u64,
    rounds: usize,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let tool = dist::tool(folder.path())?;
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
    let mut cases = vec![Case::new(OFF, |allocator| once(data, &tool, &allocator.heap, &[], seconds))];
    if enough {
        let option = ["--large-pages".to_owned()];
        let tool = &tool;
        cases.push(Case::new(ON, move |allocator| once(data, tool, &allocator.heap, &option, seconds)));
    }
    alternate(results, &columns, &mut cases, rounds)?;
    drop(pool);
    Ok(())
}

/// The tables.
pub(super) fn page(results: &Results) -> String {
    const MIB: f64 = 1.0 / 1024.0;
    const ROWS: [Row; 13] = [
        ("physical", "RSS and huge pages, MiB", MIB),
        ("rss", "RSS, MiB", MIB),
        ("huge", "HugetlbPages, MiB", MIB),
        ("huge_heap", "the heap's among them, by its own account, MiB", MIB),
        ("huge_server", "the server's own among them, MiB", MIB),
        ("huge_others", "taken from the pool by no one of the two, MiB", MIB),
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

fn once(data: &Data, tool: &Path, heap: &Heap, options: &[String], seconds: u64) -> Result<Figures> {
    let before = free().unwrap_or(0);
    let setting = Setting { options: options.to_vec(), ..Setting::default() };
    let mut figures = oltp::observed(data, heap, &setting, THREADS, seconds, |server| {
        account(server, tool, matches!(heap, Heap::Ours { .. }), before)
    })?;
    let after = free().unwrap_or(0);
    figures.insert("missing".into(), before.saturating_sub(after) as f64);
    Ok(figures)
}

/// Whose the huge pages are that left the pool, of which `before` pages were free when the server started, in KiB.
///
/// What the kernel counts for the server and the heap does not count as its own was mapped by the server itself.
///
/// The kernel's figures are taken before and after the heap's, because an idle server still maps and unmaps. What the heap
/// says is up to 5 ms of activity old, and may tell of pages that are gone: then another session makes the server go on.
fn account(server: &mut Server, tool: &Path, ours: bool, before: u64) -> Result<Figures> {
    let mut counts = count(server, before)?;
    for _ in 0..TRIES {
        let heap = if ours { heap_kib(tool, server.pid)? } else { 0 };
        let earlier = mem::replace(&mut counts, count(server, before)?);
        let Counts { server: all, taken } = counts;
        if earlier == counts && heap <= all {
            let parts = [
                ("huge_heap", heap),
                ("huge_server", all - heap),
                ("huge_others", taken.saturating_sub(all)),
            ];
            return Ok(parts.map(|(name, kib)| (name.to_owned(), kib as f64)).into());
        }
        server.status("Threads_connected")?;
        thread::sleep(PAUSE);
    }
    bail!("the heap's huge pages and the kernel's count of the server's did not agree {TRIES} times")
}

/// What the kernel counts on huge pages, in KiB.
#[derive(PartialEq)]
struct Counts {
    /// Mapped by the server.
    server: u64,
    /// Gone from the pool.
    taken: u64,
}

fn count(server: &mut Server, before: u64) -> Result<Counts> {
    let taken = before.saturating_sub(free().unwrap_or(0)) * PAGE_KIB;
    Ok(Counts { server: server.sample()?.huge, taken })
}

/// The heap's own count of its huge pages, in KiB.
fn heap_kib(tool: &Path, pid: i32) -> Result<u64> {
    let stat = Job::new(tool).args(["stat", "--format", "prom", &pid.to_string()]).run_ok()?;
    Ok(huge_bytes(&stat.text())? / 1024)
}

/// Bytes on pages of a pool, from all tiers of the heap's statistics.
fn huge_bytes(prom: &str) -> Result<u64> {
    let tiers = prom.lines().filter(|line| line.starts_with("stratalloc_tier_huge_bytes{"));
    let bytes: Vec<u64> = tiers
        .map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse()?))
        .collect::<Result<_>>()
        .context("stratalloc_tier_huge_bytes is no number")?;
    ensure!(!bytes.is_empty(), "no stratalloc_tier_huge_bytes in\n{prom}");
    Ok(bytes.iter().sum())
}

/// Huge pages of the pool that nobody uses.
fn free() -> Result<u64> {
    let text = fs::read_to_string(FREE).context("the kernel has no pool of 2 MiB pages")?;
    Ok(text.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::huge_bytes;

    #[test]
    fn sums_the_tiers() {
        let text = "# TYPE stratalloc_tier_huge_bytes gauge
stratalloc_tier_mapped_bytes{tier=\"hugetlb-2M\",link=\"0\"} 4194304
stratalloc_tier_huge_bytes{tier=\"hugetlb-2M\",link=\"0\"} 4194304
stratalloc_tier_huge_bytes{tier=\"hugetlb-1G\",link=\"1\"} 1073741824
";
        assert_eq!(huge_bytes(text).unwrap(), (4 << 20) + (1 << 30));
        assert!(huge_bytes("").is_err());
        assert!(huge_bytes("stratalloc_tier_huge_bytes{} many").is_err());
    }
}
