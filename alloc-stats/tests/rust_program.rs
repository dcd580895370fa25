//! The tool against a Rust program whose global allocator is the heap: this one.

use std::process::{self, Command};
use std::time::{Duration, Instant};
use std::{hint, thread};

#[global_allocator]
static HEAP: alloc_core::Stratalloc = alloc_core::Stratalloc;

fn numbers() -> serde_json::Value {
    // SAFETY: the call has no pointers; it lets the tool read this process where only descendants may be read.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    let mut tool = Command::new(env!("CARGO_BIN_EXE_stratalloc"));
    let output = tool.args(["stat", &process::id().to_string(), "--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Takes the heap's slow paths until it has published what was there before: it does so every few milliseconds.
fn work() {
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        // Larger than any cached block.
        hint::black_box(vec![1u8; 1 << 20]);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_the_program_holds_shows_up_and_goes_away() {
    work();
    let before = numbers();
    let held: Vec<_> = (0..1000).map(|_| vec![7u8; 4000]).collect();
    work();
    let during = numbers();
    drop(held);
    work();
    let after = numbers();
    let allocated =
        |n: &serde_json::Value| n["properties"]["generic.current_allocated_bytes"].as_i64().unwrap();
    // `work` holds at most one block of 1 MiB at the moment of a publication.
    let noise = 1_200_000;
    assert!(allocated(&during) - allocated(&before) > 4_000_000 - noise);
    assert!(allocated(&during) - allocated(&after) > 4_000_000 - noise);
    // Only this thread allocates meanwhile, so the accounts are exact.
    for numbers in [&before, &during, &after] {
        let value = |name: &str| numbers["properties"][name].as_u64().unwrap();
        let parts = value("generic.current_allocated_bytes")
            + value("tcmalloc.thread_cache_free_bytes")
            + value("tcmalloc.transfer_cache_free_bytes")
            + value("tcmalloc.central_cache_free_bytes")
            + value("tcmalloc.pageheap_free_bytes")
            + value("tcmalloc.pageheap_unmapped_bytes");
        assert_eq!(value("generic.heap_size"), parts);
        let tiers = numbers["tiers"].as_array().unwrap();
        let mapped: u64 = tiers.iter().map(|t| t["mapped"].as_u64().unwrap()).sum();
        assert!(mapped > 0 && mapped == value("generic.heap_size"));
    }
    assert!(during["age_ms"].as_u64().unwrap() < 10_000);
    let class =
        during["classes"].as_array().unwrap().iter().find(|c| c["size"].as_u64().unwrap() >= 4000).unwrap();
    assert!(class["live"].as_u64().unwrap() >= 1000, "{class}");
}
