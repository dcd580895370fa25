//! The filler against a search through all huge pages.

use crate::page_heap::filler::Filler;
use crate::page_heap::tracker::{HUGE_SIZE, State, Tracker};
use core::ptr::NonNull;
use page_backend::Tier;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

fn tracker(number: usize) -> *mut Tracker {
    let base = NonNull::new(core::ptr::without_provenance_mut((number + 1) * HUGE_SIZE)).unwrap();
    let t = Box::into_raw(Box::<Tracker>::new_uninit()).cast::<Tracker>();
    // SAFETY: the record is fresh and this test's own.
    unsafe {
        Tracker::init(t, 1, base, Tier(0), false);
        (*t).state = State::Shared;
    }
    t
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn finds_a_fit_whenever_there_is_one(
        ops in prop::collection::vec((0u8..10, 1usize..256, 0u32..6, 0usize..1000), 1..300),
    ) {
        let mut filler = Filler::new();
        filler.purgeable = 1;
        let mut all: Vec<*mut Tracker> = Vec::new();
        let mut runs: Vec<(*mut Tracker, usize, usize)> = Vec::new();
        // SAFETY: the records are this test's own and live to its end.
        unsafe {
            for (op, len, shift, pick) in ops {
                let len = if op < 5 { len % 20 + 1 } else { len };
                let align = 1usize << shift;
                match op {
                    0..7 => {
                        let fits = all.iter().any(|&t| (*t).pages.find(len, align).is_some());
                        // Long ranges share lists with ones up to 15 pages shorter, of which few are looked into.
                        let clearly = all.iter().any(|&t| (*t).pages.longest_free() >= len + align + 15);
                        let found = filler.find(len, align);
                        prop_assert!(fits || found.is_none());
                        if (align == 1 && len <= 32) || clearly {
                            prop_assert_eq!(found.is_some(), fits);
                        }
                        let (t, pos) = found.unwrap_or_else(|| {
                            let t = tracker(all.len());
                            all.push(t);
                            (t, 0)
                        });
                        prop_assert!((*t).pages.is_free(pos, len) && pos % align == 0);
                        if found.is_some() && align == 1 && len <= 32 {
                            // Regular huge pages first, and of these one with the shortest range that fits.
                            let best = all
                                .iter()
                                .filter(|&&t| !(*t).pages.has_purged() && (*t).pages.used() > 0)
                                .map(|&t| (*t).pages.longest_free())
                                .filter(|&longest| longest >= len)
                                .min();
                            if let (Some(best), true) = (best, best.is_some_and(|b| b <= 32)) {
                                prop_assert_eq!((*t).pages.longest_free(), best);
                            }
                        }
                        (*t).pages.mark(pos, len);
                        filler.update(t);
                        runs.push((t, pos, len));
                    }
                    7 | 8 if !runs.is_empty() => {
                        let (t, pos, len) = runs.swap_remove(pick % runs.len());
                        if op == 7 {
                            (*t).pages.unmark(pos, len);
                        } else {
                            (*t).pages.unmark_purged(pos, len, true);
                        }
                        if (*t).pages.used() == 0 {
                            filler.remove(t);
                            all.retain(|&other| other != t);
                            drop(Box::from_raw(t));
                        } else {
                            filler.update(t);
                        }
                    }
                    _ => {}
                }
                let backed: usize = all.iter().map(|&t| (*t).pages.backed_free()).sum();
                prop_assert_eq!(filler.backed(), backed);
                let sparsest = filler.sparsest();
                prop_assert_eq!(sparsest.is_null(), backed == 0);
                if !sparsest.is_null() {
                    let least = all
                        .iter()
                        .filter(|&&t| (*t).pages.backed_free() > 0)
                        .map(|&t| (*t).pages.used() / 32)
                        .min();
                    prop_assert_eq!(Some((*sparsest).pages.used() / 32), least);
                }
                for &t in &all {
                    prop_assert!(filler.is_consistent(&*t));
                }
            }
            for t in all {
                drop(Box::from_raw(t));
            }
        }
    }
}

#[test]
fn donated_tails_come_after_regular_pages_and_released_ones_last() {
    let mut filler = Filler::new();
    let (regular, donated, released) = (tracker(0), tracker(1), tracker(2));
    // SAFETY: the records are this test's own and live to its end.
    unsafe {
        // The regular one would fit worst by length alone.
        (*regular).pages.mark(0, 1);
        (*donated).pages.mark(0, 200);
        (*donated).donated = true;
        (*released).pages.mark(0, 250);
        (*released).pages.unmark_purged(249, 1, true);
        for t in [released, donated, regular] {
            filler.update(t);
        }
        assert_eq!(filler.donated(), 56);
        for expected in [regular, donated, released] {
            let (t, _) = filler.find(2, 1).unwrap();
            assert_eq!(t, expected);
            filler.remove(t);
        }
        assert_eq!(filler.donated(), 0);
        for t in [regular, donated, released] {
            drop(Box::from_raw(t));
        }
    }
}

#[test]
fn the_fullest_of_equals_is_taken() {
    let mut filler = Filler::new();
    let (full, sparse) = (tracker(0), tracker(1));
    // SAFETY: the records are this test's own and live to its end.
    unsafe {
        for (t, used) in [(full, 240), (sparse, 20)] {
            // The longest free range is 10 in both; single used pages cut up the rest.
            (*t).pages.mark(0, 256);
            (*t).pages.unmark(0, 10);
            let mut pos = 12;
            while (*t).pages.used() > used && pos + 9 < 256 {
                (*t).pages.unmark(pos, 9);
                pos += 10;
            }
            filler.update(t);
        }
        assert_eq!((*full).pages.longest_free(), (*sparse).pages.longest_free());
        assert_eq!(filler.find(10, 1).unwrap().0, full);
        for t in [full, sparse] {
            drop(Box::from_raw(t));
        }
    }
}
