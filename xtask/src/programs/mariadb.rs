//! mariadbd under a fixed set of queries, sysbench and mysqlslap, with a data folder and a socket of its own.

use super::trial::{Outcome, Trial, script};
use crate::exec::Job;
use crate::launcher::Tools;
use crate::mode::Heap;
use crate::service;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Tables and rows of the concurrent load.
const TABLES: u32 = 4;
const ROWS: u32 = 10_000;
/// Connections of the load with many.
const CONNECTIONS: u32 = 1_000;

/// Makes the data folder, with the tables of the loads in it; each run works on a copy.
pub(crate) fn prepare(input: &Path) -> Result<()> {
    service::install(&input.join("data"), input, "root", "16M")?;
    let tools = Tools::new()?;
    let scratch = input.join("scratch");
    std::fs::create_dir(&scratch)?;
    let trial = Trial { heap: &Heap::System, input, scratch: &scratch, tools: &tools };
    let database = Database { trial: &trial, data: &input.join("data") };
    let server = database.start()?;
    database.sql("CREATE DATABASE many; CREATE DATABASE one")?;
    database.sysbench("many", TABLES, 1, &["prepare"]).run_ok()?;
    database.sysbench("one", 1, 1, &["--rand-seed=7", "prepare"]).run_ok()?;
    trial.stop(server, database.shutdown())?;
    Ok(())
}

pub(crate) fn run(trial: &Trial) -> Result<Outcome> {
    Job::new("cp")
        .args(["-a", "--sparse=always"])
        .arg(trial.input.join("data"))
        .arg(trial.scratch)
        .run_ok()?;
    let database = Database { trial, data: &trial.scratch.join("data") };
    let server = database.start()?;

    let named = database.sql("SELECT @@version_malloc_library")?;
    if let Heap::Ours { library, .. } = trial.heap
        && library.ends_with("libstratalloc.so")
    {
        ensure!(named.contains("stratalloc"), "@@version_malloc_library is {named}");
    }

    let queries = std::fs::read(script("work.mariadb.sql"))?;
    let mut content = database.client().input(queries).run_ok()?.text();

    // With one connection and fixed numbers of transactions and of the generator, the data ends the same.
    let fixed = ["--rand-seed=7", "--events=300", "--time=0", "run"];
    database.sysbench("one", 1, 1, &fixed).run_ok()?;
    content += &database.sql("CHECKSUM TABLE one.sbtest1; CHECK TABLE one.sbtest1 EXTENDED")?;

    let load = database.sysbench("many", TABLES, 16, &["--time=6", "run"]).run_ok()?.text();
    let transactions = figure(&load, "transactions:").context("sysbench tells no transactions")?;
    ensure!(transactions > 0, "sysbench made no transaction\n{load}");

    database.slap().run_ok()?;
    // Each transaction of the load keeps the number of rows, whatever the order.
    for table in 1..=TABLES {
        content += &database.sql(&format!(
            "SELECT COUNT(*) FROM many.sbtest{table}; CHECK TABLE many.sbtest{table} EXTENDED"
        ))?;
    }
    let peak = figure(&database.sql("SHOW STATUS LIKE 'Max_used_connections'")?, "Max_used_connections");
    ensure!(peak.is_some_and(|peak| peak > 30), "only {peak:?} connections at once");
    let usage = trial.stop(server, database.shutdown())?;
    Ok(Outcome { content, usage })
}

/// A server on a data folder, and clients for it. Client programs run without a heap of ours.
struct Database<'a> {
    trial: &'a Trial<'a>,
    data: &'a Path,
}

impl Database<'_> {
    fn start(&self) -> Result<super::trial::Server> {
        let pid_file = self.trial.scratch.join("pid");
        let job = self.trial.job(server()?).args(["--no-defaults", "--user=root", "--skip-networking"]);
        let job = job
            .arg(flag("datadir", self.data))
            .arg(flag("socket", &self.socket()))
            .arg(flag("pid-file", &pid_file));
        let job = job.arg(flag("tmpdir", self.trial.scratch)).args([
            "--innodb-buffer-pool-size=128M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-fast-shutdown=1",
            "--max-connections=1200",
            "--table-open-cache=2000",
            "--performance-schema=ON",
            "--back-log=1200",
        ]);
        self.trial
            .serve(job, &pid_file, || self.admin().arg("ping").run().is_ok_and(|done| done.status.success()))
    }

    fn socket(&self) -> std::path::PathBuf {
        self.trial.scratch.join("socket")
    }

    fn client(&self) -> Job {
        let job = self.trial.job("mariadb").args(["--no-defaults", "--user=root", "--batch"]);
        job.arg(flag("socket", &self.socket()))
    }

    fn admin(&self) -> Job {
        let job = self.trial.job("mariadb-admin").args(["--no-defaults", "--user=root"]);
        job.arg(flag("socket", &self.socket()))
    }

    fn sql(&self, text: &str) -> Result<String> {
        Ok(self.client().args(["--skip-column-names", "--execute", text]).run_ok()?.text())
    }

    fn shutdown(&self) -> Job {
        self.admin().arg("shutdown")
    }

    fn sysbench(&self, name: &str, tables: u32, threads: u32, rest: &[&str]) -> Job {
        let job =
            self.trial.job("sysbench").args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root"]);
        let job = job.arg(flag("mysql-socket", &self.socket())).arg(format!("--mysql-db={name}"));
        let job = job.arg(format!("--tables={tables}")).arg(format!("--table-size={ROWS}"));
        job.arg(format!("--threads={threads}")).args(rest)
    }

    /// The load with many connections, as a field report ran it. It ends in seconds as a rule, but has taken a minute on the C
    /// library's heap.
    fn slap(&self) -> Job {
        let job = self.trial.job("mariadb-slap").args(["--no-defaults", "--user=root", "--iterations=1"]);
        let job = job.limit(300);
        let job = job.arg(flag("socket", &self.socket())).arg(format!("--concurrency={CONNECTIONS}"));
        job.args([
            "--auto-generate-sql",
            "--auto-generate-sql-load-type=mixed",
            "--auto-generate-sql-add-autoincrement",
            "--engine=innodb",
            "--number-of-queries=10000",
        ])
    }
}

/// The server's program, which is not on every user's path.
fn server() -> Result<&'static str> {
    let places = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/libexec/mariadbd"];
    places.into_iter().find(|place| Path::new(place).exists()).context("mariadbd is not installed")
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// The first number behind `name` in a text.
fn figure(text: &str, name: &str) -> Option<u64> {
    text.split_once(name)?.1.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()
}
