//! The C and C++ allocation ABI of stratalloc, and the library that is preloaded.
//!
//! Layer rule: the top. Adds names, error codes and the manners of the C library to the heap below; nothing of the
//! suite depends on it.
//!
//! Every function here is an ordinary Rust function in an ordinary build, so that this crate can be tested
//! and linked beside the system's allocator. With `--cfg preload` (`cargo xtask build-preload`) the
//! functions get their C names, and the library its panic handler, global allocator and constructor.
#![no_std]

pub mod control;
pub mod cxx;
mod errno;
mod foreign;
pub mod glibc;
pub mod gperftools;
pub mod heaps;
pub mod info;
mod interposed;
pub mod jemalloc;
pub mod malloc;
mod output;
#[cfg(preload)]
mod runtime;
pub mod start;
mod symbols;
pub mod thread;

#[cfg(test)]
extern crate std;

/// A library whose layout has changed is built anew.
#[cfg(preload)]
const _: &str = include_str!("../layout.ld");
