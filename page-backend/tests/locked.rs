//! Locked memory against the kernel's own count, limits and budgets. What changes a limit runs in a child.
#![cfg(not(miri))]

mod common;

use common::{in_child, limit_locked_memory, pretend_old_kernel, status_kb};
use page_backend::sys;
use page_backend::{
    Capabilities, FallbackPolicy, FixedBuffer, LinkConfig, LockMode, LockTime, Locked, Mapping, Mmap,
    PageBackend, Reason, Step, System, SystemConfig, Tier,
};

/// Small enough for the lowest usual limit.
const SIZE: usize = 64 * 1024;

fn map(pages: &impl PageBackend, size: usize) -> Mapping {
    pages.map(size, pages.granule()).unwrap()
}

fn unmap(pages: &impl PageBackend, mapping: Mapping) {
    // SAFETY: the tests forget the mapping.
    unsafe { pages.unmap(mapping.ptr, mapping.len, mapping.tier).unwrap() };
}

/// Pages of a range that are in memory.
fn resident(mapping: Mapping) -> usize {
    let mut states = vec![0u8; mapping.len / sys::page_size()];
    // SAFETY: the range is mapped, and there is a byte for each page.
    assert_eq!(unsafe { libc::mincore(mapping.ptr.as_ptr().cast(), mapping.len, states.as_mut_ptr()) }, 0);
    states.iter().filter(|&&state| state & 1 == 1).count()
}

/// Whether this process may lock `bytes`; if not, says so and tests that it is refused.
fn may_lock(bytes: usize) -> bool {
    let limit = sys::getrlimit(sys::Limit::Locked).unwrap();
    let may = sys::has_cap_ipc_lock() || limit >= bytes as u64;
    if !may {
        println!("the limit of locked memory is {limit} bytes; testing the refusal instead");
        let pages = Locked::new(Mmap::new(), LockMode::Strict);
        assert_eq!(pages.map(bytes.max(SIZE), pages.granule()).unwrap_err().reason, Reason::Rlimit);
    }
    may
}

#[test]
fn locked_bytes_are_what_the_kernel_counts() {
    if !may_lock(4 << 20) {
        return;
    }
    let status = in_child(|| {
        for time in [LockTime::AtMap, LockTime::OnTouch] {
            let pages = Locked::with_options(Mmap::new(), LockMode::Strict, time, usize::MAX);
            let run = map(&pages, SIZE);
            assert_eq!(run.tier, Tier(0));
            assert!(pages.capabilities(run.tier).contains(Capabilities::LOCKED));
            assert_eq!(pages.name(run.tier), "locked-mmap");
            let all = SIZE / sys::page_size();
            assert_eq!(resident(run), if time == LockTime::AtMap { all } else { 0 });
            assert_eq!((pages.usage(run.tier).locked, status_kb("VmLck") * 1024), (SIZE, SIZE));
            // SAFETY: the run is ours.
            unsafe {
                if pages.grow(run.ptr, run.len, SIZE, run.tier).is_ok() {
                    assert_eq!(status_kb("VmLck") * 1024, 2 * SIZE);
                    pages.unmap(run.ptr.add(SIZE), SIZE, run.tier).unwrap();
                }
                let run = pages.remap(run.ptr, run.len, 3 * SIZE, sys::page_size(), run.tier).unwrap();
                assert_eq!((pages.usage(run.tier).locked, status_kb("VmLck") * 1024), (3 * SIZE, 3 * SIZE));
                pages.unmap(run.ptr, run.len, run.tier).unwrap();
            }
            assert_eq!((pages.usage(Tier(0)).locked, status_kb("VmLck")), (0, 0));
        }
    });
    assert_eq!(status, 0);
}

#[test]
fn locked_memory_of_several_mappings_keeps_its_locks() {
    if !may_lock(4 << 20) {
        return;
    }
    let status = in_child(|| {
        for time in [LockTime::AtMap, LockTime::OnTouch] {
            let pages = Locked::with_options(Mmap::new(), LockMode::Strict, time, 4 * SIZE);
            let run = map(&pages, SIZE);
            // SAFETY: the run is ours. The advice makes two mappings of it.
            unsafe {
                run.ptr.write_bytes(5, SIZE);
                sys::madvise(run.ptr, SIZE / 2, sys::Advice::DontDump).unwrap();
                assert!(pages.remap(run.ptr, SIZE, 2 * SIZE, sys::page_size(), run.tier).is_err());
                assert_eq!((run.ptr.read(), run.ptr.add(SIZE - 1).read()), (5, 5));
            }
            assert_eq!((pages.usage(run.tier).locked, status_kb("VmLck") * 1024), (SIZE, SIZE));
            unmap(&pages, run);
            assert_eq!((pages.usage(Tier(0)).locked, status_kb("VmLck")), (0, 0));
        }
    });
    assert_eq!(status, 0);
}

#[test]
fn growth_keeps_to_the_budget() {
    if !may_lock(4 << 20) {
        return;
    }
    let status = in_child(|| {
        let pages = Locked::with_options(Mmap::new(), LockMode::Fallback, LockTime::AtMap, SIZE);
        let run = map(&pages, SIZE);
        // SAFETY: the run is ours.
        let error = unsafe { pages.grow(run.ptr, SIZE, SIZE, run.tier) }.unwrap_err();
        assert_eq!(error.reason, Reason::CapReached);
        assert_eq!((pages.usage(run.tier).locked, status_kb("VmLck") * 1024), (SIZE, SIZE));
        assert_eq!(pages.usage(run.tier).mapped, SIZE);
        unmap(&pages, run);
        // What was refused is not counted: the budget is whole again.
        let run = map(&pages, SIZE);
        assert_eq!((run.tier, pages.usage(Tier(0)).locked), (Tier(0), SIZE));
        unmap(&pages, run);
    });
    assert_eq!(status, 0);
}

#[test]
fn purged_locked_memory_is_gone_and_reads_zero() {
    if !may_lock(4 << 20) {
        return;
    }
    let pages = Locked::new(Mmap::new(), LockMode::Strict);
    let run = map(&pages, SIZE);
    // SAFETY: the run is ours.
    unsafe {
        run.ptr.write_bytes(9, SIZE);
        assert_eq!(resident(run), SIZE / sys::page_size());
        pages.purge(run.ptr, SIZE / 2, run.tier).unwrap();
        assert_eq!(resident(run), SIZE / 2 / sys::page_size());
        assert_eq!(
            (run.ptr.read(), run.ptr.add(SIZE / 2 - 1).read(), run.ptr.add(SIZE / 2).read()),
            (0, 0, 9)
        );
    }
    unmap(&pages, run);
}

#[test]
fn an_older_kernel_purges_locked_memory_by_unlocking_it() {
    if !may_lock(4 << 20) {
        return;
    }
    let status = in_child(|| {
        pretend_old_kernel();
        let pages = Locked::new(Mmap::new(), LockMode::Strict);
        let run = map(&pages, SIZE);
        // SAFETY: the run is ours.
        unsafe {
            run.ptr.write_bytes(9, SIZE);
            pages.purge(run.ptr, SIZE / 2, run.tier).unwrap();
            assert_eq!(resident(run), SIZE / 2 / sys::page_size());
            assert_eq!((run.ptr.read(), run.ptr.add(SIZE / 2).read()), (0, 9));
        }
        assert_eq!(status_kb("VmLck") * 1024, SIZE);
        unmap(&pages, run);
        assert_eq!((pages.usage(Tier(0)).locked, status_kb("VmLck")), (0, 0));
    });
    assert_eq!(status, 0);
}

#[test]
fn purge_works_when_the_program_has_locked_all_its_memory() {
    if !may_lock(4 << 20) {
        return;
    }
    let status = in_child(|| {
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) }, 0);
        let pages = Mmap::new();
        let run = map(&pages, SIZE);
        for fill in [1, 2] {
            // SAFETY: the run is ours.
            unsafe {
                run.ptr.write_bytes(fill, SIZE);
                pages.purge(run.ptr, SIZE, run.tier).unwrap();
                assert_eq!(resident(run), 0);
                assert_eq!(run.ptr.read(), 0);
            }
        }
        unmap(&pages, run);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_small_limit_gives_unlocked_memory_or_an_error_by_mode() {
    if !may_lock(SIZE) {
        return;
    }
    let status = in_child(|| {
        limit_locked_memory(SIZE as u64);
        let pages = Locked::new(Mmap::new(), LockMode::Fallback);
        assert_eq!(pages.tiers(), 2);
        let within = map(&pages, SIZE);
        assert_eq!((within.tier, status_kb("VmLck") * 1024), (Tier(0), SIZE));
        let beyond = map(&pages, SIZE);
        assert_eq!((beyond.tier, pages.name(beyond.tier)), (Tier(1), "mmap"));
        assert!(!pages.capabilities(beyond.tier).contains(Capabilities::LOCKED));
        let told = pages.take_new_fallback().unwrap();
        assert_eq!((told.reason, told.step, told.errno), (Reason::Rlimit, Step::Check, None));
        assert_eq!(pages.usage(Tier(0)).fallbacks[Reason::Rlimit as usize], 1);
        assert_eq!((pages.usage(Tier(0)).mapped, pages.usage(Tier(1)).mapped), (SIZE, SIZE));
        unmap(&pages, within);
        let again = map(&pages, SIZE);
        assert_eq!(again.tier, Tier(0), "what was given back can be locked again");
        unmap(&pages, again);
        unmap(&pages, beyond);

        let strict = Locked::new(Mmap::new(), LockMode::Strict);
        assert_eq!(strict.tiers(), 1);
        assert_eq!(strict.map(2 * SIZE, strict.granule()).unwrap_err().reason, Reason::Rlimit);
        assert_eq!((strict.usage(Tier(0)).mapped, status_kb("VmLck")), (0, 0));
    });
    assert_eq!(status, 0);
}

#[test]
fn memory_that_others_have_locked_counts_against_the_limit() {
    if !may_lock(SIZE) {
        return;
    }
    let status = in_child(|| {
        limit_locked_memory(SIZE as u64);
        let others = sys::mmap_anonymous(SIZE).unwrap();
        // SAFETY: the range is ours.
        unsafe { sys::mlock(others, SIZE).unwrap() };
        let pages = Locked::new(Mmap::new(), LockMode::Strict);
        let error = pages.map(SIZE, pages.granule()).unwrap_err();
        assert_eq!((error.reason, error.step), (Reason::Rlimit, Step::Lock));
        assert_eq!(status_kb("VmLck") * 1024, SIZE);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_limit_of_zero_is_named() {
    let status = in_child(|| {
        limit_locked_memory(0);
        let pages = Locked::new(Mmap::new(), LockMode::Fallback);
        let run = map(&pages, SIZE);
        assert_eq!(run.tier, Tier(1));
        assert_eq!(pages.take_new_fallback().unwrap().reason, Reason::Rlimit);
    });
    assert_eq!(status, 0);
}

#[test]
fn the_budget_holds() {
    if !may_lock(4 << 20) {
        return;
    }
    let pages = Locked::with_options(Mmap::new(), LockMode::Fallback, LockTime::AtMap, SIZE);
    let first = map(&pages, SIZE);
    let second = map(&pages, SIZE);
    assert_eq!((first.tier, second.tier), (Tier(0), Tier(1)));
    assert_eq!(pages.take_new_fallback().unwrap().reason, Reason::CapReached);
    // SAFETY: the run is ours.
    unsafe {
        let error = pages.remap(first.ptr, first.len, 2 * SIZE, sys::page_size(), first.tier).unwrap_err();
        assert_eq!(error.reason, Reason::CapReached);
    }
    unmap(&pages, first);
    unmap(&pages, second);
    assert_eq!(pages.usage(Tier(0)).locked, 0);
}

#[test]
fn a_forked_child_holds_no_locks_and_takes_none() {
    if !may_lock(4 << 20) {
        return;
    }
    let pages = Locked::new(Mmap::new(), LockMode::Fallback);
    let run = map(&pages, SIZE);
    let status = in_child(|| {
        pages.after_fork_in_child();
        assert_eq!((pages.usage(Tier(0)).locked, status_kb("VmLck")), (0, 0));
        let own = map(&pages, SIZE);
        assert_eq!((own.tier, status_kb("VmLck")), (Tier(1), 0));
        assert_eq!(pages.usage(Tier(0)).fallbacks[Reason::Forked as usize], 1);
        // SAFETY: the child has a copy of the run, which it purges and gives back.
        unsafe {
            run.ptr.write_bytes(1, SIZE);
            pages.purge(run.ptr, SIZE, run.tier).unwrap();
            assert_eq!(run.ptr.read(), 0);
        }
        unmap(&pages, run);
        assert_eq!(pages.usage(Tier(0)).locked, 0);
    });
    assert_eq!(status, 0);
    assert_eq!(pages.usage(Tier(0)).locked, SIZE);
    unmap(&pages, run);
}

#[test]
fn a_strict_system_gives_nothing_unlocked() {
    if !may_lock(SIZE) {
        return;
    }
    let status = in_child(|| {
        limit_locked_memory(SIZE as u64);
        let system = System::new();
        let links = [LinkConfig::PLAIN.locked(LockMode::Strict, LockTime::OnTouch)];
        assert!(system.configure(&SystemConfig {
            links: &links,
            fallback: FallbackPolicy::Warn,
            excluded: false
        }));
        let run = map(&system, SIZE);
        assert_eq!((run.tier, status_kb("VmLck") * 1024), (Tier(1), SIZE));
        assert_eq!(system.map(SIZE, system.granule()).unwrap_err().reason, Reason::Rlimit);
        unmap(&system, run);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_lock_that_falls_back_is_told_by_the_system() {
    let status = in_child(|| {
        limit_locked_memory(0);
        let system = System::new();
        let links = [LinkConfig::PLAIN.locked(LockMode::Fallback, LockTime::AtMap)];
        system.configure(&SystemConfig { links: &links, fallback: FallbackPolicy::Warn, excluded: false });
        let run = map(&system, SIZE);
        assert_eq!((run.tier, system.tiers()), (Tier(2), 3));
        let (tier, error) = system.take_new_fallback().unwrap();
        assert_eq!((tier, error.reason), (Tier(1), Reason::Rlimit));
        assert_eq!(system.usage(Tier(1)).fallbacks[Reason::Rlimit as usize], 1);
        unmap(&system, run);
    });
    assert_eq!(status, 0);
}

#[test]
fn any_backend_can_be_locked() {
    if !may_lock(4 << 20) {
        return;
    }
    let mut memory = vec![std::mem::MaybeUninit::uninit(); SIZE];
    let pages = Locked::new(FixedBuffer::with_granule(&mut memory, sys::page_size()), LockMode::Strict);
    let run = map(&pages, 4 * sys::page_size());
    assert_eq!((pages.usage(run.tier).locked, pages.name(run.tier)), (4 * sys::page_size(), "locked"));
    unmap(&pages, run);
    assert_eq!(pages.usage(Tier(0)).locked, 0);
}
