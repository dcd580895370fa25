//! What Rust programs ask of the heap beside plain blocks.
#![cfg(not(miri))]

use alloc_core::Stratalloc;
use std::alloc::{GlobalAlloc, Layout};

const PAGE: usize = 4096;

/// Whether the page that an address lies in is in memory.
fn is_resident(address: *mut u8) -> bool {
    let mut state = 0u8;
    let page = address.map_addr(|a| a & !(PAGE - 1));
    // SAFETY: one page of a live block, and a byte for its state.
    assert_eq!(unsafe { libc::mincore(page.cast(), PAGE, &mut state) }, 0);
    state & 1 != 0
}

#[test]
fn zeroed_blocks_are_zero_at_any_alignment() {
    for align in [1, 8, 16, 32, 64, 4096, 1 << 14, 1 << 21, 1 << 22] {
        for size in [1, 8, 24, 100, 4096, 70_000, 300_000, 5 << 20] {
            let layout = Layout::from_size_align(size, align).unwrap();
            for _ in 0..3 {
                // SAFETY: a size that is not 0; each block is used within its length and given back once.
                unsafe {
                    let block = Stratalloc.alloc_zeroed(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                    let bytes = std::slice::from_raw_parts_mut(block, size);
                    assert!(bytes.iter().all(|&b| b == 0), "{layout:?}");
                    bytes.fill(7);
                    Stratalloc.dealloc(block, layout);
                }
            }
        }
    }
}

#[test]
fn fresh_memory_is_not_touched_to_zero_it() {
    let size = 512 << 20;
    for align in [8, 64, 4096, 1 << 22] {
        let layout = Layout::from_size_align(size, align).unwrap();
        // SAFETY: a size that is not 0; the address is within the block, which is given back once.
        unsafe {
            let block = Stratalloc.alloc_zeroed(layout);
            assert!(!block.is_null());
            assert!(!is_resident(block.add(size / 2)), "aligned to {align}");
            Stratalloc.dealloc(block, layout);
        }
    }
}
