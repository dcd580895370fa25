//! The heap: front end, central lists and page heap over page backends.
//!
//! Layer rule: above size-classes and page-backend, below the C interface, the statistics and every
//! embedder. Knows nothing of how its numbers are shown.
#![no_std]

#[cfg(feature = "allocator-api2")]
mod allocator_api;
mod arena;
mod central;
mod front;
pub mod global;
mod heap;
mod lock;
pub mod message;
mod page_heap;
mod page_map;
mod private;
mod report;
mod rust;
pub mod settings;
mod side;
pub mod snapshot;
mod span;
pub mod stats_page;
mod tls;

pub use front::metadata::MetadataAlloc;
pub use private::Heap;
pub use rust::Stratalloc;

#[cfg(test)]
extern crate std;
