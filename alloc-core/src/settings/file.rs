//! The settings file: the pairs of the variable, one or more a line, with comments and sections for single programs.

use super::environment::{command_name, executable};
use super::parse::{Problem, ProblemKind, parse};
use super::{Origin, Settings};
use crate::message::Message;
use core::ffi::CStr;
use page_backend::sys::{self, Errno};

/// Where the file is.
pub const PATH: &CStr = c"/etc/stratalloc.conf";
/// Most bytes of a line.
pub const LINE_LEN: usize = 512;
/// Most bytes of the file. Every process on the heap reads it, and what stands there may have no end.
pub const FILE_LEN: usize = 64 << 10;
/// Most problems of the file that get a line each.
pub const MOST_TOLD: usize = 10;

/// Reads the file at `path` as [`read`] does, and hands the lines about what is wrong in it to `tell`: of the first
/// [`MOST_TOLD`] problems, and one line with the number of all others.
#[inline(never)]
pub fn read_and_tell(path: &CStr, settings: &mut Settings, tell: &mut dyn FnMut(Message)) {
    let mut problems = 0;
    read(path, settings, &mut |problem| {
        problems += 1;
        if problems <= MOST_TOLD {
            tell(problem.message());
        }
    });
    if problems > MOST_TOLD {
        let more = (problems - MOST_TOLD) as u64;
        tell(Message::new().str(Origin::File.name()).str(": ").dec(more).str(" more (ignored)"));
    }
}

/// Reads the file at `path` into `settings` with system calls alone. What is wrong in it is reported with its line,
/// and skipped. A file that is not there is nothing to report.
#[inline(never)]
pub fn read(path: &CStr, settings: &mut Settings, report: &mut dyn FnMut(&Problem<'_>)) {
    // What stands there may be anything; opening a pipe must not wait for its writer.
    let fd = match sys::open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0) {
        Ok(fd) => fd,
        Err(Errno::EACCES) => return report(&Problem::of_file(ProblemKind::Unreadable, 0, &[])),
        Err(_) => return,
    };
    let mut lines = Lines::new(settings);
    let mut buffer = [0; 512];
    let mut left = FILE_LEN;
    loop {
        match sys::read(fd, &mut buffer) {
            Ok(0) => {
                lines.end(report);
                break;
            }
            Ok(count) if count > left => {
                report(&Problem::of_file(ProblemKind::LongFile, 0, &[]));
                break;
            }
            Ok(count) => {
                left -= count;
                lines.feed(buffer.get(..count).unwrap_or(&[]), report);
            }
            Err(Errno::EINTR) => {}
            Err(_) => {
                report(&Problem::of_file(ProblemKind::Unreadable, 0, &[]));
                break;
            }
        }
    }
    sys::close(fd);
}

/// A file's lines, applied as they come.
pub(super) struct Lines<'s> {
    settings: &'s mut Settings,
    line: [u8; LINE_LEN],
    len: usize,
    too_long: bool,
    /// Lines that have ended.
    number: usize,
    /// Whether the lines of this section are for this program.
    applies: bool,
}

impl<'s> Lines<'s> {
    pub(super) const fn new(settings: &'s mut Settings) -> Self {
        Self { settings, line: [0; LINE_LEN], len: 0, too_long: false, number: 0, applies: true }
    }

    /// Takes a piece of the file.
    pub(super) fn feed(&mut self, bytes: &[u8], report: &mut dyn FnMut(&Problem<'_>)) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end(report);
            } else if let Some(slot) = self.line.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            } else {
                self.too_long = true;
            }
        }
    }

    /// Ends the line, as a line feed or the end of the file does.
    #[cold]
    pub(super) fn end(&mut self, report: &mut dyn FnMut(&Problem<'_>)) {
        self.number += 1;
        let number = self.number;
        let whole = self.line.get(..self.len).unwrap_or(&[]);
        let text = without_comment(whole);
        let word = text.trim_ascii();
        // Of a line that is too long only a comment may be cut off.
        if self.too_long && text.len() == whole.len() {
            report(&Problem::of_file(ProblemKind::LongLine, number, word));
        } else if let Some(names) = word.strip_prefix(b"[") {
            match names.strip_suffix(b"]").map(<[u8]>::trim_ascii) {
                Some(names) if !names.is_empty() => self.applies = names_this_program(names),
                // Nobody can tell whom the lines below are for.
                _ => {
                    self.applies = false;
                    report(&Problem::of_file(ProblemKind::BadSection, number, word));
                }
            }
        } else if self.applies {
            parse(self.settings, text, Origin::File, &mut |problem| {
                report(&Problem { line: number, ..*problem });
            });
        }
        (self.len, self.too_long) = (0, false);
    }
}

/// The part of a line before a `#` that stands at its start or behind a blank.
fn without_comment(line: &[u8]) -> &[u8] {
    let mut before = b' ';
    let mark = line.iter().position(|&byte| {
        let begins = byte == b'#' && before.is_ascii_whitespace();
        before = byte;
        begins
    });
    mark.and_then(|at| line.get(..at)).unwrap_or(line)
}

/// Whether a section's names, separated by `|`, have that of this process among them.
fn names_this_program(names: &[u8]) -> bool {
    let (mut path, mut command) = ([0; 4096], [0; 16]);
    super::names(names, executable(&mut path), command_name(&mut command))
}

impl<'a> Problem<'a> {
    /// A problem with the file or a whole line of it; line 0 stands for the file.
    const fn of_file(kind: ProblemKind, line: usize, word: &'a [u8]) -> Self {
        Self { kind, origin: Origin::File, line, column: 1, word, expected: "", nearest: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Check, Key};
    use std::ffi::CString;
    use std::string::{String, ToString};
    use std::{format, vec, vec::Vec};

    fn told(problem: &Problem<'_>) -> String {
        let line = String::from_utf8(problem.message().as_bytes().to_vec()).unwrap();
        line.strip_prefix("stratalloc: /etc/stratalloc.conf").unwrap().to_string()
    }

    fn lines(text: &str, piece: usize) -> (Settings, Vec<String>) {
        let (mut settings, mut problems) = (Settings::DEFAULT, vec![]);
        let mut lines = Lines::new(&mut settings);
        for bytes in text.as_bytes().chunks(piece) {
            lines.feed(bytes, &mut |p| problems.push(told(p)));
        }
        lines.end(&mut |p| problems.push(told(p)));
        (settings, problems)
    }

    #[test]
    fn pairs_comments_and_blank_lines() {
        let text =
            "# all\n\n  soft_limit : 1g , check:full  # why\nstats_file:/tmp/a#b\n\t# x\nhard_limit:2g";
        for piece in [1, 7, 1000] {
            let (settings, problems) = lines(text, piece);
            assert_eq!(problems, [""; 0]);
            assert_eq!((settings.soft_limit, settings.hard_limit), (1 << 30, 2 << 30));
            assert_eq!((settings.check, settings.stats_file.as_bytes()), (Check::Full, &b"/tmp/a#b"[..]));
            assert_eq!(settings.origin(Key::SoftLimit).name(), "/etc/stratalloc.conf");
        }
    }

    #[test]
    fn bad_lines_cost_themselves_alone() {
        let long = "x".repeat(LINE_LEN + 1);
        let comment = format!("check:off # {long}");
        let text = format!(
            "bakend:huge\n  soft_limit:12parsecs,hard_limit:1g\n{long}\n{comment}\n[ ]\ncheck:full\n"
        );
        let (settings, problems) = lines(&text, 100);
        assert_eq!((settings.hard_limit, settings.check), (1 << 30, Check::Off));
        assert_eq!(problems.len(), 4, "{problems:?}");
        let unknown = ": line 1, column 1: unknown key \"bakend\"; did you mean \"backend\"? (ignored)";
        assert_eq!(problems[0], unknown);
        assert!(problems[1].starts_with(": line 2, column 16: bad value \"12parsecs\""), "{problems:?}");
        assert_eq!(problems[2], ": line 3, column 1: longer than 512 bytes (ignored)");
        assert!(problems[3].starts_with(": line 5, column 1: no program in \"[ ]\""), "{problems:?}");
    }

    #[test]
    #[cfg(not(miri))]
    fn sections_are_for_the_programs_they_name() {
        let this = std::env::current_exe().unwrap();
        let this = this.file_name().unwrap().to_str().unwrap();
        let text = format!("check:full\n[no-such-program]\ncheck:off\nbad\n[x | {this}]\nsoft_limit:1g\n");
        let (settings, problems) = lines(&text, 1000);
        assert_eq!((settings.check, settings.soft_limit, problems), (Check::Full, 1 << 30, vec![]));
    }

    #[test]
    #[cfg(not(miri))]
    fn many_problems_are_counted_not_told() {
        let path = std::env::temp_dir().join(format!("stratalloc-many-{}", std::process::id()));
        let name = CString::new(path.to_str().unwrap()).unwrap();
        for (bad, last) in [
            (MOST_TOLD, ": line 10, column 1: unknown key \"bad\" (ignored)"),
            (MOST_TOLD + 1, ": 1 more (ignored)"),
            (3000, ": 2990 more (ignored)"),
        ] {
            std::fs::write(&path, "bad:1\n".repeat(bad) + "soft_limit:1g\n").unwrap();
            let (mut settings, mut said) = (Settings::DEFAULT, vec![]);
            read_and_tell(&name, &mut settings, &mut |message| said.push(message.as_bytes().to_vec()));
            std::fs::remove_file(&path).unwrap();
            assert_eq!(settings.soft_limit, 1 << 30);
            assert_eq!(said.len(), bad.min(MOST_TOLD + 1));
            let end = String::from_utf8(said.pop().unwrap()).unwrap();
            assert!(end.ends_with(last), "{end}");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn what_is_no_file_is_survived() {
        let read_from = |path: &CStr| {
            let (mut settings, mut problems) = (Settings::DEFAULT, vec![]);
            read(path, &mut settings, &mut |p| problems.push(told(p)));
            assert_eq!(settings, Settings::DEFAULT);
            problems
        };
        assert_eq!(read_from(c"/nonexistent/stratalloc.conf"), [""; 0]);
        assert_eq!(read_from(c"/"), [" cannot be read (ignored)"]);
        assert_eq!(read_from(c"/dev/zero"), [" is longer than 65536 bytes (the rest is ignored)"]);
        let pipe = std::env::temp_dir().join(format!("stratalloc-conf-{}", std::process::id()));
        let pipe = CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let problems = read_from(&pipe);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::unlink(pipe.as_ptr()) }, 0);
        assert_eq!(problems, [""; 0]);
    }
}
