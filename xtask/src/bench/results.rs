//! The file of results: every run of a bench with its figures, and what medians and ratios say of them.

use super::Bench;
use crate::exec::Job;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Figures of one run by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// What ran.
    pub(crate) case: String,
    /// On which allocator.
    pub(crate) allocator: String,
    /// In which round, from 0.
    pub(crate) round: usize,
    /// Its figures, or why it failed.
    pub(crate) outcome: Result<Figures, String>,
}

/// A median with the extremes around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// The middle figure; of an even number the mean of the middle two.
    pub(crate) median: f64,
    /// The least figure.
    pub(crate) min: f64,
    /// The greatest figure.
    pub(crate) max: f64,
}

/// All runs of a bench.
#[derive(Debug)]
pub(crate) struct Results {
    file: PathBuf,
    head: Value,
    records: Vec<Record>,
}

impl Results {
    /// A new file, or with `resume` the newest one, if there is any.
    ///
    /// # Errors
    /// When the newest one cannot be read, or was made with other builds.
    pub(crate) fn open(bench: &'static str, shared: &Bench, resume: bool) -> Result<Self> {
        let mut head = json!({ "bench": bench, "quick": shared.quick(), "machine": machine()? });
        head["allocators"] = shared.allocators.iter().map(|a| json!([a.name, a.origin])).collect();
        head["missing"] = shared.missing.iter().map(|peer| json!([peer.name, peer.reason])).collect();
        if resume && let Some(file) = newest_file(&folder()?, bench)? {
            let old = Self::read(&file)?;
            ensure!(old.head == head, "{} was made with other builds; start anew", old.file.display());
            return Ok(old);
        }
        let date = Job::new("date").arg("+%F-%H%M%S").run_ok()?.text();
        let file = folder()?.join(format!("{}-{bench}.json", date.trim()));
        Ok(Self { file, head, records: Vec::new() })
    }

    /// The newest results of a bench.
    ///
    /// # Errors
    /// When there are none, or they cannot be read.
    pub(crate) fn newest(bench: &str) -> Result<Self> {
        let file = newest_file(&folder()?, bench)?.with_context(|| format!("no results of {bench} yet"))?;
        Self::read(&file)
    }

    fn read(file: &Path) -> Result<Self> {
        Self::parse(file).with_context(|| format!("cannot read {}", file.display()))
    }

    fn parse(file: &Path) -> Result<Self> {
        let mut whole: Value = serde_json::from_slice(&std::fs::read(file)?)?;
        let rows = whole["runs"].take();
        let records = rows.as_array().context("no runs")?.iter().map(record).collect::<Result<_>>()?;
        Ok(Self { file: file.to_owned(), head: whole["head"].take(), records })
    }

    /// Adds a run and writes the file anew.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn push(&mut self, record: Record) -> Result<()> {
        self.records.push(record);
        let rows: Vec<_> = self.records.iter().map(row).collect();
        let text = serde_json::to_string_pretty(&json!({ "head": self.head, "runs": rows }))?;
        // By renaming, so that an interrupt leaves the old file whole.
        let fresh = self.file.with_extension("json.new");
        std::fs::write(&fresh, text)?;
        std::fs::rename(&fresh, &self.file)?;
        Ok(())
    }

    /// Where the results are.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Whether the loads were small.
    pub(crate) fn quick(&self) -> bool {
        self.head["quick"] == true
    }

    /// What was measured: the machine, the allocators, and those that could not be had.
    pub(crate) fn preamble(&self) -> String {
        let pairs = |name: &str| -> Vec<String> {
            let list = self.head[name].as_array().into_iter().flatten();
            list.map(|pair| {
                let word = |i: usize| pair[i].as_str().unwrap_or("?");
                format!("{} ({})", word(0), word(1))
            })
            .collect()
        };
        let rounds = self.records.iter().map(|record| record.round + 1).max().unwrap_or(0);
        let quick = if self.quick() { " Small loads, to try the bench out." } else { "" };
        let machine = self.head["machine"].as_str().unwrap_or("?");
        let missing = match pairs("missing") {
            missing if missing.is_empty() => "none".to_owned(),
            missing => missing.join(", "),
        };
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        format!(
            "Results: `{name}`. Machine: {machine}. Rounds: {rounds}.{quick} Allocators: {}. Missing: {missing}.\n",
            pairs("allocators").join(", ")
        )
    }

    /// Whether a run has been made.
    pub(crate) fn has(&self, case: &str, allocator: &str, round: usize) -> bool {
        self.records.iter().any(|r| r.case == case && r.allocator == allocator && r.round == round)
    }

    /// How many runs failed.
    pub(crate) fn failures(&self) -> usize {
        self.records.iter().filter(|record| record.outcome.is_err()).count()
    }

    /// All cases, in the order of their first runs.
    pub(crate) fn cases(&self) -> Vec<&str> {
        distinct(self.records.iter().map(|record| record.case.as_str()))
    }

    /// The names of the allocators, in the order of the head.
    pub(crate) fn allocators(&self) -> Vec<&str> {
        let named = self.head["allocators"].as_array();
        named.into_iter().flatten().filter_map(|pair| pair[0].as_str()).collect()
    }

    fn by_round(&self, case: &str, allocator: &str, figure: &str) -> BTreeMap<usize, f64> {
        let runs = self.records.iter().filter(|r| r.case == case && r.allocator == allocator);
        runs.filter_map(|r| Some((r.round, *r.outcome.as_ref().ok()?.get(figure)?))).collect()
    }

    /// A figure over all rounds; `None` when no run has it.
    pub(crate) fn spread(&self, case: &str, allocator: &str, figure: &str) -> Option<Spread> {
        Spread::of(self.by_round(case, allocator, figure).into_values().collect())
    }

    /// A figure in parts of another allocator's in the same round.
    pub(crate) fn ratio(&self, case: &str, allocator: &str, base: &str, figure: &str) -> Option<Spread> {
        let bases = self.by_round(case, base, figure);
        let ours = self.by_round(case, allocator, figure);
        Spread::of(ours.iter().filter_map(|(round, value)| Some(value / bases.get(round)?)).collect())
    }

    /// The geometric mean of the median ratios over the cases that all of `allocators` have, with their number. Cases in which
    /// one has 0 are left out: a time can be too short for the clock.
    pub(crate) fn mean_ratio(
        &self,
        cases: &[&str],
        allocators: &[&str],
        allocator: &str,
        base: &str,
        figure: &str,
    ) -> Option<(f64, usize)> {
        let has_all = |case: &&&str| {
            allocators
                .iter()
                .all(|a| self.ratio(case, a, base, figure).is_some_and(|ratio| ratio.median > 0.0))
        };
        let logs: Vec<f64> = cases
            .iter()
            .filter(has_all)
            .filter_map(|case| Some(self.ratio(case, allocator, base, figure)?.median.ln()))
            .collect();
        (!logs.is_empty()).then(|| ((logs.iter().sum::<f64>() / logs.len() as f64).exp(), logs.len()))
    }
}

impl Spread {
    /// Of figures in any order; `None` for none, or when one is no number.
    pub(crate) fn of(mut figures: Vec<f64>) -> Option<Self> {
        if figures.iter().any(|figure| !figure.is_finite()) {
            return None;
        }
        figures.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            1 => figures[middle],
            _ => (figures[middle - 1] + figures[middle]) / 2.0,
        };
        Some(Self { median, min, max })
    }
}

/// The newest file of results of a bench in a folder; their names begin with the date.
fn newest_file(folder: &Path, bench: &str) -> Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(&format!("-{bench}.json")) {
            newest = newest.max(Some(path));
        }
    }
    Ok(newest)
}

/// The folder of all results, made when it is missing.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = workspace::target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The processor, how many of it, and the kernel.
fn machine() -> Result<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    // What follows the version is the builder's name for it.
    let kernel = kernel.trim().split('-').next().unwrap_or_default();
    let count = std::thread::available_parallelism()?;
    Ok(format!("{count} x {}, Linux {kernel}", model.trim_start_matches([' ', '\t', ':'])))
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn row(record: &Record) -> Value {
    let mut row = json!({ "case": record.case, "allocator": record.allocator, "round": record.round });
    match &record.outcome {
        Ok(figures) => row["figures"] = json!(figures),
        Err(error) => row["error"] = json!(error),
    }
    row
}

fn record(row: &Value) -> Result<Record> {
    let text =
        |name: &str| Ok::<_, anyhow::Error>(row[name].as_str().context("a name is missing")?.to_owned());
    let figures = row["figures"].as_object();
    let outcome = match figures {
        Some(map) => {
            Ok(map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect())
        }
        None => Err(text("error")?),
    };
    let round = row["round"].as_u64().context("a round is missing")? as usize;
    Ok(Record { case: text("case")?, allocator: text("allocator")?, round, outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_file_of_a_bench_is_found_if_there_is_any() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest_file(folder.path(), "micro").unwrap(), None);
        for name in
            ["2026-01-02-000000-micro.json", "2026-01-01-000000-micro.json", "2027-01-01-000000-suite.json"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let newest = newest_file(folder.path(), "micro").unwrap().unwrap();
        assert!(newest.ends_with("2026-01-02-000000-micro.json"));
    }
}
