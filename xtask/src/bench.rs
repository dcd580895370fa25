//! `bench`: this heap beside its peers, measured in turn, with a file of results, a table and a plot for each bench.
//!
//! A bench is a module here with `run`, which hands its cases to [`rounds::alternate`], `page`, which draws what the
//! [`results::Results`] have, and a line in [`KINDS`].

mod instructions;
mod latency;
mod memory;
mod micro;
mod mysql;
mod page;
mod peers;
mod plot;
mod results;
mod rounds;
mod scale;
mod shims;
mod suite;
mod table;

use crate::launcher::Tools;
use crate::{Outcome, Usage, exec, run};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use page::Page;
use peers::{Allocator, Missing};
use results::Results;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) const USAGE: Usage = Usage {
    line: "bench KIND [--rounds N] [--resume]",
    job: "measure this heap beside its peers (--help tells more)",
};

/// Measures this heap beside its peers.
///
/// Allocators alternate within each round, so that drift of the machine cancels. Results go to a dated JSON file under
/// target/bench, with Markdown tables and SVG plots beside it; --write-docs puts these into docs.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench", no_binary_name = true)]
struct Options {
    /// suite: real programs; micro: small loads; instructions: of each call; scale: cost against heap size, threads, block size; latency: every
    /// call timed; memory: what threads and freed memory keep; mysql: field reports about a database server
    #[arg(value_name = "KIND", required = true)]
    kinds: Vec<String>,
    /// Rounds; each bench has its own default
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Run these cases alone (part of a name; may be given more than once)
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Measure these allocators alone
    #[arg(long, value_name = "NAME")]
    allocator: Vec<String>,
    /// Measure this library too
    #[arg(long, value_name = "NAME=FILE")]
    peer: Vec<String>,
    /// Measure this heap under these settings too
    #[arg(long, value_name = "NAME=SETTINGS")]
    settings: Vec<String>,
    /// Go on where the newest file of results of the same library stops, if there is one
    #[arg(long)]
    resume: bool,
    /// Measure nothing: write the newest results of these benches into docs
    #[arg(long)]
    write_docs: bool,
    /// Small loads, to try a bench out; the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Measure this library instead of building libstratalloc.so
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    #[command(flatten)]
    mysql: mysql::Extent,
}

/// A bench: its name, what measures it, and what shows the results.
type Kind = (&'static str, fn(&Bench, &mut Results) -> Result<()>, fn(&Results) -> Page);

const KINDS: &[Kind] = &[
    ("suite", suite::run, suite::page),
    ("micro", micro::run, micro::page),
    ("instructions", instructions::run, instructions::page),
    ("scale", scale::run, scale::page),
    ("latency", latency::run, latency::page),
    ("memory", memory::run, memory::page),
    ("mysql", mysql::run, mysql::page),
];

/// What all benches share.
pub(crate) struct Bench {
    options: Options,
    /// The heaps to measure: ours, the C library's, and the peers that could be had.
    pub(crate) allocators: Vec<Allocator>,
    /// Peers that could not be had, with the reason.
    pub(crate) missing: Vec<Missing>,
    /// Compiles C drivers and measures jobs.
    pub(crate) tools: Tools,
}

impl Bench {
    /// Whether a case is asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.options.case.is_empty() || self.options.case.iter().any(|name| case.contains(name.as_str()))
    }

    /// The number of rounds, unless the user says otherwise.
    pub(crate) fn rounds(&self, default: usize) -> usize {
        self.options.rounds.unwrap_or(if self.quick() { 1 } else { default })
    }

    /// Whether small loads are asked for.
    pub(crate) fn quick(&self) -> bool {
        self.options.quick
    }
}

pub(crate) fn run(args: &[OsString]) -> Outcome {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return Ok(ExitCode::from(if error.use_stderr() { 2 } else { 0 }));
        }
    };
    exec::watch_interrupts().map_err(|error| error.to_string())?;
    execute(options).map_err(|error| format!("{error:#}"))
}

fn execute(options: Options) -> Result<ExitCode> {
    let kinds = options.kinds.iter().map(|kind| {
        KINDS.iter().find(|(name, ..)| name == kind).with_context(|| {
            let names: Vec<_> = KINDS.iter().map(|(name, ..)| *name).collect();
            format!("no bench {kind}; there are {}", names.join(", "))
        })
    });
    let kinds = kinds.collect::<Result<Vec<_>>>()?;
    if options.write_docs {
        for (name, _, page) in kinds {
            let results = Results::newest(name)?;
            page(&results).publish(name, &results)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let library = run::library(options.library.as_deref())?;
    let (mut allocators, missing) = peers::find(&library, &options.peer, &options.allocator)?;
    for pair in &options.settings {
        allocators.push(peers::with_settings(&library, pair)?);
    }
    for peer in &missing {
        println!("missing peer {}: {}", peer.name, peer.reason);
    }
    if !options.allocator.is_empty() {
        for name in &options.allocator {
            ensure!(allocators.iter().any(|a| &a.name == name), "no allocator {name} here");
        }
        allocators.retain(|a| options.allocator.contains(&a.name));
    }
    let bench = Bench { options, allocators, missing, tools: Tools::new()? };
    let mut failures = 0;
    for (name, measure, page) in kinds {
        let mut results = Results::open(name, &bench, bench.options.resume)?;
        println!("results: {}", results.file().display());
        measure(&bench, &mut results)?;
        page(&results).save(&results)?;
        failures += results.failures();
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
