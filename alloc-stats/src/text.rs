//! For people: one balance from the program's bytes to the address space, then tables.

use crate::About;
use alloc_core::message::{Sink, decimal};
use alloc_core::snapshot::{REASON_NAMES, Snapshot};

/// Renders a snapshot.
pub fn render(s: &Snapshot, about: &About<'_>, out: &mut dyn Sink) {
    out.put_str("stratalloc ");
    out.put_str(about.version);
    if about.pid != 0 {
        out.put_str(", process ");
        out.put_dec(u64::from(about.pid));
    }
    if about.age_ms != 0 {
        out.put_str(", as of ");
        put_thousandth(about.age_ms, out);
        out.put_str(" s ago");
    }
    out.put_str("\n");
    balance(s, out);
    tiers(s, out);
    classes(s, out);
    events(s, out);
}

fn balance(s: &Snapshot, out: &mut dyn Sink) {
    line("   ", s.allocated_bytes(), "in use by the program", out);
    line(" + ", s.thread_cache_bytes(), "free in thread caches", out);
    line(" + ", s.transfer_cache_bytes(), "free in transfer caches", out);
    line(" + ", s.central_free_bytes(), "free in spans", out);
    line(" + ", s.free_page_bytes(), "free pages", out);
    line(" = ", s.committed_bytes(), "heap with physical memory behind it, at most", out);
    line(" + ", s.purged_page_bytes(), "free pages given back to the system", out);
    line(" = ", s.heap_bytes(), "address space of the heap", out);
    line("   ", s.metadata.mapped, "metadata beside the heap", out);
    line("   ", s.thread_caches.claimed, "of the budget claimed by thread caches", out);
    line("   ", s.thread_caches.budget, "budget of all thread caches", out);
    if s.soft_limit != 0 {
        line("   ", s.soft_limit, "soft limit", out);
    }
    if s.hard_limit != 0 {
        line("   ", s.hard_limit, "hard limit", out);
    }
}

fn tiers(s: &Snapshot, out: &mut dyn Sink) {
    out.put_str("\npages (bytes)       ");
    for title in ["mapped", "in use", "free", "given back", "huge", "locked", "pinned", "fallbacks"] {
        put_right(title.as_bytes(), 14, out);
    }
    out.put_str("\n");
    for tier in s.tiers() {
        let name = tier.name.as_str();
        out.put_str(name);
        put_spaces(20usize.saturating_sub(name.len()), out);
        let fallbacks = tier.fallbacks.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
        let columns = [
            tier.mapped,
            tier.in_use,
            tier.free,
            tier.purged,
            tier.huge,
            tier.locked,
            tier.pinned,
            fallbacks,
        ];
        for value in columns {
            put_number(value, 14, out);
        }
        out.put_str("\n");
        for (reason, &count) in REASON_NAMES.iter().zip(&tier.fallbacks) {
            if count != 0 {
                out.put_str("  not taken: ");
                out.put_str(reason);
                out.put_str(" ");
                out.put_dec(count);
                out.put_str(" times\n");
            }
        }
    }
}

fn classes(s: &Snapshot, out: &mut dyn Sink) {
    out.put_str("\nblocks of      ");
    for title in ["live", "thread caches", "transfer", "in spans", "spans", "span bytes", "waste"] {
        put_right(title.as_bytes(), 14, out);
    }
    out.put_str("\n");
    for (_, class) in s.classes() {
        if class.spans == 0 && class.live == 0 {
            continue;
        }
        put_number(class.size, 15, out);
        let columns = [
            class.live,
            class.in_thread_caches,
            class.in_transfer_cache,
            class.free_in_spans,
            class.spans,
            class.span_bytes,
            class.waste,
        ];
        for value in columns {
            put_number(value, 14, out);
        }
        out.put_str("\n");
    }
    put_right(b"larger", 15, out);
    put_number(s.large.count, 14, out);
    put_spaces(14 * 3, out);
    put_number(s.large.count, 14, out);
    put_number(s.large.bytes, 14, out);
    put_number(0, 14, out);
    out.put_str("\n");
}

fn events(s: &Snapshot, out: &mut dyn Sink) {
    out.put_str("\n");
    let c = &s.counters;
    let e = &s.errors;
    let all = [
        ("thread caches", s.thread_caches.count),
        ("pages taken into use", c.commit_count),
        ("bytes of them", c.commit_bytes),
        ("pages given back", c.decommit_count),
        ("bytes of them", c.decommit_bytes),
        ("address space mapped", c.reserve_count),
        ("bytes of it", c.reserve_bytes),
        ("rounds of release", c.scavenge_count),
        ("soft limit hits", c.soft_limit_hits),
        ("hard limit hits", c.hard_limit_hits),
        ("failed allocations", c.failed_allocations),
        ("failed releases", c.failed_releases),
        ("foreign frees", e.foreign_frees),
        ("double frees", e.double_frees),
        ("invalid frees", e.invalid_frees),
        ("wrong sizes", e.wrong_sizes),
        ("lost objects", e.lost_objects),
    ];
    for (name, value) in all {
        put_number(value, 17, out);
        out.put_str("  ");
        out.put_str(name);
        out.put_str("\n");
    }
}

#[cold]
fn line(sign: &str, bytes: u64, what: &str, out: &mut dyn Sink) {
    out.put_str(sign);
    put_number(bytes, 14, out);
    out.put_str(" (");
    put_mib(bytes, out);
    out.put_str(" MiB)  ");
    out.put_str(what);
    out.put_str("\n");
}

/// Mebibytes with one decimal, rounded down, 10 wide.
fn put_mib(bytes: u64, out: &mut dyn Sink) {
    let tenths = (u128::from(bytes) * 10 / (1 << 20)) as u64;
    put_number(tenths / 10, 8, out);
    out.put_str(".");
    out.put_dec(tenths % 10);
}

/// A number of thousandths as a decimal fraction.
pub(crate) fn put_thousandth(value: u64, out: &mut dyn Sink) {
    out.put_dec(value / 1000);
    out.put_str(".");
    out.put_dec(value / 100 % 10);
    out.put_dec(value / 10 % 10);
    out.put_dec(value % 10);
}

#[cold]
fn put_number(value: u64, width: usize, out: &mut dyn Sink) {
    let mut digits = [0; 20];
    put_right(decimal(value, &mut digits), width, out);
}

/// Right-aligned, with a blank before it in any case.
fn put_right(text: &[u8], width: usize, out: &mut dyn Sink) {
    put_spaces(width.saturating_sub(text.len()).max(1), out);
    out.put(text);
}

fn put_spaces(count: usize, out: &mut dyn Sink) {
    for _ in 0..count {
        out.put(b" ");
    }
}
