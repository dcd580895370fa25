//! The per-CPU front end under what restarts its sequences: timer signals whose handler allocates, threads that crowd one CPU,
//! threads that change CPUs, threads that end, drains of all CPUs, forks.
#![cfg(target_arch = "x86_64")]

mod areas;

use alloc_core::global;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static DUPLICATES: AtomicUsize = AtomicUsize::new(0);

/// Takes a block, claims it by its first word, gives it back unclaimed. A word that is claimed already belongs to somebody
/// else: the block was given out twice.
fn claim(owner: u64) -> *mut u8 {
    // Every other thread by the short path, the others by the slow path's first try.
    let block = if owner & 1 == 0 { global::alloc_slow(64) } else { global::alloc(64) };
    assert!(!block.is_null());
    // SAFETY: the block is live, and large and aligned enough for the word. All blocks of this class are zero in it while free.
    let before = unsafe { &*block.cast::<AtomicU64>() }.swap(owner, Ordering::Relaxed);
    if before != 0 {
        DUPLICATES.fetch_add(1, Ordering::Relaxed);
    }
    block
}

fn give_back(block: *mut u8, owner: u64) {
    // SAFETY: the block is live and this caller's.
    unsafe {
        if (*block.cast::<AtomicU64>()).swap(0, Ordering::Relaxed) != owner {
            DUPLICATES.fetch_add(1, Ordering::Relaxed);
        }
        if owner & 1 == 0 {
            global::free_slow(block);
        } else {
            global::free(block);
        }
    }
}

extern "C" fn on_signal(_: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let block = claim(u64::MAX);
    give_back(block, u64::MAX);
}

/// Blocks the timer's signal for the calling thread and those it starts, or lets it through again.
fn mask_alarm(how: i32) {
    // SAFETY: the set is initialised before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGALRM);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

fn on_cpu(cpu: usize) {
    // SAFETY: the set is initialised before it is used.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        // Where the CPU is not ours the thread stays where it is, which is harder on nobody.
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn work(owner: u64, moves: bool, stop: &AtomicBool) {
    let mut held = Vec::with_capacity(256);
    let mut step = owner;
    while !stop.load(Ordering::Relaxed) {
        step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if moves && (step >> 50) == 0 {
            on_cpu((step >> 30) as usize % 4);
        }
        if held.len() < 100 || (step >> 40) & 1 == 0 && held.len() < 200 {
            held.push(claim(owner));
        } else {
            give_back(held.swap_remove((step >> 33) as usize % held.len()), owner);
        }
    }
    for block in held {
        give_back(block, owner);
    }
}

#[test]
fn no_block_is_given_out_twice_whatever_restarts_the_sequences() {
    let settings = c"STRATALLOC_CONF=percpu_cache:1";
    // SAFETY: a vector of C strings that ends with null.
    unsafe { global::start::with_environment([settings.as_ptr(), null()].as_ptr()) };
    global::hooks::install();
    if !areas::kernel_has_areas() {
        println!("the kernel has no restartable sequences here: the threads' caches serve instead, and must");
    }
    assert_eq!(global::has_per_cpu_caches(), areas::kernel_has_areas());
    // SAFETY: the handler makes calls that the heap allows in a handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let period = libc::timeval { tv_sec: 0, tv_usec: 200 };
        let timer = libc::itimerval { it_interval: period, it_value: period };
        if global::has_per_cpu_caches() {
            libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
        }
    }
    let stop = AtomicBool::new(false);
    // A handler that allocates in a new thread would register it for the heap before the other library does.
    mask_alarm(libc::SIG_BLOCK);
    std::thread::scope(|scope| {
        for owner in 1..=8 {
            let stop = &stop;
            scope.spawn(move || {
                if owner <= 5 {
                    on_cpu(0);
                }
                if owner % 3 == 0 {
                    areas::register_foreign_area("some");
                }
                mask_alarm(libc::SIG_UNBLOCK);
                work(owner, owner > 6, stop);
            });
        }
        mask_alarm(libc::SIG_UNBLOCK);
        // Threads that end while caches are drained.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::scope(|scope| {
                    for owner in 20..24 {
                        scope.spawn(move || {
                            let blocks: Vec<_> = (0..50).map(|_| claim(owner)).collect();
                            blocks.into_iter().for_each(|block| give_back(block, owner));
                        });
                    }
                });
            }
        });
        let until = Instant::now() + Duration::from_secs(4);
        // A thread without a cache takes locks in the handler. Where that has interrupted libc's own malloc, which the test's
        // harness uses, a fork that holds our locks would wait for libc's for ever.
        let mut forks = if areas::has_foreign_areas("some") { 30 } else { 0 };
        while Instant::now() < until {
            global::trim();
            if forks < 30 {
                forks += 1;
                // SAFETY: the child calls the heap and `_exit` alone.
                unsafe {
                    let pid = libc::fork();
                    if pid == 0 {
                        libc::alarm(20);
                        let blocks: Vec<_> = (0..300).map(|_| global::alloc(64)).collect();
                        let sound = blocks.iter().all(|block| !block.is_null());
                        for block in blocks {
                            global::free(block);
                        }
                        libc::_exit(i32::from(!(sound && global::check().is_ok())));
                    }
                    let mut status = 0;
                    while libc::waitpid(pid, &mut status, 0) == -1 {}
                    assert_eq!(status, 0, "the child of a fork");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // SAFETY: a timer of zero stops it.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &std::mem::zeroed(), std::ptr::null_mut()) };
    assert_eq!(DUPLICATES.load(Ordering::Relaxed), 0);
    if global::has_per_cpu_caches() {
        assert!(SIGNALS.load(Ordering::Relaxed) > 1000, "the timer interrupted too seldom");
        assert!(global::sequence_restarts() > 0, "no sequence was ever interrupted, so nothing was tried");
    }
    assert_eq!(global::check(), Ok(()));
    let mut snapshot = alloc_core::snapshot::Snapshot::EMPTY;
    global::snapshot(&mut snapshot);
    assert_eq!(snapshot.balance(), Ok(()));
    assert_eq!(
        snapshot.errors.double_frees + snapshot.errors.invalid_frees + snapshot.errors.foreign_frees,
        0
    );
    assert_eq!(snapshot.classes().map(|(_, class)| class.live).filter(|&live| live > 1 << 40).count(), 0);
}

#[test]
fn areas_of_our_own_are_as_good_as_those_of_libc() {
    areas::run_again("no_block_is_given_out_twice_whatever_restarts_the_sequences", None);
}

#[test]
fn threads_that_another_library_has_registered_do_without_caches() {
    areas::run_again("no_block_is_given_out_twice_whatever_restarts_the_sequences", Some("some"));
}
