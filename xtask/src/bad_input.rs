//! Bad input: mistakes of the program, of the settings and of the machine. Each ends as documented: one clear line or
//! ENOMEM, nothing lost, no hang.

use crate::exec::{Job, Memlock, describe};
use crate::hugepages::Pool;
use crate::launcher::Tools;
use crate::programs::interpreter;
use crate::tally::Tally;
use anyhow::{Context, Result, ensure};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

/// How a case must end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Exit code 0, and the program says that all is sound.
    Sound,
    /// SIGABRT, because the settings ask for it.
    Abort,
}

/// One run of `bad_input.c`.
#[derive(Debug)]
struct Case {
    /// The argument of the program.
    mistake: &'static str,
    /// The value of STRATALLOC_CONF.
    conf: &'static str,
    end: End,
    /// What each line of the heap on standard error must contain, in order; nothing else may stand there.
    lines: &'static [&'static str],
}

const fn case(mistake: &'static str, conf: &'static str, lines: &'static [&'static str]) -> Case {
    Case { mistake, conf, end: End::Sound, lines }
}

const TWICE: &[&str] = &["freed twice"];
const INTERIOR: &[&str] = &["no block begins there"];
const FOREIGN: &[&str] = &["this heap has no block there"];

/// Mistakes of the program.
const PROGRAM: [Case; 24] = [
    case("none", "", &[]),
    case("double-free", "", TWICE),
    case("double-free-flushed", "", TWICE),
    case("double-free-later", "check:full", TWICE),
    case("double-free-large", "", TWICE),
    case("interior", "check:full", INTERIOR),
    case("interior-large", "", INTERIOR),
    case("stack", "", FOREIGN),
    case("static", "", FOREIGN),
    case("mapped", "", FOREIGN),
    case("wild", "", &["0x10 freed", "0xdeadbeefdeadbee0 freed"]),
    case("static", "foreign:ignore", &[]),
    case("double-free", "invalid_free:ignore", &[]),
    Case { mistake: "static", conf: "foreign:abort", end: End::Abort, lines: FOREIGN },
    Case { mistake: "double-free", conf: "invalid_free:abort", end: End::Abort, lines: TWICE },
    case("realloc-foreign", "", FOREIGN),
    case("usable-foreign", "", &[]),
    case("write-after-free", "", &[]),
    case("overflow", "", &[]),
    case("alignments", "", &[]),
    case("overflow", "backend:locked,fallback:silent", &[]),
    case("must-fail", "hard_limit:1MiB", &[]),
    case("none", "check:full", &[]),
    case("write-after-free", "check:full", &[]),
];

/// Mistakes in the settings: the line tells the place and, for a word that is nearly right, the right one.
const SETTINGS: [Case; 8] = [
    case("none", "bakend:4k", &["column 1: unknown key \"bakend\"; did you mean \"backend\"?"]),
    case("none", "backend:4k,backend:uhge", &["column 20: bad value \"uhge\""]),
    case("none", "soft_limit:12parsecs", &["bad value \"12parsecs\" for soft_limit"]),
    case("none", "backend", &["no value for \"backend\""]),
    case("none", ",,:,", &["column"]),
    case("none", "check:full,nonsense:1,soft_limit:1GiB", &["unknown key \"nonsense\""]),
    case("none", "percpu_cache:1,lg_dirty_mult:-1,background_thread:true", &[]),
    Case {
        mistake: "none",
        conf: "abort_conf:true,nonsense:1",
        end: End::Abort,
        lines: &["unknown key \"nonsense\"", "abort_conf is true: aborting"],
    },
];

/// Runs all cases.
///
/// # Errors
/// When the program cannot be compiled; failed cases are in the tally.
pub(crate) fn run(tally: &mut Tally, library: &Path, tools: &Tools) -> Result<()> {
    let program = tools.compile("bad_input", &["-fno-builtin", "-Wno-use-after-free"])?;
    let job = |mistake: &str, conf: &str| {
        let job = Job::new(&program).arg(mistake).env("LD_PRELOAD", library).limit(60);
        if conf.is_empty() { job } else { job.env("STRATALLOC_CONF", conf) }
    };
    for case in PROGRAM.iter().chain(&SETTINGS) {
        tally.check(&name(case.mistake, case.conf), || {
            meets(job(case.mistake, case.conf), case.end, case.lines)
        });
    }
    limits(tally, library, job);
    machine(tally, job);
    Ok(())
}

fn name(mistake: &str, conf: &str) -> String {
    if conf.is_empty() { mistake.into() } else { format!("{mistake}, {conf}") }
}

/// Address space runs out: NULL and ENOMEM, nothing lost, and programs start in little of it.
fn limits(tally: &mut Tally, library: &Path, job: impl Fn(&str, &str) -> Job) {
    const LITTLE: u64 = 200_000 << 10;
    for conf in ["", "backend:huge,fallback:silent", "backend:locked,fallback:silent"] {
        tally.check(&name("exhaust, ulimit -v 200000", conf), || {
            meets(job("exhaust", conf).address_space(LITTLE), End::Sound, &[])
        });
    }
    tally.check("python3, ulimit -v 200000", || {
        let code = "n = []\ntry:\n  while True: n.append(bytearray(1 << 20))\nexcept MemoryError: print(len(n) > 16)";
        let job = Job::new(interpreter()?).args(["-c", code]).env("LD_PRELOAD", library).address_space(LITTLE);
        let done = job.run_ok()?;
        ensure!(done.text() == "True\n" && done.stderr.is_empty(), "it ended otherwise\n{}", done.tail());
        Ok(String::new())
    });
    tally.check("exhaust, hard_limit:64MiB", || meets(job("exhaust", "hard_limit:64MiB"), End::Sound, &[]));
}

/// The machine lacks what the settings ask for.
fn machine(tally: &mut Tally, job: impl Fn(&str, &str) -> Job) {
    tally.check("no pool", || {
        let _pool = Pool::set(0)?;
        meets(job("none", "backend:huge"), End::Sound, &["huge"])
    });
    tally.check("no pool, fallback:never", || {
        let _pool = Pool::set(0)?;
        meets(job("must-fail", "backend:huge,fallback:never"), End::Sound, &[])
    });
    tally.check("full pool mid-run", || {
        let _pool = Pool::set(8)?;
        meets(job("full-pool", "backend:huge"), End::Sound, &["huge"])
    });
    tally.check("full pool mid-run, huge+locked", || {
        let _pool = Pool::set(8)?;
        meets(job("full-pool", "backend:huge+locked"), End::Sound, &["huge"])
    });
    for conf in ["backend:huge", "backend:huge,percpu_cache:true", "backend:huge,check:full"] {
        tally.check(&name("fork with an empty pool", conf), || {
            let _pool = Pool::set(8)?;
            meets(job("fork-full-pool", &format!("{conf},fallback:silent")), End::Sound, &[])
        });
    }
    tally.check("no mount", || {
        let _pool = Pool::set(8)?;
        meets(job("none", "backend:huge,hugetlbfs:/nonexistent"), End::Sound, &["/nonexistent"])
    });
    tally.check("no RLIMIT_MEMLOCK", || {
        meets(
            job("none", "backend:locked").memlock(Memlock::Bytes(64 << 10)),
            End::Sound,
            &["RLIMIT_MEMLOCK"],
        )
    });
    tally.check("no RLIMIT_MEMLOCK at all", || {
        meets(job("none", "backend:locked").memlock(Memlock::Bytes(0)), End::Sound, &["RLIMIT_MEMLOCK"])
    });
    tally.check("no RLIMIT_MEMLOCK, lock:strict, fallback:never", || {
        let job = job("must-fail", "backend:locked,lock:strict,fallback:never");
        meets(job.memlock(Memlock::Bytes(64 << 10)), End::Sound, &[])
    });
}

/// Runs a job to its end and checks how it ended and what the heap said.
fn meets(job: Job, end: End, lines: &[&str]) -> Result<String> {
    let done = job.run()?;
    match end {
        End::Sound => {
            ensure!(done.status.success(), "it ended with {}\n{}", describe(done.status), done.tail());
            ensure!(done.text().ends_with("sound\n"), "it does not say that all is sound\n{}", done.tail());
        }
        End::Abort => ensure!(
            done.status.signal() == Some(libc::SIGABRT),
            "it ended with {}, not SIGABRT\n{}",
            describe(done.status),
            done.tail()
        ),
    }
    let errors = done.errors();
    let said: Vec<&str> = errors.lines().collect();
    ensure!(
        said.len() == lines.len(),
        "{} lines on standard error, not {}\n{}",
        said.len(),
        lines.len(),
        done.tail()
    );
    for (said, expected) in said.iter().zip(lines) {
        let text =
            said.strip_prefix("stratalloc: ").with_context(|| format!("a line without our name: {said}"))?;
        ensure!(text.contains(expected), "expected `{expected}`, got `{said}`");
    }
    Ok(said.first().map(|line| (*line).to_owned()).unwrap_or_default())
}
