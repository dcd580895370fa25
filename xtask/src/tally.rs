//! One line for each check, and the counts for the closing line.

use anyhow::Result;
use std::io::Write;
use std::time::Instant;

/// Checks that passed and that failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How many passed.
    pub(crate) passed: u64,
    /// What failed.
    pub(crate) failures: Vec<String>,
    left_out: u64,
}

impl Tally {
    /// Prints the heading of a group of checks.
    pub(crate) fn heading(&self, name: &str) {
        println!("\n== {name}");
    }

    /// Runs one check and prints its line. What the check returns on success is printed beside its name.
    ///
    /// Returns whether it passed.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<String>) -> bool {
        let start = Instant::now();
        let result = check();
        self.record(name, result, start)
    }

    /// Prints the line of a check that has been made since `start`.
    pub(crate) fn record(&mut self, name: &str, result: Result<String>, start: Instant) -> bool {
        let seconds = start.elapsed().as_secs_f64();
        let passed = result.is_ok();
        match result {
            Ok(detail) => {
                self.passed += 1;
                let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
                println!("ok     {name}{detail} ({seconds:.1} s)");
            }
            Err(error) => {
                println!("FAILED {name}: {error:#} ({seconds:.1} s)");
                self.failures.push(format!("{name}: {}", format!("{error:#}").lines().next().unwrap_or("")));
            }
        }
        let _ = std::io::stdout().flush();
        passed
    }

    /// Prints the line of a check that cannot be made here and need not be.
    pub(crate) fn leave_out(&mut self, name: &str, why: &str) {
        self.left_out += 1;
        println!("left out  {name}: {why}");
    }

    /// Prints what failed, how much was left out and the closing line.
    pub(crate) fn close(&self) {
        println!();
        for failure in &self.failures {
            println!("FAILED {failure}");
        }
        if self.left_out > 0 {
            println!("{} left out", self.left_out);
        }
        println!("{} passed, {} failed", self.passed, self.failures.len());
    }
}
