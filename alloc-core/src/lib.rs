//! The heap: front end, central lists and page heap over page backends.
//!
//! Layer rule: above size-classes and page-backend, below the C interface, the statistics and every
//! embedder. Knows nothing of how its numbers are shown.
#![no_std]

mod arena;
mod central;
mod front;
mod heap;
mod lock;
pub mod message;
mod page_map;
mod report;
pub mod settings;
pub mod snapshot;
mod span;
pub mod stats_page;
mod tls;

#[cfg(test)]
extern crate std;
