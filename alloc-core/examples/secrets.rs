//! A private heap on locked memory for secrets: never swapped out, apart from all other blocks, and wiped when freed.
//!
//!     cargo run --example secrets
//!
//! `LockMode::Strict` means that memory which cannot be locked is not handed out at all. Where RLIMIT_MEMLOCK is small,
//! the heap says so by giving nothing, and the program decides.

use alloc_core::Heap;
use page_backend::{LockMode, Locked, Mmap, PageBackend, Tier};
use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{Ordering, compiler_fence};

/// Locked memory for secrets.
struct Vault {
    heap: Heap<Locked<Mmap>>,
}

/// A secret, wiped and given back when it is dropped.
struct Secret<'a> {
    vault: &'a Vault,
    bytes: NonNull<u8>,
    len: usize,
}

impl Vault {
    fn new() -> Option<Self> {
        Some(Self { heap: Heap::new(Locked::new(Mmap::new(), LockMode::Strict))? })
    }

    /// Keeps a copy of `bytes`; `None` when no memory could be locked for it.
    fn keep(&self, bytes: &[u8]) -> Option<Secret<'_>> {
        let block = self.heap.allocate(Secret::layout(bytes.len())?)?;
        // SAFETY: the block is fresh, has that many bytes, and is ours alone.
        unsafe { block.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Some(Secret { vault: self, bytes: block, len: bytes.len() })
    }

    fn locked(&self) -> usize {
        self.heap.backend().usage(Tier(0)).locked
    }
}

impl Secret<'_> {
    fn layout(len: usize) -> Option<Layout> {
        Layout::array::<u8>(len).ok()
    }

    fn reveal(&self) -> &[u8] {
        // SAFETY: the block is live and its first `len` bytes were written by `keep`.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }
}

impl Drop for Secret<'_> {
    fn drop(&mut self) {
        for at in 0..self.len {
            // SAFETY: the block is live; a volatile write is not optimised away although nobody reads it.
            unsafe { self.bytes.add(at).write_volatile(0) };
        }
        compiler_fence(Ordering::SeqCst);
        if let Some(layout) = Self::layout(self.len) {
            // SAFETY: the block came from this heap with this layout and is not used again.
            unsafe { self.vault.heap.deallocate(self.bytes, layout) };
        }
    }
}

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.len)
    }
}

fn main() {
    let vault = Vault::new().expect("memory for the heap's own records");
    let Some(key) = vault.keep(b"correct horse battery staple") else {
        println!("no memory could be locked: raise RLIMIT_MEMLOCK (ulimit -l) to 4 MiB or more");
        return;
    };
    let tokens: Vec<_> = (0..1000u32).filter_map(|n| vault.keep(&n.to_le_bytes())).collect();
    assert_eq!(tokens.len(), 1000);
    assert_eq!(key.reveal(), b"correct horse battery staple");
    assert_eq!(tokens[999].reveal(), 999u32.to_le_bytes());
    assert!(vault.locked() > 0);
    println!("{key:?} and {} tokens in {} KiB of locked memory", tokens.len(), vault.locked() >> 10);

    drop(tokens);
    drop(key);
    assert_eq!(vault.heap.allocated_bytes(), 0);
    assert!(vault.heap.check());
}
