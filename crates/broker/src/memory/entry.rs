//! One entry of the ring: which event it announces, and in which slot that lies.
//!
//! The writer's turns count its events. The event of turn `t` is announced in entry `t mod depth`. A turn has
//! 64 bits in two words: `low` changes with every event, and is what consumers wait for; `high` tells turns
//! apart that are 2^32 events from each other. While an entry is rewritten for turn `t`, `low` is that of
//! turn `t - 1`, which never belongs into this entry.
//!
//! ```text
//!   writer                                  reader of turn t
//!   low := t - 1                            low = t ?  (acquire)
//!   ---- fence (release) ----               read slot, length, tag; copy, or announce a hold
//!   high, slot, length, tag                 ---- fence (acquire or SeqCst) ----
//!   low := t  (release)                     low, high still t ? then what was read is whole
//! ```

use super::geometry::ENTRY;
use unisono_sync::atomics::{AtomicU32, Ordering, fence};

const LOW: usize = 0;
const HIGH: usize = 1;
const SLOT: usize = 2;
const LENGTH: usize = 3;
const TAG: usize = 4;

/// An entry, by its words.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingEntry<'a> {
    words: &'a [AtomicU32; ENTRY],
}

/// What an entry announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) slot: u32,
    pub(super) length: u32,
    pub(super) tag: u32,
}

/// What a reader finds who wants one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    NotYet,
    Ready,
    /// The event is lost: its entry is being rewritten.
    BeingRewritten,
    /// The event is lost: its entry announces this later turn.
    Overwritten(u64),
}

/// The two words of a turn.
const fn halves(turn: u64) -> (u32, u32) {
    ((turn & 0xffff_ffff) as u32, (turn >> 32) as u32)
}

/// The word that waiters for this turn wait for.
pub(super) const fn low(turn: u64) -> u32 {
    halves(turn).0
}

impl<'a> RingEntry<'a> {
    /// The entry in so many words.
    pub(super) fn new(words: &'a [AtomicU32]) -> Self {
        Self { words: words.try_into().expect("because the caller takes the words of one entry") }
    }

    /// The word to wait for.
    pub(super) fn low(self) -> &'a AtomicU32 {
        &self.words[LOW]
    }

    /// Announces an event; for the writer.
    pub(super) fn announce(self, turn: u64, announced: Announced) {
        let (low, high) = halves(turn);
        self.words[LOW].store(low.wrapping_sub(1), Ordering::Relaxed);
        // SYNC(entry-rewrite) release: who reads anything that is written below sees that the old turn is
        // over
        fence(Ordering::Release);
        self.words[HIGH].store(high, Ordering::Relaxed);
        self.words[SLOT].store(announced.slot, Ordering::Relaxed);
        self.words[LENGTH].store(announced.length, Ordering::Relaxed);
        self.words[TAG].store(announced.tag, Ordering::Relaxed);
        // SYNC(entry) release: the event and what is said about it before its turn
        self.words[LOW].store(low, Ordering::Release);
    }

    /// Whether `turn`, which belongs into this entry of a ring of `depth`, is announced here.
    pub(super) fn look(self, turn: u64, depth: u32) -> EntryState {
        let (wanted_low, wanted_high) = halves(turn);
        // SYNC(entry) acquire: what is said about the event, and the event, after its turn
        let low = self.words[LOW].load(Ordering::Acquire);
        let high = self.words[HIGH].load(Ordering::Relaxed);
        if (low, high) == (wanted_low, wanted_high) {
            return EntryState::Ready;
        }
        let whole = (low ^ wanted_low) & (depth - 1) == 0;
        let found = u64::from(high) << 32 | u64::from(low);
        if !whole {
            // Rewritten for the turn after `low`, which is this one or a later one; or never written.
            let ahead = low.wrapping_add(1).wrapping_sub(wanted_low);
            return if ahead != 0 && ahead.cast_signed() > 0 {
                EntryState::BeingRewritten
            } else {
                EntryState::NotYet
            };
        }
        // SYNC(entry-rewrite) acquire: `low` below is no older than what was read above
        fence(Ordering::Acquire);
        if found <= turn || self.words[LOW].load(Ordering::Relaxed) != low {
            return EntryState::NotYet;
        }
        EntryState::Overwritten(found)
    }

    /// What the entry says; whole only if [`still`](Self::still) says so afterwards.
    pub(super) fn read(self) -> Announced {
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        Announced { slot: word(SLOT), length: word(LENGTH), tag: word(TAG) }
    }

    /// Whether `turn` has been here all the time. A fence that acquires has to stand between this and what
    /// was read.
    pub(super) fn still(self, turn: u64) -> bool {
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        (word(LOW), word(HIGH)) == halves(turn)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WHAT: Announced = Announced { slot: 3, length: 5, tag: 7 };

    fn words() -> [AtomicU32; ENTRY] {
        std::array::from_fn(|_| AtomicU32::new(0))
    }

    #[test]
    fn a_reader_knows_its_turn_from_those_before_and_after_also_beyond_32_bits() {
        let depth = 8;
        for turn in [8, 16, 1 << 31, (1 << 32) - 8, 1 << 32, (1 << 32) + 8, 5 << 40] {
            let words = words();
            let entry = RingEntry::new(&words);
            assert_eq!(entry.look(turn, depth), EntryState::NotYet);
            entry.announce(turn, WHAT);
            assert_eq!((entry.look(turn, depth), entry.read()), (EntryState::Ready, WHAT));
            assert!(entry.still(turn));
            for later in [8, 16, 1 << 31, 1 << 32, (1 << 32) + 8, 1 << 40] {
                assert_eq!(
                    entry.look(turn + later, depth),
                    EntryState::NotYet,
                    "{turn} is before {later} more"
                );
                if later < turn {
                    assert_eq!(entry.look(turn - later, depth), EntryState::Overwritten(turn));
                    assert!(!entry.still(turn - later));
                }
            }
        }
    }

    #[test]
    fn an_entry_that_is_being_rewritten_is_lost_to_its_old_turn_and_not_yet_there_for_its_new_one() {
        let (words, depth) = (words(), 4);
        let entry = RingEntry::new(&words);
        for turn in [8, 1 << 32, (1 << 32) + 4] {
            entry.announce(turn - 4, WHAT);
            words[LOW].store(low(turn - 1), Ordering::Relaxed);
            assert_eq!(entry.look(turn - 4, depth), EntryState::BeingRewritten);
            assert_eq!(entry.look(turn, depth), EntryState::NotYet);
            words[HIGH].store(halves(turn).1, Ordering::Relaxed);
            assert_eq!(entry.look(turn, depth), EntryState::NotYet);
        }
    }
}
