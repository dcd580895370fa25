//! Tables of classes: building and lookup.

use crate::{Class, MAX_SMALL, MAX_SPAN_PAGES, MAX_TINY, PAGE_SIZE};

/// Entries of the size lookup: steps of 8 bytes up to 1 KiB, then of 128 bytes up to 256 KiB.
const LOOKUP: usize = index_large(MAX_SMALL) + 1;

/// Where the lookup entry of a size up to 1 KiB is.
#[inline(always)]
const fn index_tiny(size: usize) -> usize {
    (size + 7) >> 3
}

/// Where the lookup entry of a size above 1 KiB is; the offset makes 1025 follow 1024 in the array.
#[inline(always)]
const fn index_large(size: usize) -> usize {
    (size + 127 + (120 << 7)) >> 7
}

/// How [`Table::build`] chooses span lengths and batches.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The most objects that one span may hold.
    pub max_objects: u32,
    /// Spans hold at least `min(this, span_bytes / size)` objects, and at least one.
    pub min_objects: u32,
    /// Size in bytes up to which spans grow to reach `min_objects`.
    pub span_bytes: u32,
    /// The tail of a span that no object uses is at most this part of it: `span / tail_part`.
    pub tail_part: u32,
    /// Bytes moved between caches at once, about.
    pub batch_bytes: u32,
    /// The most objects moved between caches at once.
    pub max_batch: u8,
}

impl Rules {
    /// Short spans: 4 objects or 16 KiB, a 28th of tail at most, batches of 256 KiB.
    pub const DEFAULT: Self = Self {
        max_objects: 1024,
        min_objects: 4,
        span_bytes: 16 * 1024,
        tail_part: 28,
        batch_bytes: 256 * 1024,
        max_batch: 31,
    };
}

/// Size classes with their lookup.
#[derive(Clone, Debug)]
pub struct Table {
    lookup: [u8; LOOKUP],
    count: u8,
    classes: [Class; 256],
}

impl Table {
    /// Builds a table from ascending sizes; class 1 has the first of them.
    ///
    /// Meant for constants, where a broken list does not compile.
    ///
    /// # Panics
    /// If `sizes` is empty, longer than 254, not ascending, over [`MAX_SMALL`], not a multiple of 8 (of 16
    /// from 16 up, of 128 above 1 KiB), or if no span within [`MAX_SPAN_PAGES`] satisfies `rules`.
    pub const fn build(sizes: &[u32], rules: Rules) -> Self {
        assert!(!sizes.is_empty() && sizes.len() < 255);
        let mut table =
            Self { lookup: [0; LOOKUP], count: sizes.len() as u8 + 1, classes: [Class::NONE; 256] };
        let mut previous = 0;
        let mut next_entry = 0;
        let mut i = 0;
        while i < sizes.len() {
            let size = sizes[i];
            assert!(size > previous && size as usize <= MAX_SMALL);
            let step = if size < 16 {
                8
            } else if size as usize <= MAX_TINY {
                16
            } else {
                128
            };
            assert!(size.is_multiple_of(step));
            i += 1;
            table.classes[i] = new_class(size, &rules);
            let last = if size as usize <= MAX_TINY {
                index_tiny(size as usize)
            } else {
                index_large(size as usize)
            };
            while next_entry <= last {
                table.lookup[next_entry] = i as u8;
                next_entry += 1;
            }
            previous = size;
        }
        table
    }

    /// The class of a size of at most [`MAX_TINY`] bytes; 0 for larger sizes.
    #[inline(always)]
    pub const fn class_of_small(&self, size: usize) -> u8 {
        if size <= MAX_TINY { self.lookup[index_tiny(size)] } else { 0 }
    }

    /// The smallest class that holds `size` bytes; 0 if there is none. Size 0 has the smallest class.
    #[inline(always)]
    pub const fn class_of(&self, size: usize) -> u8 {
        if size <= MAX_TINY {
            self.lookup[index_tiny(size)]
        } else if size <= MAX_SMALL {
            self.lookup[index_large(size)]
        } else {
            0
        }
    }

    /// The smallest class that holds `size` bytes and whose size is a multiple of `align`, a power of two,
    /// so that all its objects are aligned in spans that begin on a page.
    ///
    /// `None` if `align` is over [`PAGE_SIZE`] or no class fits.
    #[inline]
    pub const fn class_of_aligned(&self, size: usize, align: usize) -> Option<u8> {
        debug_assert!(align.is_power_of_two());
        if align > PAGE_SIZE || size > MAX_SMALL {
            return None;
        }
        let mask = align - 1;
        let mut class = self.class_of(if size > align { size } else { align });
        while class != 0 && class < self.count {
            if self.classes[class as usize].size as usize & mask == 0 {
                return Some(class);
            }
            class += 1;
        }
        None
    }

    /// What the table knows of a class; [`Class::NONE`] for 0 and for ids that are not in use.
    #[inline(always)]
    pub const fn class(&self, id: u8) -> &Class {
        &self.classes[id as usize]
    }

    /// Bytes of an object of a class; 0 for class 0.
    #[inline(always)]
    pub const fn size_of(&self, id: u8) -> usize {
        self.classes[id as usize].size as usize
    }

    /// Number of class ids, class 0 included.
    #[inline]
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// The largest size in bytes that has a class.
    #[inline]
    pub const fn max_size(&self) -> usize {
        self.classes[self.count as usize - 1].size as usize
    }
}

/// The shortest span that satisfies the rules, and the batch.
const fn new_class(size: u32, rules: &Rules) -> Class {
    let mut wanted = rules.span_bytes / size;
    if wanted > rules.min_objects {
        wanted = rules.min_objects;
    }
    if wanted < 1 {
        wanted = 1;
    }
    let mut pages = 1;
    loop {
        assert!(pages <= MAX_SPAN_PAGES, "no span length satisfies the rules");
        let span = (pages * PAGE_SIZE) as u32;
        let objects = span / size;
        if objects >= wanted && objects <= rules.max_objects && span % size <= span / rules.tail_part {
            let batch = rules.batch_bytes / size;
            let max = rules.max_batch as u32;
            let batch = if batch < 2 {
                2
            } else if batch > max {
                max
            } else {
                batch
            };
            return Class::new(size, objects as u16, pages as u8, batch as u8);
        }
        pages += 1;
    }
}
