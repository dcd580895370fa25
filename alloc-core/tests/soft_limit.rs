//! The soft limit against the kernel's count: what is freed goes back although the delay says never.
#![cfg(not(miri))]

use alloc_core::global::{self, start};
use alloc_core::snapshot::Snapshot;
use std::time::{Duration, Instant};
use std::{fs, ptr, thread};

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * page
}

#[test]
fn freed_memory_above_the_limit_goes_back_and_live_memory_stays() {
    const MIB: usize = 1 << 20;
    let environment = [c"STRATALLOC_CONF=soft_limit:32MiB,release_delay:never".as_ptr(), ptr::null()];
    // SAFETY: a null-terminated vector of C strings.
    unsafe { start::with_environment(environment.as_ptr()) };
    assert_eq!(start::settings().soft_limit, 32 << 20);

    let fill = |block: *mut u8| {
        assert!(!block.is_null());
        // SAFETY: the block has a MiB.
        unsafe { block.write_bytes(0xa5, MIB) };
        block
    };
    let kept = fill(global::alloc(MIB));
    let blocks: Vec<_> = (0..160).map(|_| fill(global::alloc(MIB))).collect();
    let peak = resident();
    for block in blocks {
        // SAFETY: the block is live and not used again.
        unsafe { global::free(block) };
    }
    let end = Instant::now() + Duration::from_secs(10);
    let mut snapshot = Snapshot::EMPTY;
    loop {
        // Time passes on slow paths.
        // SAFETY: the block is live and not used again.
        unsafe { global::free(global::alloc(MIB)) };
        thread::sleep(Duration::from_millis(2));
        global::snapshot(&mut snapshot);
        if snapshot.committed_bytes() <= 32 << 20 || Instant::now() > end {
            break;
        }
    }
    assert!(snapshot.committed_bytes() <= 32 << 20, "{} bytes are left", snapshot.committed_bytes());
    assert!(snapshot.counters.soft_limit_hits > 0);
    assert_eq!(snapshot.balance(), Ok(()));
    assert!(peak - resident() > 100 * MIB, "resident {} of {peak}", resident());
    // SAFETY: the block is live.
    assert!(unsafe { std::slice::from_raw_parts(kept, MIB) }.iter().all(|&b| b == 0xa5));
}
