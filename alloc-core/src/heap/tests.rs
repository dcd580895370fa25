//! Large blocks over a mock backend that checks every call.

use super::{Block, Engine};
use crate::page_heap::tests::mock::{Fail, Mock, Spec};
use crate::page_map::PAGE_MAP;
use crate::report;
use crate::settings::{Delay, Settings};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use size_classes::{CLASS_COUNT, CLASSES, PAGE_SIZE};
use std::vec::Vec;

const MIB: usize = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// An engine that parks, and gives everything back at its end.
struct Heap(Engine<Mock>);

impl core::ops::Deref for Heap {
    type Target = Engine<Mock>;
    fn deref(&self) -> &Engine<Mock> {
        &self.0
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        assert!(self.check().is_ok() && self.pages.check());
        // SAFETY: the test is over.
        unsafe {
            self.forget_all();
            self.pages.unmap_all();
        }
    }
}

fn heap_of(specs: &[Spec], delay: Delay) -> Heap {
    let heap = Heap(Engine::new(Mock::new(160 * MIB, specs)));
    heap.configure(&Settings { release_delay: delay, ..Settings::DEFAULT });
    heap
}

fn heap() -> Heap {
    heap_of(&[Spec::PLAIN], Delay::Millis(1000))
}

fn take(heap: &Heap, size: usize) -> Block {
    heap.alloc_large(size, 1).unwrap()
}

fn give(heap: &Heap, block: Block) {
    let span = PAGE_MAP.span_of(block.ptr.as_ptr().addr()).unwrap();
    // SAFETY: the tests give back what they took.
    unsafe { heap.free_large(block.ptr, span) };
    assert!(heap.check().is_ok());
}

/// What the page heap believes to be in use, parked blocks included.
fn marked(heap: &Heap) -> usize {
    heap.pages.accounts().in_use()
}

#[test]
fn objects_are_known_to_be_zero_until_somebody_has_had_them() {
    let heap = heap();
    let class = CLASSES.class_of(CLASSES.size_of(CLASS_COUNT as u8 - 1));
    let first = heap.take_one(class).unwrap();
    assert_eq!(first.dirty, 0, "its span is of memory that nobody has written to");
    // SAFETY: the object is this test's, and was taken from this heap.
    unsafe {
        first.ptr.write_bytes(1, CLASSES.size_of(class));
        heap.put(class, &first.ptr.as_ptr(), 1, false);
    }
    let again = heap.take_one(class).unwrap();
    assert_eq!(again.ptr, first.ptr);
    assert!(again.dirty >= CLASSES.size_of(class));
    // SAFETY: as above.
    unsafe { heap.put(class, &again.ptr.as_ptr(), 1, false) };
}

#[test]
fn an_object_put_back_while_a_span_is_made_is_not_called_clean() {
    let heap = heap();
    let class = CLASSES.class_of(2048);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..if cfg!(miri) { 3 } else { 2000 } {
                    let blocks: Vec<Block> = (0..9).map(|_| heap.take_one(class).unwrap()).collect();
                    for block in blocks {
                        // SAFETY: the object is this thread's until it is put back.
                        unsafe {
                            let word = block.ptr.cast::<u64>();
                            assert!(block.dirty > 0 || word.read() == 0, "not zero, against the promise");
                            word.write(1);
                            heap.put(class, &block.ptr.as_ptr(), 1, false);
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn a_class_borrows_its_first_objects_where_frees_go_by_the_page() {
    let class_at = |block: Block| {
        let span = PAGE_MAP.span_of(block.ptr.as_ptr().addr()).unwrap();
        // SAFETY: the block is live, so its span is.
        unsafe { span.as_ref().class }
    };
    let (small, large) = (CLASSES.class_of(768), CLASSES.class_of(1024));
    let heap = heap();
    let own = heap.take_one(small).unwrap();
    assert_eq!(class_at(own), small, "nothing is lent unless that was asked for");

    let heap = self::heap();
    heap.lend_between_classes();
    let blocks: Vec<Block> = (0..6).map(|_| heap.take_one(small).unwrap()).collect();
    let classes: Vec<u8> = blocks.iter().copied().map(class_at).collect();
    assert_eq!(classes, [large, large, large, large, small, small], "four are 1 KiB longer than needed");
    for block in blocks {
        // SAFETY: the objects are this test's, and go back by the class of their page.
        unsafe { heap.put(class_at(block), &block.ptr.as_ptr(), 1, false) };
    }
    assert!(heap.check().is_ok());
    assert_eq!(class_at(heap.take_one(small).unwrap()), small, "once it had a span it borrows no more");
}

#[test]
fn a_freed_block_is_the_next_one_of_its_length() {
    let heap = heap();
    for size in [MIB, 3 * MIB, 64 * MIB] {
        let first = take(&heap, size);
        give(&heap, first);
        heap.backend_calls();
        for _ in 0..100 {
            let again = take(&heap, size);
            assert_eq!((again.ptr, again.dirty), (first.ptr, usize::MAX));
            give(&heap, again);
        }
        let calls = heap.backend_calls();
        assert_eq!(calls, (0, 0, 0), "system calls with {size}");
    }
    assert_eq!(heap.large_counts(), (0, 0));
}

#[test]
fn a_parked_block_is_not_taken_for_a_much_shorter_or_a_longer_one_or_another_alignment() {
    let heap = heap();
    let wall = take(&heap, 400_000);
    let first = take(&heap, 320 * PAGE_SIZE);
    give(&heap, first);
    for (wanted, gets) in [(319, 320), (280, 320), (279, 279), (321, 321)] {
        let block = take(&heap, wanted * PAGE_SIZE);
        let span = PAGE_MAP.span_of(block.ptr.as_ptr().addr()).unwrap();
        // SAFETY: the span of a live block.
        assert_eq!(unsafe { span.as_ref().pages }, gets, "for {wanted}");
        give(&heap, block);
        heap.page_accounts();
        let first = take(&heap, 320 * PAGE_SIZE);
        give(&heap, first);
    }
    let block = take(&heap, 64 * PAGE_SIZE);
    assert!(!block.ptr.as_ptr().addr().is_multiple_of(16 * MIB));
    give(&heap, block);
    let aligned = heap.alloc_large(64 * PAGE_SIZE, 16 * MIB).unwrap();
    assert!(aligned.ptr.as_ptr().addr().is_multiple_of(16 * MIB));
    give(&heap, aligned);
    give(&heap, wall);
}

#[test]
fn of_the_parked_blocks_that_serve_the_shortest_is_taken() {
    let heap = heap();
    let blocks: Vec<_> = [300, 310, 330, 305].map(|pages| take(&heap, pages * PAGE_SIZE)).into();
    for block in &blocks {
        give(&heap, *block);
    }
    assert_eq!(take(&heap, 310 * PAGE_SIZE).ptr, blocks[1].ptr);
    assert_eq!(take(&heap, 301 * PAGE_SIZE).ptr, blocks[3].ptr);
    assert_eq!(take(&heap, 301 * PAGE_SIZE).ptr, blocks[2].ptr);
    assert_eq!(take(&heap, 299 * PAGE_SIZE).ptr, blocks[0].ptr);
}

#[test]
fn few_blocks_are_parked_and_no_more_than_64_mib() {
    let heap = heap();
    let small: Vec<_> = (0..20).map(|_| take(&heap, 400_000)).collect();
    for block in small {
        give(&heap, block);
    }
    assert_eq!(marked(&heap), 8 * 400_000_usize.next_multiple_of(PAGE_SIZE));
    let middle: Vec<_> = (0..3).map(|_| take(&heap, 30 * MIB)).collect();
    for block in middle {
        give(&heap, block);
    }
    assert_eq!(marked(&heap), 60 * MIB);
    let long = take(&heap, 65 * MIB);
    give(&heap, long);
    assert_eq!(marked(&heap), 0, "blocks were in the way, and the long one is not parked");
}

#[test]
fn parked_memory_is_used_before_more_is_touched() {
    let heap = heap();
    let first = take(&heap, MIB);
    give(&heap, first);
    assert_eq!(marked(&heap), MIB);
    let mut object = core::ptr::null_mut();
    // SAFETY: there is room for one object.
    assert_eq!(unsafe { heap.take(1, 1, &mut object) }.count, 1);
    assert_eq!(object, first.ptr.as_ptr(), "the lowest place is taken, as if nothing had been parked");
    let longer = take(&heap, 6 * MIB);
    give(&heap, longer);
    let committed = heap.pages.accounts().events.commit_bytes;
    let shorter = take(&heap, 5 * MIB);
    assert_eq!(heap.pages.accounts().events.commit_bytes, committed);
    give(&heap, shorter);
    // SAFETY: the object is given away.
    unsafe { heap.put(1, &object, 1, false) };
}

#[test]
fn accounts_and_time_see_parked_blocks_as_free() {
    let heap = heap();
    heap.tick(1);
    let block = take(&heap, 8 * MIB);
    give(&heap, block);
    assert_eq!(marked(&heap), 8 * MIB);
    assert_eq!(heap.page_accounts().in_use(), 0);
    let block = take(&heap, 8 * MIB);
    give(&heap, block);
    let mut now = SECOND;
    for _ in 0..300 {
        now += SECOND / 100;
        heap.tick(now);
        assert_eq!(marked(&heap), 0);
    }
    assert_eq!(heap.page_accounts().free(), 0, "what is idle goes back");
}

#[test]
fn nothing_is_parked_where_memory_goes_back_at_once() {
    let heap = heap_of(&[Spec::PLAIN], Delay::Millis(0));
    let block = take(&heap, 8 * MIB);
    give(&heap, block);
    assert_eq!((marked(&heap), heap.pages.accounts().free()), (0, 0));
    let private = Heap(Engine::new(Mock::new(16 * MIB, &[Spec::PLAIN])));
    let block = take(&private, MIB);
    give(&private, block);
    assert_eq!(marked(&private), 0, "no time passes for a heap that nobody has configured");
}

#[test]
fn a_block_grows_into_a_parked_neighbour() {
    let heap = heap();
    let first = take(&heap, MIB);
    let second = take(&heap, MIB);
    assert_eq!(second.ptr.as_ptr().addr(), first.ptr.as_ptr().addr() + MIB);
    give(&heap, second);
    let span = PAGE_MAP.span_of(first.ptr.as_ptr().addr()).unwrap();
    // SAFETY: the block is live and the test's.
    assert!(unsafe { heap.resize_large(span, 2 * MIB) });
    assert_eq!(marked(&heap), 2 * MIB);
    give(&heap, first);
}

#[test]
fn a_block_that_is_freed_twice_is_told_of_and_stays_parked() {
    let heap = heap();
    let block = take(&heap, MIB);
    give(&heap, block);
    let before = report::counts().double_frees;
    give(&heap, block);
    assert!(report::counts().double_frees > before);
    assert_eq!(take(&heap, MIB).ptr, block.ptr);
    assert_ne!(take(&heap, MIB).ptr, block.ptr);
}

#[test]
fn a_forked_child_does_not_get_a_huge_page_that_was_parked() {
    let heap = heap_of(&[Spec::POOL, Spec::PLAIN], Delay::Millis(1000));
    let block = take(&heap, 4 * MIB);
    give(&heap, block);
    heap.after_fork_in_child();
    heap.pages.backend().set_tier(1);
    let own = take(&heap, 4 * MIB);
    assert_ne!(own.ptr, block.ptr);
    assert_eq!(heap.page_accounts().tiers[0].in_use, 0);
    give(&heap, own);
}

#[test]
fn a_forked_child_does_not_get_a_huge_page_that_it_has_freed() {
    let heap = heap_of(&[Spec::POOL, Spec::PLAIN], Delay::Millis(1000));
    let blocks = [take(&heap, 4 * MIB), take(&heap, 4 * MIB)];
    heap.after_fork_in_child();
    heap.pages.backend().set_tier(1);
    for block in blocks {
        give(&heap, block);
        let own = take(&heap, 4 * MIB);
        assert_ne!(own.ptr, block.ptr);
        heap.configure(&Settings::DEFAULT);
    }
    assert_eq!(heap.page_accounts().tiers[0].in_use, 0);
}

#[test]
fn a_forked_child_gets_no_small_block_in_a_huge_page_that_it_inherits() {
    const SIZE: usize = 1000;
    let heap = heap_of(&[Spec::POOL, Spec::PLAIN], Delay::Millis(1000));
    let small = |heap: &Heap| heap.alloc(SIZE, 8).unwrap().ptr;
    // SAFETY: the tests free what they took.
    let free = |block: NonNull<u8>| unsafe {
        heap.free(block, PAGE_MAP.span_of(block.as_ptr().addr()).unwrap());
    };
    let huge = |block: NonNull<u8>| block.as_ptr().addr() / (2 * MIB);
    let inherited: Vec<_> = (0..100).map(|_| small(&heap)).collect();
    // Spans that are partly free at the fork, some that become so after it, and one that becomes free.
    for &block in inherited.iter().step_by(3) {
        free(block);
    }
    heap.after_fork_in_child();
    heap.pages.backend().set_tier(1);
    assert!(heap.pages.retire_inherited());
    heap.leave_parents_spans();
    assert!(heap.check().is_ok());
    assert_eq!(PAGE_MAP.class_of(inherited[1].as_ptr().addr()), 0, "its free passes the caches by");
    let mut own: Vec<_> = (0..100).map(|_| small(&heap)).collect();
    for &block in inherited.iter().skip(1).step_by(3) {
        free(block);
        own.push(small(&heap));
    }
    for &block in inherited.iter().skip(2).step_by(3) {
        free(block);
    }
    own.extend((0..100).map(|_| small(&heap)));
    assert!(own.iter().all(|&block| huge(block) != huge(inherited[0])));
    assert!(own.iter().all(|&block| PAGE_MAP.class_of(block.as_ptr().addr()) != 0));
    assert_eq!(heap.page_accounts().tiers[0].in_use, 0, "what is free of it went back to the page heap");
    own.into_iter().for_each(free);
}

#[test]
fn a_forked_child_of_plain_pages_keeps_its_spans() {
    let heap = heap();
    let block = heap.alloc(1000, 8).unwrap().ptr;
    heap.after_fork_in_child();
    assert!(!heap.pages.retire_inherited());
    assert_ne!(PAGE_MAP.class_of(block.as_ptr().addr()), 0);
    // SAFETY: the test frees what it took.
    unsafe { heap.free(block, PAGE_MAP.span_of(block.as_ptr().addr()).unwrap()) };
}

#[test]
fn a_forked_child_of_plain_pages_parks() {
    let heap = heap();
    heap.after_fork_in_child();
    let block = take(&heap, 4 * MIB);
    give(&heap, block);
    assert_eq!(take(&heap, 4 * MIB).ptr, block.ptr);
}

#[test]
fn frees_that_are_put_off_survive_a_backend_that_fails() {
    let heap = heap();
    let blocks: Vec<_> = (0..4).map(|_| take(&heap, 15 * MIB)).collect();
    for block in blocks {
        give(&heap, block);
    }
    heap.pages.backend().set_fail(Fail { unmap: true, purge: true, map: true, ..Fail::default() });
    let long = take(&heap, 60 * MIB);
    give(&heap, long);
    assert!(heap.alloc_large(100 * MIB, 1).is_none());
    assert_eq!(heap.page_accounts().in_use(), 0);
    heap.pages.backend().set_fail(Fail::default());
}

#[test]
fn threads_park_and_unpark_while_time_passes() {
    let heap = heap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let heap = &heap;
            scope.spawn(move || {
                let mut blocks: Vec<(NonNull<u8>, usize)> = Vec::new();
                let mut random = thread + 1;
                for round in 0..2000u64 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if random % 2 == 0 && blocks.len() < 6 {
                        let size = [300_000, 400_000, MIB, 3 * MIB][random as usize / 2 % 4];
                        let Some(block) = heap.alloc_large(size, 1) else { continue };
                        // SAFETY: the block is this thread's.
                        unsafe {
                            block.ptr.cast::<u64>().write(random);
                            block.ptr.add(size - 8).cast::<u64>().write_unaligned(random);
                        }
                        blocks.push((block.ptr, size));
                    } else if !blocks.is_empty() {
                        let (ptr, size) = blocks.swap_remove(random as usize % blocks.len());
                        // SAFETY: the block is this thread's.
                        unsafe {
                            let last = ptr.add(size - 8).cast::<u64>().read_unaligned();
                            assert_eq!(ptr.cast::<u64>().read(), last, "two threads had one block");
                        }
                        give_shared(heap, ptr);
                    }
                    if random % 64 == 0 {
                        heap.tick(round * SECOND / 50);
                    }
                }
                for (ptr, _) in blocks {
                    give_shared(heap, ptr);
                }
            });
        }
    });
    assert_eq!(heap.large_counts(), (0, 0));
    assert_eq!(heap.page_accounts().in_use(), 0);
}

fn give_shared(heap: &Heap, ptr: NonNull<u8>) {
    let span = PAGE_MAP.span_of(ptr.as_ptr().addr()).unwrap();
    // SAFETY: the thread gives its block away.
    unsafe { heap.free_large(ptr, span) };
}

impl Heap {
    /// Calls of the backend since the last question: maps, purges, unmaps.
    fn backend_calls(&self) -> (usize, usize, usize) {
        let calls = self.pages.backend().calls();
        (calls.map, calls.purge, calls.unmap)
    }
}

#[test]
fn whether_something_is_parked_is_known_without_the_lock() {
    let heap = heap();
    assert!(!heap.parked.load(Ordering::Relaxed));
    let block = take(&heap, MIB);
    give(&heap, block);
    assert!(heap.parked.load(Ordering::Relaxed));
    heap.page_accounts();
    assert!(!heap.parked.load(Ordering::Relaxed));
}
