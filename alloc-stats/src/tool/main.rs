//! `stratalloc`: looks at the heap of a live process from outside.
fn main() {}
