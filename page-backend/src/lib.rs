//! Page sources for allocators.
//!
//! Layer rule: above the operating system, below every heap. Knows nothing of spans, size classes or
//! threads' caches.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod backend;
mod bitmap;
mod capped;
mod chain;
mod counters;
mod error;
mod fault;
mod fixed;
mod forward;
mod hugetlb;
mod locked;
mod mmap;
mod numbers;
mod pieces;
pub mod pool;
mod populate;
pub mod sys;
pub mod system;
mod thp;

pub use backend::{Capabilities, MapError, Mapping, PageBackend, Reason, Step, Tier, Usage};
pub use capped::Capped;
pub use chain::Chain;
pub use fault::{Call, FaultInjector};
pub use fixed::FixedBuffer;
pub use hugetlb::{HugeSource, Hugetlb, MountPath};
pub use locked::{LockMode, LockTime, Locked};
pub use mmap::Mmap;
pub use pool::HugeSize;
pub use system::{FallbackPolicy, LinkConfig, LinkKind, System, SystemConfig};
pub use thp::ThpPolicy;

#[cfg(all(doctest, not(miri)))]
#[doc = include_str!("../README.md")]
struct Readme;
