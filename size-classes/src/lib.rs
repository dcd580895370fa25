//! Size-class tables for malloc implementations.
//!
//! Layer rule: the lowest stratum. Knows nothing of threads or the operating system, and depends on
//! nothing but `core`.
//!
//! A [`Table`] says for each size which class serves it, and for each class how long its spans are, how
//! many objects move between caches at once, and how to divide by its size without a division. Tables are
//! built by `const fn`; [`CLASSES`] is the default one, and [`Table::build`] makes others.
#![no_std]

mod checks;
mod class;
mod sizes;
mod table;

pub use class::Class;
pub use sizes::{DEFAULT_SIZE_COUNT, default_sizes};
pub use table::{Rules, Table};

/// Bytes in an allocator page: spans are whole numbers of these, aligned to them.
pub const PAGE_SIZE: usize = 8192;

/// The largest size in bytes that has a class in the default table; also the limit of any table.
pub const MAX_SMALL: usize = 256 * 1024;

/// The largest size in bytes that [`class_of_small`] knows.
pub const MAX_TINY: usize = 1024;

/// Class ids of the default table: 0 means "no class", the others are `1..CLASS_COUNT`.
pub const CLASS_COUNT: usize = DEFAULT_SIZE_COUNT + 1;

/// The most objects that a span of the default table holds.
pub const MAX_OBJECTS: usize = 1024;

/// The longest span of any table, in allocator pages.
pub const MAX_SPAN_PAGES: usize = 32;

/// The most objects that move between caches at once in the default table.
pub const MAX_BATCH: usize = 31;

/// The default table.
pub static CLASSES: Table = Table::build(&default_sizes(), Rules::DEFAULT);

/// The default class of a size of at most [`MAX_TINY`] bytes; 0 for larger sizes. One load.
#[inline(always)]
pub const fn class_of_small(size: usize) -> u8 {
    CLASSES.class_of_small(size)
}

/// The default class of a size of at most [`MAX_SMALL`] bytes; 0 for larger sizes.
#[inline(always)]
pub const fn class_of(size: usize) -> u8 {
    CLASSES.class_of(size)
}

/// The smallest default class whose objects hold `size` bytes and are all aligned to `align`, a power of two.
///
/// `None` if `align` is over [`PAGE_SIZE`] or no class is large enough.
#[inline]
pub const fn class_of_aligned(size: usize, align: usize) -> Option<u8> {
    CLASSES.class_of_aligned(size, align)
}

#[cfg(all(doctest, not(miri)))]
#[doc = include_str!("../README.md")]
struct Readme;
