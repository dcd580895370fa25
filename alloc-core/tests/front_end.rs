//! The choice of the front end by the number of threads: over to the CPUs' caches and back, with blocks alive across both.
#![cfg(not(miri))]

mod areas;

use alloc_core::global;
use alloc_core::snapshot::Snapshot;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

/// More threads than have bins of their own on any machine that the tests run on.
fn many() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    16.max(8 * cpus) + 20
}

/// Allocates blocks of all small classes and frees every other one.
fn churn(seed: usize) -> Vec<*mut u8> {
    let mut kept = Vec::new();
    for step in 0..400 {
        let size = (seed * 31 + step * 97) % 3000 + 1;
        let block = global::alloc(size);
        assert!(!block.is_null());
        // SAFETY: the block has that many bytes.
        unsafe { block.write_bytes(seed as u8, size) };
        if step % 2 == 0 {
            kept.push(block);
        } else {
            // SAFETY: the block is live and not used again.
            unsafe { global::free(block) };
        }
    }
    kept
}

fn free_all(blocks: Vec<*mut u8>) {
    for block in blocks {
        // SAFETY: the block is live and not used again.
        unsafe { global::free(block) };
    }
}

fn spawn(number: usize, ready: &Arc<Barrier>, end: &Arc<Barrier>) -> JoinHandle<()> {
    let (ready, end) = (ready.clone(), end.clone());
    std::thread::spawn(move || {
        areas::register_foreign_area("all");
        let mine = churn(number);
        ready.wait();
        end.wait();
        free_all(mine);
    })
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::EMPTY;
    global::snapshot(&mut snapshot);
    snapshot
}

/// A child of a fork works and is sound.
fn child_works() {
    // SAFETY: the child calls the heap and `_exit` alone.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(20);
            free_all(churn(7));
            let sound = global::check().is_ok() && !global::has_per_cpu_caches();
            libc::_exit(i32::from(!sound));
        }
        let mut status = 0;
        while libc::waitpid(pid, &mut status, 0) == -1 {}
        assert_eq!(status, 0, "the child of a fork");
    }
}

#[test]
fn many_threads_share_the_cpus_caches_and_few_have_bins_again() {
    global::hooks::install();
    areas::register_foreign_area("all");
    let can = can_share();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    for round in 0..3 {
        let few = churn(100 + round);
        assert!(!global::has_per_cpu_caches(), "a thread or two need no CPUs' caches");
        let many = many();
        let (ready, end) = (Arc::new(Barrier::new(many + 1)), Arc::new(Barrier::new(many + 1)));
        let threads: Vec<_> = (0..many).map(|number| spawn(number, &ready, &end)).collect();
        ready.wait();
        assert_eq!(global::has_per_cpu_caches(), can, "{many} threads are many");
        assert_eq!(snapshot().balance(), Ok(()));
        child_works();
        // A thread that had bins frees what it has, and the move keeps all of it.
        FREED.fetch_add(few.len(), Ordering::Relaxed);
        free_all(few);
        let mine = churn(round);
        assert_eq!(global::check(), Ok(()));
        end.wait();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!global::has_per_cpu_caches(), "all threads but a few have ended");
        child_works();
        free_all(mine);
        assert_eq!(global::check(), Ok(()));
        let snapshot = snapshot();
        assert_eq!(snapshot.balance(), Ok(()));
        assert_eq!(snapshot.errors.double_frees + snapshot.errors.invalid_frees, 0);
        assert_eq!(snapshot.thread_caches.per_cpu, 0);
        // What the test's own harness allocates comes from another heap: nothing here is live but what was kept.
        let live: u64 = snapshot.classes().map(|(_, class)| class.live).sum();
        assert_eq!(live, 0, "every block came back, whichever cache it went through");
    }
    assert!(FREED.load(Ordering::Relaxed) > 0);
}

#[test]
fn areas_of_our_own_serve_where_libc_registers_none() {
    areas::run_again("many_threads_share_the_cpus_caches_and_few_have_bins_again", None);
}

#[test]
fn where_another_library_was_first_every_thread_keeps_bins_of_its_own() {
    areas::run_again("many_threads_share_the_cpus_caches_and_few_have_bins_again", Some("all"));
}

/// Whether the kernel allows the CPUs' caches here: areas, and the command that restarts sequences.
fn can_share() -> bool {
    const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_long = 1 << 8;
    cfg!(target_arch = "x86_64")
        && !areas::has_foreign_areas("all")
        && areas::kernel_has_areas()
        // SAFETY: the call touches no memory of the process.
        && unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0 }
}
