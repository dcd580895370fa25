//! `scale`: the cost of an operation against live heap size, thread count and block size, with a plot of each.

use super::micro::{bytes, cost};
use super::page::{Page, Plot};
use super::plot::{Axes, Curve, curves};
use super::results::Results;
use super::rounds::{Case, alternate};
use super::{Bench, table};
use anyhow::Result;

/// An axis: the driver's word, and how a number on it is called.
struct Axis {
    load: &'static str,
    title: &'static str,
    what: &'static str,
    numbers: &'static [u64],
    word: fn(f64) -> String,
}

const AXES: [Axis; 3] = [
    Axis {
        load: "heap",
        title: "Cost of a free and a malloc against the size of the live heap",
        what: "live heap",
        numbers: &[16, 64, 256, 1024, 4096, 8192],
        word: |mib| bytes(mib * 1_048_576.0),
    },
    Axis {
        load: "threads",
        title: "Cost of a free and a malloc against the number of threads",
        what: "threads",
        numbers: &[1, 2, 4, 16, 64, 256, 1_000, 4_000, 10_000],
        word: |threads| format!("{threads:.0}"),
    },
    Axis {
        load: "size",
        title: "Cost of a free and a malloc against the size of the block",
        what: "block size",
        numbers: &[
            8,
            32,
            128,
            512,
            2 << 10,
            8 << 10,
            32 << 10,
            128 << 10,
            512 << 10,
            2 << 20,
            8 << 20,
            32 << 20,
            64 << 20,
        ],
        word: bytes,
    },
];

impl Axis {
    /// Whether a number takes gigabytes or thousands of threads.
    fn heavy(&self, number: u64) -> bool {
        self.load != "size" && number > 256
    }
}

pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let driver = bench.tools.compile("scale", &["-fno-builtin", "-pthread"])?;
    let seconds = if bench.quick() { "0.05" } else { "0.3" };
    let mut cases = Vec::new();
    for axis in &AXES {
        for number in axis.numbers {
            let name = case(axis, *number);
            if bench.wants(&name) && !(bench.quick() && axis.heavy(*number)) {
                let driver = &driver;
                let words = [axis.load.to_owned(), number.to_string(), seconds.to_owned()];
                cases.push(Case::new(name, move |allocator| cost(driver, &words, allocator)));
            }
        }
    }
    alternate(results, &bench.allocators, &mut cases, bench.rounds(3))
}

fn case(axis: &Axis, number: u64) -> String {
    format!("{} {}", axis.what, (axis.word)(number as f64))
}

/// A table and a plot for each axis.
pub(crate) fn page(results: &Results) -> Page {
    let all = results.cases();
    let mut page = Page::default();
    for axis in &AXES {
        let cases: Vec<String> = axis.numbers.iter().map(|number| case(axis, *number)).collect();
        let cases: Vec<&str> = all.iter().copied().filter(|name| cases.iter().any(|c| c == name)).collect();
        if cases.is_empty() {
            continue;
        }
        let table = table::figures(results, &cases, "ns", 1.0);
        page.text += &format!("\n{}, nanoseconds:\n\n{table}", axis.title);
        let allocators = results.allocators();
        let lines: Vec<_> = allocators.iter().map(|name| curve(results, axis, name)).collect();
        let axes = Axes { title: axis.title, x: axis.what, y: "nanoseconds", word: axis.word, linear: false };
        page.plots.push(Plot { name: axis.load, title: axis.title.into(), svg: curves(&axes, &lines) });
    }
    page
}

fn curve<'a>(results: &Results, axis: &Axis, name: &'a str) -> Curve<'a> {
    let point =
        |number: &u64| Some((*number as f64, results.spread(&case(axis, *number), name, "ns")?.median));
    Curve { name, points: axis.numbers.iter().filter_map(point).collect() }
}
