//! What the field reports found, to stand beside what is measured here.

/// Report 1: mysqlslap, a pool of 6 GiB, gperftools 2.10 against glibc.
pub(super) const SLAP: &str = "
The field report (gperftools 2.10 against glibc, a pool of 6 GiB, up to 1,000,000 queries):

| clients | what it found |
|---|---|
| 100 and 1,000 | tcmalloc used less memory than glibc, and fragmented less |
| 10,000 | no difference; with 10,000 queries glibc used less |
| 10,000, with 1,000,000 queries | tcmalloc ran out of memory in every run, glibc stayed up for some 10 minutes |
";

/// Report 2: sysbench OLTP with 16 threads.
pub(super) const OLTP: &str = "
The field report (10,000 rows, 10,000 requests, 16 threads):

| | glibc | tcmalloc | change |
|---|---|---|---|
| transactions a second | 756.11 | 862.83 | +14.1% |
| requests a second | 14,376 | 16,402 | +14.1% |
| mean latency, ms | 21.14 | 18.52 | -12.4% |
| 95% of latencies, ms | 56.25 | 36.49 | -35.1% |
| deadlocks | 8 | 6 | |
";

/// Report 3: kinds of pages.
pub(super) const PAGES: &str = "
The field report (a machine of 7.8 GiB, a pool of 2 GiB, 4 x 100,000 rows, 4 threads, 60 s; large pages are the server's own):

| | 4K | memlock | large pages (1040) + memlock | large pages (1419) + memlock |
|---|---|---|---|---|
| physical memory beyond the pool, MB | 1138 | 3221 | 1555 | 1280 |
| page tables, KB | 2904 | 7296 | 3628 | |
| oom_score | 62 | 210 | 90 | 82 |
| Mlocked, kB | 0 | 3,501,712 | 1,641,060 | 1,360,332 |
| huge pages used | 0 | 0 | 990 | 1056 |
| transactions a second | 324.32 | | 340.46 (+5%) | |
| 95% of latencies, ms | 34.33 | | 30.81 (-10.2%) | |
";

/// A report in front of its experiment's tables, if that was run.
pub(super) fn before(report: &str, tables: String) -> String {
    if tables.is_empty() { tables } else { format!("{report}{tables}") }
}
