//! `memory`: what idle threads and freed memory keep, and page faults at the start of small programs.

use super::micro::numbers;
use super::page::Page;
use super::peers::Allocator;
use super::results::{Figures, Results};
use super::rounds::{Case, alternate};
use super::{Bench, table};
use crate::exec::Job;
use crate::programs::interpreter;
use anyhow::{Result, ensure};
use std::path::Path;

/// Starts releases by a thread of the allocator's own where it has one.
const BACKGROUND: &str = "background_thread:true";

pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let driver = bench.tools.compile("memory", &["-fno-builtin", "-pthread"])?;
    let driver = driver.as_path();
    let (threads, mib): (&[u32], _) = if bench.quick() { (&[100], "64") } else { (&[10_000], "512") };
    let mut cases = Vec::new();
    for count in threads {
        let run = move |allocator: &Allocator| idle(driver, *count, allocator);
        cases.push(Case::new(format!("{count} idle threads"), run));
    }
    for (name, settings) in [("release", None), ("release in the background", Some(BACKGROUND))] {
        cases.push(Case::new(name, move |allocator| release(driver, mib, settings, allocator)));
    }
    let python = interpreter()?;
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    for words in [words(&["true"]), words(&["bash", "-c", ":"]), words(&[&python, "-c", ""])] {
        let name = words.join(" ").replace(&python, "python3").trim_end().to_owned();
        cases.push(Case::new(format!("start of {name}"), move |allocator| {
            let job = Job::new(&words[0]).args(&words[1..]);
            let done = bench.tools.measure(allocator.heap.apply(job))?;
            ensure!(done.status.success() && done.stderr.is_empty(), "it failed\n{}", done.tail());
            Ok([("faults".to_owned(), done.usage.faults as f64)].into())
        }));
    }
    cases.retain(|case| bench.wants(&case.name));
    alternate(results, &bench.allocators, &mut cases, bench.rounds(3))
}

/// What each thread keeps beyond the same threads without blocks, in KiB.
fn idle(driver: &Path, threads: u32, allocator: &Allocator) -> Result<Figures> {
    let resident = |load: &str| -> Result<f64> {
        let job = Job::new(driver).args([load, &threads.to_string()]);
        Ok(numbers(allocator.heap.apply(job))?[0])
    };
    let (with, without) = (resident("idle")?, resident("idle-none")?);
    Ok([("kib".to_owned(), (with - without) / f64::from(threads))].into())
}

/// What stays resident after all is freed, in parts of the peak.
fn release(driver: &Path, mib: &str, settings: Option<&str>, allocator: &Allocator) -> Result<Figures> {
    let mut job = allocator.heap.apply(Job::new(driver).args(["release", "4", mib]));
    if let Some(settings) = settings {
        job = job.env("STRATALLOC_CONF", format!("backend:4k,{settings}")).env("MALLOC_CONF", settings);
    }
    let figures = numbers(job)?;
    ensure!(figures.len() == 4, "not four figures: {figures:?}");
    let part = |at: usize| 100.0 * figures[at] / figures[0];
    let named = [("idle", part(1)), ("called", part(2)), ("longest", figures[3])];
    Ok(named.map(|(name, value)| (name.to_owned(), value)).into())
}

/// A table for each thing measured.
pub(crate) fn page(results: &Results) -> Page {
    let all = results.cases();
    let some = |word: &str| -> Vec<&str> { all.iter().copied().filter(|case| case.contains(word)).collect() };
    let tables = [
        ("KiB that each idle thread keeps which has used and freed 1 MiB, 2 s later", "idle threads", "kib"),
        ("Resident 2 s after all was freed, % of the peak", "release", "idle"),
        ("The same after 50 calls more", "release", "called"),
        ("The longest of these calls, in microseconds", "release", "longest"),
        ("Page faults", "start of", "faults"),
    ];
    let mut page = Page::default();
    for (words, cases, figure) in tables {
        page.text += &format!("\n{words}:\n\n{}", table::figures(results, &some(cases), figure, 1.0));
    }
    page
}
