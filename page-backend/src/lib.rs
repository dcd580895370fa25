//! Page sources for allocators.
//!
//! Layer rule: above the operating system, below every heap. Knows nothing of spans, size classes or
//! threads' caches.
#![no_std]

pub mod backend;
pub mod sys;

pub use backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
