//! Backends against a model of their memory, in random order and under injected faults.

mod common;

use common::{Model, Op};
use page_backend::sys::Errno;
use page_backend::{Call, Capped, Chain, FaultInjector, FixedBuffer, PageBackend};
use std::mem::MaybeUninit;

/// A deterministic source of operations, for Miri too.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below) as usize
    }

    fn op(&mut self) -> Op {
        let (run, at, count) = (self.next(8), self.next(12), self.next(6) + 1);
        match self.next(9) {
            0..=2 => Op::Map { granules: count, align: self.next(4) as u32 },
            3 => Op::Purge { run, at, count },
            4..=6 => Op::Unmap { run, at, count: count + 3 },
            7 => Op::Grow { run, granules: count },
            _ => Op::Remap { run, granules: count + at, align: self.next(3) as u32 },
        }
    }
}

fn run_random(backend: &impl PageBackend, granule: usize, seed: u64, steps: usize) {
    let mut random = Random(seed * 2 + 1);
    let mut model = Model::new(backend, granule);
    for _ in 0..steps {
        model.apply(random.op());
    }
    model.finish();
}

const SEEDS: u64 = if cfg!(miri) { 2 } else { 60 };
const STEPS: usize = if cfg!(miri) { 40 } else { 200 };

fn buffer(len: usize) -> Vec<MaybeUninit<u8>> {
    // Not zero, so that zeroing is the backend's own work.
    vec![MaybeUninit::new(0xa5); len]
}

#[test]
fn fixed_buffer() {
    for seed in 0..SEEDS {
        let mut memory = buffer(8_000);
        run_random(&FixedBuffer::with_granule(&mut memory, 128), 128, seed, STEPS);
        run_random(&FixedBuffer::with_granule(&mut memory, 128).purge_zeroes(), 128, seed, STEPS);
    }
}

#[test]
fn chain_of_buffers_with_caps() {
    for seed in 0..SEEDS {
        let (mut small, mut large) = (buffer(4_000), buffer(10_000));
        let small = FixedBuffer::with_granule(&mut small, 256);
        let large = FixedBuffer::with_granule(&mut large, 256).purge_zeroes();
        let chain = Chain::with_caps(small, 2048, large, 8192);
        run_random(&chain, 256, seed, STEPS);
    }
}

#[test]
fn faults_of_every_kind() {
    for seed in 0..SEEDS {
        let mut memory = buffer(16_000);
        let pages = FaultInjector::new(FixedBuffer::with_granule(&mut memory, 128).purge_zeroes());
        pages.fail_every(Call::Map, 3, Errno::ENOMEM);
        pages.fail_every(Call::Purge, 2, Errno::EINTR);
        pages.fail_every(Call::Unmap, 2, Errno::ENOMEM);
        pages.fail_every(Call::Grow, 2, Errno::EEXIST);
        pages.short_purges(seed % 2 == 0);
        let mut random = Random(seed * 2 + 1);
        let mut model = Model::new(&pages, 128);
        for _ in 0..STEPS {
            model.apply(random.op());
        }
        assert!(pages.injected() > 0);
        pages.heal();
        model.finish();
    }
}

#[test]
fn a_buffer_is_used_up_and_comes_back_whole() {
    let mut memory = buffer(64 * 100);
    let pages = FixedBuffer::with_granule(&mut memory, 64);
    let capacity = pages.capacity();
    assert!(capacity >= 64 * 97, "{capacity}");
    for _ in 0..3 {
        let mut runs = Vec::new();
        while let Ok(mapping) = pages.map(64, 64) {
            runs.push(mapping);
        }
        assert_eq!(runs.len() * 64, capacity);
        for mapping in runs {
            // SAFETY: each mapping is ours and forgotten.
            unsafe { pages.unmap(mapping.ptr, mapping.len, mapping.tier).unwrap() };
        }
        let whole = pages.map(capacity, 64).unwrap();
        // SAFETY: the mapping is ours and forgotten.
        unsafe { pages.unmap(whole.ptr, whole.len, whole.tier).unwrap() };
    }
}

#[test]
fn buffers_of_every_small_size_and_place() {
    for skip in 0..9 {
        for len in 0..300 {
            let mut memory = buffer(skip + len);
            let pages = FixedBuffer::with_granule(&mut memory[skip..], 64);
            let capacity = pages.capacity();
            assert!(capacity <= len);
            assert_eq!(pages.map(64, 64).is_ok(), capacity >= 64);
            assert!(pages.map(capacity + 64, 64).is_err());
        }
        if cfg!(miri) {
            break;
        }
    }
}

#[test]
fn caps_hold() {
    let mut memory = buffer(64 * 100);
    let capped = Capped::new(FixedBuffer::with_granule(&mut memory, 64), 64 * 4);
    let first = capped.map(64 * 3, 64).unwrap();
    let error = capped.map(64 * 2, 64).unwrap_err();
    assert_eq!(error.reason, page_backend::Reason::CapReached);
    // SAFETY: the mapping is ours.
    unsafe {
        capped.grow(first.ptr, first.len, 64, first.tier).unwrap();
        assert!(capped.grow(first.ptr, first.len + 64, 64, first.tier).is_err());
        capped.unmap(first.ptr, first.len + 64, first.tier).unwrap();
    }
    assert!(capped.map(64 * 4, 64).is_ok());
}

#[test]
fn a_chain_counts_what_it_passes_on() {
    let (mut small, mut large) = (buffer(64 * 10), buffer(64 * 100));
    let small = FaultInjector::new(FixedBuffer::with_granule(&mut small, 64));
    let chain = Chain::with_caps(&small, 128, FixedBuffer::with_granule(&mut large, 64), usize::MAX);
    assert_eq!(chain.map(128, 64).unwrap().tier.0, 0);
    assert_eq!(chain.take_new_fallback(), None);
    assert_eq!(chain.map(64, 64).unwrap().tier.0, 1);
    let told = chain.take_new_fallback().unwrap();
    assert_eq!(told.reason, page_backend::Reason::CapReached);
    assert_eq!(chain.take_new_fallback(), None);
    let usage = chain.usage(page_backend::Tier(0));
    assert_eq!(usage.mapped, 128);
    assert_eq!(usage.fallbacks[page_backend::Reason::CapReached as usize], 1);
    assert_eq!(chain.usage(page_backend::Tier(1)).mapped, 64);
}

#[test]
fn the_nth_call_fails_and_no_other() {
    let mut memory = buffer(64 * 100);
    let pages = FaultInjector::new(FixedBuffer::with_granule(&mut memory, 64));
    pages.fail_nth(Call::Map, 3, Errno::EINTR);
    let results: Vec<_> = (0..5).map(|_| pages.map(64, 64).map_err(|error| error.errno)).collect();
    assert!(results[0].is_ok() && results[1].is_ok() && results[3].is_ok() && results[4].is_ok());
    assert_eq!(results[2].unwrap_err(), Some(Errno::EINTR));
    assert_eq!((pages.calls(Call::Map), pages.injected()), (5, 1));
}

#[test]
fn threads_share_a_buffer_without_overlap() {
    let mut memory = buffer(64 * 200);
    let pages = FixedBuffer::with_granule(&mut memory, 64);
    std::thread::scope(|scope| {
        for seed in 0..3u8 {
            let pages = &pages;
            scope.spawn(move || {
                let mut random = Random(u64::from(seed) + 11);
                for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
                    let size = 64 * (random.next(5) + 1);
                    let Ok(mapping) = pages.map(size, 128) else { continue };
                    // SAFETY: the mapping is ours until it is unmapped.
                    unsafe {
                        mapping.ptr.write_bytes(seed + 1, size);
                        std::thread::yield_now();
                        let bytes = std::slice::from_raw_parts(mapping.ptr.as_ptr(), size);
                        assert!(bytes.iter().all(|&byte| byte == seed + 1));
                        pages.unmap(mapping.ptr, size, mapping.tier).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(pages.usage(page_backend::Tier(0)).mapped, 0);
}

#[cfg(not(miri))]
mod outside_miri {
    use super::*;
    use page_backend::{LinkConfig, LockMode, LockTime, Locked, Mmap, System, SystemConfig, ThpPolicy, sys};
    use proptest::prelude::*;

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (1usize..24, 0u32..10).prop_map(|(granules, align)| Op::Map { granules, align }),
            2 => any::<(usize, usize, u8)>()
                .prop_map(|(run, at, n)| Op::Purge { run, at, count: usize::from(n) }),
            3 => any::<(usize, usize, u8)>()
                .prop_map(|(run, at, n)| Op::Unmap { run, at, count: usize::from(n) }),
            1 => (any::<usize>(), 1usize..16).prop_map(|(run, granules)| Op::Grow { run, granules }),
            1 => (any::<usize>(), 1usize..32, 0u32..10)
                .prop_map(|(run, granules, align)| Op::Remap { run, granules, align }),
        ];
        proptest::collection::vec(op, 1..60)
    }

    fn run(backend: &impl PageBackend, granule: usize, ops: &[Op]) {
        let mut model = Model::new(backend, granule);
        for &op in ops {
            model.apply(op);
        }
        model.finish();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn mmap(ops in ops()) {
            for thp in [ThpPolicy::Default, ThpPolicy::Never, ThpPolicy::Madvise, ThpPolicy::Collapse] {
                run(&Mmap::with_thp(thp), sys::page_size(), &ops);
            }
        }

        #[test]
        fn locked(ops in ops()) {
            for mode in [LockMode::Off, LockMode::Fallback, LockMode::Strict] {
                for time in [LockTime::AtMap, LockTime::OnTouch] {
                    let pages = Locked::with_options(Mmap::new(), mode, time, 100 * sys::page_size());
                    run(&pages, sys::page_size(), &ops);
                }
            }
        }

        #[test]
        fn chains_of_three(ops in ops()) {
            let mut memory = buffer(20 * 4096);
            let page = sys::page_size();
            let locked = Locked::with_options(Mmap::new(), LockMode::Strict, LockTime::AtMap, 32 * page);
            let rest = Chain::with_caps(locked, 64 * page, Mmap::new(), usize::MAX);
            run(&Chain::new(FixedBuffer::with_granule(&mut memory, page), rest), page, &ops);
        }

        #[test]
        fn system(ops in ops()) {
            let page = sys::page_size();
            let system = System::new();
            run(&system, page, &ops);
            let locked = LinkConfig::PLAIN.locked(LockMode::Fallback, LockTime::OnTouch).cap(40 * page);
            let links = [LinkConfig::PLAIN.cap(10 * page), locked, LinkConfig::PLAIN];
            let config = SystemConfig { links: &links, fallback: Default::default(), excluded: false };
            assert!(system.configure(&config));
            run(&system, page, &ops);
        }

        #[test]
        fn mmap_under_faults(ops in ops(), every in proptest::array::uniform5(0u64..4), short: bool) {
            let pages = FaultInjector::new(Mmap::new());
            let calls = [Call::Map, Call::Purge, Call::Unmap, Call::Grow, Call::Remap];
            for (call, n) in calls.into_iter().zip(every) {
                pages.fail_every(call, n, Errno::ENOMEM);
            }
            pages.short_purges(short);
            let mut model = Model::new(&pages, sys::page_size());
            for &op in &ops {
                model.apply(op);
            }
            pages.heal();
            model.finish();
        }
    }
}
