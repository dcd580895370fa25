//! The heap as Rust programs use it, through `GlobalAlloc`, beside the system's: pairs, batches, growth and threads.

use alloc_core::Stratalloc;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::thread;

static OURS: Stratalloc = Stratalloc::new();

/// Block sizes from the smallest to 64 MiB.
const SIZES: [usize; 7] = [8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 64 << 20];
/// Blocks of a batch.
const BATCH: usize = 1_000;

/// A block on its way to another thread.
struct Block(*mut u8, Layout);

// SAFETY: a block belongs to whoever holds it, on any thread.
unsafe impl Send for Block {}

/// Takes a block and writes its first byte.
fn take(heap: &impl GlobalAlloc, layout: Layout) -> *mut u8 {
    // SAFETY: no layout here is of size 0.
    let block = unsafe { heap.alloc(layout) };
    assert!(!block.is_null(), "no memory");
    // SAFETY: the block has at least a byte.
    unsafe { block.write(1) };
    block
}

fn give(heap: &impl GlobalAlloc, block: *mut u8, layout: Layout) {
    // SAFETY: callers hand over a block that `take` gave them for this heap and layout, once.
    unsafe { heap.dealloc(block, layout) };
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a small alignment")
}

/// Sizes of 16 to 1024 bytes, always the same.
fn mixed() -> Vec<Layout> {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        layout(16 + (seed >> 8) as usize % 1_009)
    };
    (0..BATCH).map(|_| next()).collect()
}

fn pairs(c: &mut Criterion, name: &str, heap: &impl GlobalAlloc) {
    let mut group = c.benchmark_group("pair");
    for size in SIZES {
        group.bench_function(BenchmarkId::new(name, size), |b| {
            b.iter(|| {
                let block = take(heap, black_box(layout(size)));
                give(heap, black_box(block), layout(size));
            });
        });
    }
}

fn batches(c: &mut Criterion, name: &str, heap: &impl GlobalAlloc) {
    let mut group = c.benchmark_group("batch");
    group.throughput(Throughput::Elements(BATCH as u64));
    let layouts = mixed();
    let mut blocks = Vec::with_capacity(BATCH);
    for (order, reverse) in [("fifo", false), ("lifo", true)] {
        group.bench_function(BenchmarkId::new(name, order), |b| {
            b.iter(|| {
                blocks.extend(layouts.iter().map(|layout| Block(take(heap, *layout), *layout)));
                if reverse {
                    blocks.reverse();
                }
                blocks.drain(..).for_each(|block| give(heap, block.0, block.1));
            });
        });
    }
}

fn growth(c: &mut Criterion, name: &str, heap: &impl GlobalAlloc) {
    let mut group = c.benchmark_group("realloc");
    for most in [64 << 10, 4 << 20] {
        group.bench_function(BenchmarkId::new(name, most), |b| {
            b.iter(|| {
                let (mut size, mut block) = (64, take(heap, layout(64)));
                while size < most {
                    // SAFETY: the block is of this heap and size, and the new size is larger.
                    block = unsafe { heap.realloc(block, layout(size), size * 2) };
                    size *= 2;
                }
                give(heap, block, layout(size));
            });
        });
    }
}

fn zeroed(c: &mut Criterion, name: &str, heap: &impl GlobalAlloc) {
    let mut group = c.benchmark_group("zeroed");
    for size in [64, 4 << 10, 1 << 20] {
        group.bench_function(BenchmarkId::new(name, size), |b| {
            b.iter(|| {
                // SAFETY: the size is not 0.
                let block = unsafe { heap.alloc_zeroed(black_box(layout(size))) };
                give(heap, black_box(block), layout(size));
            });
        });
    }
}

/// Blocks of mixed sizes go to another thread, which frees them.
fn handover(c: &mut Criterion, name: &str, heap: &'static (impl GlobalAlloc + Sync)) {
    let mut group = c.benchmark_group("handover");
    group.throughput(Throughput::Elements(BATCH as u64));
    let layouts = mixed();
    let (sender, receiver) = sync_channel::<Vec<Block>>(8);
    let (back, empty) = sync_channel::<Vec<Block>>(16);
    let consumer = thread::spawn(move || {
        for mut batch in receiver {
            batch.drain(..).for_each(|block| give(heap, block.0, block.1));
            // The other side may have ended.
            let _ = back.try_send(batch);
        }
    });
    group.bench_function(name, |b| {
        b.iter_batched(
            || empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH)),
            |mut batch| {
                batch.extend(layouts.iter().map(|layout| Block(take(heap, *layout), *layout)));
                sender.send(batch).expect("the consumer is there");
            },
            BatchSize::SmallInput,
        );
    });
    drop(sender);
    consumer.join().expect("the consumer ends");
}

fn all(c: &mut Criterion) {
    pairs(c, "stratalloc", &OURS);
    pairs(c, "system", &System);
    batches(c, "stratalloc", &OURS);
    batches(c, "system", &System);
    growth(c, "stratalloc", &OURS);
    growth(c, "system", &System);
    zeroed(c, "stratalloc", &OURS);
    zeroed(c, "system", &System);
    handover(c, "stratalloc", &OURS);
    handover(c, "system", &System);
}

criterion_group!(benches, all);
criterion_main!(benches);
