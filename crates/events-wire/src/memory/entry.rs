//! An entry of the ring: the event that it announces, and the slot of that event.
//!
//! Turns number the writer's events. The event of turn `t` is announced in entry `t mod depth`. A turn has 64
//! bits in two words: `low` changes with every event, and consumers wait for it; `high` distinguishes turns
//! that are 2^32 events apart. While an entry is rewritten for turn `t`, its `low` is the low word of turn `t
//! - 1`, and this entry never announces that turn.
//!
//! ```text
//!   writer                                  reader of turn t
//!   low := t - 1                            low = t ?  (acquire)
//!   ---- fence (release) ----               read slot, length, tag; copy, or announce a hold
//!   high, slot, length, tag                 ---- fence (acquire or SeqCst) ----
//!   low := t  (release)                     low, high still t ? then the data read is consistent
//! ```

use super::geometry::ENTRY;
use unisono_sync::atomics::{AtomicU32, Ordering, fence};

const LOW: usize = 0;
const HIGH: usize = 1;
const SLOT: usize = 2;
const LENGTH: usize = 3;
const TAG: usize = 4;

/// An entry as its words.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingEntry<'a> {
    words: &'a [AtomicU32; ENTRY],
}

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) slot: u32,
    pub(super) length: u32,
    pub(super) tag: u32,
}

/// The state of an entry, for a reader of a given turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    NotYet,
    Ready,
    /// The event is lost: its entry is being rewritten.
    BeingRewritten,
    /// The event is lost: its entry announces this later turn.
    Overwritten(u64),
}

/// Returns the low and the high word of a turn.
const fn halves(turn: u64) -> (u32, u32) {
    ((turn & 0xffff_ffff) as u32, (turn >> 32) as u32)
}

/// Returns the value of the word `low` for which waiters for this turn wait.
pub(super) const fn low(turn: u64) -> u32 {
    halves(turn).0
}

impl<'a> RingEntry<'a> {
    /// Makes the entry of these words.
    pub(super) fn new(words: &'a [AtomicU32]) -> Self {
        Self { words: words.try_into().expect("because the caller takes the words of one entry") }
    }

    /// Returns the word for whose change consumers wait.
    pub(super) fn low(self) -> &'a AtomicU32 {
        &self.words[LOW]
    }

    /// Announces an event. Only the writer may call this.
    pub(super) fn announce(self, turn: u64, announced: Announced) {
        let (low, high) = halves(turn);
        self.words[LOW].store(low.wrapping_sub(1), Ordering::Relaxed);
        // SYNC(entry-rewrite) release: a reader that sees any word written below also sees that the old turn
        // is over
        fence(Ordering::Release);
        self.words[HIGH].store(high, Ordering::Relaxed);
        self.words[SLOT].store(announced.slot, Ordering::Relaxed);
        self.words[LENGTH].store(announced.length, Ordering::Relaxed);
        self.words[TAG].store(announced.tag, Ordering::Relaxed);
        // SYNC(entry) release: the event and its description are written before its turn
        self.words[LOW].store(low, Ordering::Release);
    }

    /// Returns the state of this entry, in a ring of `depth` entries, for a reader of `turn`, which must
    /// belong to this entry.
    pub(super) fn check_turn(self, turn: u64, depth: u32) -> EntryState {
        let (wanted_low, wanted_high) = halves(turn);
        // SYNC(entry) acquire: the description of the event and the event are read after its turn
        let low = self.words[LOW].load(Ordering::Acquire);
        let high = self.words[HIGH].load(Ordering::Relaxed);
        if (low, high) == (wanted_low, wanted_high) {
            return EntryState::Ready;
        }
        let whole = (low ^ wanted_low) & (depth - 1) == 0;
        let found = u64::from(high) << 32 | u64::from(low);
        if !whole {
            // The entry is being rewritten for the turn after `low`, which is this turn or a later one; or it
            // was never written.
            let ahead = low.wrapping_add(1).wrapping_sub(wanted_low);
            return if ahead != 0 && ahead.cast_signed() > 0 {
                EntryState::BeingRewritten
            } else {
                EntryState::NotYet
            };
        }
        // SYNC(entry-rewrite) acquire: `low` below is no older than the words read above
        fence(Ordering::Acquire);
        if found <= turn || self.words[LOW].load(Ordering::Relaxed) != low {
            return EntryState::NotYet;
        }
        EntryState::Overwritten(found)
    }

    /// Reads the entry. The result is consistent only if [`still`](Self::still) returns true afterwards.
    pub(super) fn read(self) -> Announced {
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        Announced { slot: word(SLOT), length: word(LENGTH), tag: word(TAG) }
    }

    /// Returns whether `turn` has been announced here all the time since the entry was checked. An acquire
    /// fence has to be between the reads and this call.
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
            assert_eq!(entry.check_turn(turn, depth), EntryState::NotYet);
            entry.announce(turn, WHAT);
            assert_eq!((entry.check_turn(turn, depth), entry.read()), (EntryState::Ready, WHAT));
            assert!(entry.still(turn));
            for later in [8, 16, 1 << 31, 1 << 32, (1 << 32) + 8, 1 << 40] {
                assert_eq!(
                    entry.check_turn(turn + later, depth),
                    EntryState::NotYet,
                    "{turn} is before {later} more"
                );
                if later < turn {
                    assert_eq!(entry.check_turn(turn - later, depth), EntryState::Overwritten(turn));
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
            assert_eq!(entry.check_turn(turn - 4, depth), EntryState::BeingRewritten);
            assert_eq!(entry.check_turn(turn, depth), EntryState::NotYet);
            words[HIGH].store(halves(turn).1, Ordering::Relaxed);
            assert_eq!(entry.check_turn(turn, depth), EntryState::NotYet);
        }
    }
}
