//! `mysql`: field reports about MySQL's memory, redone on a private mariadbd under each allocator.
//!
//! Each part is a file with `cases`; `--case hold` and the like choose among them.

mod cgroup;
mod growth;
mod hold;
mod oltp;
mod pages;
mod plots;
mod protocol;
mod reports;
mod sample;
mod server;
mod share;
mod sheet;
mod slap;

use super::Bench;
use super::page::Page;
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
    /// mysql: seconds for which a server is watched after its sessions left
    #[arg(long, value_name = "N")]
    settle: Option<u64>,
    /// mysql: set nr_hugepages for the cases with huge pages, and put it back
    #[arg(long)]
    set_hugepages: bool,
}

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    println!("    {}", crate::packages::provide()?);
    let quick = bench.quick();
    let data = Data::prepare(4, if quick { 10_000 } else { 100_000 })?;
    let extent = &bench.options.mysql;
    let sessions = extent.sessions.unwrap_or(if quick { 500 } else { 10_000 });
    let seconds = extent.seconds.unwrap_or(if quick { 4 } else { 30 });
    let settle = extent.settle.unwrap_or(if quick { 5 } else { 60 });

    let mut cases = Vec::new();
    if bench.wants("hold") || bench.wants("cgroup") {
        cases.extend(hold::cases(&data, sessions, settle)?);
        cases.retain(|case| bench.wants(&case.name));
    }
    if bench.wants("oltp") {
        cases.push(oltp::case(&data, seconds));
    }
    if bench.wants("share") {
        cases.push(share::case(&data, seconds));
    }
    if bench.wants("growth") {
        cases.push(growth::case(&data, seconds * 4));
    }
    let slaps = slap::cases(&data, quick);
    cases.extend(slaps.into_iter().filter(|case| bench.wants(&case.name)));
    alternate(results, &bench.allocators, &mut cases, bench.rounds(5))?;
    if bench.wants("pages") {
        let rounds = bench.rounds(5);
        pages::run(&data, results, &bench.allocators, extent.set_hugepages, seconds, rounds)?;
    }
    Ok(())
}

/// The tables of all loads with the field reports' own, and the plots.
pub(super) fn page(results: &Results) -> Page {
    let parts = [
        reports::before(reports::SLAP, slap::page(results, results.quick())),
        hold::page(results),
        reports::before(reports::OLTP, oltp::page(results)),
        share::page(results),
        reports::before(reports::PAGES, pages::page(results)),
        growth::page(results),
    ];
    Page { text: sheet::LEGEND.to_owned() + &parts.concat(), plots: plots::all(results) }
}
