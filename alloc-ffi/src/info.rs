//! The questions that glibc's `malloc.h` lets a program ask, and its options.
//!
//! Numbers come from the heap's own snapshot; glibc's heap, which is not in use, is never asked.

use crate::output::Stream;
use alloc_core::global;
use alloc_core::snapshot::Snapshot;
use alloc_stats::Sink;
use core::ffi::{c_int, c_void};

/// `struct mallinfo`: as [`Mallinfo2`], with what does not fit an `int` cut to the greatest one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are those of Mallinfo2")]
pub struct Mallinfo {
    pub arena: c_int,
    pub ordblks: c_int,
    pub smblks: c_int,
    pub hblks: c_int,
    pub hblkhd: c_int,
    pub usmblks: c_int,
    pub fsmblks: c_int,
    pub uordblks: c_int,
    pub fordblks: c_int,
    pub keepcost: c_int,
}

/// `struct mallinfo2`.
///
/// All blocks are counted in `uordblks`, whatever their size, and none as mapped apart (`hblks`, `hblkhd`), so
/// that the sums that monitoring programs make come out right.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Mallinfo2 {
    /// Bytes taken from the system and not given back.
    pub arena: usize,
    /// Free objects, whether in spans or in caches.
    pub ordblks: usize,
    /// Objects in thread caches.
    pub smblks: usize,
    /// Always 0.
    pub hblks: usize,
    /// Always 0.
    pub hblkhd: usize,
    /// Always 0, as in glibc.
    pub usmblks: usize,
    /// Bytes in thread caches.
    pub fsmblks: usize,
    /// Bytes that the program holds.
    pub uordblks: usize,
    /// Bytes that are free: `arena - uordblks`.
    pub fordblks: usize,
    /// Bytes that `malloc_trim` could give back at least.
    pub keepcost: usize,
}

/// What the heap holds, in `int`s.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn mallinfo() -> Mallinfo {
    mallinfo_now()
}

/// What the heap holds.
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    mallinfo2_now()
}

pub(crate) fn mallinfo_now() -> Mallinfo {
    let wide = mallinfo2_now();
    let cut = |value: usize| c_int::try_from(value).unwrap_or(c_int::MAX);
    Mallinfo {
        arena: cut(wide.arena),
        ordblks: cut(wide.ordblks),
        smblks: cut(wide.smblks),
        hblks: cut(wide.hblks),
        hblkhd: cut(wide.hblkhd),
        usmblks: cut(wide.usmblks),
        fsmblks: cut(wide.fsmblks),
        uordblks: cut(wide.uordblks),
        fordblks: cut(wide.fordblks),
        keepcost: cut(wide.keepcost),
    }
}

#[cold]
fn mallinfo2_now() -> Mallinfo2 {
    alloc_stats::output::with_snapshot(summary)
}

#[cold]
fn summary(snapshot: &Snapshot) -> Mallinfo2 {
    let allocated = snapshot.allocated_bytes() as usize;
    let arena = (snapshot.committed_bytes() as usize).max(allocated);
    let cached = snapshot.classes().fold(0, |sum, (_, class)| sum + class.in_thread_caches as usize);
    let free = snapshot.classes().fold(cached, |sum, (_, class)| {
        sum + class.in_transfer_cache as usize + class.free_in_spans as usize
    });
    Mallinfo2 {
        arena,
        ordblks: free,
        smblks: cached,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: snapshot.thread_cache_bytes() as usize,
        uordblks: allocated,
        fordblks: arena - allocated,
        keepcost: snapshot.free_page_bytes() as usize,
    }
}

/// Gives free memory back to the system, all of it: `pad` is not used. Returns 1 if any went back, else 0.
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(global::trim())
}

const M_MXFAST: c_int = 1;
/// The greatest `M_MXFAST` that glibc accepts.
const MAX_MXFAST: c_int = 160;

/// Accepts glibc's options, which tune an allocator that this one has no use for, and changes nothing.
///
/// Returns what glibc would: 0 for a value out of range, else 1, also for an unknown option.
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    set_option(parameter, value)
}

pub(crate) fn set_option(parameter: c_int, value: c_int) -> c_int {
    c_int::from(parameter != M_MXFAST || (0..=MAX_MXFAST).contains(&value))
}

/// Writes the heap's state to a stream in glibc's XML format, version 1.
///
/// Returns 0; `EINVAL` when `options` is not 0.
///
/// # Safety
/// `stream` is an open `FILE` for writing.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's contract.
    let mut stream = unsafe { Stream::new(stream.cast()) };
    alloc_stats::output::with_snapshot(|snapshot| write_xml(snapshot, &mut stream));
    0
}

fn write_xml(s: &Snapshot, out: &mut dyn Sink) {
    out.put_str("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n");
    let mut from = 1;
    for (_, class) in s.classes() {
        let count = class.objects() - class.live;
        if count > 0 {
            let sizes = [("from", from), ("to", class.size), ("total", count * class.size), ("count", count)];
            element(out, "  <size", &sizes);
        }
        from = class.size + 1;
    }
    out.put_str("</sizes>\n");
    totals(s, out);
    out.put_str("</heap>\n");
    totals(s, out);
    out.put_str("</malloc>\n");
}

/// The elements that a heap and the whole document have in common.
#[cold]
fn totals(s: &Snapshot, out: &mut dyn Sink) {
    let info = summary(s);
    let [fast, rest] = [info.smblks, info.ordblks - info.smblks];
    let rest_bytes = info.fordblks.saturating_sub(info.fsmblks);
    element(out, "<total type=\"fast\"", &[("count", fast as u64), ("size", info.fsmblks as u64)]);
    element(out, "<total type=\"rest\"", &[("count", rest as u64), ("size", rest_bytes as u64)]);
    element(out, "<system type=\"current\"", &[("size", info.arena as u64)]);
    let mapped = s.heap_bytes().max(info.arena as u64);
    for start in ["<system type=\"max\"", "<aspace type=\"total\"", "<aspace type=\"mprotect\""] {
        element(out, start, &[("size", mapped)]);
    }
}

/// One line: an element that has begun, with further attributes.
#[cold]
fn element(out: &mut dyn Sink, start: &str, attributes: &[(&str, u64)]) {
    out.put_str(start);
    for &(name, value) in attributes {
        out.put_str(" ");
        out.put_str(name);
        out.put_str("=\"");
        out.put_dec(value);
        out.put_str("\"");
    }
    out.put_str("/>\n");
}

/// Writes the heap's state to standard error, for people.
#[cold]
#[cfg_attr(preload, unsafe(no_mangle))]
pub extern "C" fn malloc_stats() {
    alloc_stats::output::to_fd(2, alloc_stats::Format::Text);
}
