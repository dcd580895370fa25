//! Long runs of odd lengths, back to back where memory is taken by the huge page.

use super::mock::{Mock, Spec};
use crate::page_heap::{PageHeap, ReleaseMode};
use core::ptr::NonNull;
use size_classes::PAGE_SIZE;
use std::vec::Vec;

const MIB: usize = 1 << 20;
/// 2.1 MiB: 13 pages into its second huge page.
const ODD: usize = 269;

/// A heap that has grown, so that what it maps next is mapped with room.
fn grown(spec: Spec) -> PageHeap<Mock> {
    let heap = PageHeap::new(Mock::new(512 * MIB, &[spec]));
    let first = heap.alloc(64 * MIB / PAGE_SIZE, 1).unwrap();
    let second = heap.alloc(MIB / PAGE_SIZE, 1).unwrap();
    // SAFETY: taken above.
    unsafe { heap.free(first.ptr, 64 * MIB / PAGE_SIZE) };
    let _ = second;
    heap.release(usize::MAX, ReleaseMode::Everything);
    heap
}

fn take_all(heap: &PageHeap<Mock>, count: usize) -> Vec<NonNull<u8>> {
    let runs: Vec<_> = (0..count).map(|_| heap.alloc(ODD, 1).unwrap().ptr).collect();
    assert!(heap.check());
    for run in &runs {
        assert!(heap.backend().ready(*run, ODD));
    }
    runs
}

/// Huge pages in which there is something of these runs.
fn huge_pages(runs: &[NonNull<u8>]) -> usize {
    let numbers = runs.iter().flat_map(|run| {
        let first = run.as_ptr().addr();
        (first / (2 * MIB))..=((first + ODD * PAGE_SIZE - 1) / (2 * MIB))
    });
    numbers.collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn odd_runs_are_back_to_back_where_huge_pages_are_filled() {
    let heap = grown(Spec::THP);
    let runs = take_all(&heap, 20);
    assert!(huge_pages(&runs) <= 23, "{} huge pages for 42.0 MiB", huge_pages(&runs));
}

#[test]
fn odd_runs_begin_on_huge_pages_where_tails_cost_nothing() {
    let heap = grown(Spec::PLAIN);
    for run in take_all(&heap, 8) {
        assert!(run.as_ptr().addr().is_multiple_of(2 * MIB));
    }
}

#[test]
fn an_aligned_run_never_begins_in_a_tail() {
    let heap = grown(Spec::THP);
    take_all(&heap, 1);
    let aligned = heap.alloc(ODD, 256).unwrap();
    assert!(aligned.ptr.as_ptr().addr().is_multiple_of(2 * MIB));
}

#[test]
fn what_is_freed_in_any_order_is_whole_again() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let heap = grown(Spec::THP);
        let used = heap.accounts().in_use();
        let runs = take_all(&heap, 4);
        for i in order {
            // SAFETY: taken above, and given back once.
            unsafe { heap.free(runs[i], ODD) };
            assert!(heap.check());
        }
        assert_eq!(heap.accounts().in_use(), used);
        assert_eq!(heap.accounts().donated, 0);
    }
}

#[test]
fn a_run_in_a_tail_grows_and_shrinks_where_it_is() {
    let heap = grown(Spec::THP);
    let runs = take_all(&heap, 3);
    // SAFETY: the last run is this test's, and behind it all is free.
    unsafe {
        assert!(heap.grow_in_place(runs[2], ODD, 100));
        assert!(heap.check());
        heap.free(runs[2].add(50 * PAGE_SIZE), ODD + 50);
        assert!(heap.check());
        heap.free(runs[2], 50);
    }
    assert!(heap.check());
}
