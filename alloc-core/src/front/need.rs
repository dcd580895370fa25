//! How large a bin needs to be.
//!
//! A bin that runs over gives objects back; if it runs dry later, it fetches what it need not have given. After enough of that its
//! size has proven too small and rises by a step, which it keeps. A bin that only runs dry, or only over, would gain nothing by
//! room for more than a batch: it is lent more, up to a batch, in proportion to what passes, and begins anew when it
//! runs over for the second time. So a wave of frees ends with little cached however long it was, and long streams move in
//! whole batches. At each sweep a bin that has not missed since the last loses a step.

use super::slots;
use size_classes::MAX_BATCH;

/// Bytes that the slots of one bin may hold.
const BIN_BYTES: usize = 512 << 10;
/// The highest level that is lent: a batch less the object in hand.
const BATCH_LEVEL: usize = 4;
const _: () = assert!(slots::slots(BATCH_LEVEL) + 1 == MAX_BATCH);
/// Bytes of blocks that a bin is lent room for at once; nothing is lent at once for larger blocks.
const LENT_AT_ONCE: usize = 512;
/// Misses in one direction after which the next level is lent, and one more for each of these bytes of a block, up to so many: a
/// block that is asked for once is not worth keeping.
const LENT_AFTER: usize = 6;
const LENT_BYTES: usize = 64;
const LENT_MOST: usize = 32;
/// Needless fetches that prove a size too small: one, and one more for each of these slots, or of these bytes of a block up to
/// so many.
const PROOF_SLOTS: usize = 16;
const PROOF_BYTES: usize = 256;
const PROOF_MOST: usize = 16;

/// What a bin knows of itself beside its cursor; see the module's page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Of its array.
    pub(super) level: u8,
    /// The level that it has proven to need; what `level` is above that is lent.
    pub(super) proven: u8,
    /// Misses since the last turn or lending: above zero when the bin ran dry, below when it ran over.
    pub(super) run: i8,
    /// Batches given back and not fetched again.
    pub(super) owed: u8,
    /// Needless fetches since the last proof.
    pub(super) needless: u8,
    /// It has missed since the last sweep.
    pub(super) used: bool,
}

impl State {
    pub(super) fn from_word(word: u32) -> Self {
        let [levels, run, owed, needless] = word.to_le_bytes();
        Self {
            level: levels & 15,
            proven: levels >> 4,
            run: run as i8,
            owed,
            needless: needless >> 1,
            used: needless & 1 != 0,
        }
    }

    pub(super) fn word(self) -> u32 {
        let needless = self.needless.min(127) << 1 | u8::from(self.used);
        u32::from_le_bytes([self.level | self.proven << 4, self.run as u8, self.owed, needless])
    }

    /// Notes a miss; `direction` is 1 when the bin ran dry, -1 when it ran over. The second time in a row that it runs over, it
    /// loses what it was lent before; a long run is lent the next level.
    pub(super) fn missed(&mut self, direction: i8, size: usize) {
        self.used = true;
        if self.run.signum() == -direction {
            self.run = 0;
        }
        self.run = self.run.saturating_add(direction);
        if self.run == -2 {
            self.level = self.proven;
        }
        let top = BATCH_LEVEL.min(top_level(size)) as u8;
        let at_once = level_within(LENT_AT_ONCE, size).min(top);
        let enough = LENT_AFTER + (size / LENT_BYTES).min(LENT_MOST);
        if self.level < at_once {
            self.level = at_once;
            self.run = 2 * direction;
        } else if self.level < top && self.run.unsigned_abs() as usize > enough {
            self.level += 1;
            self.run = 2 * direction;
        }
    }

    /// How many objects a bin fetches that ran dry, that for the caller included.
    pub(super) fn fetch(&self, batch: usize) -> usize {
        let most = batch.min(slots::slots(self.level as usize) + 1);
        // At first half, lest a bin that is all but large enough runs over next.
        if self.run == 1 { most.div_ceil(2) } else { most }
    }

    /// How many of its `len` objects a bin gives back that ran over; its level has no room for more.
    pub(super) fn give_back(&mut self, len: usize, batch: usize) -> usize {
        // At first a batch, lest a bin that is all but large enough loses much; while it goes on, ever more.
        let most = batch << (self.run.unsigned_abs() - 1).min(6);
        let given = most.min(if self.run == -1 { len.div_ceil(2) } else { len });
        let given = given.max(len.saturating_sub(slots::slots(self.level as usize)));
        self.owed = self.owed.saturating_add(given.div_ceil(batch).max(1) as u8);
        given
    }

    /// Lowers what is above a level.
    pub(super) fn keep_to(&mut self, level: usize) {
        self.level = self.level.min(level as u8);
        self.proven = self.proven.min(self.level);
    }

    /// Notes that the bin, which ran dry, fetches what it gave away before.
    pub(super) fn regret(&mut self, size: usize) {
        if self.owed == 0 {
            return;
        }
        self.owed -= 1;
        self.needless = self.needless.saturating_add(1);
        let by_slots = slots::slots(self.level as usize) / PROOF_SLOTS;
        let enough = by_slots.max((size / PROOF_BYTES).min(PROOF_MOST));
        if self.needless as usize > enough && (self.level as usize) < top_level(size) {
            self.level += 1;
            self.proven = self.level;
            self.needless = 0;
        }
    }
}

/// The highest level whose slots hold so many bytes of blocks at the most.
fn level_within(bytes: usize, size: usize) -> u8 {
    // A level has 2^(level + 1) - 2 slots.
    let level = (bytes as u32 / size as u32 + 2).ilog2() - 1;
    level.min(slots::LEVELS as u32 - 1) as u8
}

/// The highest level that a class may reach.
fn top_level(size: usize) -> usize {
    level_within(BIN_BYTES, size).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bin of a size that only counts.
    struct Model {
        state: State,
        len: usize,
        misses: usize,
        size: usize,
    }

    impl Model {
        fn new(size: usize) -> Self {
            Self { state: State::default(), len: 0, misses: 0, size }
        }

        fn room(&self) -> usize {
            slots::slots(self.state.level as usize)
        }

        fn take(&mut self, count: usize) {
            for _ in 0..count {
                if self.len == 0 {
                    self.misses += 1;
                    self.state.missed(1, self.size);
                    self.state.regret(self.size);
                    self.len = self.state.fetch(MAX_BATCH);
                }
                self.len -= 1;
            }
        }

        fn give(&mut self, count: usize) {
            for _ in 0..count {
                if self.len == self.room() {
                    self.misses += 1;
                    self.state.missed(-1, self.size);
                    if self.room() <= self.len {
                        self.len -= self.state.give_back(self.len, MAX_BATCH);
                    }
                }
                self.len = self.room().min(self.len + 1);
            }
        }
    }

    #[test]
    fn a_wave_ends_with_little_however_large() {
        for (size, objects) in [(16, 100), (16, 100_000), (1024, 1000), (32 << 10, 1000)] {
            let mut bin = Model::new(size);
            bin.take(objects);
            bin.give(objects);
            assert_eq!(bin.state.proven, 0);
            assert!(bin.len <= MAX_BATCH);
            let kept = bin.len * size;
            assert!(
                kept <= (objects * size / 8).max(LENT_AT_ONCE),
                "{kept} bytes of {objects} objects of {size}"
            );
        }
    }

    #[test]
    fn waves_that_repeat_find_room_in_the_end() {
        for (size, objects) in [(16, 1000), (16, 10), (512, 500), (4096, 100), (32 << 10, 10)] {
            let mut bin = Model::new(size);
            for _ in 0..200 {
                bin.take(objects);
                bin.give(objects);
            }
            bin.misses = 0;
            bin.take(objects);
            bin.give(objects);
            assert_eq!(bin.misses, 0, "{objects} objects of {size}");
        }
    }

    #[test]
    fn a_long_stream_moves_in_batches() {
        for give in [false, true] {
            let mut bin = Model::new(64);
            for _ in 0..100 {
                bin.misses = 0;
                if give { bin.give(100) } else { bin.take(100) }
            }
            assert!(bin.misses <= 100 / MAX_BATCH + 1, "{} misses", bin.misses);
            assert_eq!(bin.state.proven, 0);
        }
    }

    #[test]
    fn a_state_survives_its_word() {
        let state = State { level: 9, proven: 8, run: -5, owed: 200, needless: 100, used: true };
        assert_eq!(State::from_word(state.word()), state);
        assert_eq!(State::from_word(0), State::default());
    }
}
