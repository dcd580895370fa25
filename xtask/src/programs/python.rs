//! Python: a mixed load, and the parts of its own test suite that use threads, processes and json.

use super::trial::{Outcome, Trial, script};
use crate::exec::Job;
use anyhow::{Result, bail, ensure};

/// The tests to run: threads, processes and json, without most of those that only wait.
const TESTS: [&str; 14] = [
    "test.test_json",
    "test.test_thread",
    "test.test_threading:.ThreadTests",
    "test.test_threading:ThreadJoinOnShutdown",
    "test.test_threading:.LockTests",
    "test.test_threading:.ConditionTests",
    "test.test_threading:.SemaphoreTests",
    "test.test_subprocess:.ProcessTestCase.test_c",
    "test.test_subprocess:POSIXProcessTestCase.test_p",
    "test.test_subprocess:RunFuncTestCase",
    "test.test_multiprocessing_fork:WithProcessesTestQueue",
    "test.test_multiprocessing_fork:WithProcessesTestPool.",
    "test.test_multiprocessing_fork:WithProcessesTestSharedMemory",
    "test.test_multiprocessing_fork:WithManagerTestContainers",
];

/// The interpreter that has the test suite. A `python3` on the path may be a launcher script, or lack the
/// suite; the distribution's own has it in a package.
pub(crate) fn interpreter() -> Result<String> {
    for name in ["/usr/bin/python3", "python3"] {
        let code = "import sys, test.test_json, test.test_multiprocessing_fork; print(sys.executable)";
        if let Ok(done) = Job::new(name).args(["-c", code]).run()
            && done.status.success()
        {
            return Ok(done.text().trim().to_owned());
        }
    }
    bail!("no Python with its test suite")
}

pub(crate) fn work(trial: &Trial) -> Result<Outcome> {
    trial.outcome(trial.job(interpreter()?).arg(script("work.py")).env("PYTHONHASHSEED", "0"))
}

pub(crate) fn suite(trial: &Trial) -> Result<Outcome> {
    let results = trial.scratch.join("results");
    let job =
        trial.job(interpreter()?).args(["-W", "ignore"]).arg(script("suite.py")).arg(&results).args(TESTS);
    let done = trial.run(job.env("PYTHONHASHSEED", "0").env("TMPDIR", trial.scratch).limit(300))?;
    let content = std::fs::read_to_string(results)?;
    let bad: Vec<_> =
        content.lines().filter(|line| line.ends_with(" FAILED") || line.ends_with(" ERROR")).collect();
    ensure!(bad.is_empty(), "{}\n{}", bad.join(", "), done.tail());
    Ok(Outcome { content, usage: done.usage })
}
