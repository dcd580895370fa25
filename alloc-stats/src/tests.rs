//! Tests of what is rendered: validity by parsers, values by comparison, looks by golden files.

use crate::property::{PROPERTIES, lookup};
use crate::sink::SliceSink;
use crate::{About, Format, Snapshot, json, prom, render, text};
use alloc_core::message::Sink;
use alloc_core::snapshot::{ClassAccount, MAX_CLASSES, MAX_TIERS, Name, TierAccount};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::string::{String, ToString};
use std::vec::Vec;
use std::{env, format, fs, vec};

struct Buffer(Vec<u8>);

impl Sink for Buffer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

fn rendered(format: Format, snapshot: &Snapshot) -> String {
    let mut sink = Buffer(vec![]);
    let about = About { version: "0.1.0", pid: 4242, age_ms: 1250 };
    render(format, snapshot, &about, &mut sink);
    String::from_utf8(sink.0).unwrap()
}

/// A heap of two tiers and three classes, one of them unused, whose accounts add up.
fn example() -> Snapshot {
    let mut s = Snapshot { tier_count: 2, class_count: 4, ..Snapshot::EMPTY };
    s.tiers[0] = TierAccount {
        name: Name::new("hugetlb-2M"),
        mapped: 4 << 20,
        in_use: 3 << 20,
        free: 1 << 20,
        huge: 4 << 20,
        pinned: 4 << 20,
        ..TierAccount::default()
    };
    s.tiers[0].fallbacks[0] = 3;
    s.tiers[1] = TierAccount {
        name: Name::new("mmap"),
        mapped: 2 << 20,
        in_use: 81920,
        free: 1 << 20,
        purged: (1 << 20) - 81920,
        locked: 65536,
        ..TierAccount::default()
    };
    s.classes[1] = ClassAccount {
        size: 48,
        live: 100,
        in_thread_caches: 20,
        in_transfer_cache: 10,
        free_in_spans: 40,
        spans: 1,
        span_bytes: 8192,
        waste: 32,
    };
    s.classes[2].size = 64;
    s.classes[3] = ClassAccount {
        size: 8192,
        live: 7,
        free_in_spans: 2,
        spans: 9,
        span_bytes: 73728,
        ..ClassAccount::default()
    };
    s.large.count = 2;
    s.large.bytes = 3 << 20;
    s.thread_caches.count = 3;
    s.thread_caches.budget = 32 << 20;
    s.thread_caches.claimed = 1 << 20;
    s.metadata.mapped = 1 << 20;
    s.metadata.used = 300_000;
    s.counters.commit_count = 5;
    s.counters.commit_bytes = 6 << 20;
    s.counters.decommit_count = 1;
    s.counters.decommit_bytes = 966_656;
    s.counters.reserve_count = 3;
    s.counters.reserve_bytes = 6 << 20;
    s.counters.scavenge_count = 1;
    s.errors.foreign_frees = 1;
    s.soft_limit = 1 << 30;
    s.balance().unwrap();
    s
}

/// Compares with a file in `tests/golden`; `STRATALLOC_BLESS=1` writes it instead.
fn golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("STRATALLOC_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "differs from {path}; STRATALLOC_BLESS=1 writes it anew");
}

#[test]
fn golden_text() {
    golden("example.txt", &rendered(Format::Text, &example()));
}

#[test]
fn golden_json() {
    golden("example.json", &rendered(Format::Json, &example()));
}

#[test]
fn golden_prom() {
    golden("example.prom", &rendered(Format::Prom, &example()));
}

#[test]
fn off_renders_nothing() {
    assert_eq!(rendered(Format::Off, &example()), "");
}

#[test]
fn the_balance_in_the_text_adds_up() {
    let text = rendered(Format::Text, &example());
    let (mut sum, mut equals) = (0u64, 0);
    for line in text.lines().skip(1).take_while(|l| !l.contains("metadata")) {
        let value: u64 = line[3..17].trim().parse().unwrap();
        if line.starts_with(" = ") {
            assert_eq!(value, sum, "{line}");
            equals += 1;
        } else {
            sum += value;
        }
    }
    assert_eq!((equals, sum), (2, example().heap_bytes()));
}

#[test]
fn property_names_are_the_ones_that_dashboards_know() {
    let known = [
        "generic.current_allocated_bytes",
        "generic.heap_size",
        "generic.total_physical_bytes",
        "tcmalloc.max_total_thread_cache_bytes",
        "tcmalloc.current_total_thread_cache_bytes",
        "tcmalloc.central_cache_free_bytes",
        "tcmalloc.transfer_cache_free_bytes",
        "tcmalloc.thread_cache_free_bytes",
        "tcmalloc.slack_bytes",
        "tcmalloc.pageheap_free_bytes",
        "tcmalloc.pageheap_unmapped_bytes",
        "tcmalloc.pageheap_committed_bytes",
        "tcmalloc.pageheap_total_commit_bytes",
        "tcmalloc.pageheap_total_decommit_bytes",
        "tcmalloc.pageheap_total_reserve_bytes",
        "tcmalloc.pageheap_scavenge_count",
        "tcmalloc.pageheap_commit_count",
        "tcmalloc.pageheap_decommit_count",
        "tcmalloc.pageheap_reserve_count",
        "tcmalloc.cpu_free",
        "tcmalloc.metadata_bytes",
        "tcmalloc.required_bytes",
        "tcmalloc.external_fragmentation_bytes",
        "tcmalloc.physical_memory_used",
        "tcmalloc.virtual_memory_used",
        "tcmalloc.soft_limit_hits",
        "tcmalloc.hard_limit_hits",
        "tcmalloc.num_released_total_bytes",
        "tcmalloc.per_cpu_caches_active",
        "stats.allocated",
        "stats.active",
        "stats.metadata",
        "stats.resident",
        "stats.mapped",
        "stats.retained",
    ];
    let s = example();
    for name in known {
        assert!(lookup(&s, name.as_bytes()).is_some(), "{name}");
    }
    assert_eq!(lookup(&s, b"tcmalloc.no_such"), None);
    assert_eq!(lookup(&s, b""), None);
    let value = |name: &str| lookup(&s, name.as_bytes()).unwrap();
    assert_eq!(value("generic.heap_size"), 6 << 20);
    assert_eq!(value("tcmalloc.hard_usage_limit_bytes"), u64::MAX);
    assert_eq!(value("tcmalloc.desired_usage_limit_bytes"), 1 << 30);
    // The identity that gperftools' users rely on.
    assert_eq!(
        value("generic.heap_size"),
        value("generic.current_allocated_bytes")
            + value("tcmalloc.thread_cache_free_bytes")
            + value("tcmalloc.transfer_cache_free_bytes")
            + value("tcmalloc.central_cache_free_bytes")
            + value("tcmalloc.slack_bytes")
    );
}

#[test]
fn the_three_renderings_agree() {
    let s = example();
    let json: serde_json::Value = serde_json::from_str(&rendered(Format::Json, &s)).unwrap();
    let metrics = parse_prometheus(&rendered(Format::Prom, &s)).unwrap();
    for property in PROPERTIES {
        let value = lookup(&s, property.name.as_bytes()).unwrap();
        assert_eq!(json["properties"][property.name].as_u64(), Some(value), "{}", property.name);
        assert_eq!(metrics[&property.name.replace('.', "_")], value as f64, "{}", property.name);
    }
    assert_eq!(json["tiers"][0]["fallbacks"]["pool_empty"], 3);
    let fallback = "stratalloc_fallbacks_total{tier=\"hugetlb-2M\",link=\"0\",reason=\"pool_empty\"}";
    assert_eq!(metrics[fallback], 3.0);
    assert_eq!(metrics["stratalloc_class_objects{size=\"48\",state=\"live\"}"], 100.0);
    assert!(!metrics.contains_key("stratalloc_class_objects{size=\"64\",state=\"live\"}"));
    assert_eq!(metrics["stratalloc_snapshot_age_seconds"], 1.25);
}

#[test]
fn a_short_buffer_gets_the_start_and_the_length_needed() {
    let s = example();
    let whole = rendered(Format::Json, &s);
    let about = About { version: "0.1.0", pid: 4242, age_ms: 1250 };
    for room in [0, 1, 100, whole.len() - 1, whole.len(), whole.len() + 9] {
        let mut buffer = vec![0; room];
        let mut sink = SliceSink::new(&mut buffer);
        json::render(&s, &about, &mut sink);
        assert_eq!(sink.needed(), whole.len());
        assert_eq!(sink.as_bytes(), &whole.as_bytes()[..room.min(whole.len())]);
    }
}

/// The names in `{name="value",...}`, whose values escape backslashes, quotes and newlines.
fn label_names(labels: &str) -> Option<Vec<&str>> {
    let mut rest = labels.strip_prefix('{')?.strip_suffix('}')?;
    let mut names = vec![];
    loop {
        let (name, value) = rest.split_once("=\"")?;
        names.push(name);
        let mut escaped = false;
        let end = value.bytes().position(|b| {
            let ends = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            ends
        })?;
        let escapes = value[..end].replace("\\\\", "").replace("\\\"", "").replace("\\n", "");
        if escapes.contains(['\\', '"']) {
            return None;
        }
        match value[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => return value[end + 1..].is_empty().then_some(names),
        }
    }
}

/// Checks the rules of the text format that `promtool check metrics` checks, and returns the samples.
fn parse_prometheus(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let name_ok = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    if !text.ends_with('\n') {
        return Err("no newline at the end".to_string());
    }
    let (mut helped, mut typed, mut closed) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    let mut samples = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        let fail = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("no help")?;
            if !name_ok(name) || help.is_empty() || !helped.insert(name.to_string()) {
                return fail("bad HELP");
            }
            closed.insert(core::mem::replace(&mut current, name.to_string()));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("no type")?;
            if name != current || !["gauge", "counter"].contains(&kind) {
                return fail("bad TYPE");
            }
            if typed.insert(name.to_string(), kind.to_string()).is_some() {
                return fail("second TYPE");
            }
        } else {
            let (series, value) = line.rsplit_once(' ').ok_or("no value")?;
            let name = series.split('{').next().unwrap_or("");
            if name != current || closed.contains(name) || !typed.contains_key(name) || !name_ok(name) {
                return fail("sample outside its family");
            }
            if let Some(labels) = series.strip_prefix(name).filter(|l| !l.is_empty()) {
                let Some(keys) = label_names(labels) else { return fail("bad labels") };
                if !keys.iter().all(|key| name_ok(key))
                    || keys.iter().collect::<BTreeSet<_>>().len() != keys.len()
                {
                    return fail("bad label name");
                }
            }
            let value: f64 = value.parse().map_err(|_| format!("bad number: {line}"))?;
            if samples.insert(series.to_string(), value).is_some() {
                return fail("series twice");
            }
        }
    }
    Ok(samples)
}

#[test]
fn the_checker_of_the_prometheus_format_can_fail() {
    for bad in [
        "x 1\n",
        "# HELP x y\n# TYPE x gauge\nx 1\nx 2\n",
        "# HELP x y\n# TYPE x gauge\nx one\n",
        "# HELP x y\n# TYPE x gauge\nx{1a=\"2\"} 1\n",
        "# HELP x y\n# TYPE x gauge\nx 1",
        "# HELP x y\n# TYPE x gauge\nx{a=\"b\"c\"} 1\n",
        "# HELP x y\n# TYPE x gauge\nx{a=\"b\\c\"} 1\n",
        "# HELP x y\n# TYPE x gauge\nx{a=\"b\",a=\"c\"} 1\n",
        "# HELP x.y z\n# TYPE x.y gauge\nx.y 1\n",
    ] {
        assert!(parse_prometheus(bad).is_err(), "{bad}");
    }
}

fn any_name() -> impl Strategy<Value = Name> {
    let odd = prop::sample::select(&["\"", "\\", "a\",b=\"c", "\\n"][..]).prop_map(Name::new);
    prop_oneof![any::<[u8; 24]>().prop_map(|bytes| Name { bytes }), odd]
}

fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let tier =
        (any_name(), any::<[u64; 7]>(), any::<[u64; 10]>()).prop_map(|(name, n, fallbacks)| TierAccount {
            name,
            mapped: n[0],
            in_use: n[1],
            free: n[2],
            purged: n[3],
            huge: n[4],
            locked: n[5],
            pinned: n[6],
            fallbacks,
        });
    let class = any::<[u64; 7]>().prop_map(|n| ClassAccount {
        size: n[0],
        live: n[1],
        in_thread_caches: n[2],
        in_transfer_cache: n[3],
        free_in_spans: n[4],
        spans: 1,
        span_bytes: n[5],
        waste: n[6],
    });
    let counts = (0..=2 * MAX_TIERS as u64, 0..=2 * MAX_CLASSES as u64);
    (counts, prop::collection::vec(tier, MAX_TIERS), prop::collection::vec(class, MAX_CLASSES)).prop_map(
        |((tier_count, class_count), tiers, classes)| {
            let mut s = Snapshot { tier_count, class_count, ..Snapshot::EMPTY };
            s.tiers.copy_from_slice(&tiers);
            s.classes.copy_from_slice(&classes);
            // Sizes differ in a real table.
            for (i, class) in s.classes.iter_mut().enumerate() {
                class.size = (class.size & !0xff) | i as u64;
            }
            s
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers_give_valid_json_and_prometheus(s in any_snapshot()) {
        let json: serde_json::Value = serde_json::from_str(&rendered(Format::Json, &s)).unwrap();
        prop_assert_eq!(json["tiers"].as_array().unwrap().len(), s.tiers().len());
        prop_assert_eq!(json["classes"].as_array().unwrap().len(), s.classes().count());
        parse_prometheus(&rendered(Format::Prom, &s)).unwrap();
        let mut sink = Buffer(vec![]);
        text::render(&s, &About { version: "\"\\\n\u{e9}", pid: 0, age_ms: u64::MAX }, &mut sink);
        prop_assert!(sink.0.ends_with(b"\n"));
    }

    #[test]
    fn any_version_is_escaped(version in "\\PC{0,12}|[\"\\\\\n]{1,4}") {
        let about = About { version: &version, pid: 1, age_ms: 0 };
        let mut sink = Buffer(vec![]);
        json::render(&Snapshot::EMPTY, &about, &mut sink);
        let _: serde_json::Value = serde_json::from_slice(&sink.0).unwrap();
        let mut sink = Buffer(vec![]);
        prom::render(&Snapshot::EMPTY, &about, &mut sink);
        let text = String::from_utf8(sink.0).unwrap();
        // One line a sample, whatever the version holds.
        prop_assert!(text.lines().all(|l| l.starts_with('#') || l.rsplit_once(' ').is_some_and(|(_, v)| v.parse::<f64>().is_ok())));
    }
}
