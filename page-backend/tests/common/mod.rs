//! What the tests of several files share: a model of a backend's memory, and children of fork.
#![allow(dead_code, reason = "each test binary uses a part")]

use page_backend::{Capabilities, PageBackend, Tier};
use std::ptr::NonNull;

/// One step of a random run. Numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Map { granules: usize, align: u32 },
    Purge { run: usize, at: usize, count: usize },
    Unmap { run: usize, at: usize, count: usize },
    Grow { run: usize, granules: usize },
    Remap { run: usize, granules: usize, align: u32 },
}

/// A run that the backend has given, with what each granule of it must read as.
struct Run {
    ptr: NonNull<u8>,
    tier: Tier,
    /// `None`: content not defined.
    granules: Vec<Option<u8>>,
}

/// Drives a backend and compares each byte with what the contract says.
pub(crate) struct Model<'a, B> {
    backend: &'a B,
    granule: usize,
    runs: Vec<Run>,
    next_fill: u8,
}

impl<'a, B: PageBackend> Model<'a, B> {
    pub(crate) fn new(backend: &'a B, granule: usize) -> Self {
        Self { backend, granule, runs: Vec::new(), next_fill: 1 }
    }

    fn fill(&mut self) -> u8 {
        self.next_fill = self.next_fill % 250 + 1;
        self.next_fill
    }

    /// Bytes that the runs hold, by the model.
    pub(crate) fn held(&self) -> usize {
        self.runs.iter().map(|run| run.granules.len() * self.granule).sum()
    }

    /// Bytes mapped, by the backend's own account.
    pub(crate) fn mapped(&self) -> usize {
        (0..self.backend.tiers()).map(|tier| self.backend.usage(Tier(tier as u8)).mapped).sum()
    }

    pub(crate) fn apply(&mut self, op: Op) {
        match op {
            Op::Map { granules, align } => {
                let (size, align) = (granules * self.granule, self.granule << align);
                if let Ok(mapping) = self.backend.map(size, align) {
                    let len = mapping.len;
                    assert!(len >= size && mapping.ptr.addr().get() % align == 0);
                    assert!(usize::from(mapping.tier.0) < self.backend.tiers());
                    let zeros = vec![Some(0); len / self.granule];
                    self.runs.push(Run { ptr: mapping.ptr, tier: mapping.tier, granules: zeros });
                    self.check_overlap();
                    self.check_and_refill(self.runs.len() - 1);
                }
            }
            Op::Purge { run, at, count } => {
                let Some((run, at, count)) = self.part(run, at, count) else { return };
                let granule = self.granule;
                let Run { ptr, tier, ref mut granules } = self.runs[run];
                // SAFETY: the part lies within a run that we own, and its content is not needed.
                let result = unsafe { self.backend.purge(ptr.add(at * granule), count * granule, tier) };
                let caps = self.backend.capabilities(tier);
                let zero = result.is_ok() && caps.contains(Capabilities::ZERO_AFTER_PURGE);
                // A backend that cannot purge may refuse, but must not do so when it says that it can.
                granules[at..at + count].fill(zero.then_some(0));
                self.check_and_refill(run);
            }
            Op::Unmap { run, at, count } => {
                let Some((run, at, count)) = self.part(run, at, count) else { return };
                let Run { ptr, tier, .. } = self.runs[run];
                // SAFETY: the part lies within a run that we own and is forgotten if it goes.
                let result =
                    unsafe { self.backend.unmap(ptr.add(at * self.granule), count * self.granule, tier) };
                if result.is_ok() {
                    let mut old = self.runs.swap_remove(run);
                    let tail = old.granules.split_off(at + count);
                    old.granules.truncate(at);
                    // SAFETY: the tail begins within or at the end of the old run.
                    let tail_ptr = unsafe { ptr.add((at + count) * self.granule) };
                    for run in [Run { granules: tail, ptr: tail_ptr, tier }, old] {
                        if !run.granules.is_empty() {
                            self.runs.push(run);
                            self.check_and_refill(self.runs.len() - 1);
                        }
                    }
                } else {
                    self.check_and_refill(run);
                }
            }
            Op::Grow { run, granules } => {
                let Some((run, ..)) = self.part(run, 0, 1) else { return };
                let Run { ptr, tier, granules: ref mut old } = self.runs[run];
                let (size, extra) = (old.len() * self.granule, granules * self.granule);
                // SAFETY: the run is ours.
                if unsafe { self.backend.grow(ptr, size, extra, tier) }.is_ok() {
                    old.resize(old.len() + granules, Some(0));
                    self.check_overlap();
                }
                self.check_and_refill(run);
            }
            Op::Remap { run, granules, align } => {
                let Some((run, ..)) = self.part(run, 0, 1) else { return };
                let Run { ptr, tier, granules: ref mut old } = self.runs[run];
                let (size, new_size) = (old.len() * self.granule, granules * self.granule);
                let align = self.granule << align;
                // SAFETY: the run is ours; its old address is forgotten on success.
                if let Ok(mapping) = unsafe { self.backend.remap(ptr, size, new_size, align, tier) } {
                    assert!(mapping.len >= new_size && mapping.ptr.addr().get() % align == 0);
                    old.resize(mapping.len / self.granule, Some(0));
                    self.runs[run].ptr = mapping.ptr;
                    self.runs[run].tier = mapping.tier;
                    self.check_overlap();
                }
                self.check_and_refill(run);
            }
        }
        assert_eq!(self.mapped(), self.held(), "the backend's account after {op:?}");
    }

    fn part(&self, run: usize, at: usize, count: usize) -> Option<(usize, usize, usize)> {
        let run = run.checked_rem(self.runs.len())?;
        let len = self.runs[run].granules.len();
        let at = at % len;
        Some((run, at, count.clamp(1, len - at)))
    }

    /// Checks every byte of a run, and writes new content to a part of it.
    fn check_and_refill(&mut self, index: usize) {
        self.check(index);
        let fill = self.fill();
        let run = &mut self.runs[index];
        for (i, content) in run.granules.iter_mut().enumerate() {
            if i % 2 == usize::from(fill) % 2 {
                // SAFETY: the granule lies within a run that we own.
                unsafe { run.ptr.add(i * self.granule).write_bytes(fill, self.granule) };
                *content = Some(fill);
            }
        }
    }

    fn check(&self, index: usize) {
        let run = &self.runs[index];
        for (i, content) in run.granules.iter().enumerate() {
            let Some(expected) = *content else { continue };
            // SAFETY: the granule lies within a run that we own.
            let bytes =
                unsafe { std::slice::from_raw_parts(run.ptr.add(i * self.granule).as_ptr(), self.granule) };
            let wanted = [expected; 64];
            let same = bytes.chunks(64).all(|chunk| chunk == &wanted[..chunk.len()]);
            assert!(same, "granule {i} of {} must be all {expected}", run.granules.len());
        }
    }

    fn check_overlap(&self) {
        let mut ranges: Vec<_> = self
            .runs
            .iter()
            .map(|run| (run.ptr.addr().get(), run.ptr.addr().get() + run.granules.len() * self.granule))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "runs overlap");
    }

    /// Checks all runs, gives them back, and checks that the account is empty.
    pub(crate) fn finish(mut self) {
        for index in 0..self.runs.len() {
            self.check(index);
        }
        for run in self.runs.drain(..) {
            // SAFETY: the run is ours and forgotten.
            unsafe { self.backend.unmap(run.ptr, run.granules.len() * self.granule, run.tier).unwrap() };
        }
        assert_eq!(self.mapped(), 0);
    }
}

/// Runs `work` in a forked child and returns its exit status; a panic there is status 101, a signal negative.
#[cfg(not(miri))]
pub(crate) fn in_child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child runs only `work`, which the tests keep to system calls, backends and assertions
    // (glibc's malloc works after fork), and leaves by _exit.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            libc::_exit(if done.is_ok() { 0 } else { 101 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }
}

/// A number of kB from `/proc/self/status`.
#[cfg(not(miri))]
pub(crate) fn status_kb(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Gives up CAP_IPC_LOCK and sets the soft limit of locked memory. For children only.
#[cfg(not(miri))]
pub(crate) fn limit_locked_memory(bytes: u64) {
    // SAFETY: both calls read structures of the size that they expect.
    unsafe {
        let mut header = [0x2008_0522u32, 0];
        let mut data = [0u32; 6];
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()), 0);
        data[0] &= !(1 << 14);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_mut_ptr(), data.as_mut_ptr()), 0);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit), 0);
        limit.rlim_cur = bytes.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
    }
}

/// Makes the kernel refuse what came after Linux 5.10: advices 23 to 25 are `EINVAL`. For children only.
#[cfg(not(miri))]
pub(crate) fn pretend_old_kernel() {
    refuse(libc::SYS_madvise, 2, &[23, 24, 25], libc::EINVAL);
}

/// Makes a system call fail where the low half of an argument, numbered from 0, is one of `values`. For children only.
#[cfg(not(miri))]
pub(crate) fn refuse(call: libc::c_long, argument: u32, values: &[u32], errno: i32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let count = values.len() as u8;
    // The number of the call is at 0, the arguments are from 16 on.
    let mut filter =
        vec![op(LOAD, 0, 0, 0), op(JUMP_EQUAL, 0, count + 1, call as u32), op(LOAD, 0, 0, 16 + 8 * argument)];
    filter.extend(values.iter().zip((1..=count).rev()).map(|(&value, to)| op(JUMP_EQUAL, to, 0, value)));
    filter.push(op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives through the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}
