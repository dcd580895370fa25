//! Every size, every alignment, every offset of the default table, and other tables at random.

use proptest::prelude::*;
use size_classes::{
    CLASS_COUNT, CLASSES, Class, MAX_SMALL, MAX_TINY, PAGE_SIZE, Rules, Table, class_of, class_of_aligned,
    class_of_small,
};

/// The class by linear search, as an independent opinion.
fn class_by_search(table: &Table, size: usize) -> u8 {
    (1..table.count() as u8).find(|&id| table.size_of(id) >= size).unwrap_or(0)
}

#[test]
fn every_size_has_the_smallest_class_that_holds_it() {
    let mut expected = 1u8;
    for size in 0..=MAX_SMALL {
        while CLASSES.size_of(expected) < size {
            expected += 1;
        }
        assert_eq!(class_of(size), expected, "size {size}");
        assert_eq!(class_of_small(size), if size <= MAX_TINY { expected } else { 0 }, "size {size}");
    }
    assert_eq!(usize::from(expected), CLASS_COUNT - 1);
}

#[test]
fn sizes_above_the_limit_have_no_class() {
    for size in [MAX_SMALL + 1, MAX_SMALL + 128, 1 << 30, isize::MAX as usize, usize::MAX - 127, usize::MAX] {
        assert_eq!(class_of(size), 0);
        assert_eq!(class_of_small(size), 0);
        assert_eq!(class_of_aligned(size, 16), None);
    }
}

#[test]
fn every_size_with_every_alignment() {
    for shift in 0..=PAGE_SIZE.trailing_zeros() {
        let align = 1usize << shift;
        let mut expected = 1u8;
        for size in 0..=MAX_SMALL {
            while CLASSES.size_of(expected) < size || !CLASSES.size_of(expected).is_multiple_of(align) {
                expected += 1;
            }
            assert_eq!(class_of_aligned(size, align), Some(expected), "size {size} align {align}");
        }
    }
    for align in [2 * PAGE_SIZE, 1 << 21, 1 << 63] {
        assert_eq!(class_of_aligned(1, align), None);
    }
}

#[test]
fn every_offset_of_every_span_divides_exactly() {
    for id in 1..CLASS_COUNT as u8 {
        let class = CLASSES.class(id);
        for offset in 0..=class.span_bytes() as u32 {
            let index = offset / class.size;
            assert_eq!(class.index_of(offset), index, "class {id} offset {offset}");
            let begins = offset.is_multiple_of(class.size) && index < u32::from(class.objects);
            assert_eq!(class.exact_index(offset), begins.then_some(index), "class {id} offset {offset}");
        }
    }
}

#[test]
fn natural_alignment_is_that_of_malloc() {
    for size in 0..=MAX_SMALL {
        let object = CLASSES.size_of(class_of(size));
        assert!(object.is_multiple_of(16) || (size <= 8 && object == 8));
    }
}

#[test]
fn sparse_programs_get_short_spans() {
    for id in 1..CLASS_COUNT as u8 {
        let class = CLASSES.class(id);
        let limit = if class.size <= 1024 {
            2
        } else if class.size <= 64 * 1024 {
            16
        } else {
            32
        };
        assert!(class.pages <= limit, "{class:?}");
    }
}

#[test]
fn class_zero_and_unused_ids_are_empty() {
    for id in std::iter::once(0).chain(CLASS_COUNT as u8..=255) {
        assert_eq!(*CLASSES.class(id), Class::NONE);
        assert_eq!(CLASSES.class(id).exact_index(0), None);
    }
}

#[test]
fn a_small_table_ends_where_its_sizes_end() {
    const SMALL: Table = Table::build(&[16, 64, 4096], Rules::DEFAULT);
    assert_eq!(SMALL.count(), 4);
    assert_eq!(SMALL.max_size(), 4096);
    assert_eq!(SMALL.class_of(0), 1);
    assert_eq!(SMALL.class_of(65), 3);
    assert_eq!(SMALL.class_of(4096), 3);
    assert_eq!(SMALL.class_of(4097), 0);
    assert_eq!(SMALL.class_of(MAX_SMALL), 0);
    assert_eq!(SMALL.class_of_aligned(10, 4096), Some(3));
    assert_eq!(SMALL.class_of_aligned(10, 8192), None);
}

fn broken(sizes: &'static [u32]) -> bool {
    std::panic::catch_unwind(|| Table::build(sizes, Rules::DEFAULT)).is_err()
}

#[test]
fn broken_lists_of_sizes_are_refused() {
    assert!(broken(&[]));
    assert!(broken(&[0]));
    assert!(broken(&[16, 16]));
    assert!(broken(&[32, 16]));
    assert!(broken(&[12]));
    assert!(broken(&[24]));
    assert!(broken(&[1024, 1040]));
    assert!(broken(&[2 * MAX_SMALL as u32]));
    assert!(!broken(&[8, 16]));
}

/// Ascending valid sizes.
fn size_lists() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::btree_set(
        prop_oneof![Just(8u32), (1u32..=64).prop_map(|n| n * 16), (9u32..=512).prop_map(|n| n * 128)],
        1..200,
    )
    .prop_map(|set| set.into_iter().collect())
}

proptest! {
    #[test]
    fn any_table_agrees_with_a_search(sizes in size_lists(), probes in proptest::collection::vec(0usize..80_000, 64)) {
        // A tail of half a span always allows one page more than the object.
        let table = Table::build(&sizes, Rules { tail_part: 2, ..Rules::DEFAULT });
        for (i, &size) in sizes.iter().enumerate() {
            let class = table.class(i as u8 + 1);
            prop_assert_eq!(class.size, size);
            prop_assert_eq!(u32::from(class.objects), class.span_bytes() as u32 / size);
        }
        for size in probes.into_iter().chain(sizes.iter().flat_map(|&s| [s as usize, s as usize + 1])) {
            prop_assert_eq!(table.class_of(size), class_by_search(&table, size));
            for shift in [3, 6, 12, 13] {
                let align = 1usize << shift;
                let by_search = (1..table.count() as u8)
                    .find(|&id| table.size_of(id) >= size && table.size_of(id).is_multiple_of(align));
                prop_assert_eq!(table.class_of_aligned(size, align), by_search);
            }
        }
    }
}
