//! Real huge pages. The tests set the pool to a few pages and put it back; where the machine does not let
//! them, they say so in a line and test that the request is refused.
#![cfg(not(miri))]

mod common;
#[path = "common/machine.rs"]
mod machine;

use common::{Model, Op, in_child, limit_locked_memory, pretend_old_kernel, status_kb};
use machine::{HugetlbGroup, Machine};
use page_backend::sys::Errno;
use page_backend::{
    Capabilities, Chain, FallbackPolicy, HugeSize, HugeSource, Hugetlb, LinkConfig, LinkKind, LockMode,
    LockTime, Locked, Mapping, Mmap, MountPath, PageBackend, Reason, Step, System, SystemConfig, Tier,
};
use std::ffi::CString;

const HUGE: usize = 2 << 20;

fn map(pages: &impl PageBackend, count: usize) -> Mapping {
    pages.map(count * HUGE, HUGE).unwrap()
}

fn unmap(pages: &impl PageBackend, mapping: Mapping) {
    // SAFETY: the tests forget the mapping.
    unsafe { pages.unmap(mapping.ptr, mapping.len, mapping.tier).unwrap() };
}

/// What every test does on a machine without huge pages.
fn refuses() {
    let error = Hugetlb::new(HugeSize::Size2M).map(1 << 40, HUGE).unwrap_err();
    assert!(matches!(error.reason, Reason::PoolEmpty | Reason::Unsupported), "{error:?}");
}

#[test]
fn an_empty_pool_is_an_error_with_its_reason() {
    let mut machine = Machine::lock();
    if machine.pool_with(0).is_none() {
        return refuses();
    }
    let pages = Hugetlb::new(HugeSize::Size2M);
    let error = pages.map(HUGE, HUGE).unwrap_err();
    assert_eq!((error.reason, error.step, error.errno), (Reason::PoolEmpty, Step::Map, Some(Errno::ENOMEM)));
    assert_eq!(pages.usage(Tier(0)), Default::default());
    let error = Hugetlb::new(HugeSize::Size1G).map(1 << 30, 1 << 30).unwrap_err();
    assert!(matches!(error.reason, Reason::PoolEmpty | Reason::Unsupported), "{error:?}");
}

#[test]
fn pages_are_taken_at_map_and_return_at_unmap() {
    let mut machine = Machine::lock();
    if machine.pool_with(8).is_none() {
        return refuses();
    }
    let pages = Hugetlb::new(HugeSize::Size2M);
    let run = map(&pages, 6);
    assert_eq!(machine.available(), 2);
    assert_eq!(page_backend::pool::Pool::read(HugeSize::Size2M).unwrap().free, 2, "taken, not only reserved");
    let usage = pages.usage(Tier(0));
    assert_eq!((usage.mapped, usage.huge, usage.pinned, usage.locked), (6 * HUGE, 6 * HUGE, 6 * HUGE, 0));
    // SAFETY: the run is ours; the ranges that are refused are not whole huge pages.
    unsafe {
        let middle = run.ptr.add(2 * HUGE);
        assert_eq!(pages.purge(middle, HUGE, Tier(0)).unwrap_err().reason, Reason::Unsupported);
        assert_eq!(pages.unmap(middle, 4096, Tier(0)).unwrap_err().reason, Reason::BadRequest);
        assert_eq!(pages.unmap(middle.add(4096), HUGE, Tier(0)).unwrap_err().reason, Reason::BadRequest);
        run.ptr.add(HUGE).write_bytes(7, HUGE);
        pages.unmap(middle, HUGE, Tier(0)).unwrap();
        assert_eq!(machine.available(), 3);
        assert_eq!(middle.sub(1).read(), 7, "the neighbour keeps its content");
        pages.unmap(run.ptr, 2 * HUGE, Tier(0)).unwrap();
        pages.unmap(run.ptr.add(3 * HUGE), 3 * HUGE, Tier(0)).unwrap();
    }
    assert_eq!(machine.available(), 8);
    assert_eq!(pages.usage(Tier(0)).mapped, 0);
}

#[test]
fn too_large_a_run_takes_nothing() {
    let mut machine = Machine::lock();
    if machine.pool_with(4).is_none() {
        return refuses();
    }
    let pages = Hugetlb::new(HugeSize::Size2M);
    assert_eq!(pages.map(5 * HUGE, HUGE).unwrap_err().reason, Reason::PoolEmpty);
    assert_eq!(machine.available(), 4);
    let run = map(&pages, 4);
    // SAFETY: the run is ours.
    let error = unsafe { pages.grow(run.ptr, run.len, HUGE, Tier(0)) }.unwrap_err();
    assert!(matches!(error.reason, Reason::PoolEmpty | Reason::NoMemory), "{error:?}");
    unmap(&pages, run);
    assert_eq!(machine.available(), 4);
}

#[test]
fn wide_alignment_takes_no_more_pages_than_asked() {
    let mut machine = Machine::lock();
    if machine.pool_with(2).is_none() {
        return refuses();
    }
    let pages = Hugetlb::new(HugeSize::Size2M);
    let run = pages.map(2 * HUGE, 64 * HUGE).unwrap();
    assert_eq!(run.ptr.addr().get() % (64 * HUGE), 0);
    unmap(&pages, run);
    assert_eq!(machine.available(), 2);
}

#[test]
fn random_operations_agree_with_the_model() {
    let mut machine = Machine::lock();
    if machine.pool_with(8).is_none() {
        return refuses();
    }
    let chain = Chain::with_caps(Hugetlb::new(HugeSize::Size2M), 6 * HUGE, Mmap::new(), 12 * HUGE);
    let mut model = Model::new(&chain, HUGE);
    let mut state = 12345usize;
    for _ in 0..150 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (a, b) = (state >> 33, state >> 45);
        let (run, at, count) = (b, a % 3, 1 + b % 3);
        model.apply(match a % 7 {
            0..=2 => Op::Map { granules: count, align: (b % 3) as u32 },
            3 => Op::Purge { run, at, count },
            4 | 5 => Op::Unmap { run, at, count: count + 1 },
            _ => Op::Grow { run, granules: count },
        });
    }
    model.finish();
    assert_eq!(machine.available(), 8);
}

#[test]
fn a_control_groups_limit_is_an_error_and_no_signal() {
    let mut machine = Machine::lock();
    if machine.pool_with(4).is_none() {
        return refuses();
    }
    let Some(group) = HugetlbGroup::new() else { return };
    for (file, step) in [("hugetlb.2MB.max", Step::Populate), ("hugetlb.2MB.rsvd.max", Step::Map)] {
        group.set(file, "0");
        let status = in_child(|| {
            group.enter();
            let chain = Chain::new(Hugetlb::new(HugeSize::Size2M), Mmap::new());
            let run = chain.map(2 * HUGE, HUGE).unwrap();
            assert_eq!(run.tier, Tier(1), "served by ordinary memory");
            // SAFETY: the run is ours.
            unsafe { run.ptr.write_bytes(1, run.len) };
            let told = chain.take_new_fallback().unwrap();
            assert_eq!((told.reason, told.step), (Reason::CgroupLimit, step), "{told:?}");
        });
        assert_eq!(status, 0, "{file}");
        assert_eq!(machine.available(), 4, "nothing is left taken or reserved");
        group.set(file, "max");
    }
    // A limit that is reached in the middle of a run: the first page must come back too.
    group.set("hugetlb.2MB.max", &HUGE.to_string());
    let status = in_child(|| {
        group.enter();
        let pages = Hugetlb::new(HugeSize::Size2M);
        assert_eq!(pages.map(3 * HUGE, HUGE).unwrap_err().reason, Reason::CgroupLimit);
        assert_eq!(machine.available(), 4);
        let run = map(&pages, 1);
        // SAFETY: the run is ours.
        unsafe { run.ptr.write_bytes(1, run.len) };
    });
    assert_eq!(status, 0);
    assert_eq!(machine.available(), 4);
}

#[test]
fn an_older_kernel_populates_with_an_error_return_too() {
    let mut machine = Machine::lock();
    if machine.pool_with(4).is_none() {
        return refuses();
    }
    let status = in_child(|| {
        pretend_old_kernel();
        let pages = Hugetlb::new(HugeSize::Size2M);
        let run = map(&pages, 3);
        let pool = page_backend::pool::Pool::read(HugeSize::Size2M).unwrap();
        assert_eq!((pool.free, pool.reserved), (1, 0), "taken, not only reserved");
        unmap(&pages, run);
    });
    assert_eq!(status, 0);
    let Some(group) = HugetlbGroup::new() else { return };
    group.set("hugetlb.2MB.max", &HUGE.to_string());
    let status = in_child(|| {
        group.enter();
        pretend_old_kernel();
        let pages = Hugetlb::new(HugeSize::Size2M);
        let error = pages.map(3 * HUGE, HUGE).unwrap_err();
        assert_eq!((error.reason, error.step), (Reason::CgroupLimit, Step::Populate));
        assert_eq!(machine.available(), 4);
    });
    assert_eq!(status, 0);
}

#[test]
fn parent_and_child_of_fork_have_their_own_pages() {
    let mut machine = Machine::lock();
    if machine.pool_with(6).is_none() {
        return refuses();
    }
    let pages = Hugetlb::new(HugeSize::Size2M);
    let run = map(&pages, 2);
    // SAFETY: the run is ours.
    unsafe { run.ptr.write_bytes(1, run.len) };
    let status = in_child(|| {
        pages.after_fork_in_child();
        assert_eq!(pages.map(HUGE, HUGE).unwrap_err().reason, Reason::Forked);
        // SAFETY: the child has a copy of the run.
        unsafe {
            assert_eq!(run.ptr.read(), 1);
            run.ptr.write_bytes(2, run.len);
            assert_eq!(run.ptr.add(run.len - 1).read(), 2);
        }
    });
    assert_eq!(status, 0);
    // SAFETY: the run is ours.
    unsafe {
        let bytes = std::slice::from_raw_parts(run.ptr.as_ptr(), run.len);
        assert!(bytes.iter().all(|&byte| byte == 1), "the child's writes must not be seen here");
    }
    unmap(&pages, run);
    assert_eq!(machine.available(), 6);
}

#[test]
fn a_child_with_an_empty_pool_reads_what_nobody_wrote_to_since() {
    let mut machine = Machine::lock();
    if machine.pool_with(2).is_none() {
        return refuses();
    }
    let pages = Hugetlb::new(HugeSize::Size2M);
    let run = map(&pages, 2);
    // SAFETY: the run is ours.
    unsafe { run.ptr.write_bytes(1, run.len) };
    let reads = in_child(|| {
        // SAFETY: the child shares the run until somebody writes.
        assert_eq!(unsafe { run.ptr.add(HUGE).read() }, 1);
    });
    assert_eq!(reads, 0);
    let writes = in_child(|| {
        // SAFETY: as above; the kernel answers a write that needs a page that is not there with SIGBUS.
        unsafe { run.ptr.write_volatile(2) };
    });
    assert_eq!(writes, -libc::SIGBUS, "the documented case that no allocator can save");
    // SAFETY: the run is ours.
    assert_eq!(unsafe { run.ptr.read() }, 1, "the parent is not touched");
    unmap(&pages, run);
}

#[test]
fn starting_programs_hurts_nobody_when_the_pool_is_used_up() {
    let mut machine = Machine::lock();
    if machine.pool_with(2).is_none() {
        return refuses();
    }
    let pages = Hugetlb::new(HugeSize::Size2M);
    let run = map(&pages, 2);
    for fill in 1..20 {
        // SAFETY: the run is ours.
        unsafe { run.ptr.write_bytes(fill, run.len) };
        // By posix_spawn, which shares the parent's memory until exec.
        let status = std::process::Command::new("/bin/true").status().unwrap();
        assert!(status.success());
        // SAFETY: the run is ours.
        assert_eq!(unsafe { run.ptr.add(run.len - 1).read() }, fill);
    }
    unmap(&pages, run);
    assert_eq!(machine.available(), 2);
}

#[test]
fn pages_of_1_gib_stand_before_smaller_ones() {
    const GIB: usize = 1 << 30;
    let mut machine = Machine::lock();
    if machine.pool_of(HugeSize::Size1G, 1).is_none() || machine.pool_with(2).is_none() {
        return refuses();
    }
    let huge = Chain::new(Hugetlb::new(HugeSize::Size1G), Hugetlb::new(HugeSize::Size2M));
    let chain = Chain::new(huge, Mmap::new());
    let runs = [map(&chain, 1), map(&chain, 1), map(&chain, 1), map(&chain, 1)];
    assert_eq!(runs.map(|run| (run.tier.0, run.len)), [(0, GIB), (1, HUGE), (1, HUGE), (2, HUGE)]);
    assert_eq!(runs.map(|run| chain.granule_of(run.tier)), [GIB, HUGE, HUGE, chain.granule()]);
    assert_eq!(chain.name(Tier(0)), "hugetlb-1G");
    for run in runs {
        // SAFETY: the run is ours.
        unsafe { run.ptr.add(run.len - 1).write(1) };
        unmap(&chain, run);
    }
    assert_eq!(chain.usage(Tier(0)).fallbacks[Reason::PoolEmpty as usize], 3);
    assert_eq!(chain.usage(Tier(1)).fallbacks[Reason::PoolEmpty as usize], 1);
    assert_eq!(machine.available(), 2);
}

#[test]
fn a_mounted_hugetlbfs_serves_too() {
    let mut machine = Machine::lock();
    if machine.pool_with(4).is_none() {
        return refuses();
    }
    let dir = std::env::temp_dir().join(format!("stratalloc-hugetlbfs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let c_path = CString::new(dir.to_str().unwrap()).unwrap();
    let source = HugeSource::Mount(MountPath::new(c_path.as_bytes()).unwrap());
    let pages = Hugetlb::with_source(HugeSize::Size2M, source);
    // Not a hugetlbfs: refused, and nothing on ordinary pages is passed off as huge.
    assert_eq!(pages.map(HUGE, HUGE).unwrap_err().reason, Reason::Unsupported);
    // SAFETY: all arguments are C strings.
    let mounted = unsafe {
        libc::mount(
            c"stratalloc".as_ptr(),
            c_path.as_ptr(),
            c"hugetlbfs".as_ptr(),
            0,
            c"pagesize=2M".as_ptr().cast(),
        )
    };
    if mounted != 0 {
        println!("hugetlbfs cannot be mounted ({}); tested without", std::io::Error::last_os_error());
        std::fs::remove_dir(&dir).unwrap();
        return;
    }
    let work = std::panic::catch_unwind(|| {
        let run = map(&pages, 2);
        let wide = pages.map(HUGE, 16 * HUGE).unwrap();
        assert_eq!(machine.available(), 1);
        // SAFETY: the runs are ours.
        unsafe {
            assert!(std::slice::from_raw_parts(run.ptr.as_ptr(), run.len).iter().all(|&byte| byte == 0));
            run.ptr.write_bytes(3, run.len);
            wide.ptr.write_bytes(4, wide.len);
            pages.unmap(run.ptr, HUGE, run.tier).unwrap();
            assert_eq!(run.ptr.add(HUGE).read(), 3);
            pages.unmap(run.ptr.add(HUGE), HUGE, run.tier).unwrap();
        }
        unmap(&pages, wide);
        assert_eq!(machine.available(), 4);
        let wrong = Hugetlb::with_source(HugeSize::Size1G, source);
        assert_eq!(wrong.map(1 << 30, 1 << 30).unwrap_err().reason, Reason::Unsupported);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "no names are left behind");
    });
    // SAFETY: the path is a C string.
    unsafe { libc::umount2(c_path.as_ptr(), libc::MNT_DETACH) };
    std::fs::remove_dir(&dir).unwrap();
    work.unwrap();
}

#[test]
fn locked_huge_pages_make_no_mlock_and_need_no_limit() {
    let mut machine = Machine::lock();
    if machine.pool_with(4).is_none() {
        return refuses();
    }
    let status = in_child(|| {
        limit_locked_memory(0);
        let pages = Locked::new(Hugetlb::new(HugeSize::Size2M), LockMode::Strict);
        let run = map(&pages, 2);
        assert!(pages.capabilities(run.tier).contains(Capabilities::LOCKED | Capabilities::HUGE));
        let usage = pages.usage(run.tier);
        assert_eq!((usage.pinned, usage.locked, status_kb("VmLck")), (2 * HUGE, 0, 0));
        assert_eq!(pages.name(run.tier), "locked-hugetlb-2M");
        unmap(&pages, run);
    });
    assert_eq!(status, 0);
}

fn huge_then_plain(fallback: FallbackPolicy) -> System {
    let system = System::new();
    let links = [LinkConfig::HUGE_2M, LinkConfig::PLAIN];
    assert!(system.configure(&SystemConfig { links: &links, fallback, excluded: false }));
    system
}

#[test]
fn the_system_falls_back_when_the_pool_runs_out_and_tells_once() {
    let mut machine = Machine::lock();
    if machine.pool_with(3).is_none() {
        return refuses();
    }
    let system = huge_then_plain(FallbackPolicy::Warn);
    let first = map(&system, 2);
    assert_eq!((first.tier, system.name(first.tier)), (Tier(1), "hugetlb-2M"));
    assert_eq!(system.take_new_fallback(), None);
    let second = map(&system, 2);
    assert_eq!((second.tier, system.name(second.tier)), (Tier(2), "mmap"));
    let third = map(&system, 2);
    let (tier, error) = system.take_new_fallback().unwrap();
    assert_eq!((tier, error.reason), (Tier(1), Reason::PoolEmpty));
    assert_eq!(system.take_new_fallback(), None);
    assert_eq!(system.usage(Tier(1)).fallbacks[Reason::PoolEmpty as usize], 2);
    let small = map(&system, 1);
    assert_eq!(small.tier, Tier(1), "what is left of the pool is still used");
    for run in [first, second, third, small] {
        unmap(&system, run);
    }
    assert_eq!(machine.available(), 3);

    let silent = huge_then_plain(FallbackPolicy::Silent);
    unmap(&silent, map(&silent, 4));
    assert_eq!(silent.take_new_fallback(), None);
    let never = huge_then_plain(FallbackPolicy::Never);
    assert_eq!(never.map(4 * HUGE, HUGE).unwrap_err().reason, Reason::PoolEmpty);
}

#[test]
fn a_forked_child_of_a_huge_page_system_gets_ordinary_memory() {
    let mut machine = Machine::lock();
    if machine.pool_with(4).is_none() {
        return refuses();
    }
    let system = System::new();
    let links = [LinkConfig::HUGE_2M];
    system.configure(&SystemConfig { links: &links, fallback: FallbackPolicy::Never, excluded: false });
    let run = map(&system, 1);
    let status = in_child(|| {
        system.after_fork_in_child();
        let own = map(&system, 1);
        assert_eq!((own.tier, system.name(own.tier)), (Tier(0), "mmap"));
        assert_eq!(system.usage(Tier(1)).fallbacks[Reason::Forked as usize], 1);
        assert_eq!(system.take_new_fallback(), None, "no news: it is the rule");
        unmap(&system, own);
        unmap(&system, run);
    });
    assert_eq!(status, 0);
    let more = map(&system, 1);
    assert_eq!(more.tier, Tier(1));
    unmap(&system, more);
    unmap(&system, run);
}

#[test]
fn an_excluded_program_gets_ordinary_memory() {
    let mut machine = Machine::lock();
    if machine.pool_with(4).is_none() {
        return refuses();
    }
    let system = System::new();
    let locked = LinkConfig::PLAIN.locked(LockMode::Strict, LockTime::AtMap);
    let links = [LinkConfig::HUGE_2M, locked];
    system.configure(&SystemConfig { links: &links, fallback: FallbackPolicy::Warn, excluded: true });
    let run = map(&system, 1);
    assert_eq!(run.tier, Tier(0));
    assert_eq!(machine.available(), 4);
    assert_eq!(system.usage(Tier(1)).fallbacks[Reason::Excluded as usize], 1);
    assert_eq!(system.take_new_fallback(), None);
    unmap(&system, run);
}

#[test]
fn small_requests_to_a_huge_link_are_rounded_up() {
    let mut machine = Machine::lock();
    if machine.pool_with(2).is_none() {
        return refuses();
    }
    let system = System::new();
    let huge = LinkConfig::new(LinkKind::Hugetlb(HugeSize::Size2M, HugeSource::Anonymous)).cap(HUGE);
    let links = [huge, LinkConfig::PLAIN];
    system.configure(&SystemConfig { links: &links, fallback: FallbackPolicy::Warn, excluded: false });
    let page = system.granule();
    let run = system.map(page, page).unwrap();
    assert_eq!((run.len, run.tier, system.granule_of(run.tier)), (HUGE, Tier(1), HUGE));
    let next = system.map(page, page).unwrap();
    assert_eq!((next.len, next.tier), (page, Tier(2)), "the cap is reached");
    assert_eq!(system.take_new_fallback().unwrap().1.reason, Reason::CapReached);
    unmap(&system, run);
    unmap(&system, next);
}
