//! A Rust program whose whole memory comes from the heap: one dependency and one line.
//!
//!     cargo run --example global_allocator

use alloc_core::snapshot::Snapshot;
use alloc_core::{Stratalloc, global};
use std::collections::HashMap;
use std::thread;

#[global_allocator]
static GLOBAL: Stratalloc = Stratalloc::new();

/// Counts words in several threads; every string and table lives on the heap.
fn count(text: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    counts
}

fn main() {
    let text = "the quick brown fox jumps over the lazy dog ".repeat(20_000);
    let parts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| count(&text))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread counts words")).collect()
    });
    assert!(parts.iter().all(|counts| counts["the"] == 40_000 && counts.len() == 8));

    // The heap knows its blocks from any other memory.
    assert!(global::owns(text.as_ptr().cast_mut()));

    let mut snapshot = Box::new(Snapshot::EMPTY);
    global::snapshot(&mut snapshot);
    let mapped: u64 = snapshot.tiers().iter().map(|tier| tier.mapped).sum();
    println!("{} bytes of text counted; the heap has {} KiB mapped", text.len(), mapped >> 10);
}
