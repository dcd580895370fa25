//! The range tracker against a model of one byte a page.

use crate::page_heap::bits::Bits;
use crate::page_heap::range_tracker::{PurgeBy, RangeTracker};
use proptest::prelude::*;
use std::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    used: bool,
    backed: bool,
    zero: bool,
    purged: bool,
}

struct Model(Vec<Page>);

impl Model {
    fn longest(&self, test: impl Fn(&Page) -> bool) -> usize {
        let (mut best, mut run) = (0, 0);
        for page in &self.0 {
            run = if test(page) { run + 1 } else { 0 };
            best = best.max(run);
        }
        best
    }

    fn find(&self, len: usize, align: usize) -> Option<usize> {
        (0..=256 - len).step_by(align).find(|&p| self.0[p..p + len].iter().all(|page| !page.used))
    }

    fn check(&self, t: &RangeTracker) {
        assert!(t.is_consistent());
        assert_eq!(t.used(), self.0.iter().filter(|p| p.used).count());
        assert_eq!(t.free(), 256 - t.used());
        assert_eq!(t.backed_free(), self.0.iter().filter(|p| !p.used && p.backed).count());
        assert_eq!(t.unbacked(), self.0.iter().filter(|p| !p.used && !p.backed).count());
        assert_eq!(t.longest_free(), self.longest(|p| !p.used));
        assert_eq!(t.has_purged(), self.0.iter().any(|p| p.purged && !p.used));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn follows_the_model(
        backed: bool,
        ops in prop::collection::vec((0u8..8, 0usize..256, 1usize..257, 0u32..9), 1..200),
    ) {
        let mut t = RangeTracker::fresh(backed);
        let mut model =
            Model(std::vec![Page { used: false, backed, zero: true, purged: false }; 256]);
        for (op, pos, len, shift) in ops {
            let len = len.min(256 - pos);
            let range = pos..pos + len;
            let free = model.0[range.clone()].iter().all(|p| !p.used);
            let used = model.0[range.clone()].iter().all(|p| p.used);
            prop_assert_eq!(t.is_free(pos, len), free);
            prop_assert_eq!(t.is_used(pos, len), used);
            let found = t.find(len, 1 << shift);
            prop_assert_eq!(found, model.find(len, 1 << shift));
            match op {
                0..4 => {
                    // Take, mostly short ranges.
                    let len = if op < 3 { len.min(9) } else { len };
                    if let Some(pos) = t.find(len, 1 << shift) {
                        let pages = &mut model.0[pos..pos + len];
                        let marked = t.mark(pos, len);
                        prop_assert_eq!(marked.unbacked, pages.iter().filter(|p| !p.backed).count());
                        let dirty = pages.iter().rposition(|p| !p.zero).map_or(0, |last| last + 1);
                        prop_assert_eq!(marked.dirty, dirty);
                        prop_assert_eq!(marked.purged, pages.iter().any(|p| p.purged));
                        for p in &mut *pages {
                            *p = Page { used: true, backed: true, zero: false, purged: p.purged };
                        }
                        let mut at = pos;
                        while let Some((row, count)) = t.take_purged(at, pos + len - at) {
                            prop_assert!(model.0[row..row + count].iter().all(|p| p.purged));
                            model.0[row..row + count].iter_mut().for_each(|p| p.purged = false);
                            at = row + count;
                            if at == pos + len {
                                break;
                            }
                        }
                        prop_assert!(model.0[pos..pos + len].iter().all(|p| !p.purged));
                    }
                }
                4 | 5 if used => {
                    t.unmark(pos, len);
                    model.0[range].fill(Page { used: false, backed: true, zero: false, purged: false });
                }
                6 if used => {
                    t.unmark_purged(pos, len, shift % 2 == 0);
                    let zero = shift % 2 == 0;
                    model.0[range].fill(Page { used: false, backed: false, zero, purged: true });
                }
                7 if free => {
                    let was = model.0[range.clone()].iter().filter(|p| p.backed).count();
                    let zero = shift % 2 == 0;
                    prop_assert_eq!(t.note_purged(pos, len, zero), was);
                    model.0[range].fill(Page { used: false, backed: false, zero, purged: true });
                }
                _ => {}
            }
            model.check(&t);
        }
    }

    #[test]
    fn purgeable_rows_are_whole_units_with_something_to_purge(
        takes in prop::collection::vec((0usize..256, 1usize..20), 0..60),
        frees in prop::collection::vec(0usize..60, 0..40),
        shift in 0u32..9,
    ) {
        let unit = 1usize << shift;
        let mut t = RangeTracker::fresh(false);
        let mut runs = Vec::new();
        for (pos, len) in takes {
            let len = len.min(256 - pos);
            if t.is_free(pos, len) {
                t.mark(pos, len);
                runs.push((pos, len));
            }
        }
        let mut touched = [false; 256];
        for (i, &(pos, len)) in runs.iter().enumerate() {
            if frees.contains(&i) {
                t.unmark(pos, len);
                touched[pos..pos + len].fill(true);
            }
        }
        let mut from = 0;
        let mut seen = [false; 256];
        while let Some((pos, len)) = t.next_purgeable(from, PurgeBy { unit, again: false }) {
            prop_assert!(pos >= from && pos % unit == 0 && len % unit == 0 && len > 0);
            prop_assert!(t.is_free(pos, len));
            prop_assert!(touched[pos..pos + len].iter().any(|&x| x));
            seen[pos..pos + len].fill(true);
            from = pos + len;
        }
        for first in (0..256).step_by(unit) {
            let whole = t.is_free(first, unit) && touched[first..first + unit].iter().any(|&x| x);
            prop_assert!(!whole || seen[first], "unit at {} was left out", first);
        }
    }

    #[test]
    fn bit_rows_agree_with_a_loop(words: [u64; 4], sparse: bool, pos in 0usize..256, len in 1usize..257) {
        let bit = |i: usize| {
            let word = if sparse { words[i / 64] & words[(i / 64 + 1) % 4] } else { words[i / 64] };
            word >> (i % 64) & 1 == 1
        };
        let mut bits = Bits::EMPTY;
        (0..256).filter(|&i| bit(i)).for_each(|i| bits = bits.or(Bits::range(i, 1)));
        let from = (pos..256).take_while(|&i| bit(i)).count();
        let before = (0..pos).rev().take_while(|&i| bit(i)).count();
        prop_assert_eq!(bits.run_from(pos), from);
        prop_assert_eq!(bits.run_before(pos), before);
        prop_assert_eq!(bits.count(), (0..256).filter(|&i| bit(i)).count());
        let starts = bits.starts_of(len);
        let first = (0..=256 - len).find(|&p| (p..p + len).all(bit));
        prop_assert_eq!(starts.first(), first);
        let model = Model((0..256).map(|i| Page { used: bit(i), backed: true, zero: false, purged: false }).collect());
        prop_assert_eq!(bits.longest_run(), model.longest(|p| p.used));
    }
}

#[test]
fn a_purge_that_stops_half_way_leaves_the_rest_backed_and_unknown() {
    let mut t = RangeTracker::fresh(true);
    t.mark(0, 256);
    t.unmark(0, 256);
    t.note_purged(10, 5, true);
    t.note_purged_below(100, true);
    assert!(t.is_consistent());
    assert_eq!(t.unbacked(), 100);
    assert_eq!(t.mark(0, 100).dirty, 0);
    assert_eq!(t.mark(100, 1).dirty, 1);
}

#[test]
fn pages_that_could_not_be_restored_stay_purged() {
    let mut t = RangeTracker::fresh(false);
    t.mark(0, 30);
    t.unmark(0, 30);
    t.note_purged(5, 10, true);
    let marked = t.mark(0, 30);
    assert!(marked.purged && marked.unbacked == 10 && marked.dirty == 30);
    assert_eq!(t.take_purged(0, 30), Some((5, 10)));
    t.keep_purged(8, 7);
    t.unmark_unrestored(0, 30, true);
    assert!(t.is_consistent());
    assert_eq!(t.unbacked(), 226 + 7);
    assert_eq!(t.next_unpurged(0, PurgeBy { unit: 1, again: false }), Some((0, 8)));
    assert_eq!(t.mark(8, 7).dirty, 0);
}
