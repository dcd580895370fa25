//! Tests of the page heap over a mock backend that checks every call.

mod filler;
mod heap;
mod mock;
mod model;
mod range_tracker;
mod time;
