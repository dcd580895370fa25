//! Tests of the settings by example and by property.

use super::keys::nearest_key;
use super::parse::apply;
use super::*;
use crate::message::Sink;
use proptest::prelude::*;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

struct Buffer(Vec<u8>);

impl Sink for Buffer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

fn line(settings: &Settings) -> String {
    let mut sink = Buffer(Vec::new());
    settings.write_line(&mut sink);
    String::from_utf8(sink.0).unwrap()
}

fn value(settings: &Settings, key: Key) -> String {
    let mut sink = Buffer(Vec::new());
    settings.write_value(key, &mut sink);
    String::from_utf8(sink.0).unwrap()
}

/// Settings and the lines about problems.
fn read(text: &str) -> (Settings, Vec<String>) {
    let mut settings = Settings::DEFAULT;
    let mut lines = vec![];
    parse(&mut settings, text.as_bytes(), Origin::StratallocConf, &mut |problem| {
        lines.push(String::from_utf8(problem.message().as_bytes().to_vec()).unwrap());
    });
    (settings, lines)
}

fn good(text: &str) -> Settings {
    let (settings, lines) = read(text);
    assert!(lines.is_empty(), "{lines:?}");
    settings
}

fn one_problem(text: &str) -> String {
    let (_, lines) = read(text);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].strip_prefix("stratalloc: STRATALLOC_CONF: ").unwrap().to_string()
}

#[test]
fn keys_are_numbered_by_place_and_found_by_name() {
    for (i, key) in Key::ALL.into_iter().enumerate() {
        assert_eq!(key as usize, i);
        assert!(
            matches!(keys::look_up(key.name().as_bytes()), keys::Word::Key(k, keys::Meaning::Same) if k == key)
        );
    }
    let mut names: Vec<_> = Key::ALL.iter().map(|k| k.name()).collect();
    names.extend(keys::ALIASES.iter().map(|a| a.name));
    names.extend(keys::WITHOUT_EFFECT);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name stands in two tables");
}

#[test]
fn the_line_from_the_field_is_accepted_whole() {
    let s = good("percpu_cache:1,lg_dirty_mult:-1,background_thread:true");
    assert!(s.percpu_cache == PerCpu::Always && s.background_thread);
    assert_eq!(s.release_delay, Delay::Never);
    assert_eq!(s.origin(Key::ReleaseDelay), Origin::StratallocConf);
    assert_eq!(s.origin(Key::Backend), Origin::Default);
}

#[test]
fn chains_say_what_they_mean() {
    let links = |text: &str| good(&format!("backend:{text}")).backend.links().to_vec();
    let link = |pages, locked, cap| Link { pages, locked, cap };
    assert_eq!(links("4k"), [link(Pages::Small, false, 0)]);
    assert_eq!(links("locked"), [link(Pages::Small, true, 0)]);
    assert_eq!(links("huge+locked"), [link(Pages::Huge2M, true, 0)]);
    assert_eq!(
        links("huge1g=2GiB>huge+locked=512MiB>thp>4k"),
        [
            link(Pages::Huge1G, false, 2 << 30),
            link(Pages::Huge2M, true, 512 << 20),
            link(Pages::Thp, false, 0),
            link(Pages::Small, false, 0)
        ]
    );
    assert!(good("backend:huge>4k").backend.ends_plain());
    assert!(!good("backend:huge").backend.ends_plain());
}

#[test]
fn bad_chains_name_the_link() {
    assert_eq!(
        one_problem("backend:huge>hug>4k"),
        "column 14: bad value \"huge>hug>4k\" for backend, expected a chain of 4k, thp, huge, huge1g or locked, \
         such as huge+locked=512MiB>4k; did you mean \"huge\"? (ignored)"
    );
    assert!(one_problem("backend:4k>huge").starts_with("column 12: "));
    assert!(one_problem("backend:huge=12Q>4k").starts_with("column 16: "));
    assert!(one_problem("backend:huge=0>4k").starts_with("column 14: "));
    assert!(one_problem("backend:").starts_with("column 9: "));
    assert!(one_problem("backend:huge>").starts_with("column 14: "));
    assert!(one_problem("backend:huge>thp>huge>thp>huge>thp>huge").contains("at most 6 links"));
}

#[test]
fn programs_take_both_separators() {
    for text in ["programs:mysqld|mariadbd", "programs:mysqld,mariadbd", "programs: mysqld , mariadbd ,"] {
        let s = good(&format!("{text},backend:huge"));
        assert_eq!(s.programs.as_bytes(), b"mysqld|mariadbd", "{text}");
        assert!(s.names_program(b"/usr/sbin/mariadbd", b"") && s.names_program(b"mysqld", b"x"));
        assert!(s.names_program(b"/usr/sbin/mariadbd (deleted)", b""));
        assert!(s.names_program(b"/usr/sbin/mariadbd-11", b"mysqld"), "a link to it");
        assert!(!s.names_program(b"/usr/bin/mysqld_safe", b"mysqld_safe") && !s.names_program(b"", b""));
    }
    assert!(Settings::DEFAULT.names_program(b"/bin/bash", b"bash"));
    let long = good("programs:a_very_long_program_name");
    assert!(long.names_program(b"/usr/bin/other", b"a_very_long_pro"));
    assert!(!long.names_program(b"/usr/bin/other", b"a_very_long"));
    assert_eq!(good("programs:a,programs:b").programs.as_bytes(), b"b");
    assert!(one_problem("programs:/usr/sbin/mysqld").contains("without a path"));
    assert!(one_problem("backend:4k,mysqld").starts_with("column 12: no value for \"mysqld\""));
}

#[test]
fn words_without_a_value_name_a_key_only_if_it_is_another() {
    assert_eq!(one_problem("backend"), "column 1: no value for \"backend\", expected key:value (ignored)");
    assert!(one_problem("bakend").ends_with("did you mean \"backend\"? (ignored)"));
}

#[test]
fn other_programs_get_plain_pages_and_no_outputs() {
    let mut s =
        good("programs:mariadbd,backend:huge+locked,stats_file:/tmp/x,stats_at_exit:json,release_delay:5s");
    let before = s;
    s.restrict_to(b"/usr/sbin/mariadbd", b"mariadbd");
    assert_eq!(s, before);
    s.restrict_to(b"/bin/bash", b"bash");
    assert!(s.excluded && s.stats_file.is_empty() && s.stats_at_exit == Format::Off);
    assert_eq!((s.backend, s.release_delay), (Chain::SMALL, Delay::Millis(5000)));
}

#[test]
fn units() {
    let limit = |text: &str| good(&format!("hard_limit:{text}")).hard_limit;
    assert_eq!(limit("4096"), 4096);
    assert_eq!(limit("64k"), 65536);
    assert_eq!(limit("2MiB"), 2 << 20);
    assert_eq!(limit("1g"), 1 << 30);
    assert_eq!(limit("3TB"), 3 << 40);
    assert!(one_problem("hard_limit:10s").starts_with("column 14: "));
    assert!(one_problem("hard_limit:99999999999999999999").starts_with("column 12: "));
    assert!(one_problem("hard_limit:8388608TiB").contains("below 8388608TiB"));
    let delay = |text: &str| good(text).release_delay;
    assert_eq!(delay("release_delay:10s"), Delay::Millis(10_000));
    assert_eq!(delay("release_delay:0"), Delay::Millis(0));
    assert_eq!(delay("release_delay:never"), Delay::Never);
    assert_eq!(delay("dirty_decay_ms:1500"), Delay::Millis(1500));
    assert_eq!(delay("dirty_decay_ms:-1"), Delay::Never);
    assert_eq!(delay("dirty_decay_ms:2m"), Delay::Millis(120_000));
    assert!(one_problem("release_delay:10").starts_with("column 17: "));
    assert!(one_problem("stats_interval:1200h").contains("49 days"));
    assert_eq!(good("thp:always").thp, Thp::Madvise);
}

#[test]
fn bad_pairs_are_named_and_the_rest_applies() {
    let (s, lines) = read("dirty_decy_ms:10,soft_limit:1g,fallback:sielnt,,check:full");
    assert_eq!((s.soft_limit, s.check), (1 << 30, Check::Full));
    assert_eq!(
        lines,
        [
            "stratalloc: STRATALLOC_CONF: column 1: unknown key \"dirty_decy_ms\"; did you mean \"dirty_decay_ms\"? \
             (ignored)",
            "stratalloc: STRATALLOC_CONF: column 41: bad value \"sielnt\" for fallback, expected warn, silent or \
             never; did you mean \"silent\"? (ignored)"
        ]
    );
    assert!(one_problem("narenas:4").contains("has no effect here"));
    assert_eq!(one_problem(" colour:red"), "column 2: unknown key \"colour\" (ignored)");
}

#[test]
fn nearest_keys_are_near() {
    assert_eq!(nearest_key(b"bakend"), Some("backend"));
    assert_eq!(nearest_key(b"BackGround_Thread"), Some("background_thread"));
    assert_eq!(nearest_key(b"softlimit"), Some("soft_limit"));
    assert_eq!(nearest_key(b"zzzzzz"), None);
    assert_eq!(nearest_key(b""), None);
    assert_eq!(nearest_key(&[b'a'; 1000]), None);
}

fn from(entries: &[&str]) -> (Settings, Vec<String>) {
    let mut lines = vec![];
    let settings = Settings::from_entries(entries.iter().map(|e| e.as_bytes()), |_| {}, &mut |p| {
        lines.push(String::from_utf8(p.message().as_bytes().to_vec()).unwrap());
    });
    (settings, lines)
}

#[test]
fn our_variable_hides_malloc_conf_and_both_overrule_gperftools() {
    let (s, lines) = from(&[
        "MALLOC_CONF=soft_limit:1g",
        "TCMALLOC_RELEASE_RATE=10.0",
        "TCMALLOC_HEAP_LIMIT_MB=100",
        "STRATALLOC_CONF=hard_limit:2g",
        "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1048576",
        "STRATALLOC_CONF=hard_limit:3g",
        "MALLOC_CONFX=oops",
    ]);
    assert_eq!(lines, [""; 0]);
    assert_eq!((s.soft_limit, s.hard_limit, s.max_total_thread_cache_bytes), (0, 2 << 30, 1 << 20));
    assert_eq!(s.release_delay, Delay::Millis(value::DEFAULT_DELAY_MS / 10));
    assert_eq!(s.origin(Key::ReleaseDelay).name(), "TCMALLOC_RELEASE_RATE");
    assert_eq!(s.origin(Key::HardLimit).name(), "STRATALLOC_CONF");
    let (s, _) = from(&["MALLOC_CONF=soft_limit:1g", "TCMALLOC_RELEASE_RATE=0", "MALLOCSTATS=1"]);
    assert_eq!((s.soft_limit, s.release_delay, s.stats_at_exit), (1 << 30, Delay::Never, Format::Text));
    let (_, lines) = from(&["TCMALLOC_RELEASE_RATE=fast"]);
    assert_eq!(
        lines,
        [
            "stratalloc: TCMALLOC_RELEASE_RATE: column 1: bad value \"fast\" for release_delay, expected a rate from 0 \
          to 10, such as 1.0 (ignored)"
        ]
    );
}

#[test]
fn a_misspelled_variable_is_told_of() {
    for name in ["STRATALLOC_CONFIG", "stratalloc_conf", "STRATALOC_CONF", "STRATALLOC_CNF", "STRATALLOCCONF"]
    {
        let (settings, lines) = from(&[&format!("{name}=check:full")]);
        assert_eq!(settings, Settings::DEFAULT);
        let line = format!(
            "stratalloc: environment: unknown variable \"{name}\"; did you mean \"STRATALLOC_CONF\"? (ignored)"
        );
        assert_eq!(lines, [line]);
    }
    for name in ["STRATALLOC_LIBRARY", "STRATALLOC_BLESS", "SHELL", "S", "STRATUM", "STRATALLOC"] {
        assert_eq!(from(&[&format!("{name}=x")]).1, [""; 0], "{name}");
    }
}

#[test]
#[cfg(not(miri))]
fn the_page_about_settings_has_every_name_and_default() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/settings.md")).unwrap();
    for key in Key::ALL {
        let default = match value(&Settings::DEFAULT, key) {
            text if !text.is_empty() => format!("`{text}`"),
            _ if key == Key::Programs => "all".to_string(),
            _ => "none".to_string(),
        };
        let row = format!("| `{}` | {default} |", key.name());
        assert!(page.contains(&row), "{row}");
    }
    for variable in keys::VARIABLES {
        assert!(page.contains(&format!("| `{}", variable.name)), "{}", variable.name);
    }
    assert!(page.contains(&format!("at most {} links", chain::MAX_LINKS)));
}

#[test]
fn secure_processes_read_nothing() {
    let entries = [c"STRATALLOC_CONF=check:full,abort_conf:true,bad".as_ptr(), core::ptr::null()];
    // SAFETY: an array of C strings that ends with null.
    assert_eq!(unsafe { Settings::from_environment(entries.as_ptr(), true) }, Settings::DEFAULT);
    let entries = [c"STRATALLOC_CONF=check:full".as_ptr(), c"X=".as_ptr(), core::ptr::null()];
    // SAFETY: as above.
    assert_eq!(unsafe { Settings::from_environment(entries.as_ptr(), false) }.check, Check::Full);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { Settings::from_environment(core::ptr::null(), false) }, Settings::DEFAULT);
}

#[test]
fn the_canonical_line_of_the_defaults() {
    assert_eq!(
        line(&Settings::DEFAULT),
        "backend:4k,fallback:warn,programs:,thp:default,hugetlbfs:,lock:fallback,lock_time:touch,lock_budget:0,release_delay:1s,\
         background_thread:false,max_total_thread_cache_bytes:32MiB,percpu_cache:auto,soft_limit:0,hard_limit:0,\
         check:off,foreign:report,invalid_free:report,stats_at_exit:off,stats_file:,stats_interval:0,\
         abort_conf:false,confirm_conf:false"
    );
}

#[test]
fn a_failed_value_changes_nothing() {
    let mut s = good("programs:a|b,hard_limit:5");
    let before = s;
    assert!(apply(&mut s, Key::Programs, "x|".repeat(200).as_bytes()).is_err());
    assert!(apply(&mut s, Key::HardLimit, b"-5").is_err());
    assert!(apply(&mut s, Key::StatsFile, b"relative").is_err());
    assert!(apply(&mut s, Key::Hugetlbfs, b"/a,b").is_err());
    assert_eq!(s, before);
}

fn any_value(key: Key) -> BoxedStrategy<String> {
    let size =
        (0u64..5000, prop::sample::select(vec!["", "k", "MiB", "g"])).prop_map(|(n, u)| format!("{n}{u}"));
    let time = (0u32..5000, prop::sample::select(vec!["ms", "s", "m"])).prop_map(|(n, u)| format!("{n}{u}"));
    let path = "(/[a-z.%]{1,20}){0,4}";
    let words = |w: &'static [&'static str]| prop::sample::select(w).prop_map(str::to_string).boxed();
    match key {
        Key::Backend => {
            let head =
                prop::sample::select(vec!["thp", "huge", "huge1g", "locked", "4k+locked", "huge+locked"]);
            let cap = prop::sample::select(vec!["", "=1", "=512MiB", "=3g"]);
            prop::collection::vec((head, cap), 1..6)
                .prop_map(|links| links.iter().map(|(h, c)| format!("{h}{c}")).collect::<Vec<_>>().join(">"))
                .boxed()
        }
        Key::Fallback => words(Fallback::WORDS),
        Key::Programs => "([a-z]{1,8}\\|){0,5}".boxed(),
        Key::Thp => words(Thp::WORDS),
        Key::Lock => words(LockMode::WORDS),
        Key::LockTime => words(LockTime::WORDS),
        Key::Check => words(Check::WORDS),
        Key::Foreign | Key::InvalidFree => words(Policy::WORDS),
        Key::StatsAtExit => words(Format::WORDS),
        Key::Hugetlbfs | Key::StatsFile => path.boxed(),
        Key::ReleaseDelay => prop_oneof![time, Just("never".to_string())].boxed(),
        Key::StatsInterval => time.boxed(),
        Key::LockBudget | Key::MaxTotalThreadCacheBytes | Key::SoftLimit | Key::HardLimit => size.boxed(),
        Key::BackgroundThread | Key::PercpuCache | Key::AbortConf | Key::ConfirmConf => {
            words(&["true", "false", "1", "off"])
        }
    }
}

fn any_pairs() -> impl Strategy<Value = Vec<(Key, String)>> {
    let pair = prop::sample::select(&Key::ALL[..])
        .prop_flat_map(|key| any_value(key).prop_map(move |value| (key, value)));
    prop::collection::vec(pair, 0..12)
}

fn join(pairs: &[(Key, String)]) -> String {
    pairs.iter().map(|(k, v)| format!("{}:{v}", k.name())).collect::<Vec<_>>().join(",")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_survived_and_columns_point_into_the_text(
        text in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b":,>|=+-. 0123456789khug"[..])], 0..200)
    ) {
        let mut settings = Settings::DEFAULT;
        parse(&mut settings, &text, Origin::MallocConf, &mut |p| {
            assert!(p.column >= 1 && p.column <= text.len() + 1);
            assert!(p.message().as_bytes().iter().all(|&b| b >= b' ' && b != 0x7f));
        });
    }

    #[test]
    fn keys_with_any_value_are_survived(
        pairs in prop::collection::vec((prop::sample::select(&Key::ALL[..]), "[ -~]{0,30}"), 1..8)
    ) {
        let text = join(&pairs);
        let mut settings = Settings::DEFAULT;
        parse(&mut settings, text.as_bytes(), Origin::MallocConf, &mut |_| {});
        let again = line(&settings);
        let (mut second, lines) = read(&again);
        prop_assert!(lines.is_empty(), "{:?}", lines);
        second.origins = settings.origins;
        prop_assert_eq!(second, settings);
    }

    #[test]
    fn good_pairs_survive_the_round_trip(pairs in any_pairs()) {
        let text = join(&pairs);
        let first = good(&text);
        let mut second = good(&line(&first));
        prop_assert!(second.origins.iter().all(|&o| o == Origin::StratallocConf));
        second.origins = first.origins;
        prop_assert_eq!(second, first);
    }

    #[test]
    fn one_bad_pair_costs_itself_alone(pairs in any_pairs(), place in any::<prop::sample::Index>()) {
        let clean = good(&join(&pairs));
        let mut parts: Vec<String> = pairs.iter().map(|(k, v)| format!("{}:{v}", k.name())).collect();
        let at = place.index(parts.len() + 1);
        parts.insert(at, "no_such_key:1".to_string());
        let column = parts[..at].iter().map(|p| p.len() + 1).sum::<usize>() + 1;
        let text = parts.join(",");
        let mut settings = Settings::DEFAULT;
        let mut columns = vec![];
        parse(&mut settings, text.as_bytes(), Origin::StratallocConf, &mut |p| columns.push(p.column));
        prop_assert_eq!(columns, [column]);
        prop_assert_eq!(settings, clean);
    }

    #[test]
    fn a_bad_value_is_pointed_at(pairs in any_pairs(), key in prop::sample::select(&Key::ALL[..])) {
        // No key takes this value, and every parser stops at its first byte.
        let mut text = join(&pairs);
        if !text.is_empty() {
            text.push(',');
        }
        let column = text.len() + key.name().len() + 2;
        text.push_str(&format!("{}:!/", key.name()));
        let mut settings = Settings::DEFAULT;
        let mut problems = vec![];
        parse(&mut settings, text.as_bytes(), Origin::StratallocConf, &mut |p| problems.push((p.kind, p.column)));
        prop_assert_eq!(problems, [(ProblemKind::BadValue(key), column)]);
        prop_assert_eq!(value(&settings, key), value(&good(&join(&pairs)), key));
    }
}
