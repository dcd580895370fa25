//! `stratalloc`: looks at the heap of a live process from outside.
//!
//! Exit codes: 0 done; 1 something unexpected; 2 wrong usage; 3 no such process; 4 no permission to read it;
//! 5 not on stratalloc; 6 on stratalloc, but with no numbers to read.

mod elf;
mod error;
mod live;
mod target;

use alloc_core::message::Sink;
use alloc_stats::{About, Format, render};
use clap::{Parser, Subcommand, ValueEnum};
use error::Error;
use live::Live;
use std::io::{self, Write};
use std::process::ExitCode;

/// Looks at the heap of a live process that runs on stratalloc. Nothing runs in that process for it.
#[derive(Parser)]
#[command(name = "stratalloc", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  something unexpected
  2  wrong usage
  3  no such process
  4  no permission to read the process
  5  the process does not run on stratalloc
  6  the process runs on stratalloc, but there are no numbers to read (yet, or by this version)";

#[derive(Subcommand)]
enum Command {
    /// Prints what the heap of a process holds.
    ///
    /// The numbers are those that the process published last, and their age is printed with them. It publishes while it
    /// takes the slow paths of the heap, and from the helper thread while it idles (background_thread:true). Blocks
    /// that move only between the program and its threads' caches do not make it publish.
    #[command(after_help = EXIT_CODES)]
    Stat {
        /// The process.
        pid: u32,
        /// What to print.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        format: Output,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// Tables.
    Text,
    /// One JSON object.
    Json,
    /// The text format of Prometheus.
    Prom,
}

fn main() -> ExitCode {
    let Command::Stat { pid, format } = Arguments::parse().command;
    match stat(pid, format) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stratalloc: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn stat(pid: u32, format: Output) -> Result<(), Error> {
    let live = Live::read(pid)?;
    let mut out = Text(Vec::new());
    let about = About { version: live.version(), pid, age_ms: live.age_ms() };
    let format = match format {
        Output::Text => {
            out.put_str("in ");
            out.put(live.object().as_bytes());
            out.put_str("\n");
            Format::Text
        }
        Output::Json => Format::Json,
        Output::Prom => Format::Prom,
    };
    render(format, live.snapshot(), &about, &mut out);
    match io::stdout().lock().write_all(&out.0) {
        // The reader of a pipe has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Error::Io),
    }
}

struct Text(Vec<u8>);

impl Sink for Text {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}
