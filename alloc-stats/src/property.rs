//! Values by name: the names of gperftools and google/tcmalloc, so that dashboards and programs find them.

use alloc_core::snapshot::Snapshot;

/// How a value behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rises and falls.
    Gauge,
    /// Only rises.
    Counter,
}

/// Takes a value from a snapshot.
pub type Value = fn(&Snapshot) -> u64;

/// A value with a name.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// The name, for example `generic.heap_size`.
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Takes it from a snapshot.
    pub value: Value,
}

const fn gauge(name: &'static str, help: &'static str, value: Value) -> Property {
    Property { name, help, kind: Kind::Gauge, value }
}

const fn counter(name: &'static str, help: &'static str, value: Value) -> Property {
    Property { name, help, kind: Kind::Counter, value }
}

/// All values, in the order of every listing.
pub static PROPERTIES: &[Property] = &[
    gauge(
        "generic.current_allocated_bytes",
        "Bytes that the program holds, in blocks at their class sizes.",
        Snapshot::allocated_bytes,
    ),
    gauge("generic.heap_size", "Bytes of address space mapped for user memory.", Snapshot::heap_bytes),
    gauge(
        "generic.total_physical_bytes",
        "Bytes of user memory and metadata that can have physical memory behind them.",
        Snapshot::physical_bytes,
    ),
    gauge(
        "generic.physical_memory_used",
        "Bytes of user memory and metadata that can have physical memory behind them.",
        Snapshot::physical_bytes,
    ),
    gauge(
        "generic.virtual_memory_used",
        "Bytes of address space for user memory and metadata.",
        virtual_bytes,
    ),
    gauge("tcmalloc.max_total_thread_cache_bytes", "Bytes that all thread caches together may hold.", |s| {
        s.thread_caches.budget
    }),
    gauge(
        "tcmalloc.current_total_thread_cache_bytes",
        "Bytes of free blocks in thread caches.",
        Snapshot::thread_cache_bytes,
    ),
    gauge(
        "tcmalloc.central_cache_free_bytes",
        "Bytes of free blocks in spans, and the rest behind the last block of each span.",
        Snapshot::central_free_bytes,
    ),
    gauge(
        "tcmalloc.transfer_cache_free_bytes",
        "Bytes of free blocks in transfer caches.",
        Snapshot::transfer_cache_bytes,
    ),
    gauge(
        "tcmalloc.thread_cache_free_bytes",
        "Bytes of free blocks in thread caches.",
        Snapshot::thread_cache_bytes,
    ),
    gauge("tcmalloc.cpu_free", "Bytes of free blocks in per-CPU caches.", |s| {
        if s.thread_caches.per_cpu > 0 { s.thread_cache_bytes() } else { 0 }
    }),
    gauge("tcmalloc.per_cpu_caches_active", "1 if caches are per CPU, 0 if they are per thread.", |s| {
        u64::from(s.thread_caches.per_cpu > 0)
    }),
    gauge(
        "tcmalloc.slack_bytes",
        "Bytes of free pages, with and without physical memory behind them.",
        |s| s.free_page_bytes().saturating_add(s.purged_page_bytes()),
    ),
    gauge(
        "tcmalloc.pageheap_free_bytes",
        "Bytes of free pages with physical memory behind them.",
        Snapshot::free_page_bytes,
    ),
    gauge(
        "tcmalloc.pageheap_unmapped_bytes",
        "Bytes of free pages whose physical memory went back to the system.",
        Snapshot::purged_page_bytes,
    ),
    gauge(
        "tcmalloc.pageheap_committed_bytes",
        "Bytes of user memory that are not given back.",
        Snapshot::committed_bytes,
    ),
    counter("tcmalloc.pageheap_total_commit_bytes", "Bytes of pages taken into use, in total.", |s| {
        s.counters.commit_bytes
    }),
    counter("tcmalloc.pageheap_total_decommit_bytes", "Bytes of pages given back, in total.", |s| {
        s.counters.decommit_bytes
    }),
    counter("tcmalloc.pageheap_total_reserve_bytes", "Bytes of address space mapped, in total.", |s| {
        s.counters.reserve_bytes
    }),
    counter("tcmalloc.pageheap_scavenge_count", "Rounds of release.", |s| s.counters.scavenge_count),
    counter("tcmalloc.pageheap_commit_count", "Times that pages were taken into use.", |s| {
        s.counters.commit_count
    }),
    counter("tcmalloc.pageheap_decommit_count", "Times that pages were given back.", |s| {
        s.counters.decommit_count
    }),
    counter("tcmalloc.pageheap_reserve_count", "Times that address space was mapped.", |s| {
        s.counters.reserve_count
    }),
    counter("tcmalloc.num_released_total_bytes", "Bytes of pages given back, in total.", |s| {
        s.counters.decommit_bytes
    }),
    gauge("tcmalloc.metadata_bytes", "Bytes mapped for the allocator itself.", |s| s.metadata.mapped),
    gauge(
        "tcmalloc.required_bytes",
        "Bytes in use by the program or so fragmented that other sizes cannot use them.",
        |s| s.physical_bytes().saturating_sub(s.free_page_bytes()),
    ),
    gauge(
        "tcmalloc.external_fragmentation_bytes",
        "Bytes in caches, free blocks, free pages and metadata.",
        |s| {
            s.free_page_bytes()
                .saturating_add(s.central_free_bytes())
                .saturating_add(s.transfer_cache_bytes())
                .saturating_add(s.thread_cache_bytes())
                .saturating_add(s.metadata.mapped)
        },
    ),
    counter("tcmalloc.soft_limit_hits", "Times that the soft limit made the heap release memory.", |s| {
        s.counters.soft_limit_hits
    }),
    counter("tcmalloc.hard_limit_hits", "Requests that the hard limit refused.", |s| {
        s.counters.hard_limit_hits
    }),
    gauge("tcmalloc.thread_cache_count", "Caches of threads, or left by one for the next.", |s| {
        s.thread_caches.count
    }),
];

#[cold]
fn virtual_bytes(s: &Snapshot) -> u64 {
    s.heap_bytes().saturating_add(s.metadata.mapped)
}

/// Other names for values: those of google/tcmalloc that differ, and what jemalloc's users ask for.
static OTHER_NAMES: &[(&str, Value)] = &[
    ("tcmalloc.physical_memory_used", Snapshot::physical_bytes),
    ("tcmalloc.virtual_memory_used", virtual_bytes),
    ("tcmalloc.central_cache_free", Snapshot::central_free_bytes),
    ("tcmalloc.transfer_cache_free", Snapshot::transfer_cache_bytes),
    ("tcmalloc.thread_cache_free", Snapshot::thread_cache_bytes),
    ("tcmalloc.page_heap_free", Snapshot::free_page_bytes),
    ("tcmalloc.page_heap_unmapped", Snapshot::purged_page_bytes),
    ("tcmalloc.desired_usage_limit_bytes", |s| limit(s.soft_limit)),
    ("tcmalloc.hard_usage_limit_bytes", |s| limit(s.hard_limit)),
    ("stats.allocated", Snapshot::allocated_bytes),
    ("stats.active", Snapshot::in_use_bytes),
    ("stats.metadata", |s| s.metadata.used),
    ("stats.resident", Snapshot::physical_bytes),
    ("stats.mapped", Snapshot::physical_bytes),
    ("stats.retained", Snapshot::purged_page_bytes),
];

/// No limit is the largest number, as in google/tcmalloc.
const fn limit(bytes: u64) -> u64 {
    if bytes == 0 { u64::MAX } else { bytes }
}

/// The value called `name`, or `None` if there is none of that name.
///
/// Names are those of [`PROPERTIES`], further ones of google/tcmalloc, and jemalloc's `stats.allocated`,
/// `active`, `metadata`, `resident`, `mapped` and `retained`.
#[cold]
pub fn lookup(snapshot: &Snapshot, name: &[u8]) -> Option<u64> {
    let value = match PROPERTIES.iter().find(|p| p.name.as_bytes() == name) {
        Some(property) => property.value,
        None => OTHER_NAMES.iter().find(|(other, _)| other.as_bytes() == name)?.1,
    };
    Some(value(snapshot))
}
