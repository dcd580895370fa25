//! Programs that run to their end: shell, version control, interpreters, compilers, an embedded database.

use super::trial::{Outcome, Trial, script};
use crate::exec::{Job, Usage};
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;

/// For programs that need no input.
pub(crate) fn nothing(_: &Path) -> Result<()> {
    Ok(())
}

/// A shell script with many forks.
pub(crate) fn bash(trial: &Trial) -> Result<Outcome> {
    trial.outcome(trial.job("bash").arg(script("forks.sh")).arg(trial.scratch))
}

pub(crate) fn perl(trial: &Trial) -> Result<Outcome> {
    trial.outcome(trial.job("perl").arg(script("work.pl")).env("PERL_HASH_SEED", "0"))
}

/// Compiles a template-heavy file; the result is the assembly.
pub(crate) fn gxx(trial: &Trial) -> Result<Outcome> {
    let job = trial.job("g++").args(["-std=c++17", "-O1", "-S", "-o", "-"]).arg(script("templates.cpp"));
    trial.outcome(job)
}

/// Compiles Rust; the result is the assembly. The compiler is the distribution's: that of rust-lang.org exports a malloc of its
/// own, before which no other can be put.
pub(crate) fn rustc(trial: &Trial) -> Result<Outcome> {
    let assembly = trial.scratch.join("work.s");
    let options = ["--edition=2021", "-Copt-level=1", "-Ccodegen-units=1", "--emit=asm", "-o"];
    let job = trial.job("/usr/bin/rustc").args(options).arg(&assembly).arg(script("work.rs"));
    let done = trial.run(job)?;
    Ok(Outcome { content: std::fs::read_to_string(assembly)?, usage: done.usage })
}

pub(crate) fn lua(trial: &Trial) -> Result<Outcome> {
    trial.outcome(trial.job("lua").arg(script("work.lua")))
}

pub(crate) fn node(trial: &Trial) -> Result<Outcome> {
    trial.outcome(trial.job("node").arg(script("work.js")))
}

/// Compiles the Java program.
pub(crate) fn java_class(input: &Path) -> Result<()> {
    Job::new("javac").arg("-d").arg(input).arg(script("Work.java")).run_ok()?;
    Ok(())
}

/// A small fixed Java heap, so that the figures show the C heap beside it.
pub(crate) fn java(trial: &Trial) -> Result<Outcome> {
    let job = trial.job("java").args(["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-cp"]).arg(trial.input);
    trial.outcome(job.arg("Work"))
}

pub(crate) fn sqlite(trial: &Trial) -> Result<Outcome> {
    let sql = std::fs::read(script("work.sql"))?;
    trial.outcome(trial.job("sqlite3").args(["-batch", "-bail", "work.db"]).input(sql))
}

/// Makes a repository with 400 commits over 60 files, always the same.
pub(crate) fn git_history(input: &Path) -> Result<()> {
    let repository = input.join("repo.git");
    git_job(Job::new("git")).args(["init", "--quiet", "--bare"]).arg(&repository).run_ok()?;
    let mut stream = String::new();
    let mut seed: u64 = 42;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for commit in 0..400u64 {
        let message = format!("Change {commit}\n\n{}\n", "why ".repeat(random(30) as usize));
        writeln!(stream, "commit refs/heads/main")?;
        writeln!(stream, "committer A U Thor <author@example.com> {} +0000", 1_700_000_000 + commit * 60)?;
        write!(stream, "data {}\n{message}", message.len())?;
        for _ in 0..3 {
            let file = random(60);
            let mut body = String::new();
            for line in 0..200 + random(200) {
                writeln!(
                    body,
                    "line {line} of file {file} says {}",
                    if random(9) == 0 { commit } else { line }
                )?;
            }
            write!(stream, "\nM 100644 inline dir{}/file{file}.txt\ndata {}\n{body}", file % 7, body.len())?;
        }
        writeln!(stream)?;
    }
    let import = git_job(Job::new("git")).arg("-C").arg(&repository).args(["fast-import", "--quiet"]);
    import.input(stream).run_ok()?;
    Ok(())
}

/// The whole history with patches, and a full repack of a copy with two threads.
pub(crate) fn git(trial: &Trial) -> Result<Outcome> {
    let repository = trial.input.join("repo.git");
    let git = |folder: &Path| git_job(trial.job("git")).arg("-C").arg(folder);
    let log = trial.run(git(&repository).args(["log", "-p", "--stat", "-M", "main"]))?;
    Job::new("cp").arg("-a").arg(&repository).arg(trial.scratch).run_ok()?;
    let copy = trial.scratch.join("repo.git");
    let repack =
        trial.run(git(&copy).args(["-c", "pack.threads=2", "repack", "-a", "-d", "-f", "--quiet"]))?;
    let fsck = trial.run(git(&copy).args(["fsck", "--full", "--no-progress"]))?;
    let objects = trial.run(git(&copy).args(["rev-list", "--objects", "main"]))?;
    let usage = [repack.usage, fsck.usage, objects.usage].into_iter().fold(log.usage, Usage::and);
    Ok(Outcome { content: log.text() + &fsck.text() + &objects.text(), usage })
}

/// Without the user's and the machine's configuration.
fn git_job(job: Job) -> Job {
    job.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").arg("--no-pager")
}
