//! One walk through every path of the page heap in 16 MiB, short enough for Miri.

use super::mock::{Fail, Mock, Spec};
use crate::page_heap::{PageHeap, ReleaseMode};
use size_classes::PAGE_SIZE;

#[test]
fn every_path_in_little_memory() {
    let heap = PageHeap::new(Mock::new(16 << 20, &[Spec::PLAIN, Spec::POOL]));
    // SAFETY: runs are given back once, in parts that were taken, and not used after.
    unsafe {
        let small = heap.alloc(3, 2).unwrap().ptr;
        let large = heap.alloc(300, 1).unwrap();
        assert_eq!(large.dirty, 0);
        let large = large.ptr;
        large.add(299 * PAGE_SIZE).write(1);
        assert!(heap.grow_in_place(small, 3, 10));
        let tail = heap.alloc(212, 1).unwrap().ptr;
        tail.write(2);
        let donated = heap.alloc(212, 1).unwrap().ptr;
        assert_eq!(donated, large.add(300 * PAGE_SIZE));
        assert_eq!(heap.find_flaw(), Ok(()));

        // Parts of a huge page go and come back.
        heap.free(small.add(5 * PAGE_SIZE), 8);
        assert_eq!(heap.release(usize::MAX, ReleaseMode::Everything), 8 * PAGE_SIZE);
        let again = heap.alloc(4, 1).unwrap();
        assert!(again.dirty == 0 && again.ptr == small.add(5 * PAGE_SIZE));
        assert_eq!(again.ptr.read(), 0);
        heap.free(small, 9);
        assert_eq!(heap.find_flaw(), Ok(()));

        // Whole ones too, past a backend that fails.
        heap.free(donated, 212);
        heap.free(large, 300);
        heap.backend().set_fail(Fail { unmap: true, purge: true, ..Fail::default() });
        heap.release(usize::MAX, ReleaseMode::Everything);
        assert_eq!(heap.find_flaw(), Ok(()));
        heap.backend().set_fail(Fail::default());
        heap.tick_with(1, || 0);
        heap.tick_with(3_000_000_000, || 0);
        heap.tick_with(6_000_000_000, || 0);
        assert!(heap.accounts().free() < 32 * PAGE_SIZE);
        assert_eq!(heap.find_flaw(), Ok(()));

        // Another tier, and a child that does not use it.
        heap.backend().set_tier(1);
        let pool = heap.alloc(1024, 256).unwrap().ptr;
        heap.free(pool.add(256 * PAGE_SIZE), 768);
        heap.lock_for_fork();
        heap.unlock_after_fork();
        heap.after_fork_in_child();
        heap.backend().set_tier(0);
        assert_eq!(tail.read(), 2);
        let moved = heap.relocate(pool, 256, 257);
        assert!(moved.is_none(), "the tier cannot move memory");
        let run = heap.alloc(2, 1).unwrap().ptr;
        run.write(3);
        heap.free(run, 2);
        heap.free(pool, 256);
        heap.free(tail, 212);
        assert_eq!(heap.find_flaw(), Ok(()));
        assert_eq!(heap.accounts().in_use(), 0);
        heap.unmap_all();
    }
    assert_eq!(heap.accounts().mapped(), 0);
}
