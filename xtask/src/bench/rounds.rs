//! Runs every case on every allocator, in turn within each round.

use super::peers::Allocator;
use super::results::{Figures, Record, Results};
use crate::exec::{Usage, check_interrupt};
use anyhow::Result;
use std::io::Write;
use std::time::{Duration, Instant};

/// Runs a case once on an allocator.
pub(crate) type Measure<'a> = Box<dyn FnMut(&Allocator) -> Result<Figures> + 'a>;

/// Something to measure on each allocator.
pub(crate) struct Case<'a> {
    /// Its name in tables.
    pub(crate) name: String,
    /// Runs it once and checks its result.
    pub(crate) run: Measure<'a>,
}

impl<'a> Case<'a> {
    /// A case from its name and what runs it once.
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut(&Allocator) -> Result<Figures> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// The figures of a measured run: `wall`, `user`, `sys` in seconds, `peak` in KiB, and `faults`.
pub(crate) fn figures(usage: &Usage) -> Figures {
    [
        ("wall", usage.wall.as_secs_f64()),
        ("user", usage.user.as_secs_f64()),
        ("sys", usage.system.as_secs_f64()),
        ("peak", usage.peak_kib as f64),
        ("faults", usage.faults as f64),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Runs what the results do not hold yet, with a line of progress for each run.
///
/// Within a round all allocators run a case one after the other, each round beginning with another one. A run that
/// fails is recorded as failed and does not end the bench.
///
/// # Errors
/// On an interrupt, or when the results cannot be written.
pub(crate) fn alternate(
    results: &mut Results,
    allocators: &[Allocator],
    cases: &mut [Case],
    rounds: usize,
) -> Result<()> {
    let total = rounds * cases.len() * allocators.len();
    let (mut number, mut done, mut spent) = (0, 0, Duration::ZERO);
    for round in 0..rounds {
        for case in &mut *cases {
            for turn in 0..allocators.len() {
                let allocator = &allocators[(turn + round) % allocators.len()];
                number += 1;
                if results.has(&case.name, &allocator.name, round) {
                    continue;
                }
                print!("[{number}/{total}] round {}, {}, {}: ", round + 1, case.name, allocator.name);
                std::io::stdout().flush()?;
                let start = Instant::now();
                let outcome = (case.run)(allocator);
                check_interrupt()?;
                done += 1;
                spent += start.elapsed();
                let left = spent / done * (total - number) as u32;
                println!("{} (about {} s left)", said(&outcome), left.as_secs());
                results.push(Record {
                    case: case.name.clone(),
                    allocator: allocator.name.clone(),
                    round,
                    outcome: outcome.map_err(|error| format!("{error:#}")),
                })?;
            }
        }
    }
    Ok(())
}

fn said(outcome: &Result<Figures>) -> String {
    match outcome {
        Ok(figures) => {
            let words: Vec<_> = figures.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
            words.join(", ")
        }
        Err(error) => format!("FAILED: {error:#}"),
    }
}
