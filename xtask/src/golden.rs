//! The golden file of instruction counts: `xtask/golden/instructions-ARCH.txt`, a line for each call.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// A call and its instructions.
pub(crate) type Count = (String, f64);

/// Parts of an instruction that a count may differ by: refills, and what the heap does at its times, are spread over many
/// calls.
const SLACK: f64 = 0.5;

fn file() -> PathBuf {
    workspace::root().join(format!("xtask/golden/instructions-{}.txt", std::env::consts::ARCH))
}

/// Writes the file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(counts: &[Count]) -> Result<String> {
    let mut text = String::from(
        "# Instructions of each call under callgrind, on the straight path; a pair is malloc and free with the\n\
         # caller's two PLT jumps. Made by `cargo xtask test --only instructions --write-golden`.\n",
    );
    for (name, count) in counts {
        text += &format!("{count:6.1}  {name}\n");
    }
    std::fs::create_dir_all(file().with_file_name(""))?;
    std::fs::write(file(), text)?;
    Ok(format!("wrote {}", file().display()))
}

/// Compares counts with the file.
///
/// # Errors
/// Names each call that differs: one that needs more has become slower, one that needs less wants the file made anew.
pub(crate) fn compare(counts: &[Count]) -> Result<String> {
    let text = std::fs::read_to_string(file()).context("no golden file: make it with --write-golden")?;
    let mut golden = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (count, name) = line.trim().split_once("  ").with_context(|| format!("golden file: {line}"))?;
        golden.push((name.to_owned(), count.parse::<f64>()?));
    }
    let mut wrong = Vec::new();
    for (name, count) in counts {
        match golden.iter().find(|(golden, _)| golden == name) {
            Some((_, right)) if (count - right).abs() <= SLACK => {}
            Some((_, right)) => wrong.push(format!("{name} {count:.1}, golden {right:.1}")),
            None => wrong.push(format!("{name} {count:.1} is not in the file")),
        }
    }
    let gone = golden.iter().filter(|(name, _)| !counts.iter().any(|(count, _)| count == name));
    wrong.extend(gone.map(|(name, _)| format!("{name} was not counted")));
    if !wrong.is_empty() {
        bail!("{} (a wanted change: --write-golden)", wrong.join("; "));
    }
    let words: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count:.1}")).collect();
    Ok(words.join(", "))
}
