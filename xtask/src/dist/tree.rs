//! The files of the packages: what they are, where they go, and what may be done with them.

use super::{Place, VERSION, roff, settings};
use crate::check_abi::SONAME;
use crate::exec::Job;
use crate::workspace;
use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What an entry of the tree is.
#[derive(Debug)]
pub(super) enum Content {
    /// A file with its bytes.
    File(Vec<u8>),
    /// A program with its bytes.
    Program(Vec<u8>),
    /// A symbolic link and where it leads.
    Link(String),
}

/// All files below the root, in the order of their paths, which begin with a slash.
#[derive(Debug)]
pub(super) struct Tree {
    entries: Vec<(String, Content)>,
}

/// Files of ours that the administrator may change.
pub(super) const CONFFILES: [&str; 1] = ["/etc/stratalloc.conf"];

impl Tree {
    /// The tree around a built library and tool.
    ///
    /// # Errors
    /// When a text is missing, or a page about settings does not fit the settings.
    pub(super) fn new(place: &Place, library: &Path, tool: &Path) -> Result<Self> {
        let (mut tree, folder) = (Self { entries: Vec::new() }, &place.library_folder);
        let real = format!("libstratalloc.so.{VERSION}");
        tree.put(&format!("{folder}/{SONAME}"), Content::Link(real.clone()));
        tree.put(&format!("{folder}/libstratalloc.so"), Content::Link(SONAME.into()));
        tree.file(&format!("{folder}/{real}"), fs::read(library)?);
        tree.put("/usr/bin/stratalloc", Content::Program(fs::read(tool)?));
        tree.file("/usr/include/stratalloc.h", source("alloc-ffi/include/stratalloc.h")?);

        let text = |name: &str| -> Result<String> {
            let text = String::from_utf8(source(&format!("packaging/{name}"))?)?;
            let text = text.replace("@LIBDIR@", folder).replace("@VERSION@", VERSION);
            Ok(text.replace("@DATE@", &place.date("%Y-%m-%d")?))
        };
        tree.file(&format!("{folder}/pkgconfig/stratalloc.pc"), text("stratalloc.pc")?);
        for name in ["systemd.conf", "sysconfig-mysql", "mariadbd-safe.cnf", "mysqld_safe.cnf"] {
            tree.file(&format!("/usr/share/stratalloc/{name}"), text(name)?);
        }
        let page = String::from_utf8(source("docs/settings.md")?)?;
        let keys = settings::keys(&page)?;
        let conf = settings::file(&text("stratalloc.conf.head")?, &keys);
        tree.file("/usr/share/stratalloc/stratalloc.conf", conf.clone());
        tree.file(CONFFILES[0], conf);

        let manual = |section: u32| format!("/usr/share/man/man{section}");
        let library_page = text("stratalloc.7")?.replace("@KEYS@", &settings::list(&keys));
        tree.file(&format!("{}/stratalloc.7.gz", manual(7)), gzip(library_page)?);
        let head = text("stratalloc.conf.5.head")?;
        tree.file(&format!("{}/stratalloc.conf.5.gz", manual(5)), gzip(head + &roff::of_markdown(&page))?);
        let head = text("stratalloc.1.head")?;
        let help = |words: &[&str]| Ok(Job::new(tool).args(words).run_ok()?.text());
        tree.file(&format!("{}/stratalloc.1.gz", manual(1)), gzip(roff::of_help(&head, help)?)?);

        let documents = "/usr/share/doc/stratalloc";
        let licence = indented(&String::from_utf8(source("LICENSE-MIT")?)?);
        tree.file(&format!("{documents}/copyright"), text("copyright")?.replace("@MIT@", &licence));
        for page in ["mysql", "settings", "statistics"] {
            let text = String::from_utf8(source(&format!("docs/{page}.md"))?)?;
            for plot in plots(&text) {
                tree.file(&format!("{documents}/{plot}"), source(&format!("docs/{plot}"))?);
            }
            tree.file(&format!("{documents}/{page}.md"), text);
        }
        let news =
            changelog(&String::from_utf8(source("CHANGELOG.md")?)?, &place.date("%a, %d %b %Y %T +0000")?);
        tree.file(&format!("{documents}/changelog.gz"), gzip(news)?);
        tree.file("/usr/share/lintian/overrides/stratalloc", text("lintian-overrides")?);
        tree.entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(tree)
    }

    fn put(&mut self, path: &str, content: Content) {
        self.entries.push((path.to_owned(), content));
    }

    fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.put(path, Content::File(bytes.into()));
    }

    /// All entries.
    pub(super) fn entries(&self) -> &[(String, Content)] {
        &self.entries
    }

    /// Writes the files below `root`.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        for (path, content) in &self.entries {
            let place = below(root, path);
            make_folders(root, path)?;
            match content {
                Content::Link(to) => symlink(to, &place)?,
                Content::File(bytes) => write(&place, bytes, 0o644)?,
                Content::Program(bytes) => write(&place, bytes, 0o755)?,
            }
        }
        Ok(())
    }
}

/// A path of the tree below a folder.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Makes the folders of a path, readable by all whatever the mask of this process is.
fn make_folders(root: &Path, path: &str) -> Result<()> {
    let mut folder = root.to_owned();
    let parents = path.rsplit_once('/').map_or("", |parts| parts.0);
    for part in std::iter::once("").chain(parents.split('/').filter(|part| !part.is_empty())) {
        folder.push(part);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Writes a file with these permissions.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    fs::write(path, bytes).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(())
}

fn source(path: &str) -> Result<Vec<u8>> {
    fs::read(workspace::root().join(path)).with_context(|| path.to_owned())
}

/// Compressed, the same at any time.
fn gzip(text: impl Into<Vec<u8>>) -> Result<Vec<u8>> {
    let mut child = Command::new("gzip")
        .arg("-9n")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("gzip is not installed")?;
    let (text, input) = (text.into(), child.stdin.take());
    // From a thread, so that neither side waits for the other with a full pipe.
    let writer = std::thread::spawn(move || input.map_or(Ok(()), |mut input| input.write_all(&text)));
    let done = child.wait_with_output()?;
    writer.join().expect("writing does not panic")?;
    anyhow::ensure!(done.status.success(), "gzip failed");
    Ok(done.stdout)
}

/// The plots that a page shows.
fn plots(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| target.starts_with("plots/"))
}

/// A licence as a field of a copyright file holds it.
fn indented(text: &str) -> String {
    let lines = text.lines().map(|line| if line.is_empty() { " .".into() } else { format!(" {line}") });
    lines.collect::<Vec<_>>().join("\n")
}

/// The newest section of the changelog as Debian has it.
fn changelog(text: &str, date: &str) -> String {
    let section = text.split("\n## ").nth(1).unwrap_or_default();
    let items = section.lines().filter_map(|line| line.strip_prefix("- "));
    let items: String =
        items.map(|item| format!("  * {}\n", roff::wrapped(&roff::plain(item), 74).join("\n    "))).collect();
    format!(
        "stratalloc ({VERSION}) unstable; urgency=medium\n\n{items}\n -- {}  {date}\n",
        super::deb::MAINTAINER
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn plots_are_told_from_other_links() {
        let page = "[a](settings.md), ![b](plots/b.svg)\n![c](plots/c.svg)";
        assert_eq!(super::plots(page).collect::<Vec<_>>(), ["plots/b.svg", "plots/c.svg"]);
    }

    #[test]
    fn the_newest_changes_are_listed() {
        let text = super::changelog("# C\n\n## [1]\n### Added\n- `a` b.\n- c\n\n## [0]\n- d\n", "now");
        assert!(text.contains("\n  * a b.\n  * c\n\n -- "), "{text}");
    }
}
