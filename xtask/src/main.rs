//! The project's own commands: `cargo xtask COMMAND`.
//!
//! Layer rule: drives cargo and checks what cargo built; no crate of the suite depends on it. One file a
//! command: a new one is a module with `run` and a line in [`COMMANDS`].

mod aarch64;
mod abi_sequences;
mod abi_symbols;
mod bad_input;
mod battery;
mod bench;
mod build_preload;
mod cargo_checks;
mod check_abi;
mod dist;
mod environment;
mod exec;
mod golden;
mod guide;
mod hugepages;
mod instructions;
mod launcher;
mod memory_docs;
mod mode;
mod oldest;
mod package;
mod packages;
mod proc;
mod programs;
mod run;
mod run_report;
mod service;
mod startup;
mod straight;
mod tally;
mod test;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

/// What a command ends with: its exit code, or a message for the user (exit code 1).
type Outcome = Result<ExitCode, String>;

struct Command {
    name: &'static str,
    usage: Usage,
    run: fn(&[OsString]) -> Outcome,
}

/// How a command is called, and what it does.
#[derive(Clone, Copy)]
struct Usage {
    line: &'static str,
    job: &'static str,
}

impl Usage {
    /// What a command without options of its own says to any: its usage, which is no failure when it was asked for.
    fn misused(self, args: &[OsString]) -> Outcome {
        let text = format!("usage: cargo xtask {}\n  {}\n", self.line, self.job);
        if args.iter().any(|arg| arg == "-h" || arg == "--help") {
            print!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        eprint!("{text}");
        Ok(ExitCode::from(2))
    }
}

const COMMANDS: &[Command] = &[
    Command { name: "run", usage: run::USAGE, run: run::run },
    Command { name: "test", usage: test::USAGE, run: test::run },
    Command { name: "build-preload", usage: build_preload::USAGE, run: build_preload::run },
    Command { name: "check-abi", usage: check_abi::USAGE, run: check_abi::run },
    Command { name: "dist", usage: dist::USAGE, run: dist::run },
    Command { name: "bench", usage: bench::USAGE, run: bench::run },
];

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    if matches!(name.to_str(), Some("help" | "-h" | "--help")) {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|c| name == c.name) else {
        eprint!("xtask: no command {}\n{}", name.to_string_lossy(), usage());
        return ExitCode::from(2);
    };
    match (command.run)(rest) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("xtask {}: {message}", command.name);
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let width = COMMANDS.iter().map(|command| command.usage.line.len()).max().unwrap_or(0);
    let mut text = String::from("usage: cargo xtask COMMAND\n");
    for command in COMMANDS {
        text += &format!("  {:width$}   {}\n", command.usage.line, command.usage.job);
    }
    text
}
