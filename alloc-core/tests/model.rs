//! The whole heap against a model: random calls from several threads, with a shadow map that knows every live block and checks
//! overlap, alignment, content, zeroing and sizes at every step.

use alloc_core::global;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// One call.
#[derive(Clone, Debug)]
enum Call {
    Malloc(usize),
    Calloc(usize),
    Aligned(u32, usize),
    Realloc(usize, usize),
    Free(usize),
    Trim,
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 0usize..300,
        4 => 0usize..5000,
        2 => 0usize..300_000,
        1 => 0usize..6_000_000,
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => size().prop_map(Call::Malloc),
        2 => size().prop_map(Call::Calloc),
        1 => (0u32..22, size()).prop_map(|(shift, size)| Call::Aligned(shift, size)),
        2 => (any::<usize>(), size()).prop_map(|(which, size)| Call::Realloc(which, size)),
        6 => any::<usize>().prop_map(Call::Free),
        1 => Just(Call::Trim),
    ]
}

/// The tests of this file look at the one heap of the process, so they run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A live block as a thread knows it.
struct Live {
    address: usize,
    size: usize,
    fill: u8,
}

/// Every live block of all threads: start and length.
static SHADOW: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn enter(address: usize, len: usize) {
    let mut shadow = SHADOW.lock().unwrap();
    if let Some((&before, &before_len)) = shadow.range(..=address).next_back() {
        assert!(before + before_len <= address, "{address:#x} overlaps {before:#x}+{before_len}");
    }
    if let Some((&after, _)) = shadow.range(address..).next() {
        assert!(address + len <= after, "{address:#x}+{len} overlaps {after:#x}");
    }
    shadow.insert(address, len);
}

fn leave(address: usize) {
    assert!(SHADOW.lock().unwrap().remove(&address).is_some());
}

/// First, last and some bytes between.
fn probes(size: usize) -> impl Iterator<Item = usize> {
    (0..size).step_by((size / 64).max(1)).chain(size.checked_sub(1))
}

fn fill(live: &Live) {
    for at in probes(live.size) {
        // SAFETY: inside a live block of this thread.
        unsafe { (live.address as *mut u8).add(at).write(live.fill) };
    }
}

fn verify(live: &Live, upto: usize) {
    for at in probes(live.size).filter(|&at| at < upto) {
        // SAFETY: inside a live block of this thread.
        let byte = unsafe { (live.address as *const u8).add(at).read() };
        assert_eq!(byte, live.fill, "byte {at} of {:#x}+{} changed", live.address, live.size);
    }
}

fn took(block: *mut u8, size: usize, align: usize, fill_byte: u8) -> Live {
    assert!(!block.is_null(), "no memory for {size} bytes");
    let address = block as usize;
    assert_eq!(address % align, 0, "{address:#x} for {size} bytes is not aligned to {align}");
    let usable = global::usable_size(block);
    assert!(usable >= size && usable > 0);
    enter(address, usable);
    let live = Live { address, size, fill: fill_byte };
    fill(&live);
    live
}

fn natural_align(size: usize) -> usize {
    if size <= 8 { 8 } else { 16 }
}

/// Makes the calls, with `after_each` called after every one, and frees what is live in the end.
fn run(calls: &[Call], seed: u8, after_each: impl Fn(&[Live])) {
    let mut live: Vec<Live> = Vec::new();
    for (step, call) in calls.iter().enumerate() {
        after_each(&live);
        let byte = seed.wrapping_mul(31).wrapping_add(step as u8);
        match *call {
            Call::Malloc(size) => live.push(took(global::alloc(size), size, natural_align(size), byte)),
            Call::Calloc(size) => {
                let block = global::alloc_zeroed(size);
                assert!(!block.is_null());
                for at in probes(size) {
                    // SAFETY: the block is live and has that many bytes.
                    assert_eq!(unsafe { block.add(at).read() }, 0, "calloc({size}) is not zero at {at}");
                }
                live.push(took(block, size, natural_align(size), byte));
            }
            Call::Aligned(shift, size) => {
                let align = 1 << shift;
                live.push(took(global::alloc_aligned(align, size), size, align, byte));
            }
            Call::Realloc(which, size) if !live.is_empty() && size > 0 => {
                let which = which % live.len();
                let old = live.swap_remove(which);
                verify(&old, usize::MAX);
                leave(old.address);
                // SAFETY: the block is live and this thread's own.
                let block = unsafe { global::realloc(old.address as *mut u8, size) };
                assert!(!block.is_null());
                verify(&Live { address: block as usize, ..old }, size);
                live.push(took(block, size, natural_align(size), byte));
            }
            Call::Free(which) if !live.is_empty() => {
                let which = which % live.len();
                let old = live.swap_remove(which);
                verify(&old, usize::MAX);
                leave(old.address);
                // SAFETY: the block is live, this thread's own, and not used again.
                unsafe { global::free(old.address as *mut u8) };
            }
            Call::Trim => {
                global::trim();
            }
            Call::Realloc(..) | Call::Free(_) => {}
        }
    }
    for old in live {
        verify(&old, usize::MAX);
        leave(old.address);
        // SAFETY: as above.
        unsafe { global::free(old.address as *mut u8) };
    }
}

/// Asks until the answer is right: the harness's own threads are on this heap too, and a thread that was joined may
/// still be emptying its cache, since its destructors run after the join.
fn settles<T: PartialEq + std::fmt::Debug>(right: &T, ask: impl Fn(&alloc_core::snapshot::Snapshot) -> T) {
    let mut snapshot = Box::new(alloc_core::snapshot::Snapshot::EMPTY);
    for patience in (0..200).rev() {
        global::snapshot(&mut snapshot);
        let answer = ask(&snapshot);
        if answer == *right {
            return;
        }
        assert!(patience > 0, "the accounts say {answer:?}, not {right:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn sound() {
    assert_eq!(global::check(), Ok(()));
    settles(&Ok(()), |snapshot| snapshot.balance());
    settles(&alloc_core::snapshot::ErrorCounters::default(), |snapshot| snapshot.errors);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_calls_from_several_threads_keep_every_block_whole(
        scripts in prop::collection::vec(prop::collection::vec(call(), 50..400), 1..5)
    ) {
        let _alone = alone();
        std::thread::scope(|scope| {
            for (seed, calls) in scripts.iter().enumerate() {
                scope.spawn(move || run(calls, seed as u8, |_| ()));
            }
        });
        prop_assert!(SHADOW.lock().unwrap().is_empty());
        sound();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn accounts_agree_with_the_live_blocks_after_every_call(calls in prop::collection::vec(call(), 50..300)) {
        let _alone = alone();
        sound();
        let mut snapshot = Box::new(alloc_core::snapshot::Snapshot::EMPTY);
        global::snapshot(&mut snapshot);
        // `settles` has a snapshot in a box too.
        let before = snapshot.allocated_bytes();
        run(&calls, 1, |live| {
            let usable: usize = live.iter().map(|live| global::usable_size(live.address as *const u8)).sum();
            settles(&(before + usable as u64), |snapshot| snapshot.allocated_bytes());
            settles(&Ok(()), |snapshot| snapshot.balance());
            assert_eq!(global::check(), Ok(()));
        });
        sound();
    }
}

#[test]
fn blocks_freed_by_another_thread_come_back() {
    let _alone = alone();
    let (send, receive) = std::sync::mpsc::sync_channel::<Vec<usize>>(4);
    let consumer = std::thread::spawn(move || {
        let mut sum = 0;
        for blocks in receive {
            for address in blocks {
                // SAFETY: the block is live and was handed to this thread.
                unsafe {
                    sum += usize::from((address as *const u8).read());
                    global::free(address as *mut u8);
                }
            }
        }
        sum
    });
    for round in 0..2000usize {
        let blocks = (0..100)
            .map(|i| {
                let block = global::alloc(1 + (i * 37 + round) % 1500);
                // SAFETY: a fresh block of at least one byte.
                unsafe { block.write(1) };
                block as usize
            })
            .collect();
        send.send(blocks).unwrap();
    }
    drop(send);
    assert_eq!(consumer.join().unwrap(), 200_000);
    assert_eq!(global::check(), Ok(()));
}

#[test]
fn threads_that_end_leave_nothing_behind() {
    let _alone = alone();
    for round in 0..20 {
        let threads: Vec<_> = (0..20)
            .map(|i| {
                std::thread::spawn(move || {
                    let blocks: Vec<_> =
                        (0..200).map(|n| global::alloc(n * (1 + i) % 3000) as usize).collect();
                    for block in blocks {
                        // SAFETY: the block is live and this thread's own.
                        unsafe { global::free(block as *mut u8) };
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(global::check(), Ok(()), "round {round}");
    }
}
