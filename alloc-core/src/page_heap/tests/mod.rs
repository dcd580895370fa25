//! Tests of the page heap over a mock backend that checks every call.

mod filler;
// These pass through too much memory for an interpreter; `small` goes the same ways with little.
#[cfg(not(miri))]
mod heap;
pub(crate) mod mock;
#[cfg(not(miri))]
mod model;
mod range_tracker;
#[cfg(not(miri))]
mod region;
mod small;
#[cfg(not(miri))]
mod time;
