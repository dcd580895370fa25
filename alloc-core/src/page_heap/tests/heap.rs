//! Single properties of the page heap.

use super::mock::{Fail, Mock, Spec};
use crate::page_heap::{GROWTH_PART, LEAST_GROWTH, PageHeap, ReleaseMode};
use core::ptr::NonNull;
use size_classes::PAGE_SIZE;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const PAGES_PER_MIB: usize = MIB / PAGE_SIZE;

fn heap(specs: &[Spec]) -> PageHeap<Mock> {
    PageHeap::new(Mock::new(256 * MIB, specs))
}

fn take(heap: &PageHeap<Mock>, pages: usize) -> NonNull<u8> {
    heap.alloc(pages, 1).unwrap().ptr
}

fn give(heap: &PageHeap<Mock>, ptr: NonNull<u8>, pages: usize) {
    // SAFETY: the tests give back what they took.
    unsafe { heap.free(ptr, pages) };
    assert!(heap.check());
}

#[test]
fn a_small_process_stays_dense_from_the_low_end() {
    let heap = heap(&[Spec::PLAIN]);
    let first = take(&heap, 1).as_ptr().addr();
    for i in 1..50 {
        assert_eq!(take(&heap, 1).as_ptr().addr(), first + i * PAGE_SIZE);
    }
    assert_eq!(heap.accounts().mapped(), 2 * MIB);
    assert_eq!(heap.backend().calls().map, 1);
}

#[test]
fn the_tail_of_a_large_run_is_donated_and_comes_back() {
    let heap = heap(&[Spec::PLAIN]);
    let large = take(&heap, 300);
    assert_eq!(heap.accounts().donated, 212 * PAGE_SIZE);
    let small = take(&heap, 10);
    assert_eq!(small.as_ptr().addr(), large.as_ptr().addr() + 300 * PAGE_SIZE);
    give(&heap, large, 300);
    assert_eq!(heap.accounts().donated, 0);
    give(&heap, small, 10);
    assert_eq!(heap.accounts().cached_huge, 310 * PAGE_SIZE);
}

#[test]
fn a_loop_of_large_blocks_makes_no_system_calls() {
    for mib in [1, 2, 3, 17, 64] {
        let heap = heap(&[Spec::PLAIN]);
        let pages = mib * PAGES_PER_MIB;
        for round in 0..100 {
            if round == 10 {
                heap.backend().calls();
            }
            let block = take(&heap, pages);
            give(&heap, block, pages);
            heap.tick_with(round * 10_000_000, || 0);
        }
        let calls = heap.backend().calls();
        assert_eq!((calls.map, calls.unmap), (0, 0), "{mib} MiB");
        // The donated tail, which nobody uses, may go once.
        assert!(calls.purge <= 2, "{} purges with {mib} MiB", calls.purge);
    }
}

#[test]
fn address_space_is_mapped_in_growing_steps_and_exactly_when_short() {
    let plain = heap(&[Spec::PLAIN]);
    let mut runs = Vec::new();
    for _ in 0..1000 {
        runs.push(take(&plain, 20));
    }
    let calls = plain.backend().calls().map;
    assert!(calls < 25, "{calls} mappings for 156 MiB");
    // The mock has 256 MiB: a step would not fit, the need does.
    let left = 256 * MIB - plain.accounts().mapped();
    assert!(plain.alloc(left / PAGE_SIZE, 1).is_some());
    assert!(plain.alloc(256 * PAGES_PER_MIB, 1).is_none());
    assert!(plain.check());
}

#[test]
fn memory_that_is_taken_when_mapped_is_mapped_by_need() {
    // Whatever the number of its tier: the first one may be for the time before the settings are read.
    for (specs, tier) in [(&[Spec::POOL][..], 0), (&[Spec::PLAIN, Spec::POOL], 1)] {
        let heap = heap(specs);
        heap.backend().set_tier(tier);
        for _ in 0..40 {
            take(&heap, 200);
        }
        assert_eq!(heap.accounts().mapped(), 80 * MIB);
        assert_eq!(heap.accounts().purged(), 0);
    }
}

#[test]
fn threads_that_find_the_heap_empty_together_map_once() {
    for spec in [Spec::PLAIN, Spec::POOL] {
        let heap = heap(&[spec]);
        heap.backend().set_map_time(std::time::Duration::from_millis(5));
        let start = std::sync::Barrier::new(16);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    take(&heap, 10);
                });
            }
        });
        assert_eq!(heap.backend().calls().map, 1);
        assert_eq!(heap.accounts().mapped(), 2 * MIB);
    }
}

#[test]
fn a_thread_waits_in_vain_only_so_long() {
    let heap = heap(&[Spec::PLAIN]);
    let turn = heap.turn.take();
    take(&heap, 10);
    drop(turn);
    assert_eq!(heap.backend().calls().map, 1);
    // The thread that had the turn is not in a forked child.
    core::mem::forget(heap.turn.take());
    heap.after_fork_in_child();
    assert!(heap.turn.take().is_some());
}

#[test]
fn free_ranges_without_and_with_memory_join_when_nothing_else_is_left() {
    let heap = PageHeap::new(Mock::new(16 * MIB, &[Spec::PLAIN]));
    let whole = take(&heap, 16 * PAGES_PER_MIB);
    give(&heap, whole, 16 * PAGES_PER_MIB);
    heap.release(usize::MAX, ReleaseMode::WholeHugePages);
    let low = take(&heap, 6 * PAGES_PER_MIB);
    give(&heap, low, 6 * PAGES_PER_MIB);
    assert!(heap.alloc(16 * PAGES_PER_MIB, 1).is_some());
    assert!(heap.check());
}

#[test]
fn scattered_free_ranges_are_unmapped_to_make_room() {
    let heap = PageHeap::new(Mock::new(32 * MIB, &[Spec::PLAIN]));
    heap.set_delay(u64::MAX);
    let blocks: Vec<_> = (0..16).map(|_| take(&heap, 2 * PAGES_PER_MIB)).collect();
    for &block in blocks.iter().step_by(2) {
        give(&heap, block, 2 * PAGES_PER_MIB);
    }
    assert!(heap.alloc(16 * PAGES_PER_MIB, 1).is_none());
    assert!(heap.check());
    assert_eq!(heap.accounts().mapped(), 16 * MIB);
    assert!(heap.alloc(2 * PAGES_PER_MIB, 1).is_some());
}

#[test]
fn the_hard_limit_refuses_and_is_counted() {
    let heap = heap(&[Spec::PLAIN]);
    heap.set_hard_limit(10 * MIB);
    let block = take(&heap, 8 * PAGES_PER_MIB);
    assert!(heap.alloc(3 * PAGES_PER_MIB, 1).is_none());
    assert_eq!(heap.accounts().events.hard_limit_hits, 1);
    give(&heap, block, 8 * PAGES_PER_MIB);
    assert!(heap.alloc(3 * PAGES_PER_MIB, 1).is_some());
}

#[test]
fn memory_kept_for_later_counts_against_the_hard_limit() {
    let heap = heap(&[Spec::PLAIN]);
    heap.set_hard_limit(20 * MIB);
    let a = take(&heap, 10 * PAGES_PER_MIB);
    let b = take(&heap, 10 * PAGES_PER_MIB);
    give(&heap, a, 10 * PAGES_PER_MIB);
    give(&heap, b, 5 * PAGES_PER_MIB);
    // Needs more than any free range with memory has, so fresh memory is taken and old memory goes back.
    assert!(heap.alloc(14 * PAGES_PER_MIB, 1).is_some());
    let accounts = heap.accounts();
    assert!(accounts.in_use() + accounts.free() <= 20 * MIB);
}

#[test]
fn huge_pages_of_a_pool_go_back_whole() {
    let heap = heap(&[Spec::POOL]);
    let runs: Vec<_> = (0..512).map(|_| take(&heap, 4)).collect();
    assert_eq!(heap.accounts().mapped(), 16 * MIB);
    for (i, &run) in runs.iter().enumerate() {
        // One run stays in the second huge page.
        if i != 100 {
            give(&heap, run, 4);
        }
    }
    heap.release(usize::MAX, ReleaseMode::Everything);
    assert_eq!(heap.accounts().mapped(), 2 * MIB);
    assert_eq!(heap.backend().calls().purge, 0);
}

#[test]
fn a_child_of_a_fork_leaves_inherited_huge_pages_alone() {
    let heap = heap(&[Spec::POOL, Spec::PLAIN]);
    let runs: Vec<_> = (0..200).map(|_| take(&heap, 4)).collect();
    give(&heap, runs[199], 4);
    let block = take(&heap, 900);
    give(&heap, block, 900);
    heap.lock_for_fork();
    // SAFETY: taken just now; there is no other thread.
    unsafe { heap.unlock_after_fork() };
    heap.after_fork_in_child();
    heap.backend().set_tier(1);
    let pool = heap.accounts().tiers[0];
    for pages in [1, 4, 100, 300, 900] {
        take(&heap, pages);
    }
    for &run in &runs[..100] {
        give(&heap, run, 4);
    }
    take(&heap, 4);
    let after = heap.accounts().tiers[0];
    assert_eq!(after.in_use, pool.in_use - 400 * PAGE_SIZE);
    assert_eq!(heap.accounts().tiers[1].in_use, 1309 * PAGE_SIZE);
    assert!(heap.check());
}

#[test]
fn alignment_beyond_a_huge_page() {
    let heap = heap(&[Spec::PLAIN]);
    take(&heap, 1);
    for (pages, align) in [(1, 512), (100, 1024), (600, 2048), (257, 256), (10, 256)] {
        let run = heap.alloc(pages, align).unwrap();
        assert_eq!(run.ptr.as_ptr().addr() % (align * PAGE_SIZE), 0);
        assert!(heap.check());
    }
}

#[test]
fn runs_grow_into_what_is_free_behind_them() {
    let heap = heap(&[Spec::PLAIN]);
    let run = take(&heap, 100);
    // SAFETY: the run is this test's, as long as it is said to be.
    unsafe {
        assert!(heap.grow_in_place(run, 100, 50));
        assert!(heap.check());
        let wall = take(&heap, 1);
        assert!(!heap.grow_in_place(run, 150, 1));
        give(&heap, wall, 1);
        // Through the end of the huge page, into memory that the backend maps behind it.
        assert!(heap.grow_in_place(run, 150, 1000));
    }
    assert!(heap.check());
    assert_eq!(heap.accounts().in_use(), 1150 * PAGE_SIZE);
    give(&heap, run, 1150);
    assert_eq!(heap.accounts().in_use(), 0);
}

#[test]
fn a_long_run_moves_without_a_copy_of_its_huge_pages() {
    let heap = heap(&[Spec::PLAIN]);
    let run = take(&heap, 700);
    let wall = take(&heap, 50);
    // SAFETY: the run is this test's, as long as it is said to be, and not used again at its old place.
    unsafe {
        run.add(699 * PAGE_SIZE).write(7);
        run.write(8);
        let moved = heap.relocate(run, 700, 1400).unwrap().ptr;
        assert_eq!((moved.read(), moved.add(699 * PAGE_SIZE).read()), (8, 7));
        assert!(heap.check());
        assert_eq!(heap.accounts().in_use(), 1450 * PAGE_SIZE);
        heap.backend().set_fail(Fail { grow: true, ..Fail::default() });
        assert!(heap.relocate(moved, 1400, 3000).is_none());
        assert!(heap.check());
        assert_eq!(moved.read(), 8);
        give(&heap, moved, 1400);
    }
    give(&heap, wall, 50);
    assert_eq!(heap.accounts().in_use(), 0);
}

#[test]
fn a_heap_has_grown_when_it_has_a_good_part_more_memory_and_not_when_it_uses_what_it_has() {
    let heap = heap(&[Spec::PLAIN]);
    let first = take(&heap, LEAST_GROWTH - 1);
    assert!(!heap.has_grown());
    let second = take(&heap, 1);
    assert!(heap.has_grown());
    assert!(!heap.has_grown());
    give(&heap, first, LEAST_GROWTH - 1);
    let first = take(&heap, LEAST_GROWTH - 1);
    assert!(!heap.has_grown());
    let large = take(&heap, GROWTH_PART * 2 * LEAST_GROWTH);
    assert!(heap.has_grown());
    let more = take(&heap, LEAST_GROWTH);
    assert!(!heap.has_grown());
    // What it has given back in between counts as growth when it takes it again.
    give(&heap, large, GROWTH_PART * 2 * LEAST_GROWTH);
    heap.release(usize::MAX, ReleaseMode::Everything);
    assert!(!heap.has_grown());
    let again = take(&heap, LEAST_GROWTH);
    assert!(heap.has_grown());
    for (run, pages) in [(first, LEAST_GROWTH - 1), (second, 1), (more, LEAST_GROWTH), (again, LEAST_GROWTH)]
    {
        give(&heap, run, pages);
    }
}

/// Whether what was taken into use less what was given back is what costs memory now.
fn commits_add_up(heap: &PageHeap<Mock>) -> bool {
    let accounts = heap.accounts();
    let committed = accounts.events.commit_bytes - accounts.events.decommit_bytes;
    committed == (accounts.in_use() + accounts.free()) as u64
}

#[test]
fn the_last_huge_page_of_a_run_moves_too_where_nobody_else_uses_it() {
    let heap = heap(&[Spec::PLAIN]);
    let run = take(&heap, 700);
    // A part of what is behind the run has memory.
    let behind = take(&heap, 20);
    give(&heap, behind, 20);
    assert_eq!(heap.accounts().free(), 20 * PAGE_SIZE);
    assert!(commits_add_up(&heap));
    let before = heap.accounts();
    // SAFETY: the run is this test's, and not used again at its old place when it has moved.
    unsafe {
        run.add(699 * PAGE_SIZE).write(7);
        heap.backend().set_fail(Fail { grow: true, ..Fail::default() });
        assert!(heap.relocate(run, 700, 1400).is_none());
        assert_eq!(heap.find_flaw(), Ok(()));
        assert_eq!(heap.accounts().events, before.events);
        assert_eq!((heap.accounts().free(), heap.accounts().mapped()), (before.free(), before.mapped()));
        heap.backend().set_fail(Fail::default());
        let moved = heap.relocate(run, 700, 1400).unwrap().ptr;
        assert_eq!(moved.add(699 * PAGE_SIZE).read(), 7);
        assert_eq!(heap.find_flaw(), Ok(()));
        assert_eq!((heap.accounts().in_use(), heap.accounts().free()), (1400 * PAGE_SIZE, 0));
        assert_eq!(heap.backend().mapped(0), 6 * 2 * MIB, "nothing is left of the old place");
        assert!(commits_add_up(&heap));
        give(&heap, moved, 1400);
    }
    assert_eq!(heap.accounts().in_use(), 0);
}

#[test]
fn moves_do_not_let_free_memory_pile_up() {
    let heap = heap(&[Spec::PLAIN]);
    let run = take(&heap, 512);
    let wall = take(&heap, 1);
    let freed = take(&heap, 64 * PAGES_PER_MIB);
    // SAFETY: the runs are this test's, and not used again where they have moved or are given back.
    unsafe {
        heap.free_and_keep(freed, 64 * PAGES_PER_MIB);
        assert_eq!(heap.accounts().cached_huge, 64 * MIB);
        let moved = heap.relocate(run, 512, 1024).unwrap().ptr;
        assert!(heap.accounts().cached_huge <= 4 * MIB, "no more than the cache's limit");
        // Nor does address space.
        let mapped = heap.accounts().mapped();
        let mut moved = moved;
        for _ in 0..10 {
            let longer = heap.relocate(moved, 1024, 2048).unwrap().ptr;
            heap.free(longer.add(1024 * PAGE_SIZE), 1024);
            moved = longer;
        }
        assert!(heap.accounts().mapped() <= mapped + 16 * MIB);
        assert_eq!(heap.find_flaw(), Ok(()));
        assert!(commits_add_up(&heap));
        give(&heap, moved, 1024);
    }
    give(&heap, wall, 1);
}

#[test]
fn purged_pages_behind_a_run_do_not_move() {
    let heap = heap(&[Spec::PLAIN]);
    let run = take(&heap, 700);
    let behind = take(&heap, 68);
    give(&heap, behind, 68);
    assert_eq!(heap.release(usize::MAX, ReleaseMode::Everything), 68 * PAGE_SIZE);
    // SAFETY: the run is this test's, and not used again at its old place when it has moved.
    unsafe {
        run.add(699 * PAGE_SIZE).write(7);
        // The backend asserts that nothing purged moves.
        let moved = heap.relocate(run, 700, 1400).unwrap().ptr;
        assert_eq!(moved.add(699 * PAGE_SIZE).read(), 7);
        assert_eq!(heap.find_flaw(), Ok(()));
        assert_eq!(heap.backend().mapped(0), 7 * 2 * MIB, "the huge page with purged pages stays");
        assert!(commits_add_up(&heap));
        give(&heap, moved, 1400);
    }
    assert_eq!(heap.accounts().in_use(), 0);
}

#[test]
fn a_run_takes_no_holes_along() {
    let heap = heap(&[Spec::THP]);
    let run = take(&heap, 512);
    // SAFETY: the pages are this test's, as long as they are said to be.
    unsafe {
        give(&heap, run.add(412 * PAGE_SIZE), 100);
        heap.release(usize::MAX, ReleaseMode::Everything);
        assert_eq!(heap.backend().holes(), 1);
        assert!(heap.grow_in_place(run, 412, 400), "into memory that the backend maps");
        assert_eq!(heap.find_flaw(), Ok(()));
        assert_eq!(heap.backend().holes(), 1, "what is behind the huge page with a hole has none");
        let moved = heap.relocate(run, 812, 1400).unwrap().ptr;
        assert_eq!(heap.backend().holes(), 0);
        assert_eq!(heap.find_flaw(), Ok(()));
        give(&heap, moved, 1400);
    }
    assert_eq!(heap.accounts().in_use(), 0);
}

#[test]
fn a_failed_unmap_leads_to_a_purge_and_nothing_is_lost() {
    let heap = heap(&[Spec::PLAIN]);
    let block = take(&heap, 64 * PAGES_PER_MIB);
    heap.set_delay(u64::MAX);
    give(&heap, block, 64 * PAGES_PER_MIB);
    heap.backend().set_fail(Fail { unmap: true, ..Fail::default() });
    assert_eq!(heap.release(usize::MAX, ReleaseMode::Everything), 64 * MIB);
    assert_eq!(heap.accounts().purged(), 64 * MIB);
    assert!(heap.accounts().events.failed_releases > 0);
    heap.backend().set_fail(Fail { unmap: true, purge: true, ..Fail::default() });
    let block = take(&heap, 64 * PAGES_PER_MIB);
    give(&heap, block, 64 * PAGES_PER_MIB);
    assert_eq!(heap.release(usize::MAX, ReleaseMode::Everything), 0);
    assert_eq!(heap.accounts().free(), 64 * MIB);
    assert!(heap.check());
}

#[test]
fn a_huge_page_that_the_kernel_has_filled_is_purged_again() {
    let heap = heap(&[Spec::THP]);
    heap.set_delay(u64::MAX);
    // The question is not asked for the first mapping.
    let first = take(&heap, 255);
    let run = take(&heap, 256);
    give(&heap, run, 256);
    assert_eq!(heap.release(usize::MAX, ReleaseMode::WholeHugePages), 2 * MIB);
    let small = take(&heap, 2);
    assert_eq!(small, run);
    assert_eq!(heap.accounts().free(), 254 * PAGE_SIZE);
    assert_eq!(heap.backend().holes(), 0);
    assert_eq!(heap.release(usize::MAX, ReleaseMode::Everything), 254 * PAGE_SIZE);
    assert_eq!(heap.backend().holes(), 1);
    // With its holes known, it is used page by page.
    let other = take(&heap, 2);
    assert_eq!(heap.accounts().free(), 0);
    give(&heap, other, 2);
    give(&heap, small, 2);
    let again = take(&heap, 256);
    assert_eq!(again, run);
    assert_eq!(heap.backend().holes(), 0);
    give(&heap, again, 256);
    give(&heap, first, 255);
}

#[test]
fn two_heaps_side_by_side_keep_apart() {
    let one = heap(&[Spec::PLAIN]);
    let other = heap(&[Spec::PLAIN]);
    let mut runs = Vec::new();
    for i in 0..200 {
        let heap = if i % 2 == 0 { &one } else { &other };
        runs.push((heap, take(heap, 50)));
    }
    for (heap, run) in runs {
        give(heap, run, 50);
    }
    assert!(one.check() && other.check());
    assert_eq!(one.accounts().in_use() + other.accounts().in_use(), 0);
}

#[test]
fn threads_share_a_heap_while_memory_is_released() {
    let heap = heap(&[Spec::PLAIN, Spec::POOL]);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let heap = &heap;
            scope.spawn(move || {
                let mut runs: Vec<(NonNull<u8>, usize)> = Vec::new();
                let mut random = thread + 1;
                for round in 0..3000u64 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let pages = if random % 16 == 0 {
                        random as usize / 16 % 700 + 1
                    } else {
                        random as usize % 9 + 1
                    };
                    if random % 5 < 3 && runs.len() < 200 {
                        if let Some(run) = heap.alloc(pages, 1) {
                            // SAFETY: the run is this thread's.
                            unsafe { run.ptr.cast::<u64>().write(thread) };
                            runs.push((run.ptr, pages));
                        }
                    } else if !runs.is_empty() {
                        let (ptr, pages) = runs.swap_remove(random as usize % runs.len());
                        // SAFETY: the run is this thread's.
                        unsafe {
                            assert_eq!(ptr.cast::<u64>().read(), thread);
                            heap.free(ptr, pages);
                        }
                    }
                    match random % 64 {
                        0 => drop(heap.release(random as usize % (8 * MIB), ReleaseMode::Everything)),
                        1 => {
                            heap.tick_with(round * 100_000_000, || 0);
                        }
                        2 => heap.backend().set_tier(random as usize / 64 % 2),
                        3 => {
                            heap.lock_for_fork();
                            // SAFETY: taken just now.
                            unsafe { heap.unlock_after_fork() };
                        }
                        _ => {}
                    }
                }
                for (ptr, pages) in runs {
                    // SAFETY: the run is this thread's.
                    unsafe { heap.free(ptr, pages) };
                }
            });
        }
    });
    assert!(heap.check());
    let accounts = heap.accounts();
    assert_eq!(accounts.in_use(), 0);
    for tier in 0..2 {
        assert_eq!(accounts.tiers[tier].mapped, heap.backend().mapped(tier));
    }
}
