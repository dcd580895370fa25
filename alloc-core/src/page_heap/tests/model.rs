//! Random sequences of calls against a model of what is handed out.

use super::mock::{Fail, Mock, Spec};
use crate::page_heap::tracker::HUGE_SIZE;
use crate::page_heap::{PageHeap, ReleaseMode};
use core::ptr::NonNull;
use proptest::prelude::*;
use size_classes::PAGE_SIZE;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Words of a page that are looked at and written to.
const PROBES: [usize; 4] = [0, 64, 4096, PAGE_SIZE - 8];

struct Model {
    heap: PageHeap<Mock>,
    /// Runs by address: pages and the tag written into them.
    runs: BTreeMap<usize, (NonNull<u8>, usize, u64)>,
    tags: u64,
    now: u64,
}

impl Model {
    fn probes(ptr: NonNull<u8>, pages: usize) -> impl Iterator<Item = NonNull<u64>> {
        (0..pages).flat_map(move |page| {
            // SAFETY: inside the run.
            PROBES.map(|probe| unsafe { ptr.add(page * PAGE_SIZE + probe) }.cast())
        })
    }

    fn enter(&mut self, ptr: NonNull<u8>, pages: usize, dirty: usize) {
        let address = ptr.as_ptr().addr();
        assert!(self.heap.backend().ready(ptr, pages), "a run with pages that are not ready");
        if let Some((&before, &(_, len, _))) = self.runs.range(..address).next_back() {
            assert!(before + len * PAGE_SIZE <= address, "a run overlaps the one before");
        }
        if let Some((&after, _)) = self.runs.range(address..).next() {
            assert!(address + pages * PAGE_SIZE <= after, "a run overlaps the one behind");
        }
        self.tags += 1;
        for probe in Self::probes(ptr, pages) {
            let within = probe.as_ptr().addr() - address < dirty;
            // SAFETY: inside the run, which is this test's.
            unsafe {
                assert!(within || probe.read() == 0, "not zero, against the promise");
                probe.write(self.tags);
            }
        }
        self.runs.insert(address, (ptr, pages, self.tags));
    }

    fn verify(ptr: NonNull<u8>, pages: usize, tag: u64) {
        for probe in Self::probes(ptr, pages) {
            // SAFETY: inside the run, which is this test's.
            assert_eq!(unsafe { probe.read() }, tag, "the content of a run has changed");
        }
    }

    fn pick(&self, pick: usize) -> Option<usize> {
        (!self.runs.is_empty()).then(|| *self.runs.keys().nth(pick % self.runs.len()).unwrap())
    }

    fn step(&mut self, op: u8, size: usize, shift: u32, pick: usize) {
        match op {
            0..40 => {
                let pages = match op {
                    0..25 => size % 12 + 1,
                    25..33 => size % 300 + 1,
                    _ => size % 1500 + 1,
                };
                let align = if op.is_multiple_of(5) { 1 << shift } else { 1 };
                if let Some(run) = self.heap.alloc(pages, align) {
                    assert_eq!(run.ptr.as_ptr().addr() % (align * PAGE_SIZE), 0);
                    self.enter(run.ptr, pages, run.dirty);
                }
            }
            40..70 => {
                let Some(key) = self.pick(pick) else { return };
                let (ptr, pages, tag) = self.runs.remove(&key).unwrap();
                Self::verify(ptr, pages, tag);
                // SAFETY: the run is this test's and not used again.
                unsafe {
                    if op < 66 { self.heap.free(ptr, pages) } else { self.heap.free_at_once(ptr, pages) }
                }
            }
            70..74 => {
                // A part of a run goes: the tail, or the front.
                let Some(key) = self.pick(pick) else { return };
                let (ptr, pages, tag) = self.runs[&key];
                let part = size % pages;
                if part == 0 {
                    return;
                }
                self.runs.remove(&key);
                Self::verify(ptr, pages, tag);
                // SAFETY: both parts are inside the run.
                unsafe {
                    let behind = ptr.add(part * PAGE_SIZE);
                    if op.is_multiple_of(2) {
                        self.heap.free(behind, pages - part);
                        self.runs.insert(key, (ptr, part, tag));
                    } else {
                        self.heap.free(ptr, part);
                        self.runs.insert(behind.as_ptr().addr(), (behind, pages - part, tag));
                    }
                }
            }
            74..80 => {
                let Some(key) = self.pick(pick) else { return };
                let (ptr, pages, tag) = self.runs[&key];
                let extra = if op == 74 { size % 900 } else { size % 20 };
                // SAFETY: the run is this test's.
                if unsafe { self.heap.grow_in_place(ptr, pages, extra) } {
                    self.runs.remove(&key);
                    Self::verify(ptr, pages, tag);
                    self.enter(ptr, pages + extra, usize::MAX);
                }
            }
            99..103 => {
                let Some(key) = self.pick(pick) else { return };
                let (ptr, pages, tag) = self.runs[&key];
                let new_pages = pages + 1 + size % 1000;
                // SAFETY: the run is this test's, and not used again at its old place when it moves.
                if let Some(run) = unsafe { self.heap.relocate(ptr, pages, new_pages) } {
                    self.runs.remove(&key);
                    Self::verify(run.ptr, pages, tag);
                    self.enter(run.ptr, new_pages, run.dirty);
                }
            }
            80..84 => {
                let before = self.heap.accounts();
                let want = size * PAGE_SIZE;
                let mode =
                    if op.is_multiple_of(2) { ReleaseMode::Everything } else { ReleaseMode::WholeHugePages };
                let released = self.heap.release(want, mode);
                let after = self.heap.accounts();
                if before.events.failed_releases == after.events.failed_releases {
                    assert_eq!(before.free() - after.free(), released, "a release and the accounts disagree");
                }
            }
            84 => {
                self.heap.release(usize::MAX, ReleaseMode::Everything);
            }
            85..90 => {
                self.now += u64::from(shift + 1) * 100_000_000;
                let clock = Cell::new(0);
                self.heap.tick_with(self.now, || {
                    clock.set(clock.get() + 100_000);
                    clock.get()
                });
            }
            90..95 => {
                let bit = |n: u32| pick >> n & 1 == 1;
                self.heap.backend().set_fail(Fail {
                    map: bit(0) && bit(1),
                    purge: bit(2),
                    unmap: bit(3),
                    restore: bit(4) && bit(5),
                    grow: bit(6),
                });
            }
            95 | 96 => self.heap.backend().set_fail(Fail::default()),
            97 => self.heap.backend().set_tier(pick % self.heap.backend().tier_count()),
            98 => {
                self.heap.set_delay([0, 200_000_000, 1_000_000_000, u64::MAX][pick % 4]);
                self.heap.set_hard_limit([usize::MAX, 20 << 20, 40 << 20][pick % 3]);
            }
            _ => {
                // SAFETY: the lock is taken just before; there is no other thread.
                unsafe {
                    self.heap.lock_for_fork();
                    self.heap.unlock_after_fork();
                }
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.heap.find_flaw(), Ok(()));
        let accounts = self.heap.accounts();
        for (i, tier) in accounts.tiers.iter().enumerate() {
            assert_eq!(tier.mapped, tier.in_use + tier.free + tier.purged);
            let mapped = if i < self.heap.backend().tier_count() { self.heap.backend().mapped(i) } else { 0 };
            assert_eq!(tier.mapped, mapped, "tier {i}: the backend has other pages mapped");
        }
        let pages: usize = self.runs.values().map(|run| run.1).sum();
        assert_eq!(accounts.in_use(), pages * PAGE_SIZE);
        let holes = self.heap.backend().holes();
        assert!(holes * HUGE_SIZE <= accounts.mapped(), "holes in huge pages that are not mapped");
        assert!(accounts.donated + accounts.cached_huge <= accounts.free() + accounts.purged());
    }
}

fn run(specs: &[Spec], ops: std::vec::Vec<(u8, usize, u32, usize)>) {
    let heap = PageHeap::new(Mock::new(96 << 20, specs));
    let mut model = Model { heap, runs: BTreeMap::new(), tags: 0, now: 1 };
    for (op, size, shift, pick) in ops {
        model.step(op, size, shift, pick);
        model.check();
    }
    model.heap.backend().set_fail(Fail::default());
    model.heap.set_delay(1_000_000_000);
    for (ptr, pages, tag) in std::mem::take(&mut model.runs).into_values() {
        Model::verify(ptr, pages, tag);
        // SAFETY: the run is this test's and not used again.
        unsafe { model.heap.free(ptr, pages) };
    }
    model.check();
    model.heap.release(usize::MAX, ReleaseMode::Everything);
    model.check();
    assert_eq!(model.heap.accounts().free(), 0, "memory is left that nothing uses");
    // SAFETY: nothing of the heap is used any more.
    unsafe { model.heap.unmap_all() };
    model.check();
    assert_eq!(model.heap.accounts().mapped(), 0);
}

fn ops() -> impl Strategy<Value = std::vec::Vec<(u8, usize, u32, usize)>> {
    prop::collection::vec((0u8..104, 0usize..4000, 0u32..11, 0usize..10_000), 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plain_memory(ops in ops()) {
        run(&[Spec::PLAIN], ops);
    }

    #[test]
    fn transparent_huge_pages(ops in ops()) {
        run(&[Spec::THP], ops);
    }

    #[test]
    fn memory_that_is_dirty_after_a_purge(ops in ops()) {
        run(&[Spec::DIRTY], ops);
    }

    #[test]
    fn a_pool_of_huge_pages(ops in ops()) {
        run(&[Spec::POOL], ops);
    }

    #[test]
    fn a_chain_of_everything(ops in ops()) {
        run(&[Spec::POOL_4M, Spec::POOL, Spec::DIRTY, Spec::PLAIN], ops);
    }
}
