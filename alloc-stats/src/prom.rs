//! The text format of Prometheus (version 0.0.4).
//!
//! gperftools' property names with `_` for `.`, so that dashboards fit, and `stratalloc_*` for what those lack.

use crate::About;
use crate::property::{Kind, PROPERTIES};
use crate::text::put_thousandth;
use alloc_core::message::Sink;
use alloc_core::snapshot::{ClassAccount, REASON_NAMES, Snapshot, TierAccount};

/// Renders a snapshot.
pub fn render(s: &Snapshot, about: &About<'_>, out: &mut dyn Sink) {
    for p in PROPERTIES {
        head(p.name, p.help, p.kind, out);
        sample(p.name, &[], (p.value)(s), out);
    }
    head("stratalloc_info", "The allocator in this process.", Kind::Gauge, out);
    sample("stratalloc_info", &[("version", Label::Text(about.version))], 1, out);
    head("stratalloc_snapshot_age_seconds", "Age of these numbers.", Kind::Gauge, out);
    out.put_str("stratalloc_snapshot_age_seconds ");
    put_thousandth(about.age_ms, out);
    out.put_str("\n");
    tiers(s, out);
    classes(s, out);
    totals(s, out);
}

/// The value of a label.
#[derive(Clone, Copy)]
enum Label<'a> {
    Text(&'a str),
    Number(u64),
}

fn name(name: &str, out: &mut dyn Sink) {
    for byte in name.bytes() {
        out.put(&[if byte == b'.' { b'_' } else { byte }]);
    }
}

#[cold]
fn head(metric: &str, help: &str, kind: Kind, out: &mut dyn Sink) {
    out.put_str("# HELP ");
    name(metric, out);
    out.put_str(" ");
    out.put_str(help);
    out.put_str("\n# TYPE ");
    name(metric, out);
    out.put_str(match kind {
        Kind::Gauge => " gauge\n",
        Kind::Counter => " counter\n",
    });
}

#[cold]
fn sample(metric: &str, labels: &[(&str, Label<'_>)], value: u64, out: &mut dyn Sink) {
    name(metric, out);
    for (i, (key, label)) in labels.iter().enumerate() {
        out.put(if i == 0 { b"{" } else { b"," });
        out.put_str(key);
        out.put_str("=\"");
        match *label {
            Label::Number(number) => out.put_dec(number),
            Label::Text(text) => {
                for &byte in text.as_bytes() {
                    match byte {
                        b'"' | b'\\' => out.put(&[b'\\', byte]),
                        b'\n' => out.put(b"\\n"),
                        _ => out.put(&[byte]),
                    }
                }
            }
        }
        out.put(b"\"");
    }
    if !labels.is_empty() {
        out.put(b"}");
    }
    out.put(b" ");
    out.put_dec(value);
    out.put(b"\n");
}

/// A part of an account, with the name of its state.
type Part<A> = (&'static str, fn(&A) -> u64);

/// A metric of its own: name, help, value.
type Metric<A> = (&'static str, &'static str, fn(&A) -> u64);

fn tiers(s: &Snapshot, out: &mut dyn Sink) {
    // Two links of a chain can have one name: the link's number keeps them apart.
    let labels = |i: usize, tier: &TierAccount, out: &mut dyn Sink, metric, extra, value| {
        let tier_label = ("tier", Label::Text(tier.name.as_str()));
        let link = ("link", Label::Number(i as u64));
        match extra {
            Some(extra) => sample(metric, &[tier_label, link, extra], value, out),
            None => sample(metric, &[tier_label, link], value, out),
        }
    };
    let states: [Part<TierAccount>; 3] =
        [("in_use", |t| t.in_use), ("free", |t| t.free), ("given_back", |t| t.purged)];
    head("stratalloc_tier_bytes", "Bytes mapped from a tier of the backend, by state.", Kind::Gauge, out);
    for (i, tier) in s.tiers().iter().enumerate() {
        for (state, value) in states {
            let extra = Some(("state", Label::Text(state)));
            labels(i, tier, out, "stratalloc_tier_bytes", extra, value(tier));
        }
    }
    let parts: [Metric<TierAccount>; 4] = [
        ("stratalloc_tier_mapped_bytes", "Bytes mapped from a tier of the backend.", |t| t.mapped),
        ("stratalloc_tier_huge_bytes", "Bytes of a tier on huge pages of a pool.", |t| t.huge),
        ("stratalloc_tier_locked_bytes", "Bytes of a tier that mlock holds in memory.", |t| t.locked),
        ("stratalloc_tier_pinned_bytes", "Bytes of a tier that cannot be swapped by nature.", |t| t.pinned),
    ];
    for (metric, help, value) in parts {
        head(metric, help, Kind::Gauge, out);
        for (i, tier) in s.tiers().iter().enumerate() {
            labels(i, tier, out, metric, None, value(tier));
        }
    }
    let metric = "stratalloc_fallbacks_total";
    head(metric, "Requests that a tier refused and another served, by reason.", Kind::Counter, out);
    for (i, tier) in s.tiers().iter().enumerate() {
        for (reason, &count) in REASON_NAMES.iter().zip(&tier.fallbacks) {
            labels(i, tier, out, metric, Some(("reason", Label::Text(reason))), count);
        }
    }
}

fn classes(s: &Snapshot, out: &mut dyn Sink) {
    // A class appears with its first span, so that a scrape is not mostly zeros.
    let used = || s.classes().map(|(_, class)| class).filter(|c| c.spans != 0 || c.live != 0);
    let states: [Part<ClassAccount>; 4] = [
        ("live", |c| c.live),
        ("thread_cache", |c| c.in_thread_caches),
        ("transfer_cache", |c| c.in_transfer_cache),
        ("span", |c| c.free_in_spans),
    ];
    head("stratalloc_class_objects", "Blocks of a size class, by place.", Kind::Gauge, out);
    for class in used() {
        for (state, value) in states {
            let labels = [("size", Label::Number(class.size)), ("state", Label::Text(state))];
            sample("stratalloc_class_objects", &labels, value(class), out);
        }
    }
    let parts: [Metric<ClassAccount>; 3] = [
        ("stratalloc_class_spans", "Spans of a size class.", |c| c.spans),
        ("stratalloc_class_span_bytes", "Bytes of pages in the spans of a size class.", |c| c.span_bytes),
        ("stratalloc_class_waste_bytes", "Bytes behind the last block of each span.", |c| c.waste),
    ];
    for (metric, help, value) in parts {
        head(metric, help, Kind::Gauge, out);
        for class in used() {
            sample(metric, &[("size", Label::Number(class.size))], value(class), out);
        }
    }
}

fn totals(s: &Snapshot, out: &mut dyn Sink) {
    let gauges = [
        ("stratalloc_large_blocks", "Blocks with pages of their own.", s.large.count),
        ("stratalloc_large_bytes", "Bytes of their pages.", s.large.bytes),
        (
            "stratalloc_thread_cache_claimed_bytes",
            "Budget claimed by thread caches.",
            s.thread_caches.claimed,
        ),
        ("stratalloc_metadata_used_bytes", "Bytes of metadata in use.", s.metadata.used),
        ("stratalloc_soft_limit_bytes", "The soft limit, 0 for none.", s.soft_limit),
        ("stratalloc_hard_limit_bytes", "The hard limit, 0 for none.", s.hard_limit),
    ];
    for (metric, help, value) in gauges {
        head(metric, help, Kind::Gauge, out);
        sample(metric, &[], value, out);
    }
    let counters = [
        ("stratalloc_failed_allocations_total", "Requests that failed.", s.counters.failed_allocations),
        ("stratalloc_failed_releases_total", "Purges and unmaps that failed.", s.counters.failed_releases),
        ("stratalloc_lost_objects_total", "Blocks given up for good.", s.errors.lost_objects),
    ];
    for (metric, help, value) in counters {
        head(metric, help, Kind::Counter, out);
        sample(metric, &[], value, out);
    }
    let metric = "stratalloc_wrong_frees_total";
    head(metric, "Frees that the heap refused, by kind.", Kind::Counter, out);
    let e = &s.errors;
    let kinds = [
        ("foreign", e.foreign_frees),
        ("double", e.double_frees),
        ("invalid", e.invalid_frees),
        ("size", e.wrong_sizes),
    ];
    for (kind, count) in kinds {
        sample(metric, &[("kind", Label::Text(kind))], count, out);
    }
}
