//! The settings of this process, from its environment.

use super::keys::{OUR_VARIABLE, VARIABLES, is_near_our_variable};
use super::parse::{Problem, ProblemKind, parse, parse_variable};
use super::{Origin, Settings, file};
use crate::message::{self, Message};
use core::ffi::c_char;
use page_backend::sys;

/// Reports a variable that was probably meant for us.
fn misspelled<'a>(entry: &'a [u8], report: &mut dyn FnMut(&Problem<'a>)) {
    let name = entry.split(|&b| b == b'=').next().unwrap_or(entry);
    if is_near_our_variable(name) {
        report(&Problem {
            kind: ProblemKind::UnknownVariable,
            origin: Origin::Default,
            line: 0,
            column: 1,
            word: name,
            expected: "",
            nearest: Some(OUR_VARIABLE),
        });
    }
}

/// Reads a variable's value if `entry` (`NAME=value`) is that variable.
fn value_of<'a>(entry: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

impl Settings {
    /// Settings from the entries of an environment, weakest first: gperftools' variables, then `MALLOC_CONF`
    /// unless `STRATALLOC_CONF` is set, then what `file` does, then `STRATALLOC_CONF`.
    ///
    /// Pure: problems go to `report`. Of a variable that occurs twice the first counts, as for `getenv`.
    pub fn from_entries<'a>(
        entries: impl Iterator<Item = &'a [u8]>,
        file: impl FnOnce(&mut Self),
        report: &mut dyn FnMut(&Problem<'a>),
    ) -> Self {
        let mut variables: [Option<&[u8]>; VARIABLES.len()] = [None; VARIABLES.len()];
        let (mut ours, mut malloc_conf) = (None, None);
        for entry in entries {
            // Most variables begin with other letters.
            let slot = match entry.first() {
                Some(b'S' | b's') => match value_of(entry, OUR_VARIABLE) {
                    Some(value) => Some((&mut ours, value)),
                    None => {
                        misspelled(entry, report);
                        None
                    }
                },
                Some(b'M' | b'T') => match value_of(entry, "MALLOC_CONF") {
                    Some(value) => Some((&mut malloc_conf, value)),
                    None => VARIABLES
                        .iter()
                        .zip(variables.iter_mut())
                        .find_map(|(variable, slot)| Some((slot, value_of(entry, variable.name)?))),
                },
                _ => None,
            };
            if let Some((slot @ None, value)) = slot {
                *slot = Some(value);
            }
        }
        let mut settings = Self::DEFAULT;
        for (index, value) in variables.into_iter().enumerate() {
            if let Some(value) = value.filter(|v| !v.is_empty()) {
                parse_variable(&mut settings, index as u8, value, report);
            }
        }
        if let (None, Some(text)) = (ours, malloc_conf) {
            parse(&mut settings, text, Origin::MallocConf, report);
        }
        file(&mut settings);
        if let Some(text) = ours {
            parse(&mut settings, text, Origin::StratallocConf, report);
        }
        settings
    }

    /// The settings of this process, with those of the settings file.
    ///
    /// Problems are written to standard error, one line each (of the file, [`file::MOST_TOLD`] and their number); under `abort_conf:true` the process then aborts, but never
    /// for the file, which every process on the machine reads.
    /// `confirm_conf:true` prints all values. A `secure` process (AT_SECURE: setuid and the like) reads nothing.
    ///
    /// # Safety
    /// `envp` is null, or points to an array of C strings that ends with null, as `environ` does, and that nothing
    /// changes during the call.
    pub unsafe fn from_environment(envp: *const *const c_char, secure: bool) -> Self {
        if secure || envp.is_null() {
            return Self::DEFAULT;
        }
        // SAFETY: the caller vouches for `envp`.
        let entries = unsafe { Entries::new(envp) };
        // A line meant for jemalloc is no reason for noise at every start; one meant for us is.
        let quiet = |p: &Problem<'_>| p.kind == ProblemKind::WithoutEffect && p.origin == Origin::MallocConf;
        let (mut problems, mut without_effect) = (0u32, 0u32);
        let from_file = |settings: &mut Self| {
            // Miri runs no system calls.
            if cfg!(not(miri)) {
                file::read_and_tell(file::PATH, settings, &mut Message::send);
            }
        };
        let mut settings = Self::from_entries(entries, from_file, &mut |problem| {
            if quiet(problem) {
                without_effect += 1;
            } else {
                problems += u32::from(problem.kind != ProblemKind::WithoutEffect);
                problem.message().send();
            }
        });
        if !settings.programs.is_empty() {
            let mut path = [0; 4096];
            let mut command = [0; 16];
            settings.restrict_to(executable(&mut path), command_name(&mut command));
        }
        if settings.confirm_conf {
            settings.confirm();
            if without_effect > 0 {
                // SAFETY: as above.
                let entries = unsafe { Entries::new(envp) };
                Self::from_entries(entries, |_| {}, &mut |problem| {
                    if quiet(problem) {
                        problem.message().send();
                    }
                });
            }
        }
        if problems > 0 && settings.abort_conf {
            Message::new().str("a setting is bad and abort_conf is true: aborting").send();
            message::abort();
        }
        settings
    }
}

/// The path of the running executable; empty if the kernel does not tell.
pub(super) fn executable(path: &mut [u8]) -> &[u8] {
    let link = c"/proc/self/exe";
    let (buffer, size) = (path.as_mut_ptr().expose_provenance(), path.len());
    let args = [libc::AT_FDCWD as usize, link.as_ptr().expose_provenance(), buffer, size, 0, 0];
    // SAFETY: readlinkat(2) reads a C string and writes at most `size` bytes to a buffer of that size.
    let len = unsafe { sys::syscall(libc::SYS_readlinkat as usize, args) }.unwrap_or(0);
    path.get(..len).unwrap_or(&[])
}

/// The command name of the calling thread, which is that of the process while it starts.
pub(super) fn command_name(name: &mut [u8; 16]) -> &[u8] {
    let args = [libc::PR_GET_NAME as usize, name.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the call writes at most 16 bytes, with a zero at the end, to a buffer of that size.
    if unsafe { sys::syscall(libc::SYS_prctl as usize, args) }.is_err() {
        return &[];
    }
    name.split(|&b| b == 0).next().unwrap_or(&[])
}

/// The entries of a C environment.
struct Entries {
    next: *const *const c_char,
}

impl Entries {
    /// # Safety
    /// As for [`Settings::from_environment`]; the entries live as long as the environment, taken as `'static`.
    const unsafe fn new(envp: *const *const c_char) -> Self {
        Self { next: envp }
    }
}

impl Iterator for Entries {
    type Item = &'static [u8];

    fn next(&mut self) -> Option<&'static [u8]> {
        // SAFETY: `next` is at or before the terminating null, whose element is never passed; the strings
        // end with a zero byte (contract of `new`).
        unsafe {
            let entry = *self.next;
            if entry.is_null() {
                return None;
            }
            self.next = self.next.add(1);
            let mut len = 0;
            while *entry.add(len) != 0 {
                len += 1;
            }
            Some(core::slice::from_raw_parts(entry.cast(), len))
        }
    }
}
