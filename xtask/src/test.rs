//! `test`: everything that must hold, from set-up to real servers, with one line a check and the counts at the end.

use crate::battery::{self, Choice};
use crate::launcher::Tools;
use crate::tally::Tally;
use crate::{
    Outcome, Usage, aarch64, bad_input, cargo_checks, exec, guide, instructions, memory_docs, oldest,
    package, packages, run, startup,
};
use anyhow::Result;
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

pub(crate) const USAGE: Usage =
    Usage { line: "test [--only STEP] [--quick] [--write-docs]", job: "run all tests (--help tells more)" };

/// Runs all tests.
///
/// As root on a machine with apt-get, installs what they need from the system; otherwise names what is missing and
/// fails. Huge pages are set aside for the tests that use them and given back afterwards.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask test", no_binary_name = true)]
struct Options {
    /// Run these steps alone (may be given more than once)
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Run the battery's programs through `cargo xtask run` in the first mode alone, and Miri on fewer tests
    #[arg(long)]
    quick: bool,
    /// Run these programs of the battery alone (part of a name)
    #[arg(long, value_name = "NAME")]
    program: Vec<String>,
    /// Run the battery in these modes alone
    #[arg(long, value_name = "NAME")]
    mode: Vec<String>,
    /// Test this library instead of building libstratalloc.so
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Measure the battery's programs on both heaps in turn and write docs/memory.md
    #[arg(long)]
    write_docs: bool,
    /// Write the golden file of instruction counts anew instead of comparing with it
    #[arg(long)]
    write_golden: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Formatting
    Fmt,
    /// Lints, also of the preload build and of the documentation
    Clippy,
    /// All crates' own tests, doc tests and examples
    Unit,
    /// The crates' own tests with the oldest Rust that they promise to build with, where rustup has it
    Oldest,
    /// The core's own tests for aarch64, under qemu
    Aarch64,
    /// The core under Miri
    Miri,
    // From here on, steps need the preload library.
    /// Exports and layout of the preload library
    Abi,
    /// Page faults at the start of small programs
    Startup,
    /// Instructions of the heap's calls, beside gperftools and the golden file
    Instructions,
    /// Wrong frees, overflows, wrong settings, missing limits
    BadInput,
    /// The packages: made, installed, a packaged server put on the heap and taken back, purged
    Package,
    /// Every command of docs/mysql.md
    MysqlGuide,
    /// Real programs in all modes
    Programs,
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
    let mut tally = Tally::default();
    let start = Instant::now();
    if let Err(error) = steps(&options, &mut tally) {
        tally.record("the test run itself", Err(error), start);
    }
    tally.close();
    Ok(if tally.failures.is_empty() && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn steps(options: &Options, tally: &mut Tally) -> Result<()> {
    let chosen: Vec<Step> = match (options.only.is_empty(), options.write_docs) {
        (true, true) => Vec::new(),
        (true, false) => Step::value_variants().to_vec(),
        (false, _) => options.only.clone(),
    };
    tally.heading("set-up");
    if !tally.check("packages", packages::provide) {
        return Ok(());
    }
    let has = |step| chosen.contains(&step);
    if has(Step::Fmt) {
        tally.heading("fmt");
        cargo_checks::fmt(tally);
    }
    if has(Step::Clippy) {
        tally.heading("clippy");
        cargo_checks::clippy(tally);
    }
    if has(Step::Unit) {
        tally.heading("unit");
        cargo_checks::unit(tally);
    }
    if has(Step::Oldest) {
        tally.heading("oldest");
        oldest::run(tally);
    }
    if has(Step::Aarch64) {
        tally.heading("aarch64");
        aarch64::run(tally);
    }
    if has(Step::Miri) {
        tally.heading("miri");
        cargo_checks::miri(tally, options.quick);
    }
    let needs_library = chosen.iter().any(|step| *step as u8 >= Step::Abi as u8) || options.write_docs;
    if !needs_library {
        return Ok(());
    }
    tally.heading("library");
    let mut library = None;
    tally.check("build-preload", || {
        let built = run::library(options.library.as_deref())?;
        library = Some(built.clone());
        Ok(built.display().to_string())
    });
    let Some(library) = library else { return Ok(()) };
    if has(Step::Abi) {
        tally.heading("abi");
        tally.check("check-abi", || cargo_checks::abi(&library));
    }
    let tools = Tools::new()?;
    if has(Step::Startup) {
        tally.heading("startup");
        startup::run(tally, &library, &tools);
    }
    if has(Step::Instructions) {
        tally.heading("instructions");
        instructions::run(tally, &library, &tools, options.write_golden);
    }
    if has(Step::BadInput) {
        tally.heading("bad-input");
        bad_input::run(tally, &library, &tools)?;
    }
    if has(Step::Package) {
        tally.heading("package");
        package::run(tally, &library);
    }
    if has(Step::MysqlGuide) {
        tally.heading("mysql-guide");
        guide::run(tally, &library)?;
    }
    if has(Step::Programs) {
        tally.heading("programs");
        let choice =
            Choice { programs: options.program.clone(), modes: options.mode.clone(), quick: options.quick };
        battery::run(tally, &library, &tools, &choice)?;
    }
    if options.write_docs {
        tally.heading("docs");
        memory_docs::write(tally, &library, &tools, &options.program)?;
    }
    Ok(())
}
