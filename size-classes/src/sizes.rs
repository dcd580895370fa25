//! The sizes of the default table.

/// How many sizes [`default_sizes`] has.
pub const DEFAULT_SIZE_COUNT: usize = LINEAR + PER_DOUBLING * DOUBLINGS;

/// 8, then the multiples of 16 up to 128.
const LINEAR: usize = 9;
/// 9/8, 10/8, 11/8, 12/8, 13/8, 14/8 and 16/8 of each power of two. 15/8 is left out: from 14/8 to 16/8
/// the waste is still under an eighth of the larger size.
const PER_DOUBLING: usize = 7;
/// From 128 bytes to 256 KiB.
const DOUBLINGS: usize = 11;

/// The sizes of the default classes in bytes, ascending.
pub const fn default_sizes() -> [u32; DEFAULT_SIZE_COUNT] {
    let mut sizes = [0; DEFAULT_SIZE_COUNT];
    sizes[0] = 8;
    let mut i = 1;
    while i < LINEAR {
        sizes[i] = 16 * i as u32;
        i += 1;
    }
    let mut base = 128;
    while i < DEFAULT_SIZE_COUNT {
        let mut eighths = 9;
        while eighths <= 16 {
            if eighths != 15 {
                sizes[i] = base / 8 * eighths;
                i += 1;
            }
            eighths += 1;
        }
        base *= 2;
    }
    sizes
}
