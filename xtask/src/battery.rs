//! The battery: every program in every mode, compared with the C library's heap.

use crate::exec::{Job, Usage};
use crate::hugepages::Pool;
use crate::launcher::Tools;
use crate::mode::{Heap, MODES, Mode, Via};
use crate::proc;
use crate::programs::{Outcome, PROGRAMS, Program, Trial, interpreter};
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to run.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Programs whose name contains one of these; all if empty.
    pub(crate) programs: Vec<String>,
    /// Modes with one of these names; all if empty.
    pub(crate) modes: Vec<String>,
    /// Start programs through `cargo xtask run` in the first mode alone.
    pub(crate) quick: bool,
}

/// A program with its input and what it gives on the C library's heap.
struct Case {
    program: &'static Program,
    input: PathBuf,
    reference: Outcome,
    /// A word for each mode, for the table.
    cells: Vec<String>,
    /// What it took in the first mode.
    usage: Option<Usage>,
}

/// Runs the battery.
///
/// # Errors
/// When something fails that is no check; failed checks are in the tally.
pub(crate) fn run(tally: &mut Tally, library: &Path, tools: &Tools, choice: &Choice) -> Result<()> {
    let mut cases = Vec::new();
    for program in &PROGRAMS {
        if choice.programs.is_empty()
            || choice.programs.iter().any(|name| program.name.contains(name.as_str()))
        {
            let start = Instant::now();
            match reference(program, tools) {
                Ok(case) => cases.push(case),
                Err(error) => {
                    let result = Err(error.context("it does not run on the C library's heap"));
                    tally.record(program.name, result, start);
                }
            }
        }
    }
    ensure!(!cases.is_empty() || !choice.programs.is_empty(), "no program could be run");
    for mode in &MODES {
        if !choice.modes.is_empty() && !choice.modes.iter().any(|name| name == mode.name) {
            continue;
        }
        // Held until the mode is through; then the pool is as it was before.
        let _pool = match mode.pool.map(Pool::set).transpose() {
            Ok(pool) => pool,
            Err(error) => {
                tally.record(mode.name, Err(error), Instant::now());
                continue;
            }
        };
        run_mode(tally, library, tools, mode, choice.quick, &mut cases)?;
    }
    print_table(&cases, choice);
    Ok(())
}

fn run_mode(
    tally: &mut Tally,
    library: &Path,
    tools: &Tools,
    mode: &'static Mode,
    quick: bool,
    cases: &mut [Case],
) -> Result<()> {
    let heap = |via| Heap::Ours { library: library.to_owned(), mode, via };
    tally.check(&format!("{}: in effect", mode.name), || in_effect(tools, &heap(Via::Preload)));
    let first = std::ptr::eq(mode, &MODES[0]);
    for case in cases {
        let mut word = "ok";
        for via in [Via::Preload, Via::Run] {
            if via == Via::Run && quick && !first {
                continue;
            }
            let name = match via {
                Via::Preload => format!("{}: {}", mode.name, case.program.name),
                Via::Run => format!("{}: xtask run {}", mode.name, case.program.name),
            };
            let mut usage = None;
            let passed = tally.check(&name, || {
                let outcome = once(case.program, &heap(via), &case.input, tools)?;
                compare(&case.reference.content, &outcome.content)?;
                usage = Some(outcome.usage);
                Ok(String::new())
            });
            if !passed {
                word = "FAILED";
            } else if first && via == Via::Preload {
                case.usage = usage;
            }
            crate::exec::check_interrupt()?;
        }
        case.cells.push(word.into());
    }
    Ok(())
}

/// Prepares a program and runs it on the C library's heap.
fn reference(program: &'static Program, tools: &Tools) -> Result<Case> {
    let input = tools.folder()?;
    (program.prepare)(&input).with_context(|| format!("cannot prepare {}", program.name))?;
    let reference = once(program, &system(program), &input, tools)?;
    ensure!(!reference.content.is_empty(), "its result is empty");
    Ok(Case { program, input, reference, cells: Vec::new(), usage: None })
}

/// The C library's heap for a program.
pub(crate) fn system(program: &Program) -> Heap {
    if program.own_allocator { Heap::SystemForced } else { Heap::System }
}

/// One run in a folder of its own, removed afterwards.
pub(crate) fn once(program: &Program, heap: &Heap, input: &Path, tools: &Tools) -> Result<Outcome> {
    let scratch = tempfile::tempdir()?;
    (program.run)(&Trial { heap, input, scratch: scratch.path(), tools })
}

/// Fails with the first line that differs.
pub(crate) fn compare(expected: &str, got: &str) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    let (mut expected_lines, mut got_lines) = (expected.lines(), got.lines());
    for line in 1.. {
        let (expected, got) = (expected_lines.next(), got_lines.next());
        if expected != got || expected.is_none() {
            let short = |text: Option<&str>| text.map(|t| t.chars().take(200).collect::<String>());
            bail!(
                "line {line} of its result is {:?}, on the C library's heap {:?}",
                short(got),
                short(expected)
            );
        }
    }
    Ok(())
}

/// Checks on a small program that the library is mapped and that memory is of the kind that the mode asks for.
fn in_effect(tools: &Tools, heap: &Heap) -> Result<String> {
    let code = "b = [bytes(60000) for _ in range(1500)]\n\
                print(open('/proc/self/status').read(), open('/proc/self/maps').read())";
    let job = heap.apply(Job::new(interpreter()?).args(["-c", code]));
    let done = tools.measure(job)?;
    ensure!(done.status.success(), "python failed\n{}", done.tail());
    let text = done.text();
    let Heap::Ours { library, mode, .. } = heap else { bail!("the C library's heap is always in effect") };
    ensure!(
        text.contains(&*library.to_string_lossy()),
        "/proc/self/maps does not show {}",
        library.display()
    );
    mode.check_memory(|name| proc::kib_of(&text, name).unwrap_or(0))
}

fn print_table(cases: &[Case], choice: &Choice) {
    let modes =
        MODES.iter().filter(|mode| choice.modes.is_empty() || choice.modes.iter().any(|n| n == mode.name));
    let mut head = format!("\n{:14}", "program");
    for mode in modes {
        head += &format!("{:>18}", mode.name);
    }
    println!("{head}{:>14}{:>14}{:>8}{:>12}{:>12}", "peak KiB", "glibc KiB", "ratio", "faults", "glibc");
    for case in cases {
        let mut row = format!("{:14}", case.program.name);
        for cell in &case.cells {
            row += &format!("{cell:>18}");
        }
        if let Some(usage) = case.usage {
            let system = case.reference.usage;
            let ratio = usage.peak_kib as f64 / system.peak_kib as f64;
            row += &format!("{:>14}{:>14}{ratio:>8.2}", usage.peak_kib, system.peak_kib);
            row += &format!("{:>12}{:>12}", usage.faults, system.faults);
        }
        println!("{row}");
    }
}
