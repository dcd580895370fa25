//! What a heap's numbers look like: text, JSON, Prometheus, and single values by name.
//!
//! Layer rule: above alloc-core, whose snapshots it renders; below the C interface and the tool. Allocates
//! nothing, and knows nothing of how the numbers come about.
#![no_std]

pub mod json;
pub mod output;
pub mod prom;
pub mod property;
pub mod sink;
pub mod text;

pub use alloc_core::message::Sink;
pub use alloc_core::settings::Format;
pub use alloc_core::snapshot::Snapshot;

#[cfg(test)]
extern crate std;

/// Whose snapshot it is, and how old.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Version of the allocator in that process.
    pub version: &'a str,
    /// Its process id; 0 when unknown.
    pub pid: u32,
    /// Age of the snapshot in milliseconds.
    pub age_ms: u64,
}

impl About<'static> {
    /// This process, this moment.
    pub fn this_process() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pid: page_backend::sys::getpid().unsigned_abs(),
            age_ms: 0,
        }
    }
}

/// Renders a snapshot in `format`; nothing for [`Format::Off`].
#[cold]
pub fn render(format: Format, snapshot: &Snapshot, about: &About<'_>, sink: &mut dyn Sink) {
    match format {
        Format::Off => {}
        Format::Text => text::render(snapshot, about, sink),
        Format::Json => json::render(snapshot, about, sink),
        Format::Prom => prom::render(snapshot, about, sink),
    }
}

#[cfg(test)]
mod tests;
