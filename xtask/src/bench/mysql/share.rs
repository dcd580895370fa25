//! What part of the server's time the allocator takes during OLTP, by samples of where its threads are.
//!
//! perf takes a sample on the software clock, which virtual machines without counters have too. A sample is the
//! allocator's when the innermost function outside the kernel is one of its own: in user code, or in the kernel on its behalf
//! (madvise, a fault on its own data). The first touch of fresh memory by the server counts as the server's.

use super::oltp::{self, THREADS};
use super::server::{Data, Setting};
use super::sheet::{self, Row};
use crate::bench::results::{Figures, Results};
use crate::bench::rounds::Case;
use crate::exec::Job;
use crate::mode::Heap;
use anyhow::{Context, Result, ensure};
use std::path::Path;

const CASE: &str = "share";
/// Samples a second and processor: no divisor of the kernel's ticks.
const FREQUENCY: &str = "499";

/// Functions of glibc's malloc, which are local to it but for the first ones: their names come from libc6-dbg.
const GLIBC: [&str; 27] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "cfree@GLIBC_2.2.5",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "_int_memalign",
    "_int_free_merge_chunk",
    "_mid_memalign",
    "malloc_consolidate",
    "unlink_chunk.constprop.0",
    "unlink_chunk.isra.0",
    "sysmalloc",
    "systrim.constprop.0",
    "tcache_init.part.0",
    "arena_get2.part.0",
    "alloc_perturb",
    "checked_request2size",
];

/// The case of a load of `seconds` seconds.
pub(super) fn case(data: &Data, seconds: u64) -> Case<'_> {
    Case::new(CASE, move |allocator| once(data, &allocator.heap, seconds))
}

/// The table.
pub(super) fn page(results: &Results) -> String {
    const ROWS: [Row; 4] = [
        ("user", "samples in the allocator, %", 100.0),
        ("kernel", "samples in the kernel on its behalf, %", 100.0),
        ("faults", "samples in page faults of the server's own code, %", 100.0),
        ("samples", "samples", 1.0),
    ];
    sheet::of(results, CASE, &ROWS)
}

fn once(data: &Data, heap: &Heap, seconds: u64) -> Result<Figures> {
    let server = data.start(heap, &Setting::default())?;
    oltp::load(data, &server, THREADS, (seconds / 10).max(2))?;
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("perf.data");
    let perf = Job::new("perf").args(["record", "--quiet", "--event=cpu-clock", "--call-graph=fp"]);
    let perf = perf.arg(format!("--freq={FREQUENCY}")).arg(format!("--pid={}", server.pid));
    let perf = perf.arg("--output").arg(&file).args(["--", "sleep"]).arg(seconds.to_string());
    let perf = perf.limit(seconds + 60).spawn().context("perf, of the package linux-perf")?;
    oltp::load(data, &server, THREADS, seconds)?;
    let recorded = perf.wait(std::time::Duration::from_secs(60))?;
    ensure!(recorded.status.success(), "perf record failed\n{}", recorded.tail());
    server.stop()?;
    let script = Job::new("perf").args(["script", "--fields=ip,sym,dso", "--input"]).arg(&file);
    let text = script.limit(300).run_ok()?.text();
    // The samples name the file behind links such as those of a soname.
    let library = match heap {
        Heap::Peer { library, .. } | Heap::Ours { library, .. } => Some(library.canonicalize()?),
        Heap::System | Heap::SystemForced => None,
    };
    let counts = Counts::of(&text, library.as_deref());
    ensure!(counts.samples > 100, "perf took {} samples", counts.samples);
    ensure!(
        library.is_some()
            || [" _int_malloc ", " _int_free ", " unlink_chunk", " malloc_consolidate "]
                .iter()
                .any(|name| text.contains(name)),
        "the functions inside glibc's malloc have no names: install libc6-dbg"
    );
    let part = |count: u64| count as f64 / counts.samples as f64;
    let parts = [("user", counts.user), ("kernel", counts.kernel), ("faults", counts.faults)];
    let mut figures: Figures = parts.map(|(name, count)| (name.to_owned(), part(count))).into();
    figures.insert("samples".into(), counts.samples as f64);
    Ok(figures)
}

/// How many samples are whose.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    samples: u64,
    user: u64,
    kernel: u64,
    faults: u64,
}

impl Counts {
    /// Reads what `perf script` prints: for each sample a line for each frame, the innermost first, and an empty line.
    fn of(text: &str, library: Option<&Path>) -> Self {
        let mut counts = Self::default();
        for sample in text.split("\n\n") {
            let frames: Vec<Frame> = sample.lines().filter_map(Frame::read).collect();
            let Some(innermost) = frames.first() else { continue };
            counts.samples += 1;
            let user = frames.iter().find(|frame| !frame.in_kernel());
            let ours = user.is_some_and(|frame| frame.is_of(library));
            let fault = frames.iter().any(|frame| frame.in_kernel() && frame.symbol.contains("page_fault"));
            match (ours, innermost.in_kernel()) {
                (true, false) => counts.user += 1,
                (true, true) => counts.kernel += 1,
                (false, true) if fault => counts.faults += 1,
                _ => {}
            }
        }
        counts
    }
}

/// A line: an address, a function, and the file it is in.
struct Frame<'a> {
    address: u64,
    symbol: &'a str,
    file: &'a str,
}

impl<'a> Frame<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (address, rest) = line.trim().split_once(' ')?;
        let (symbol, file) = rest.rsplit_once(" (")?;
        Some(Self { address: u64::from_str_radix(address, 16).ok()?, symbol, file: file.strip_suffix(')')? })
    }

    fn in_kernel(&self) -> bool {
        self.address >> 63 == 1
    }

    /// Whether this is in a library, or, without one, in the malloc of glibc.
    fn is_of(&self, library: Option<&Path>) -> bool {
        let file = Path::new(self.file).file_name();
        match library {
            Some(library) => file == library.file_name(),
            None => file.is_some_and(|name| name == "libc.so.6") && GLIBC.contains(&self.symbol),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "
            7f0000001000 malloc (/usr/lib/libours.so)
            560000000001 my_malloc (/usr/sbin/mariadbd)

        ffffffff81000000 clear_page ([kernel.kallsyms])
        ffffffff81000001 exc_page_fault ([kernel.kallsyms])
            560000000001 row_search (/usr/sbin/mariadbd)

        ffffffff81000000 zap_pte_range ([kernel.kallsyms])
            7f0000001000 purge (/usr/lib/libours.so)

            7f1000001000 _int_malloc (/usr/lib/x86_64-linux-gnu/libc.so.6)

            7f1000001000 memcpy (/usr/lib/x86_64-linux-gnu/libc.so.6)
    ";

    #[test]
    fn tells_whose_samples_are() {
        let ours = Counts { samples: 5, user: 1, kernel: 1, faults: 1 };
        assert_eq!(Counts::of(SCRIPT, Some(Path::new("/built/libours.so"))), ours);
        let glibc = Counts { samples: 5, user: 1, kernel: 0, faults: 1 };
        assert_eq!(Counts::of(SCRIPT, None), glibc);
    }
}
