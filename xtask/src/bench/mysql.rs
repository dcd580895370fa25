//! `mysql`: field reports about MySQL's memory, redone on a private mariadbd under each allocator.
//!
//! Each part is a file with `cases`; `--case hold` and the like choose among them.

mod cgroup;
mod hold;
mod oltp;
mod protocol;
mod sample;
mod server;
mod sheet;

use super::Bench;
use super::results::Results;
use super::rounds::alternate;
use anyhow::Result;
use server::Data;

/// What the user may say to this bench alone.
#[derive(clap::Args, Debug)]
pub(super) struct Extent {
    /// mysql: sessions that are open at once
    #[arg(long, value_name = "N")]
    sessions: Option<usize>,
    /// mysql: length of each load
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    println!("    {}", crate::packages::provide()?);
    let quick = bench.quick();
    let data = Data::prepare(4, if quick { 10_000 } else { 100_000 })?;
    let extent = &bench.options.mysql;
    let sessions = extent.sessions.unwrap_or(if quick { 500 } else { 10_000 });
    let seconds = extent.seconds.unwrap_or(if quick { 4 } else { 30 });

    let peaks = hold::Peaks::default();
    let mut cases = Vec::new();
    if bench.wants("hold") {
        cases.extend(hold::cases(&data, &peaks, sessions, if quick { 5 } else { 60 })?);
    }
    if bench.wants("oltp") {
        cases.push(oltp::case(&data, seconds));
    }
    alternate(results, &bench.allocators, &mut cases, bench.rounds(5))?;
    let page = results.preamble() + &hold::page(results) + &oltp::page(results);
    print!("\n{page}");
    results.save("md", &page)
}
