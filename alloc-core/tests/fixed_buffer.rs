//! A private heap on one buffer, with no system calls for its blocks: the whole path from size class to page source, small
//! enough to run under Miri, which checks every access.

use alloc_core::Heap;
use page_backend::{FixedBuffer, PageBackend, Tier};
use std::alloc::Layout;
use std::ptr::NonNull;

const MIB: usize = 1 << 20;

/// Memory for a page source; its spare capacity is the buffer, which nothing has to fill.
fn memory(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes)
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

/// A block full of its own number.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

impl Block {
    fn new<B: PageBackend>(heap: &Heap<B>, layout: Layout, mark: u8) -> Option<Self> {
        let start = heap.allocate(layout)?;
        assert!(start.addr().get().is_multiple_of(layout.align()));
        assert!(heap.usable_size(start) >= layout.size());
        // SAFETY: the block is fresh and has that many bytes.
        unsafe { start.write_bytes(mark, layout.size()) };
        Some(Self { start, layout, mark })
    }

    fn check(&self) {
        // Miri is slow on long loops; the ends and some bytes between are enough there.
        let step = if cfg!(miri) { (self.layout.size() / 16).max(1) } else { 1 };
        for at in (0..self.layout.size()).step_by(step).chain(self.layout.size().checked_sub(1)) {
            // SAFETY: the block is live and has that many bytes.
            assert_eq!(unsafe { self.start.add(at).read() }, self.mark);
        }
    }

    fn free<B: PageBackend>(self, heap: &Heap<B>) {
        self.check();
        // SAFETY: the block came from this heap with this layout and is not used again.
        unsafe { heap.deallocate(self.start, self.layout) };
    }
}

/// Sizes of all kinds: of each class range, odd, page-sized, and large runs.
fn sizes() -> impl Iterator<Item = usize> {
    let few = if cfg!(miri) { 5 } else { 1 };
    (0..2000).step_by(61 * few).chain([4096, 8192, 10_000, 100_000, 262_144, 262_145, 700_000])
}

#[test]
fn blocks_keep_their_content_and_all_memory_comes_back() {
    let mut memory = memory(12 * MIB);
    let heap =
        Heap::new(FixedBuffer::new(memory.spare_capacity_mut())).expect("memory for the heap's records");
    for round in 0..3u8 {
        let mut blocks: Vec<_> = sizes()
            .enumerate()
            .map(|(n, size)| Block::new(&heap, layout(size, 1 << (n % 13)), n as u8 ^ round).expect("memory"))
            .collect();
        assert!(heap.check());
        // Every second one first, so that spans are left half full.
        for at in (0..blocks.len() / 2).rev() {
            blocks.swap_remove(2 * at).free(&heap);
        }
        assert!(heap.check());
        for block in blocks {
            block.free(&heap);
        }
        assert_eq!(heap.allocated_bytes(), 0);
    }
    assert!(heap.check());
}

#[test]
fn zeroed_blocks_are_zero_where_others_were() {
    let mut memory = memory(6 * MIB);
    let heap =
        Heap::new(FixedBuffer::new(memory.spare_capacity_mut())).expect("memory for the heap's records");
    for size in [16, 100, 3000, 300_000] {
        Block::new(&heap, layout(size, 8), 0xff).expect("memory").free(&heap);
        let zeroed = heap.allocate_zeroed(layout(size, 8)).expect("memory");
        Block { start: zeroed, layout: layout(size, 8), mark: 0 }.free(&heap);
    }
}

#[test]
fn reallocation_keeps_what_fits() {
    let mut memory = memory(8 * MIB);
    let heap =
        Heap::new(FixedBuffer::new(memory.spare_capacity_mut())).expect("memory for the heap's records");
    let mut block = Block::new(&heap, layout(10, 8), 0x5a).expect("memory");
    for size in [24, 25, 1000, 30_000, 400_000, 100_000, 500, 1] {
        let kept = block.layout.size().min(size);
        // SAFETY: the block is live, came with this layout, and its old address is not used again.
        let start = unsafe { heap.reallocate(block.start, block.layout, size) }.expect("memory");
        Block { start, layout: layout(kept, 8), mark: 0x5a }.check();
        // SAFETY: the block has that many bytes.
        unsafe { start.write_bytes(0x5a, size) };
        block = Block { start, layout: layout(size, 8), mark: 0x5a };
    }
    block.free(&heap);
    assert_eq!(heap.allocated_bytes(), 0);
}

#[test]
fn a_full_buffer_refuses_and_loses_nothing() {
    let mut memory = memory(5 * MIB);
    let heap =
        Heap::new(FixedBuffer::new(memory.spare_capacity_mut())).expect("memory for the heap's records");
    let mut counts = [0; 2];
    for count in &mut counts {
        let blocks: Vec<_> = (0..).map_while(|n| Block::new(&heap, layout(60_000, 16), n as u8)).collect();
        *count = blocks.len();
        assert!(heap.allocate(layout(8 * MIB, 16)).is_none());
        for block in blocks {
            block.free(&heap);
        }
    }
    assert!(counts[0] > 16 && counts[0] == counts[1], "{counts:?}");
    assert!(heap.check());
}

#[test]
fn threads_share_a_heap() {
    let mut memory = memory(8 * MIB);
    let heap =
        Heap::new(FixedBuffer::new(memory.spare_capacity_mut())).expect("memory for the heap's records");
    let rounds = if cfg!(miri) { 12 } else { 2000 };
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let heap = &heap;
            scope.spawn(move || {
                let mut kept: Vec<Block> = Vec::new();
                for round in 0..rounds {
                    let size = 1 + (round * 97 + usize::from(thread) * 31) % 3000;
                    kept.push(Block::new(heap, layout(size, 8), thread).expect("memory"));
                    if kept.len() > 8 {
                        kept.swap_remove(round % 8).free(heap);
                    }
                }
                kept.into_iter().for_each(|block| block.free(heap));
            });
        }
    });
    assert_eq!(heap.allocated_bytes(), 0);
    assert!(heap.check());
}

#[test]
fn a_dropped_heap_gives_every_page_back() {
    let mut memory = memory(6 * MIB);
    let source = FixedBuffer::new(memory.spare_capacity_mut());
    let heap = Heap::new(&source).expect("memory for the heap's records");
    for size in sizes() {
        heap.allocate(layout(size, 8)).expect("memory");
    }
    assert!(source.usage(Tier(0)).mapped > 0);
    drop(heap);
    assert_eq!(source.usage(Tier(0)).mapped, 0);
}
