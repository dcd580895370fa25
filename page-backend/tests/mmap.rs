//! Ordinary memory: alignment, growth, limits and transparent huge pages.
#![cfg(not(miri))]

mod common;

use common::{in_child, refuse};
use page_backend::sys::{self, Errno};
use page_backend::{Capabilities, FaultInjector, Mapping, Mmap, PageBackend, Reason, Step, ThpPolicy, Tier};
use std::ptr::NonNull;

const HUGE: usize = 2 << 20;

fn unmap(pages: &impl PageBackend, mapping: Mapping) {
    // SAFETY: the tests forget the mapping.
    unsafe { pages.unmap(mapping.ptr, mapping.len, mapping.tier).unwrap() };
}

/// The flags that the kernel shows for the mapping around an address.
fn vm_flags(at: NonNull<u8>) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().unwrap().split_once('-');
        let bounds = range.and_then(|(from, to)| {
            Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
        });
        if let Some((from, to)) = bounds {
            inside = (from..to).contains(&at.addr().get());
        } else if inside && line.starts_with("VmFlags:") {
            return format!("{} ", line.trim_end());
        }
    }
    panic!("{at:?} is not mapped");
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn every_alignment_up_to_a_gibibyte() {
    let pages = Mmap::new();
    for shift in sys::page_size().trailing_zeros()..=30 {
        for size in [sys::page_size(), HUGE, 3 * HUGE] {
            let run = pages.map(size, 1 << shift).unwrap();
            assert_eq!(run.ptr.addr().get() % (1 << shift), 0);
            // SAFETY: the run is ours.
            unsafe {
                run.ptr.write(1);
                run.ptr.add(size - 1).write(1);
            }
            unmap(&pages, run);
        }
    }
    assert_eq!(pages.usage(Tier(0)).mapped, 0);
}

#[test]
fn aligned_runs_leave_no_scraps_of_address_space() {
    let status = in_child(|| {
        let pages = Mmap::new();
        let before = mappings();
        let runs: Vec<_> = (0..200).map(|_| pages.map(HUGE, HUGE).unwrap()).collect();
        let with = mappings();
        assert!(with <= before + 200, "{before} mappings, then {with}");
        for run in runs {
            unmap(&pages, run);
        }
        assert!(mappings() <= before + 1, "{before} mappings, then {}", mappings());
    });
    assert_eq!(status, 0);
}

#[test]
fn impossible_requests_are_errors() {
    let pages = Mmap::new();
    let page = pages.granule();
    for (size, align) in
        [(0, page), (page, 0), (page + 1, page), (page, 3 * page), (page, page / 2), (1 << 63, page)]
    {
        assert_eq!(pages.map(size, align).unwrap_err().reason, Reason::BadRequest, "{size} {align}");
    }
    let error = pages.map(1 << 60, page).unwrap_err();
    assert_eq!((error.reason, error.step, error.errno), (Reason::NoMemory, Step::Map, Some(Errno::ENOMEM)));
    assert!(pages.map(page, 1 << 60).is_err());
    assert_eq!(pages.usage(Tier(0)).mapped, 0);
}

#[test]
fn a_limit_of_address_space_is_named() {
    let status = in_child(|| {
        let limit = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
        // SAFETY: the call reads the structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        let pages = Mmap::new();
        let error = pages.map(4 << 30, pages.granule()).unwrap_err();
        assert_eq!((error.reason, error.errno), (Reason::Rlimit, Some(Errno::ENOMEM)));
        unmap(&pages, pages.map(HUGE, HUGE).unwrap());
    });
    assert_eq!(status, 0);
}

#[test]
fn growth_stops_at_a_neighbour() {
    let pages = Mmap::new();
    let page = pages.granule();
    let run = pages.map(4 * page, page).unwrap();
    // SAFETY: the run is ours; its second half is given back and taken by growth.
    unsafe {
        pages.unmap(run.ptr.add(2 * page), 2 * page, run.tier).unwrap();
        run.ptr.write_bytes(5, 2 * page);
        pages.grow(run.ptr, 2 * page, page, run.tier).unwrap();
        assert_eq!((run.ptr.add(2 * page - 1).read(), run.ptr.add(2 * page).read()), (5, 0));
        // One page is free behind; two are not if something follows, and then nothing is mapped.
        let neighbour =
            sys::mmap(run.ptr.add(3 * page).as_ptr(), page, sys::MapFlags::ANONYMOUS, -1, 0).unwrap();
        if neighbour == run.ptr.add(3 * page) {
            neighbour.write(6);
            let error = pages.grow(run.ptr, 3 * page, page, run.tier).unwrap_err();
            assert_eq!((error.step, error.errno), (Step::Remap, Some(Errno::EEXIST)));
            assert_eq!(neighbour.read(), 6);
        }
        sys::munmap(neighbour, page).unwrap();
        pages.unmap(run.ptr, 3 * page, run.tier).unwrap();
    }
}

#[test]
fn moving_keeps_content_without_copying() {
    let pages = Mmap::new();
    assert!(pages.capabilities(Tier(0)).contains(Capabilities::REMAP));
    let run = pages.map(HUGE, HUGE).unwrap();
    // SAFETY: the run is ours, and its old address is not used after each move.
    unsafe {
        run.ptr.write_bytes(7, HUGE);
        let run = pages.remap(run.ptr, HUGE, 4 * HUGE, HUGE, run.tier).unwrap();
        assert_eq!(run.ptr.addr().get() % HUGE, 0);
        assert_eq!((run.ptr.add(HUGE - 1).read(), run.ptr.add(HUGE).read()), (7, 0));
        let run = pages.remap(run.ptr, 4 * HUGE, HUGE, HUGE, run.tier).unwrap();
        assert_eq!((run.len, pages.usage(run.tier).mapped, run.ptr.read()), (HUGE, HUGE, 7));
        unmap(&pages, run);
    }
}

/// A run of eight pages in three mappings, the first byte of each page its number from 1.
fn run_of_three_mappings(pages: &impl PageBackend) -> Mapping {
    let page = pages.granule();
    let run = pages.map(8 * page, page).unwrap();
    // SAFETY: the run is ours. The advice makes three mappings of it.
    unsafe {
        for i in 0..8 {
            run.ptr.add(i * page).write(i as u8 + 1);
        }
        sys::madvise(run.ptr.add(3 * page), 2 * page, sys::Advice::DontDump).unwrap();
        assert!(!sys::is_one_mapping(run.ptr, 8 * page).unwrap());
        assert!(sys::is_one_mapping(run.ptr, 3 * page).unwrap());
        assert!(sys::is_one_mapping(run.ptr.add(page), page).unwrap());
    }
    run
}

fn is_as_made(run: Mapping) -> bool {
    // SAFETY: the tests' run.
    (0..8).all(|i| unsafe { run.ptr.add(i * sys::page_size()).read() } == i as u8 + 1)
}

/// The bytes of address space that this process has.
fn address_space() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<usize>().unwrap() * sys::page_size()
}

#[test]
fn a_run_of_several_mappings_moves_as_a_whole() {
    let status = in_child(|| {
        let pages = Mmap::new();
        let page = pages.granule();
        let run = run_of_three_mappings(&pages);
        let before = address_space();
        // SAFETY: the run is ours, and its old address is not used after the move.
        unsafe {
            let moved = pages.remap(run.ptr, 8 * page, 16 * page, page, run.tier).unwrap();
            assert_ne!(moved.ptr, run.ptr);
            assert!(is_as_made(moved));
            assert!((8..16).all(|i| moved.ptr.add(i * page).read() == 0));
            assert_eq!(pages.usage(run.tier).mapped, 16 * page);
            assert_eq!(address_space(), before + 8 * page, "nothing of the old place is left");
            unmap(&pages, moved);
        }
    });
    assert_eq!(status, 0);
}

#[test]
fn a_move_of_several_mappings_that_fails_half_way_is_undone() {
    let status = in_child(|| {
        let pages = Mmap::new();
        let page = pages.granule();
        let run = run_of_three_mappings(&pages);
        // The last piece does not go, the others do.
        let last = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        refuse(libc::SYS_mremap, 3, &[last as u32], libc::ENOMEM);
        // SAFETY: the run is ours.
        let error = unsafe { pages.remap(run.ptr, 8 * page, 16 * page, page, run.tier) }.unwrap_err();
        assert_eq!((error.reason, error.errno), (Reason::NoMemory, Some(Errno::ENOMEM)));
        assert!(is_as_made(run));
        assert_eq!(pages.usage(run.tier).mapped, 8 * page);
        // SAFETY: the run is ours.
        unsafe { run.ptr.write_bytes(9, 8 * page) };
        unmap(&pages, run);
        assert_eq!(pages.usage(run.tier).mapped, 0);
    });
    assert_eq!(status, 0);
}

#[test]
fn an_older_kernel_moves_one_mapping_and_no_more() {
    let status = in_child(|| {
        let pages = Mmap::new();
        let page = pages.granule();
        let run = run_of_three_mappings(&pages);
        let keep = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        refuse(libc::SYS_mremap, 3, &[keep as u32], libc::EINVAL);
        // SAFETY: the run is ours; so is the second one, whose old address is not used after its move.
        unsafe {
            assert!(pages.remap(run.ptr, 8 * page, 16 * page, page, run.tier).is_err());
            assert!(is_as_made(run));
            // What the first try may have lost of the address space, later ones do not.
            let before = address_space();
            for _ in 0..100 {
                assert!(pages.remap(run.ptr, 8 * page, 16 * page, page, run.tier).is_err());
            }
            assert_eq!(address_space(), before);
            unmap(&pages, run);
            let one = pages.map(8 * page, page).unwrap();
            one.ptr.write(5);
            let moved = pages.remap(one.ptr, 8 * page, 1 << 30, page, one.tier).unwrap();
            assert_eq!(moved.ptr.read(), 5);
            unmap(&pages, moved);
        }
    });
    assert_eq!(status, 0);
}

#[test]
fn a_run_that_has_moved_and_grown_is_one_mapping() {
    let status = in_child(|| {
        let pages = Mmap::new();
        let run = pages.map(2 * HUGE, HUGE).unwrap();
        let grown = |run: Mapping, extra| {
            // SAFETY: the run is ours.
            unsafe { pages.grow(run.ptr, run.len, extra, run.tier) }
        };
        // SAFETY: the run is ours; its old address is not used after the move. A neighbour keeps it from growing in place.
        unsafe {
            run.ptr.write_bytes(7, run.len);
            let wall =
                sys::mmap(run.ptr.add(run.len).as_ptr(), 4096, sys::MapFlags::ANONYMOUS, -1, 0).unwrap();
            let moved = pages.remap(run.ptr, run.len, 64 * HUGE, HUGE, run.tier).unwrap();
            pages.unmap(moved.ptr.add(8 * HUGE), 56 * HUGE, run.tier).unwrap();
            let moved = Mapping { len: 8 * HUGE, ..moved };
            grown(moved, 4 * HUGE).unwrap();
            assert!(sys::is_one_mapping(moved.ptr, 12 * HUGE).unwrap());
            assert_eq!((moved.ptr.read(), moved.ptr.add(12 * HUGE - 1).read()), (7, 0));
            unmap(&pages, Mapping { len: 12 * HUGE, ..moved });
            sys::munmap(wall, 4096).unwrap();
        }
        assert_eq!(pages.usage(Tier(0)).mapped, 0);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_move_that_the_kernel_refuses_changes_nothing() {
    let status = in_child(|| {
        let pages = Mmap::new();
        let page = pages.granule();
        let run = pages.map(8 * page, page).unwrap();
        // SAFETY: the run is ours. A hole in the middle makes the kernel refuse to move it.
        unsafe {
            run.ptr.write_bytes(3, page);
            sys::munmap(run.ptr.add(4 * page), page).unwrap();
            let before = mappings();
            for align in [page, HUGE << 10] {
                assert!(pages.remap(run.ptr, 8 * page, 16 * page, align, run.tier).is_err());
            }
            assert_eq!(run.ptr.read(), 3);
            assert!(mappings() <= before, "the target must not stay behind");
        }
    });
    assert_eq!(status, 0);
}

#[test]
fn huge_page_policies_reach_the_kernel() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists() {
        println!("this kernel has no transparent huge pages; testing that policies do no harm instead");
        for thp in [ThpPolicy::Never, ThpPolicy::Madvise, ThpPolicy::Collapse] {
            let pages = Mmap::with_thp(thp);
            unmap(&pages, pages.map(HUGE, HUGE).unwrap());
        }
        return;
    }
    for (thp, hg, nh) in [
        (ThpPolicy::Default, false, false),
        (ThpPolicy::Never, false, true),
        (ThpPolicy::Madvise, true, false),
        (ThpPolicy::Collapse, true, false),
    ] {
        let pages = Mmap::with_thp(thp);
        let run = pages.map(2 * HUGE, HUGE).unwrap();
        let flags = vm_flags(run.ptr);
        assert_eq!((flags.contains(" hg "), flags.contains(" nh ")), (hg, nh), "{thp:?}: {flags}");
        unmap(&pages, run);
    }
}

#[test]
fn huge_pages_do_not_fill_holes() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let used = !enabled.is_empty() && !enabled.contains("[never]");
    let pages = Mmap::with_thp(ThpPolicy::Madvise);
    let run = pages.map(2 * HUGE, HUGE).unwrap();
    // SAFETY: the run is ours.
    unsafe {
        pages.set_holes(run.ptr, HUGE, run.tier, true);
        assert_eq!(vm_flags(run.ptr).contains(" nh "), used);
        assert!(!vm_flags(run.ptr.add(HUGE)).contains(" nh "), "the neighbour keeps its huge pages");
        pages.set_holes(run.ptr, HUGE, run.tier, false);
        assert!(!vm_flags(run.ptr).contains(" nh "));
    }
    unmap(&pages, run);
}

#[test]
fn collapse_is_for_its_policy_only() {
    let pages = Mmap::with_thp(ThpPolicy::Madvise);
    let run = pages.map(HUGE, HUGE).unwrap();
    // SAFETY: the run is ours.
    let error = unsafe { pages.collapse(run.ptr, HUGE) }.unwrap_err();
    assert_eq!((error.reason, error.errno), (Reason::Unsupported, None));
    unmap(&pages, run);

    let pages = Mmap::with_thp(ThpPolicy::Collapse);
    let run = pages.map(HUGE, HUGE).unwrap();
    // SAFETY: the run is ours.
    unsafe {
        run.ptr.write_bytes(1, HUGE);
        // Whether there is a huge page depends on the machine; the content does not.
        let _ = pages.collapse(run.ptr, HUGE);
        assert!(std::slice::from_raw_parts(run.ptr.as_ptr(), HUGE).iter().all(|&byte| byte == 1));
    }
    unmap(&pages, run);
}

#[test]
fn errno_and_the_childs_settings_stay() {
    let pages = FaultInjector::new(Mmap::new());
    // SAFETY: errno is this thread's own; the run is ours.
    unsafe {
        *libc::__errno_location() = 123;
        let run = pages.map(HUGE, 4 * HUGE).unwrap();
        pages.purge(run.ptr, HUGE, run.tier).unwrap();
        assert!(pages.map(1 << 60, HUGE).is_err());
        assert!(pages.grow(run.ptr, HUGE, 1 << 60, run.tier).is_err());
        unmap(&pages, run);
        assert_eq!(*libc::__errno_location(), 123);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(!status.contains("THP_enabled:\t0"), "no setting that children inherit");
}
