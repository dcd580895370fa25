//! Where restartable sequences are not implemented: the per-CPU front end is never in use.

use super::cache::Cache;
use crate::heap::{Block, Engine};
use page_backend::PageBackend;

pub(crate) const fn area() -> isize {
    0
}

pub(crate) const fn is_prepared() -> bool {
    false
}

pub(crate) unsafe fn pop(_: isize, _: usize) -> *mut u8 {
    core::ptr::null_mut()
}

pub(crate) unsafe fn push(_: isize, _: usize, _: *mut u8) -> bool {
    false
}

pub(crate) const CALLS_AFTER_TICK: u32 = 0;
pub(crate) const CALLS_AFTER_THREAD: u32 = 0;

pub(crate) const fn restarts() -> u64 {
    0
}

pub(crate) fn put_in_use() {}

pub(crate) fn put_out_of_use() {}

pub(crate) fn caches() -> impl Iterator<Item = &'static Cache> {
    core::iter::empty()
}

pub(crate) fn refill<B: PageBackend>(_: &Engine<B>, _: usize) -> Option<Block> {
    None
}

pub(crate) unsafe fn overflow<B: PageBackend>(_: &Engine<B>, _: usize, _: *mut u8) {}

pub(crate) fn end_thread() {}

pub(crate) fn drain_all<B: PageBackend>(_: &Engine<B>) {}

pub(crate) fn reclaim<B: PageBackend>(_: &Engine<B>, _: u64) {}

pub(crate) fn ring(_: u32) {}

pub(crate) fn lock_for_fork() {}

pub(crate) unsafe fn unlock_after_fork() {}

pub(crate) fn lock_pools_for_fork() {}

pub(crate) unsafe fn unlock_pools_after_fork() {}

pub(crate) unsafe fn after_fork_in_child() {}
