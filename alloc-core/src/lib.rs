//! The heap: front end, central lists and page heap over page backends.
//!
//! Layer rule: above size-classes and page-backend, below the C interface, the statistics and every
//! embedder. Knows nothing of how its numbers are shown.
#![no_std]

pub mod message;
pub mod snapshot;

#[cfg(test)]
extern crate std;
