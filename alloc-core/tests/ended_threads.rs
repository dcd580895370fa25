//! What threads leave when they end: their caches whole, for the next, and for a while only.
#![cfg(not(miri))]

use alloc_core::global;
use alloc_core::snapshot::Snapshot;
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The caches are the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    global::hooks::install();
    let guard = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    global::trim();
    guard
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::EMPTY;
    global::snapshot(&mut snapshot);
    snapshot
}

/// Caches in all, and the objects in them.
fn caches() -> (u64, u64) {
    let snapshot = snapshot();
    (snapshot.thread_caches.count, snapshot.classes().map(|(_, class)| class.in_thread_caches).sum())
}

/// Takes blocks of many sizes and frees them, again and again.
fn work() {
    for _ in 0..20 {
        let blocks: Vec<_> = (1..300).map(|step| global::alloc(step * 97 % 3000 + 1)).collect();
        for block in blocks {
            assert!(!block.is_null());
            // SAFETY: the block is live and not used again.
            unsafe { global::free(block) };
        }
    }
}

/// So many threads work at the same time and end.
fn threads(number: usize) {
    let all = Arc::new(Barrier::new(number));
    let threads: Vec<_> = (0..number)
        .map(|_| {
            let all = all.clone();
            std::thread::spawn(move || {
                work();
                all.wait();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn assert_sound() {
    assert_eq!(global::check(), Ok(()));
    let snapshot = snapshot();
    assert_eq!(snapshot.balance(), Ok(()));
    assert_eq!(snapshot.errors.double_frees + snapshot.errors.invalid_frees, 0);
}

#[test]
fn a_thread_takes_over_what_another_has_left() {
    let _alone = alone();
    threads(3);
    let (count, objects) = caches();
    assert!(objects > 0, "an ended thread leaves its objects");
    for _ in 0..5 {
        threads(3);
        assert!(caches().0 <= count, "no more caches than threads at a time");
        assert_sound();
    }
    global::trim();
    let (left, objects) = caches();
    assert!(left < count, "a trim gives them back");
    assert_eq!(objects, 0);
    assert_sound();
}

#[test]
fn what_nobody_takes_over_is_given_back() {
    let _alone = alone();
    threads(3);
    let (count, begin) = (caches().0, Instant::now());
    while caches().0 >= count {
        assert!(begin.elapsed() < Duration::from_secs(30), "the caches are still there");
        std::thread::sleep(Duration::from_millis(100));
        // Time passes for the heap in its slow paths.
        // SAFETY: the block is live and not used again.
        unsafe { global::free(global::alloc(1 << 20)) };
    }
    assert!(begin.elapsed() > Duration::from_millis(900), "the next thread may be on its way");
    assert_sound();
}

#[test]
fn the_child_of_a_fork_gives_back_what_threads_have_left() {
    let _alone = alone();
    threads(3);
    // SAFETY: the child calls the heap and `_exit` alone.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(20);
            let few = caches().0 <= 1;
            let live: u64 = snapshot().classes().map(|(_, class)| class.live).sum();
            let sound = few && live == 0 && global::check().is_ok() && snapshot().balance().is_ok();
            libc::_exit(i32::from(!sound));
        }
        let mut status = 0;
        while libc::waitpid(pid, &mut status, 0) == -1 {}
        assert_eq!(status, 0, "the child of a fork");
    }
    threads(3);
    assert_sound();
}
