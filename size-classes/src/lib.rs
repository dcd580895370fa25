//! Size-class tables for malloc implementations.
//!
//! Layer rule: the lowest stratum. Knows nothing of pages, threads or the operating system, and
//! depends on nothing but `core`.
#![no_std]

/// Bytes in an allocator page: spans are whole numbers of these, aligned to them.
pub const PAGE_SIZE: usize = 8192;
