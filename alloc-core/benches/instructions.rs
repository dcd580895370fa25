//! `GlobalAlloc` calls in a loop, for counting their instructions: `instructions ROUNDS`.
//!
//! Counters toggle on the names of the two functions; each is the call that `Box` makes for a type of 64 bytes.

use alloc_core::Stratalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

static HEAP: Stratalloc = Stratalloc::new();

/// What `Box::new` calls.
///
/// # Safety
/// As `GlobalAlloc::alloc`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn global_alloc() -> *mut u8 {
    // SAFETY: the layout's size is not 0.
    unsafe { HEAP.alloc(Layout::new::<[u64; 8]>()) }
}

/// What dropping a `Box` calls.
///
/// # Safety
/// As `GlobalAlloc::dealloc`, with a block of [`global_alloc`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn global_dealloc(block: *mut u8) {
    // SAFETY: the caller hands over a block of this heap and layout, once.
    unsafe { HEAP.dealloc(block, Layout::new::<[u64; 8]>()) };
}

fn main() {
    // `cargo bench` passes an option of its own: then a short run shows that all is well.
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000u64);
    for _ in 0..rounds {
        // SAFETY: the block goes back at once, and once.
        unsafe {
            let block = black_box(global_alloc());
            assert!(!block.is_null(), "no memory");
            global_dealloc(black_box(block));
        }
    }
}
