//! Release over time, with a clock of the test's own.

use super::mock::{Mock, Spec};
use crate::page_heap::PageHeap;
use core::ptr::NonNull;
use size_classes::PAGE_SIZE;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn heap() -> PageHeap<Mock> {
    PageHeap::new(Mock::new(256 * MIB, &[Spec::PLAIN]))
}

/// Ticks every 10 ms until `until`; each call of the backend seems to take no time.
fn pass(heap: &PageHeap<Mock>, now: &mut u64, until: u64) {
    while *now < until {
        *now += SECOND / 100;
        heap.tick_with(*now, || 0);
        assert!(heap.check());
    }
}

fn give(heap: &PageHeap<Mock>, ptr: NonNull<u8>, pages: usize) {
    // SAFETY: the tests give back what they took.
    unsafe { heap.free(ptr, pages) };
}

#[test]
fn free_huge_pages_go_back_within_the_delay_and_not_before_half_of_it() {
    let heap = heap();
    let mut now = 1;
    pass(&heap, &mut now, SECOND);
    let block = heap.alloc(4 * MIB / PAGE_SIZE, 1).unwrap().ptr;
    pass(&heap, &mut now, 2 * SECOND);
    give(&heap, block, 4 * MIB / PAGE_SIZE);
    pass(&heap, &mut now, 2 * SECOND + SECOND / 2 - SECOND / 50);
    assert_eq!(heap.accounts().free(), 4 * MIB);
    pass(&heap, &mut now, 3 * SECOND + SECOND / 20);
    assert_eq!(heap.accounts().free(), 0);
}

#[test]
fn free_parts_go_back_too_but_for_a_small_reserve() {
    let heap = heap();
    let mut now = 1;
    let runs: Vec<_> = (0..2000).map(|_| heap.alloc(4, 1).unwrap().ptr).collect();
    pass(&heap, &mut now, SECOND);
    for (i, &run) in runs.iter().enumerate() {
        if i % 10 != 0 {
            give(&heap, run, 4);
        }
    }
    assert!(heap.accounts().free() > 50 * MIB);
    pass(&heap, &mut now, 3 * SECOND);
    assert!(heap.accounts().free() <= MIB, "{} bytes are left", heap.accounts().free());
    assert!(heap.accounts().in_use() == 200 * 4 * PAGE_SIZE);
}

#[test]
fn memory_in_turn_over_is_kept() {
    let heap = heap();
    let mut now = 1;
    let mut runs: Vec<_> = (0..1000).map(|_| heap.alloc(4, 1).unwrap().ptr).collect();
    pass(&heap, &mut now, SECOND);
    for round in 0..50 {
        if round == 3 {
            heap.backend().calls();
        }
        // All is given back and taken again every 100 ms.
        for run in runs.drain(..) {
            give(&heap, run, 4);
        }
        pass(&heap, &mut now, SECOND + round * SECOND / 10);
        runs.extend((0..1000).map(|_| heap.alloc(4, 1).unwrap().ptr));
        pass(&heap, &mut now, SECOND + round * SECOND / 10 + SECOND / 20);
    }
    let calls = heap.backend().calls();
    assert_eq!((calls.map, calls.unmap), (0, 0));
    assert!(calls.purge <= 2, "{} purges of memory in use", calls.purge);
}

#[test]
fn never_means_never_and_zero_means_at_once() {
    let heap = heap();
    let mut now = 1;
    heap.set_delay(u64::MAX);
    let block = heap.alloc(100 * MIB / PAGE_SIZE, 1).unwrap().ptr;
    let small = heap.alloc(3, 1).unwrap().ptr;
    let part = heap.alloc(50, 1).unwrap().ptr;
    give(&heap, block, 100 * MIB / PAGE_SIZE);
    pass(&heap, &mut now, 10 * SECOND);
    assert_eq!(heap.accounts().free(), 100 * MIB);
    heap.set_delay(0);
    give(&heap, part, 50);
    assert_eq!(heap.accounts().free(), 0);
    give(&heap, small, 3);
    assert_eq!(heap.accounts().free(), 0);
}

#[test]
fn a_tick_ends_when_its_time_is_up_and_goes_on_later() {
    let heap = heap();
    heap.set_delay(SECOND);
    let mut now = 1;
    heap.tick_with(now, || 0);
    let runs: Vec<_> = (0..200).map(|_| heap.alloc(128, 1).unwrap().ptr).collect();
    for &run in runs.iter().step_by(2) {
        give(&heap, run, 128);
    }
    let left = heap.accounts().free();
    assert!(left > 0);
    for _ in 0..2 {
        now += SECOND / 2;
        // Half a millisecond passes between two looks at the clock.
        let clock = std::cell::Cell::new(0);
        heap.backend().calls();
        heap.tick_with(now, || {
            clock.set(clock.get() + 500_000);
            clock.get()
        });
        let calls = heap.backend().calls();
        assert!(calls.purge + calls.unmap <= 3);
    }
    assert!(heap.accounts().free() > 0 && heap.accounts().free() < left);
    for _ in 0..200 {
        now += SECOND / 1000;
        heap.tick_with(now, || 0);
    }
    assert!(heap.accounts().free() < MIB);
}

#[test]
fn what_is_overdue_after_a_sleep_goes_back_bit_by_bit_without_a_pause() {
    let heap = heap();
    let mut now = 1;
    pass(&heap, &mut now, SECOND);
    let runs: Vec<_> = (0..200).map(|_| heap.alloc(128, 1).unwrap().ptr).collect();
    for &run in runs.iter().step_by(2) {
        give(&heap, run, 128);
    }
    now += 2 * SECOND;
    let mut ticks = 0;
    loop {
        let clock = std::cell::Cell::new(0);
        heap.backend().calls();
        let more = heap.tick_with(now, || {
            clock.set(clock.get() + 500_000);
            clock.get()
        });
        assert!(heap.backend().calls().purge <= 2);
        ticks += 1;
        if !more {
            break;
        }
    }
    assert!(ticks >= 50 && heap.accounts().free() < MIB);
    // In the usual course of time there is a pause.
    now += SECOND / 100;
    assert!(!heap.tick_with(now, || 0));
}

#[test]
fn a_program_that_sleeps_gives_back_when_it_wakes() {
    let heap = heap();
    let mut now = 1;
    pass(&heap, &mut now, SECOND);
    let block = heap.alloc(3 * MIB / PAGE_SIZE, 1).unwrap().ptr;
    give(&heap, block, 3 * MIB / PAGE_SIZE);
    heap.tick_with(now, || 0);
    assert_eq!(heap.accounts().free(), 3 * MIB);
    heap.tick_with(now + 2 * SECOND, || 0);
    assert_eq!(heap.accounts().free(), 0);
}
