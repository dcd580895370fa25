//! JSON: one object, numbers only as unsigned integers, names as in [`Snapshot`].

use crate::About;
use crate::property::PROPERTIES;
use alloc_core::message::Sink;
use alloc_core::snapshot::{REASON_NAMES, Snapshot};

/// Keeps track of commas.
struct Writer<'a> {
    out: &'a mut dyn Sink,
    first: bool,
}

impl Writer<'_> {
    fn comma(&mut self) {
        if !self.first {
            self.out.put(b",");
        }
        self.first = false;
    }

    #[cold]
    fn key(&mut self, key: &str) {
        self.comma();
        self.string(key);
        self.out.put(b":");
    }

    /// Text with the escapes that JSON asks for; bytes beyond ASCII do not occur in names and are replaced.
    #[cold]
    fn string(&mut self, text: &str) {
        self.out.put(b"\"");
        for &byte in text.as_bytes() {
            match byte {
                b'"' | b'\\' => self.out.put(&[b'\\', byte]),
                b' '..=b'~' => self.out.put(&[byte]),
                _ => self.out.put(b"?"),
            }
        }
        self.out.put(b"\"");
    }

    fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        self.out.put_dec(value);
    }

    fn numbers(&mut self, pairs: &[(&str, u64)]) {
        for &(key, value) in pairs {
            self.number(key, value);
        }
    }

    fn open(&mut self, bracket: &[u8]) {
        self.out.put(bracket);
        self.first = true;
    }

    fn close(&mut self, bracket: &[u8]) {
        self.out.put(bracket);
        self.first = false;
    }

    #[cold]
    fn object(&mut self, key: &str, pairs: &[(&str, u64)]) {
        self.key(key);
        self.open(b"{");
        self.numbers(pairs);
        self.close(b"}");
    }
}

/// Renders a snapshot, with a newline at the end.
pub fn render(s: &Snapshot, about: &About<'_>, out: &mut dyn Sink) {
    let mut w = Writer { out, first: true };
    w.open(b"{");
    w.key("version");
    w.string(about.version);
    w.number("pid", u64::from(about.pid));
    w.number("age_ms", about.age_ms);
    w.key("properties");
    w.open(b"{");
    for property in PROPERTIES {
        w.number(property.name, (property.value)(s));
    }
    w.close(b"}");
    tiers(s, &mut w);
    classes(s, &mut w);
    w.object("large", &[("count", s.large.count), ("bytes", s.large.bytes)]);
    let caches = &s.thread_caches;
    w.object(
        "thread_caches",
        &[
            ("count", caches.count),
            ("budget", caches.budget),
            ("claimed", caches.claimed),
            ("used", s.thread_cache_bytes()),
        ],
    );
    w.object("metadata", &[("mapped", s.metadata.mapped), ("used", s.metadata.used)]);
    w.object("limits", &[("soft", s.soft_limit), ("hard", s.hard_limit)]);
    let c = &s.counters;
    w.object(
        "counters",
        &[
            ("commit_count", c.commit_count),
            ("commit_bytes", c.commit_bytes),
            ("decommit_count", c.decommit_count),
            ("decommit_bytes", c.decommit_bytes),
            ("reserve_count", c.reserve_count),
            ("reserve_bytes", c.reserve_bytes),
            ("scavenge_count", c.scavenge_count),
            ("soft_limit_hits", c.soft_limit_hits),
            ("hard_limit_hits", c.hard_limit_hits),
            ("failed_allocations", c.failed_allocations),
            ("failed_releases", c.failed_releases),
        ],
    );
    let e = &s.errors;
    w.object(
        "errors",
        &[
            ("foreign_frees", e.foreign_frees),
            ("double_frees", e.double_frees),
            ("invalid_frees", e.invalid_frees),
            ("wrong_sizes", e.wrong_sizes),
            ("lost_objects", e.lost_objects),
        ],
    );
    w.close(b"}\n");
}

fn tiers(s: &Snapshot, w: &mut Writer<'_>) {
    w.key("tiers");
    w.open(b"[");
    for tier in s.tiers() {
        w.comma();
        w.open(b"{");
        w.key("name");
        w.string(tier.name.as_str());
        w.numbers(&[
            ("mapped", tier.mapped),
            ("in_use", tier.in_use),
            ("free", tier.free),
            ("purged", tier.purged),
            ("huge", tier.huge),
            ("locked", tier.locked),
            ("pinned", tier.pinned),
        ]);
        w.key("fallbacks");
        w.open(b"{");
        for (reason, &count) in REASON_NAMES.iter().zip(&tier.fallbacks) {
            w.number(reason, count);
        }
        w.close(b"}");
        w.close(b"}");
    }
    w.close(b"]");
}

fn classes(s: &Snapshot, w: &mut Writer<'_>) {
    w.key("classes");
    w.open(b"[");
    for (_, class) in s.classes() {
        w.comma();
        w.open(b"{");
        w.numbers(&[
            ("size", class.size),
            ("live", class.live),
            ("in_thread_caches", class.in_thread_caches),
            ("in_transfer_cache", class.in_transfer_cache),
            ("free_in_spans", class.free_in_spans),
            ("spans", class.spans),
            ("span_bytes", class.span_bytes),
            ("waste", class.waste),
        ]);
        w.close(b"}");
    }
    w.close(b"]");
}
