//! The settings in the packages' texts. Names, order and defaults are those of the library, descriptions those of
//! `docs/settings.md`; where the page lacks one, nothing is made.

use super::roff;
use alloc_core::message::Sink;
use alloc_core::settings::{Key, Settings};
use anyhow::{Context, Result};

/// A setting.
#[derive(Debug)]
pub(super) struct Described {
    name: &'static str,
    default: String,
    /// What it does, in Markdown.
    text: String,
}

/// All settings with the descriptions of a page's table.
///
/// # Errors
/// When the page has no row for a key, or another default.
pub(super) fn keys(page: &str) -> Result<Vec<Described>> {
    Key::ALL
        .into_iter()
        .map(|key| {
            let (name, default) = (key.name(), default(key));
            let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
            let row = row.with_context(|| format!("docs/settings.md has no row for {name}"))?;
            let (told, text) = row.split_once(" | ").context("a row has too few columns")?;
            let agrees =
                if default.is_empty() { !told.contains('`') } else { told == format!("`{default}`") };
            anyhow::ensure!(agrees, "docs/settings.md has {told} as the default of {name}, not {default}");
            Ok(Described { name, default, text: text.trim_end_matches(" |").to_owned() })
        })
        .collect()
}

/// The settings file: `head`, and every key with its default, all of it comments.
pub(super) fn file(head: &str, keys: &[Described]) -> String {
    let mut file = head.to_owned();
    for key in keys {
        file += "\n";
        for line in roff::wrapped(&roff::plain(&key.text.replace("see below", "see stratalloc.conf(5)")), 100)
        {
            file += &format!("# {line}\n");
        }
        file += &format!("#{}:{}\n", key.name, key.default);
    }
    file
}

/// One line for each key, for a preformatted part of a manual page.
pub(super) fn list(keys: &[Described]) -> String {
    let lines = keys.iter().map(|key| format!("{}:{}", key.name, key.default).replace('-', "\\-"));
    lines.collect::<Vec<_>>().join("\n")
}

fn default(key: Key) -> String {
    struct Text(Vec<u8>);
    impl Sink for Text {
        fn put(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }
    }
    let mut text = Text(Vec::new());
    Settings::DEFAULT.write_value(key, &mut text);
    String::from_utf8_lossy(&text.0).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc_core::settings::{Origin, parse};

    fn page() -> String {
        std::fs::read_to_string(crate::workspace::root().join("docs/settings.md")).unwrap()
    }

    #[test]
    fn every_line_of_the_file_is_right_and_says_the_default() {
        let file = file("# head\n", &keys(&page()).unwrap());
        let mut settings = Settings::DEFAULT;
        let mut found = 0;
        for line in file.lines().filter(|line| !line.is_empty()) {
            let comment = line.strip_prefix('#').unwrap_or_else(|| panic!("in effect: {line}"));
            if !comment.starts_with(' ') {
                parse(&mut settings, comment.as_bytes(), Origin::File, &mut |problem| panic!("{problem:?}"));
                found += 1;
            }
        }
        settings.origins = Settings::DEFAULT.origins;
        assert_eq!((settings, found), (Settings::DEFAULT, Key::COUNT));
    }

    #[test]
    fn a_page_that_drifted_is_refused() {
        let page = page();
        assert!(keys(&page.replace("| `soft_limit` |", "| `soft_limits` |")).is_err());
        assert!(keys(&page.replace("| `release_delay` | `1s` |", "| `release_delay` | `2s` |")).is_err());
        let list = list(&keys(&page).unwrap());
        assert!(list.starts_with("backend:4k\n") && list.lines().count() == Key::COUNT, "{list}");
    }
}
