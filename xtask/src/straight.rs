//! The straight path of a call through the CPUs' caches, counted in the disassembly: valgrind hides restartable sequences from
//! the programs that it runs.

use crate::exec::Job;
use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use std::path::Path;

/// A path longer than this is no fast one.
const LONGEST: usize = 100;

/// Instructions of `malloc` and of `free`, from entry to return, while the CPUs' caches are in use and have what is asked for.
///
/// # Errors
/// When the library cannot be read, or its path is not one comparison with a bound, then one sequence.
pub(crate) fn per_cpu(library: &Path) -> Result<(usize, usize)> {
    let data = std::fs::read(library)?;
    let file = object::File::parse(&*data)?;
    let text = Job::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(library).run_ok()?.text();
    let code: BTreeMap<u64, &str> = text.lines().filter_map(instruction).collect();
    let count = |name: &str| {
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
        let start = symbol.with_context(|| format!("no symbol {name}"))?.address();
        straight(&code, start).with_context(|| format!("the path of {name}"))
    };
    Ok((count("malloc")?, count("free")?))
}

/// A line of the disassembly: address and instruction.
fn instruction(line: &str) -> Option<(u64, &str)> {
    let (address, text) = line.split_once(":\t")?;
    Some((u64::from_str_radix(address.trim(), 16).ok()?, text.trim()))
}

/// Follows a path to its return. The first branch is the bound, which is 0 for the CPUs' caches, and so is taken; the others lead
/// to misses, and are not.
fn straight(code: &BTreeMap<u64, &str>, start: u64) -> Result<usize> {
    let (mut at, mut bounded, mut armed) = (start, false, false);
    for count in 1..=LONGEST {
        let text = code.get(&at).with_context(|| format!("no instruction at {at:#x}"))?;
        let mut words = text.split_whitespace();
        let (name, operand) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        armed |= name == "mov" && text.contains(",%fs:0x8(");
        if name.starts_with("ret") {
            ensure!(armed, "it returns without a restartable sequence");
            return Ok(count);
        }
        let next = || code.range(at + 1..).next().map(|(&next, _)| next).context("it ends in nothing");
        at = match name {
            "jae" if !bounded => {
                bounded = true;
                u64::from_str_radix(operand, 16)?
            }
            "jmp" => u64::from_str_radix(operand, 16)?,
            _ if name.starts_with('j') && !bounded => {
                bail!("its first branch is {name}, not that of the bound")
            }
            _ if name.starts_with("call") => bail!("it calls"),
            _ => next()?,
        };
    }
    bail!("no return within {LONGEST} instructions")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lines: &[&str]) -> Result<usize> {
        straight(&lines.iter().copied().filter_map(instruction).collect(), 0x10)
    }

    #[test]
    fn the_path_goes_over_the_bound_and_past_the_misses() {
        let path = [
            "  10:\tcmp    0x1(%rip),%rdi",
            "  17:\tjae    30 <a>",
            "  19:\tret",
            "  30:\tjmp    40 <b>",
            "  40:\tmov    %rcx,%fs:0x8(%rdx)",
            "  45:\tje     19 <c>",
            "  4a:\tret",
        ];
        assert_eq!(count(&path).unwrap(), 6);
        assert!(count(&path[..3]).is_err(), "the bound leads nowhere");
        assert!(count(&["  10:\tret"]).is_err(), "no sequence");
        assert!(count(&["  10:\tje     10 <a>"]).is_err(), "another first branch");
    }
}
