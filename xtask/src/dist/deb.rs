//! The Debian package: control data around the tree, put together by dpkg-deb. No script of it runs at installation.

use super::tree::{CONFFILES, Content, Tree, write};
use super::{Place, VERSION};
use crate::exec::Job;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Who answers for the package.
pub(super) const MAINTAINER: &str = "The stratalloc developers <stratalloc@noreply.invalid>";

/// Makes the package in `folder`.
///
/// # Errors
/// When dpkg-deb or objdump is missing or fails.
pub(super) fn make(tree: &Tree, place: &Place, folder: &Path) -> Result<PathBuf> {
    let work = tempfile::tempdir_in(folder)?;
    let root = work.path().join("root");
    tree.write(&root)?;
    let control = root.join("DEBIAN");
    std::fs::create_dir(&control)?;
    let put = |name: &str, text: String| write(&control.join(name), text.as_bytes(), 0o644);
    let programs: Vec<PathBuf> = tree
        .entries()
        .iter()
        .filter(|entry| is_elf(&entry.1))
        .map(|entry| root.join(&entry.0[1..]))
        .collect();
    put("control", control_file(place, size_kib(tree), &glibc(&programs)?))?;
    put("conffiles", CONFFILES.map(|path| format!("{path}\n")).concat())?;
    // The loader's cache learns of the library, as for every package with one.
    put("triggers", "activate-noawait ldconfig\n".into())?;
    let soname = crate::check_abi::SONAME.rsplit_once(".so.").context("the soname has no version")?;
    put("shlibs", format!("{} {} stratalloc (>= {VERSION})\n", soname.0, soname.1))?;
    put("md5sums", sums(tree, &root)?)?;
    let file = folder.join(format!("stratalloc_{VERSION}_{}.deb", place.arch));
    let build = Job::new("dpkg-deb").env("SOURCE_DATE_EPOCH", place.epoch.to_string());
    build.args(["--root-owner-group", "-Zxz", "--build"]).args([&root, &file]).run_ok()?;
    Ok(file)
}

fn control_file(place: &Place, size: u64, glibc: &str) -> String {
    format!(
        "Package: stratalloc\n\
         Version: {VERSION}\n\
         Architecture: {}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {size}\n\
         Depends: libc6 (>= {glibc}), libgcc-s1\n\
         Suggests: mariadb-server | default-mysql-server\n\
         Section: utils\n\
         Priority: optional\n\
         Description: heap for whole programs, on ordinary, huge or locked pages\n \
         Preloaded into a program, such as a database server, this library takes the\n \
         place of malloc. It puts the program's memory on ordinary pages, on huge pages\n \
         from the kernel's pool or on locked pages, gives it back when it is free, and\n \
         tells from outside what it holds.\n \
         .\n \
         Installing it changes no program and no service: each one is put on it by a\n \
         variable in its environment. Examples are in /usr/share/stratalloc.\n",
        place.arch
    )
}

/// Files count whole KiB, and everything else one, as Debian's policy has it.
fn size_kib(tree: &Tree) -> u64 {
    let sizes = tree.entries().iter().map(|(_, content)| match content {
        Content::File(bytes) | Content::Program(bytes) => (bytes.len() as u64).div_ceil(1024),
        Content::Link(_) => 1,
    });
    sizes.sum()
}

fn is_elf(content: &Content) -> bool {
    matches!(content, Content::File(bytes) | Content::Program(bytes) if bytes.starts_with(b"\x7fELF"))
}

/// The newest version of glibc whose symbols a program needs.
fn glibc(programs: &[PathBuf]) -> Result<String> {
    let text = Job::new("objdump").arg("-T").args(programs).run_ok()?.text();
    newest_glibc(&text).context("no program needs a version of glibc")
}

fn newest_glibc(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let parts: Vec<u32> = rest[..end].split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some((parts, &rest[..end]))
    });
    versions.max().map(|newest| newest.1.to_owned())
}

/// Sums of all files but those that may be changed.
fn sums(tree: &Tree, root: &Path) -> Result<String> {
    let files = tree.entries().iter().filter(|(path, content)| {
        !matches!(content, Content::Link(_)) && !CONFFILES.contains(&path.as_str())
    });
    let files = files.map(|(path, _)| &path[1..]);
    Ok(Job::new("md5sum").args(files).dir(root).run_ok()?.text())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_newest_version_counts_by_number() {
        let text = "x (GLIBC_2.9) a\ny (GLIBC_2.34) b\nz GLIBC_PRIVATE\n";
        assert_eq!(super::newest_glibc(text).as_deref(), Some("2.34"));
        assert_eq!(super::newest_glibc("nothing"), None);
    }
}
