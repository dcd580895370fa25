//! Statistics that a process writes by itself: at its exit, and on an interval to a file.
//!
//! A file is written under a second name and renamed, so that a reader finds a whole one. Nothing here
//! allocates or waits for a lock, but writing takes as long as the file system does.

use crate::sink::{FdSink, SliceSink};
use crate::{About, property, render};
use alloc_core::global::{self, start};
use alloc_core::message::{Message, Sink, decimal};
use alloc_core::settings::{Format, PATH_LEN, Settings};
use alloc_core::snapshot::Snapshot;
use alloc_core::stats_page::{self, Publisher};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use page_backend::sys;

/// CLOCK_MONOTONIC of the next write of the interval file, in nanoseconds.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The process that [`install`] was called in.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Whether a failed write has been told of.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Calls `use_it` with a snapshot of the process-wide heap, which is published to the stats page as well.
///
/// The snapshot stands in the page, because it is large for the stacks of some threads. Only when others keep the page busy
/// for some milliseconds, or this thread is in the middle of publishing, does it go on the stack.
pub fn with_snapshot<R>(use_it: impl FnOnce(&Snapshot) -> R) -> R {
    for _ in 0..20 {
        if let Some(mut publisher) = Publisher::take() {
            return use_it(publisher.publish(global::snapshot).0);
        }
        sys::nanosleep(100_000);
    }
    on_the_stack(use_it)
}

#[cold]
#[inline(never)]
fn on_the_stack<R>(use_it: impl FnOnce(&Snapshot) -> R) -> R {
    let mut snapshot = Snapshot::EMPTY;
    global::snapshot(&mut snapshot);
    use_it(&snapshot)
}

/// Renders the process-wide heap to a file descriptor; false if the kernel refused some of it.
pub fn to_fd(fd: i32, format: Format) -> bool {
    with_snapshot(|snapshot| {
        let mut sink = FdSink::new(fd);
        render(format, snapshot, &About::this_process(), &mut sink);
        sink.finish().is_ok()
    })
}

/// Renders the process-wide heap to a buffer and returns the length of the whole text, which is cut if the
/// buffer is shorter, as by `snprintf`; no zero is appended.
pub fn to_buffer(buffer: &mut [u8], format: Format) -> usize {
    let mut sink = SliceSink::new(buffer);
    with_snapshot(|snapshot| render(format, snapshot, &About::this_process(), &mut sink));
    sink.needed()
}

/// The value of the process-wide heap called `name`; see [`property::lookup`].
pub fn property(name: &[u8]) -> Option<u64> {
    with_snapshot(|snapshot| property::lookup(snapshot, name))
}

/// Arranges the outputs that the settings ask for. Call it once, when the settings are known.
pub fn install(settings: &Settings) {
    OWNER.store(sys::getpid().unsigned_abs(), Ordering::Relaxed);
    if !settings.stats_file.is_empty() && settings.stats_interval != 0 {
        stats_page::set_observer(maybe_write);
    }
}

/// Writes the interval file if its time has come. `now` is CLOCK_MONOTONIC in nanoseconds.
pub fn maybe_write(snapshot: &Snapshot, now: u64) {
    let due = NEXT.load(Ordering::Relaxed);
    let settings = start::settings();
    if now < due || settings.stats_interval == 0 {
        return;
    }
    NEXT.store(now + u64::from(settings.stats_interval) * 1_000_000, Ordering::Relaxed);
    write_file_once_told(settings, snapshot);
}

/// What the settings ask for at the end of the process: statistics on standard error, and the file once more.
pub fn at_exit() {
    let settings = start::settings();
    if settings.stats_at_exit == Format::Off && settings.stats_file.is_empty() {
        return;
    }
    with_snapshot(|snapshot| {
        let mut sink = FdSink::new(2);
        render(settings.stats_at_exit, snapshot, &About::this_process(), &mut sink);
        // There is nobody left to tell.
        let _ = sink.finish();
        if !settings.stats_file.is_empty() {
            write_file_once_told(settings, snapshot);
        }
    });
}

#[cold]
fn write_file_once_told(settings: &Settings, snapshot: &Snapshot) {
    let pattern = settings.stats_file.as_bytes();
    let pid = sys::getpid().unsigned_abs();
    // The child of a plain fork must not overwrite its parent's file.
    if OWNER.load(Ordering::Relaxed) != pid && !pattern.windows(2).any(|w| w == b"%p") {
        return;
    }
    if let Err(errno) = write_file(pattern, snapshot, pid)
        && !TOLD.swap(true, Ordering::Relaxed)
    {
        Message::new()
            .str("cannot write stats_file ")
            .bytes(pattern)
            .str(": error ")
            .dec(u64::from(errno.0.unsigned_abs()))
            .send();
    }
}

/// The format that a file name asks for: `.json`, `.prom`, otherwise text.
pub fn format_of(path: &[u8]) -> Format {
    if path.ends_with(b".json") {
        Format::Json
    } else if path.ends_with(b".prom") {
        Format::Prom
    } else {
        Format::Text
    }
}

/// A C string on the stack.
struct Path {
    bytes: [u8; PATH_LEN + 64],
    len: usize,
}

impl Path {
    const fn new() -> Self {
        Self { bytes: [0; PATH_LEN + 64], len: 0 }
    }

    /// The path with `%p` replaced by the process id.
    #[cold]
    fn expand(pattern: &[u8], pid: u32) -> Self {
        let mut path = Self::new();
        let mut digits = [0; 20];
        let pid = decimal(u64::from(pid), &mut digits);
        let mut rest = pattern;
        while let Some((&byte, tail)) = rest.split_first() {
            if let Some(after) = rest.strip_prefix(b"%p") {
                path.put(pid);
                rest = after;
            } else {
                path.put(&[byte]);
                rest = tail;
            }
        }
        path
    }

    /// The string, or `None` if it did not fit or has a zero in it.
    fn as_c_str(&self) -> Option<&CStr> {
        let c_str = CStr::from_bytes_until_nul(self.bytes.get(..=self.len)?).ok()?;
        (c_str.count_bytes() == self.len).then_some(c_str)
    }
}

impl Sink for Path {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
        // A path that does not fit is longer than its bytes, which `as_c_str` notices.
        self.len = self.len.saturating_add(bytes.len());
    }
}

/// Writes a snapshot to the file that `pattern` names, in the format of its name.
///
/// # Errors
/// The kernel's word for what failed; an older file is then still whole. `EEXIST` when something else than a regular file
/// is there: to rename onto a device or a link, such as `/dev/stderr`, would take it from the whole system.
pub fn write_file(pattern: &[u8], snapshot: &Snapshot, pid: u32) -> Result<(), sys::Errno> {
    const TOO_LONG: sys::Errno = sys::Errno(libc::ENAMETOOLONG);
    let path = Path::expand(pattern, pid);
    let mut draft = Path::expand(pattern, pid);
    draft.put_str(".tmp.");
    draft.put_dec(u64::from(pid));
    let (path, draft) = (path.as_c_str().ok_or(TOO_LONG)?, draft.as_c_str().ok_or(TOO_LONG)?);

    if is_other_than_file(path) {
        return Err(sys::Errno(libc::EEXIST));
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let fd = sys::open(draft, flags, 0o644)?;
    readable_by_all(fd);
    let mut sink = FdSink::new(fd);
    let about = About { pid, ..About::this_process() };
    render(format_of(pattern), snapshot, &about, &mut sink);
    let written = sink.finish();
    sys::close(fd);
    let result = written.and_then(|()| rename(draft, path));
    if result.is_err() {
        unlink(draft);
    }
    result
}

/// Servers have a strict umask, and the exporter that reads the file is another user. What is beyond reach of
/// others belongs in a folder that is.
fn readable_by_all(fd: i32) {
    // SAFETY: fchmod(2) takes no pointers. If it fails the file keeps the mode that the umask left.
    let _ = unsafe { sys::syscall(libc::SYS_fchmod as usize, [fd as usize, 0o644, 0, 0, 0, 0]) };
}

/// Whether a device, a link, a pipe or a folder has this name.
fn is_other_than_file(path: &CStr) -> bool {
    let mut found = core::mem::MaybeUninit::<libc::stat>::uninit();
    let (name, place) = (path.as_ptr().expose_provenance(), found.as_mut_ptr().expose_provenance());
    let args = [libc::AT_FDCWD as usize, name, place, libc::AT_SYMLINK_NOFOLLOW as usize, 0, 0];
    // SAFETY: newfstatat(2) reads a C string that outlives the call and writes a `stat`, which it has filled on success.
    unsafe {
        sys::syscall(libc::SYS_newfstatat as usize, args).is_ok()
            && found.assume_init_ref().st_mode & libc::S_IFMT != libc::S_IFREG
    }
}

fn rename(from: &CStr, to: &CStr) -> Result<(), sys::Errno> {
    let here = libc::AT_FDCWD as usize;
    let (from, to) = (from.as_ptr().expose_provenance(), to.as_ptr().expose_provenance());
    // SAFETY: renameat2(2) reads two C strings that outlive the call.
    unsafe { sys::syscall(libc::SYS_renameat2 as usize, [here, from, here, to, 0, 0]) }.map(|_| ())
}

fn unlink(path: &CStr) {
    let path = path.as_ptr().expose_provenance();
    // SAFETY: unlinkat(2) reads a C string that outlives the call.
    let _ = unsafe { sys::syscall(libc::SYS_unlinkat as usize, [libc::AT_FDCWD as usize, path, 0, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::string::ToString;
    use std::{env, format, fs, process};

    #[test]
    fn names_choose_the_format_and_take_the_process_id() {
        assert_eq!(format_of(b"/x/a.prom"), Format::Prom);
        assert_eq!(format_of(b"/x/a.json"), Format::Json);
        assert_eq!(format_of(b"/x/a"), Format::Text);
        assert_eq!(Path::expand(b"/a%p.%q%", 12).as_c_str(), Some(c"/a12.%q%"));
        assert_eq!(Path::expand(&[b'x'; PATH_LEN + 64], 12).as_c_str(), None);
        assert_eq!(Path::expand(b"a\0b", 12).as_c_str(), None);
    }

    #[test]
    fn files_are_replaced_whole_and_failures_leave_nothing() {
        let dir = env::temp_dir().join(format!("stratalloc-output-{}", process::id()));
        fs::create_dir_all(&dir).unwrap();
        let pattern = dir.join("stats-%p.json").to_str().unwrap().to_string();
        let mut snapshot = Snapshot::EMPTY;
        write_file(pattern.as_bytes(), &snapshot, 77).unwrap();
        let path = dir.join("stats-77.json");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let first = fs::read_to_string(&path).unwrap();
        snapshot.large.count = 5;
        write_file(pattern.as_bytes(), &snapshot, 77).unwrap();
        let second = fs::read_to_string(&path).unwrap();
        assert_ne!(first, second);
        let value: serde_json::Value = serde_json::from_str(&second).unwrap();
        assert_eq!((value["pid"].as_u64(), value["large"]["count"].as_u64()), (Some(77), Some(5)));

        // What is no file stays: as root, `/dev/stderr` would be renamed onto.
        fs::create_dir(dir.join("taken.json")).unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.join("link.json")).unwrap();
        for name in ["taken.json", "link.json"] {
            let taken = dir.join(name).to_str().unwrap().to_string();
            assert_eq!(write_file(taken.as_bytes(), &snapshot, 77), Err(sys::Errno(libc::EEXIST)));
        }
        assert!(fs::symlink_metadata(dir.join("link.json")).unwrap().is_symlink());
        let missing = dir.join("no/such.json").to_str().unwrap().to_string();
        assert_eq!(write_file(missing.as_bytes(), &snapshot, 77), Err(sys::Errno::ENOENT));
        let mut left: std::vec::Vec<_> =
            fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["link.json", "stats-77.json", "taken.json"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
