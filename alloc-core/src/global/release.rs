//! Giving memory back to the system.

use super::HEAP;
use crate::front;
use crate::page_heap::ReleaseMode;

/// Gives everything back that the calling thread's cache, the transfer caches and the page heap have free; `true` when
/// anything went back.
pub fn trim() -> bool {
    let Some(mut inside) = front::enter() else { return false };
    if let Some(cache) = inside.cache() {
        cache.flush_all(&HEAP);
    }
    HEAP.sweep_transfers(true);
    HEAP.pages.release(usize::MAX, ReleaseMode::Everything) > 0
}
