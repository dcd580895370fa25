//! redis-server under its own benchmark, with its content compared by redis's digest.

use super::trial::{Outcome, Trial};
use crate::exec::Job;
use anyhow::{Result, ensure};
use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Links the server into the input folder and writes the commands that fill it.
///
/// The distribution's one program is server and checker in one, by its name; the package of the tools has the
/// program, while that of the server would start a system service.
pub(crate) fn prepare(input: &Path) -> Result<()> {
    symlink(program()?, input.join("redis-server"))?;
    std::fs::write(input.join("commands"), commands()?)?;
    Ok(())
}

/// Where the server's program is.
pub(crate) fn program() -> Result<PathBuf> {
    Ok(std::fs::canonicalize("/usr/bin/redis-check-rdb")?)
}

/// Commands of all types with overwrites, deletions and growth, always the same.
fn commands() -> Result<String> {
    let mut text = String::new();
    let mut seed: u64 = 7;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for i in 0..60_000u64 {
        let key = random(3_000);
        let value = "v".repeat(random(300) as usize + 1);
        match i % 10 {
            0..=2 => writeln!(text, "SET string:{key} {value}{i}")?,
            3 => writeln!(text, "APPEND string:{key} {value}")?,
            4 => writeln!(text, "HSET hash:{} field{} {value}", key % 300, random(200))?,
            5 => writeln!(text, "ZADD sorted:{} {} member{}", key % 200, random(100_000), random(900))?,
            6 => writeln!(text, "RPUSH list:{} {value} {i}", key % 100)?,
            7 => writeln!(text, "SADD set:{} {} {} name{i}", key % 200, random(5_000), random(5_000))?,
            8 => writeln!(text, "SETRANGE string:{key} {} {i}", random(2_000))?,
            _ => {
                writeln!(text, "DEL string:{} hash:{} list:{}", random(3_000), random(3_000), random(3_000))?
            }
        }
    }
    Ok(text)
}

pub(crate) fn run(trial: &Trial) -> Result<Outcome> {
    let socket = trial.scratch.join("socket");
    let pid_file = trial.scratch.join("pid");
    let server =
        trial.job(trial.input.join("redis-server")).args(["--port", "0", "--save", "", "--unixsocket"]);
    let server = server.arg(&socket).arg("--pidfile").arg(&pid_file).arg("--dir").arg(trial.scratch);
    let server =
        server.args(["--enable-debug-command", "local", "--io-threads", "2", "--dbfilename", "dump.rdb"]);
    let client = || trial.job("redis-cli").arg("-s").arg(&socket);
    let ready = || client().arg("PING").run().is_ok_and(|done| done.text().trim() == "PONG");
    let server = trial.serve(server, &pid_file, ready)?;

    let benchmark =
        trial.job("redis-benchmark").arg("-s").arg(&socket).args(["-q", "-c", "50", "-n", "20000"]);
    let tests = [
        "-r",
        "5000",
        "-d",
        "200",
        "-P",
        "8",
        "-t",
        "set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset",
    ];
    benchmark.args(tests).run_ok()?;
    client().args(["FLUSHALL", "ASYNC"]).run_ok()?;

    let commands = std::fs::read(trial.input.join("commands"))?;
    let filled = client().input(commands).run_ok()?;
    let replies = filled.text();
    let errors = replies.lines().filter(|line| line.contains("ERR") || line.contains("WRONGTYPE")).count();
    ensure!(errors == 0, "{errors} commands failed");
    let mut content = replies;
    // A child of a fork saves the data; then all of it is read back into fresh memory.
    for command in [
        &["DEBUG", "DIGEST"][..],
        &["DBSIZE"],
        &["DEBUG", "RELOAD"],
        &["DEBUG", "DIGEST"],
        &["DUMP", "list:3"],
    ] {
        content += &client().args(command).run_ok()?.text();
    }
    client().arg("BGSAVE").run_ok()?;
    let saving = || Ok::<_, anyhow::Error>(client().args(["INFO", "persistence"]).run_ok()?.text());
    let mut info = saving()?;
    for _ in 0..600 {
        if info.contains("rdb_bgsave_in_progress:0") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        info = saving()?;
    }
    ensure!(info.contains("rdb_last_bgsave_status:ok"), "the background save failed\n{info}");
    ensure!(content.len() > 100_000, "the digest is missing");
    let stop = Job::new("redis-cli").arg("-s").arg(&socket).args(["SHUTDOWN", "NOSAVE"]);
    let usage = trial.stop(server, stop)?;
    Ok(Outcome { content, usage })
}
