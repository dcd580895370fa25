//! What naked functions are made of, in this crate and, through its macros, in that of the C interface.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use cpus::*;

pub use crate::page_map::{LEAF_SHIFT, PAGE_MAP, PAGE_SHIFT, ROOT_LEN};
use size_classes::CLASSES;
pub use size_classes::MAX_TINY;

/// The class of each small size.
pub static CLASS_OF: [u8; MAX_TINY + 1] = {
    let mut classes = [0; MAX_TINY + 1];
    let mut size = 0;
    while size <= MAX_TINY {
        classes[size] = CLASSES.class_of_small(size);
        size += 1;
    }
    classes
};

/// What the CPUs' half adds.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod cpus {
    pub use crate::front::per_cpu::{BOUNDS, OFFSET, RESTARTS};
    use crate::front::per_cpu::{Descriptor, Tables};
    use crate::page_map::CPUS_AT;
    pub use crate::page_map::ZERO_AT;
    use core::mem::offset_of;

    /// Where in the page map the descriptor of a section is, by the section's number.
    pub const fn descriptor_at(number: usize) -> usize {
        CPUS_AT + offset_of!(Tables, descriptors) + number * size_of::<Descriptor>()
    }
    /// Where in the page map the table of the CPUs' bins is.
    pub const BINS_AT: usize = CPUS_AT + offset_of!(Tables, bins);
    /// Where in the page map the table of the classes of small sizes is.
    pub const CLASS_OF_AT: usize = CPUS_AT + offset_of!(Tables, class_of);
}
