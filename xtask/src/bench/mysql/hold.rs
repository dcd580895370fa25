//! Sessions that are all open at once: each one a sorted read of 100 rows, then an update transaction, then idle, then closed.

use super::cgroup::Group;
use super::protocol::{Answer, Session};
use super::server::{DATABASE, Data, Server, Setting};
use super::sheet::{self, Row};
use crate::bench::results::{Figures, Results};
use crate::bench::rounds::Case;
use crate::exec::{Job, check_interrupt};
use crate::mode::Heap;
use anyhow::{Context, Result, bail, ensure};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Threads of the client; so many statements run at once.
const WORKERS: usize = 16;
/// Times after the last session has left, in seconds.
const SETTLED: [u64; 2] = [5, 60];

/// The case without a limit, and the one under a memory cgroup.
const FREE: &str = "hold";
const LIMITED: &str = "cgroup";

/// What a run is given.
struct Load<'a> {
    data: &'a Data,
    sessions: usize,
    /// Seconds for which the server is watched after the sessions left.
    settle: u64,
}

/// The cases of `sessions` sessions on fresh servers that are watched for `settle` seconds after the sessions left.
///
/// # Errors
/// When this process may not open so many sockets.
pub(super) fn cases(data: &Data, sessions: usize, settle: u64) -> Result<Vec<Case<'_>>> {
    raise_files(sessions)?;
    let free = Case::new(FREE, move |allocator| {
        let load = Load { data, sessions, settle };
        load.once(&allocator.heap, &Setting::default(), &AtomicUsize::new(0))
    });
    let mut limit = None;
    let limited = Case::new(LIMITED, move |allocator| {
        let bytes = match limit {
            Some(bytes) => bytes,
            None => *limit.insert(Load { data, sessions, settle: 0 }.group_peak()? * 11 / 10),
        };
        Load { data, sessions, settle }.limited(&allocator.heap, bytes)
    });
    Ok(vec![free, limited])
}

/// The tables.
pub(super) fn page(results: &Results) -> String {
    const MIB: f64 = 1.0 / 1024.0;
    const ROWS: [Row; 16] = [
        ("limit", "limit of the group, MiB", MIB),
        ("survived", "servers that the limit did not end, of 1", 1.0),
        ("held", "sessions that were open at once", 1.0),
        ("group_peak", "peak of the group, MiB", MIB),
        ("met", "times that the limit was met", 1.0),
        ("before", "RSS before the first session, MiB", MIB),
        ("peak", "peak RSS, MiB", MIB),
        ("session", "RSS for each session, KiB", 1.0),
        ("page_tables", "page tables, KiB", 1.0),
        ("oom_score", "oom_score", 1.0),
        ("after_5", "RSS 5 s after the last one left, MiB", MIB),
        ("kept_5", "the same in parts of the peak", 1.0),
        ("after_60", "RSS 60 s after, MiB", MIB),
        ("trimmed", "RSS after malloc_trim besides, MiB", MIB),
        ("floor", "the same in parts of the peak", 1.0),
        ("seconds", "time to open and serve all, s", 1.0),
    ];
    [FREE, LIMITED].map(|case| sheet::of(results, case, &ROWS)).concat()
}

impl Load<'_> {
    /// What a group without a limit was charged for at the most, in bytes, while it held a server on the C library's heap.
    fn group_peak(&self) -> Result<u64> {
        let group = Group::new(None)?;
        self.once(&Heap::System, &within(&group), &AtomicUsize::new(0))?;
        group.peak()
    }

    /// A run in a group with a limit. That the limit ends the server is a result, not a failure.
    fn limited(&self, heap: &Heap, limit: u64) -> Result<Figures> {
        let group = Group::new(Some(limit))?;
        let held = AtomicUsize::new(0);
        let outcome = self.once(heap, &within(&group), &held);
        let survived = outcome.is_ok();
        let mut figures = match outcome {
            Err(error) if group.kills()? == 0 => return Err(error),
            outcome => outcome.unwrap_or_default(),
        };
        let own = [
            ("limit", limit as f64 / 1024.0),
            ("survived", f64::from(u8::from(survived))),
            ("held", held.load(Ordering::Relaxed) as f64),
            ("group_peak", group.peak()? as f64 / 1024.0),
            ("met", group.failures()? as f64),
        ];
        figures.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Ok(figures)
    }

    /// One run; `held` counts the sessions that were opened.
    ///
    /// # Errors
    /// When the server does not start or ends early, or a session fails.
    fn once(&self, heap: &Heap, setting: &Setting, held: &AtomicUsize) -> Result<Figures> {
        let Self { data, sessions, settle } = *self;
        let mut server = data.start(heap, setting)?;
        let before = server.sample()?;
        let start = Instant::now();
        let patience = Duration::from_secs(30);
        let (open, refused): (Vec<_>, Vec<_>) = each(sessions, |_| {
            let session = Session::open(server.socket(), DATABASE, patience)?;
            held.fetch_add(1, Ordering::Relaxed);
            Ok(session)
        })?
        .into_iter()
        .unzip();
        let open = with_each(open, |session, number| read(session, data, number))?;
        let open = with_each(open, |session, number| update(session, data, number))?;
        let seconds = start.elapsed().as_secs_f64();
        let connected = server.status("Threads_connected")?;
        ensure!(connected >= sessions as u64, "only {connected} of {sessions} sessions are open");
        std::thread::sleep(Duration::from_secs(2));
        let idle = server.sample()?;
        close(open);
        let closed = Instant::now();
        let mut figures = vec![
            ("before".to_owned(), before.rss as f64),
            ("peak".to_owned(), idle.peak as f64),
            ("session".to_owned(), idle.rss.saturating_sub(before.rss) as f64 / sessions as f64),
            ("page_tables".to_owned(), idle.page_tables as f64),
            ("oom_score".to_owned(), idle.oom_score as f64),
            ("refused".to_owned(), refused.iter().sum::<u32>().into()),
            ("seconds".to_owned(), seconds),
        ];
        for moment in SETTLED.into_iter().filter(|moment| *moment <= settle) {
            while closed.elapsed() < Duration::from_secs(moment) {
                check_interrupt()?;
                std::thread::sleep(Duration::from_millis(50));
            }
            let rss = server.sample()?.rss as f64;
            figures.push((format!("after_{moment}"), rss));
            figures.push((format!("kept_{moment}"), rss / idle.peak as f64));
        }
        if let Some(rss) = trimmed(&mut server, heap)? {
            figures.extend([("trimmed".to_owned(), rss), ("floor".to_owned(), rss / idle.peak as f64)]);
        }
        server.stop()?;
        Ok(figures.into_iter().collect())
    }
}

/// The resident set once a debugger has made the server call `malloc_trim`: what glibc's heap could keep at the least.
/// `None` for heaps that do not take that call for theirs, and without gdb.
fn trimmed(server: &mut Server, heap: &Heap) -> Result<Option<f64>> {
    if matches!(heap, Heap::Peer { .. }) || !std::path::Path::new("/usr/bin/gdb").exists() {
        return Ok(None);
    }
    let call = Job::new("gdb").args(["--batch", "--nx", "--pid", &server.pid.to_string()]);
    let call = call.args(["--eval-command", "set debuginfod enabled off"]);
    call.args(["--eval-command", "call ((int (*)(unsigned long)) malloc_trim)(0)"]).run_ok()?;
    Ok(Some(server.sample()?.rss as f64))
}

/// A server in a group.
fn within(group: &Group) -> Setting {
    Setting { cgroup: Some(group.folder().to_owned()), ..Setting::default() }
}

/// 100 rows in the order of a column without an index.
fn read(session: &mut Session, data: &Data, number: usize) -> Result<()> {
    let (table, first) = place(data, number);
    let rows = session.rows(&format!(
        "SELECT id, k, c, pad FROM sbtest{table} WHERE id BETWEEN {first} AND {} ORDER BY c",
        first + 99
    ))?;
    ensure!(rows.len() == 100, "{} rows instead of 100", rows.len());
    ensure!(rows.windows(2).all(|pair| pair[0][2] <= pair[1][2]), "the rows are not sorted");
    Ok(())
}

fn update(session: &mut Session, data: &Data, number: usize) -> Result<()> {
    let (table, first) = place(data, number);
    for _ in 0..10 {
        session.rows("BEGIN")?;
        let update = format!("UPDATE sbtest{table} SET k = k + 1 WHERE id = {first}");
        match session.query(&update)? {
            Answer::Rows(_) => return session.rows("COMMIT").map(drop),
            // A deadlock has rolled the transaction back already.
            Answer::Error(1213, _) => {}
            Answer::Error(code, message) => bail!("`{update}`: error {code}: {message}"),
        }
    }
    bail!("ten deadlocks in a row")
}

/// A table and a row for a session, spread by a multiplicative hash.
fn place(data: &Data, number: usize) -> (u32, u32) {
    let spread = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let table = 1 + (number as u32) % data.tables();
    (table, 1 + (spread % u64::from(data.rows() - 100)) as u32)
}

/// Runs `job` for each number, on all workers, and returns the results in order.
fn each<T: Send>(count: usize, job: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let share = count.div_ceil(WORKERS).max(1);
    let numbers: Vec<usize> = (0..count).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = numbers
            .chunks(share)
            .map(|numbers| {
                let job = &job;
                scope.spawn(move || {
                    numbers
                        .iter()
                        .map(|number| {
                            check_interrupt()?;
                            job(*number).with_context(|| format!("session {number}"))
                        })
                        .collect::<Result<Vec<T>>>()
                })
            })
            .collect();
        let mut all = Vec::with_capacity(count);
        for worker in workers {
            all.extend(worker.join().expect("a client thread does not panic")?);
        }
        Ok(all)
    })
}

fn with_each(
    sessions: Vec<Session>,
    job: impl Fn(&mut Session, usize) -> Result<()> + Sync,
) -> Result<Vec<Session>> {
    let cells: Vec<_> = sessions.into_iter().map(|session| std::sync::Mutex::new(Some(session))).collect();
    each(cells.len(), |number| {
        let mut session =
            cells[number].lock().expect("no holder panics").take().context("a session is used once")?;
        job(&mut session, number)?;
        Ok(session)
    })
}

fn close(sessions: Vec<Session>) {
    let share = sessions.len().div_ceil(WORKERS).max(1);
    let mut sessions = sessions;
    std::thread::scope(|scope| {
        while !sessions.is_empty() {
            let part = sessions.split_off(sessions.len().saturating_sub(share));
            scope.spawn(|| part.into_iter().for_each(Session::close));
        }
    });
}

/// Raises this process's own limit of file descriptors to hold `sessions` sockets.
///
/// # Errors
/// When the hard limit is too low and may not be raised.
fn raise_files(sessions: usize) -> Result<()> {
    let wanted = sessions as u64 + 200;
    // SAFETY: getrlimit and setrlimit read and write only what is passed.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        ensure!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0, "getrlimit failed");
        if limit.rlim_cur >= wanted {
            return Ok(());
        }
        println!("    raising the limit of open files from {} to {wanted}", limit.rlim_cur);
        limit = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
        ensure!(
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0,
            "cannot raise it: run `ulimit -n {wanted}`"
        );
    }
    Ok(())
}
