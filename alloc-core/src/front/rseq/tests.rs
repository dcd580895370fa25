//! Tokens are neither lost nor doubled, whatever restarts the sequences; and the same without descriptors, which must fail,
//! since a test that cannot fail proves nothing.

use super::*;
use crate::front::bins::{self, sentinel_empty};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::boxed::Box;
use std::println;
use std::time::{Duration, Instant};
use std::vec::Vec;

const CLASS: usize = 1;
const TOKENS: usize = 24;
const THREADS: usize = 6;
/// Room for more CPUs than a machine for tests has, behind the two that are none.
const CPUS: usize = 512;

/// A table of bins for every CPU, with all tokens in those of one.
struct Desk {
    table: Box<[AtomicPtr<Bins>]>,
    owners: [AtomicU32; TOKENS + 1],
    duplicates: AtomicUsize,
    stop: AtomicBool,
}

type Pop = unsafe fn(isize, Table, usize) -> *mut u8;
type Push = unsafe fn(isize, Table, usize, *mut u8) -> bool;

unsafe fn pop_unarmed(area: isize, table: Table, class: usize) -> *mut u8 {
    // SAFETY: memory-safe whatever interrupts it: a cursor only ever moves by one slot within its guards.
    unsafe { pop!(unarmed, area, table, class) }
}

unsafe fn push_unarmed(area: isize, table: Table, class: usize, object: *mut u8) -> bool {
    // SAFETY: as above.
    unsafe { push!(unarmed, area, table, class, object) }
}

fn token(number: usize) -> *mut u8 {
    core::ptr::without_provenance_mut(number * 16)
}

/// Bins with room for all tokens, never freed.
fn new_bins() -> *mut Bins {
    let room = Box::leak(std::vec![null_mut(); TOKENS + 2].into_boxed_slice());
    let bins = Box::leak(Box::new(Bins::new()));
    let array = NonNull::new(room.as_mut_ptr()).unwrap();
    // SAFETY: the array has that much room and lives for ever.
    unsafe { bins.set_cursor(CLASS, bins::fence(array, TOKENS + 2)) };
    bins
}

impl Desk {
    fn new(cpu: usize) -> &'static Self {
        let bins = |at: usize| AtomicPtr::new(if at < 2 { sentinel_empty() } else { new_bins() });
        let desk = Box::leak(Box::new(Self {
            table: (0..CPUS + 2).map(bins).collect(),
            owners: [const { AtomicU32::new(0) }; TOKENS + 1],
            duplicates: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }));
        for number in 1..=TOKENS {
            // SAFETY: nobody else has the bins yet.
            unsafe { assert!(Bins::push(desk.table[cpu + 2].load(Ordering::Relaxed), CLASS, token(number))) };
        }
        desk
    }

    /// Takes two tokens, is their only owner for a moment, and gives them back in the other order: whoever goes on with what it
    /// read before then doubles one and loses the other.
    fn turn(&self, area: isize, (pop, push): (Pop, Push)) {
        // SAFETY: the table has an entry for every CPU here, and bins for the class.
        let objects = unsafe { [(); 2].map(|()| pop(area, self.table.as_ptr(), CLASS)) };
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            let owner = &self.owners[object.addr() / 16];
            if owner.fetch_add(1, Ordering::Relaxed) != 0 {
                self.duplicates.fetch_add(1, Ordering::Relaxed);
            }
        }
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            self.owners[object.addr() / 16].fetch_sub(1, Ordering::Relaxed);
            // There is room for all on every CPU, so this fails for a doubled token alone.
            // SAFETY: as above.
            if unsafe { !push(area, self.table.as_ptr(), CLASS, object) } {
                self.duplicates.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The tokens that are left, sorted. Nobody else uses the desk any more.
    fn left(&self) -> Vec<usize> {
        let mut left = Vec::new();
        for bins in &self.table[2..] {
            // SAFETY: the caller is alone.
            while let Some(object) = unsafe { Bins::pop(bins.load(Ordering::Relaxed), CLASS) } {
                left.push(object.addr().get() / 16);
            }
        }
        left.sort_unstable();
        left
    }
}

/// A timer that sends a signal to the thread that made it.
struct Timer(libc::timer_t);

impl Timer {
    fn start(nanos: i64) -> Self {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: the structures are plain numbers, and zero is a value of each.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGURG, &action, null_mut());
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGURG;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = null_mut();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
            let timer = Self(timer);
            timer.set(nanos, nanos);
            timer
        }
    }

    /// Lets it fire once, soon.
    fn once(&self, nanos: i64) {
        self.set(nanos, 0);
    }

    fn set(&self, first: i64, interval: i64) {
        let time = |nanos| libc::timespec { tv_sec: 0, tv_nsec: nanos };
        let times = libc::itimerspec { it_interval: time(interval), it_value: time(first) };
        // SAFETY: the timer was made by `start`.
        assert_eq!(unsafe { libc::timer_settime(self.0, 0, &times, null_mut()) }, 0);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `start`.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The area that libc registered for this thread, or ours; `None` where the kernel refuses, as under valgrind.
fn registered() -> Option<isize> {
    let area = area();
    if register(area) {
        return Some(area);
    }
    // SAFETY: nothing is registered at address 0, and a kernel that knows the call says so.
    unsafe { libc::syscall(libc::SYS_rseq, 0, 32, 1, 0) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    assert_ne!(errno, Some(libc::EINVAL), "only a kernel without the call excuses");
    println!("the kernel has no restartable sequences here: they are not tried");
    None
}

/// Binds the thread to one CPU; `false` where it may not run there.
fn bind(cpu: usize) -> bool {
    // SAFETY: the set is plain numbers.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
    }
}

/// Lets threads that crowd one CPU, each with a timer of its own, take turns until `enough` or the time is up.
fn crowd(operations: (Pop, Push), time: Duration, enough: fn(&Desk) -> bool) -> Option<&'static Desk> {
    let area = registered()?;
    let cpu = usize::try_from(cpu(area)).ok()?;
    let desk = Desk::new(cpu);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                assert!(bind(cpu), "the CPU that the test runs on");
                assert!(register(area), "as in the test's own thread");
                let timer = Timer::start(100_000);
                while !desk.stop.load(Ordering::Relaxed) {
                    // Periodic signals a microsecond apart would leave no time for anything between them.
                    if thread % 2 == 0 {
                        timer.once(1_000);
                    }
                    for _ in 0..200 {
                        desk.turn(area, operations);
                    }
                    if thread % 3 == 2 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let end = Instant::now() + time;
        while Instant::now() < end && !enough(desk) {
            std::thread::sleep(Duration::from_millis(20));
        }
        desk.stop.store(true, Ordering::Relaxed);
    });
    Some(desk)
}

#[test]
fn restarted_sequences_keep_every_token() {
    let before = restarts();
    let Some(desk) = crowd((pop, push), Duration::from_secs(3), |_| false) else {
        return;
    };
    assert_eq!(desk.duplicates.load(Ordering::Relaxed), 0);
    assert_eq!(desk.left(), (1..=TOKENS).collect::<Vec<_>>(), "tokens were lost or doubled");
    assert!(restarts() > before, "no sequence was ever interrupted, so nothing was tried");
}

/// The negative control.
#[test]
fn the_same_without_descriptors_doubles_tokens() {
    let doubled = |desk: &Desk| desk.duplicates.load(Ordering::Relaxed) > 0;
    if let Some(desk) = crowd((pop_unarmed, push_unarmed), Duration::from_secs(60), doubled) {
        assert!(doubled(desk), "the control must fail, or the test above proves nothing");
    }
}

#[test]
fn a_bin_is_taken_once_and_sentinels_never() {
    let Some(area) = registered() else { return };
    let Ok(cpu) = usize::try_from(cpu(area)) else { return };
    assert!(bind(cpu));
    let desk = Desk::new(cpu);
    let sentinels = (sentinel_empty(), bins::sentinel_metadata());
    // SAFETY: the table has an entry for every CPU here.
    unsafe {
        let (bins, cursor) = take(area, desk.table.as_ptr(), CLASS, bins::taken(), sentinels);
        assert_eq!(bins, desk.table[cpu + 2].load(Ordering::Relaxed));
        assert!(pop(area, desk.table.as_ptr(), CLASS).is_null(), "a taken bin misses");
        assert!(!push(area, desk.table.as_ptr(), CLASS, token(1)));
        let (_, again) = take(area, desk.table.as_ptr(), CLASS, bins::taken(), sentinels);
        assert_eq!(again, bins::taken());
        (*bins).set_cursor(CLASS, cursor);
        assert_eq!(pop(area, desk.table.as_ptr(), CLASS), token(TOKENS));
        desk.table[cpu + 2].store(sentinel_empty(), Ordering::Relaxed);
        let (bins, _) = take(area, desk.table.as_ptr(), CLASS, bins::taken(), sentinels);
        assert_eq!(bins, sentinel_empty());
        assert!(pop(area, desk.table.as_ptr(), CLASS).is_null());
    }
}
