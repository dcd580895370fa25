//! What is promised of the default table, checked when it is compiled.

use crate::{CLASS_COUNT, CLASSES, MAX_BATCH, MAX_OBJECTS, MAX_SMALL, MAX_SPAN_PAGES, PAGE_SIZE};

// No functions: compilers before 1.89 call one that only constants use dead code.
const _: () = {
    assert!(CLASS_COUNT >= 71 && CLASS_COUNT <= 91);
    assert!(CLASSES.count() == CLASS_COUNT && CLASSES.max_size() == MAX_SMALL);
};

const _: () = {
    let mut id = 1;
    while id < CLASSES.count() {
        let class = CLASSES.class(id as u8);
        let size = class.size as usize;
        let smaller = CLASSES.class(id as u8 - 1).size as usize;

        assert!(size == 8 || size.is_multiple_of(16));
        assert!(size <= 1024 || size.is_multiple_of(128));
        // The smallest request of the class wastes the most.
        assert!(size <= 112 || (size - (smaller + 1)) * 8 <= size);

        let span = class.span_bytes();
        let objects = class.objects as usize;
        assert!(class.pages >= 1 && class.pages as usize <= MAX_SPAN_PAGES);
        assert!(objects >= 1 && objects <= MAX_OBJECTS && objects == span / size);
        assert!((span - objects * size) * 8 <= span);
        assert!(size > PAGE_SIZE / 2 || objects >= 4);
        assert!(size > 1024 || class.pages <= 2);
        assert!(class.batch >= 2 && class.batch as usize <= MAX_BATCH);

        // Division: a quotient grows by at most one per step, so that exact ends of each object suffice.
        let mut i = 0;
        while i < objects {
            assert!(class.index_of((i * size) as u32) as usize == i);
            assert!(class.index_of((i * size + size - 1) as u32) as usize == i);
            i += 1;
        }
        if objects * size < span {
            assert!(class.index_of((objects * size) as u32) as usize == objects);
            assert!(class.index_of(span as u32 - 1) as usize == objects);
        }
        id += 1;
    }
};

// Every power of two is the size of a class, so every alignment up to a page is served.
const _: () = {
    let mut size = 8;
    while size <= MAX_SMALL {
        assert!(CLASSES.size_of(CLASSES.class_of(size)) == size);
        size *= 2;
    }
};
