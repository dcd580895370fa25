//! Forks while other threads allocate: the child works, and what idle threads had cached is not lost to it.

use alloc_core::global;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `child` in a forked child and returns its exit status.
fn in_child(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls the heap and `_exit` alone.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::alarm(20);
            libc::_exit(i32::from(!child()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    }
}

fn exercise() -> bool {
    let blocks: Vec<usize> = (0..500).map(|n| global::alloc(n * 13 % 3000) as usize).collect();
    let large = global::alloc(3 << 20);
    let sound = !large.is_null() && blocks.iter().all(|&block| block != 0);
    for block in blocks {
        // SAFETY: the block is live and ours.
        unsafe { global::free(block as *mut u8) };
    }
    // SAFETY: as above.
    unsafe { global::free(large) };
    sound && global::check().is_ok()
}

#[test]
fn a_child_forked_amid_allocating_threads_allocates() {
    static STOP: AtomicBool = AtomicBool::new(false);
    global::hooks::install();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                while !STOP.load(Ordering::Relaxed) {
                    exercise_once();
                }
            })
        })
        .collect();
    for round in 0..200 {
        assert_eq!(in_child(exercise), 0, "round {round}");
    }
    STOP.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(global::check(), Ok(()));
}

fn exercise_once() {
    let blocks: Vec<usize> = (0..100).map(|n| global::alloc(n * 7) as usize).collect();
    for block in blocks {
        // SAFETY: the block is live and this thread's own.
        unsafe { global::free(block as *mut u8) };
    }
}
