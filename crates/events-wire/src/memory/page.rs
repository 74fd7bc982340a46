//! The page of words that a consumer shares with one supplier. Both may write it.
//!
//! ```text
//!   line 0  position   flag 0: the next turn it wants, reported after every quarter of the ring, and when
//!                      the ring is empty; the supplier sleeps here; word 15: the supplier polls for room
//!   line 1  holds      words 0 to 3: a slot that it holds, plus one
//!   line 2  events     sleepers of flag 0: the consumer sleeps here; word 14 asleep, word 15 polled
//!   line 3  regime     how the two of them wait
//! ```
//! Normally each line has one writer, so that a supplier that publishes to running consumers only reads words
//! that are in its own cache. No third process can change a page, because a consumer has a page of its own
//! for each supplier.

use super::geometry::HOLDS;
use unisono_sync::atomics::AtomicU32;
use unisono_sync::{Flag, Lines, Regime};

const POSITION: usize = 0;
const HELD: usize = 1;
const EVENTS: usize = 2;
const REGIME: usize = 3;

/// The number of cache lines of a page.
pub(super) const LINES: usize = 4;

/// A consumer's page.
#[derive(Debug)]
pub(super) struct ConsumerPage {
    lines: Lines,
}

impl ConsumerPage {
    /// Makes a page of these lines, or returns `None` if there are too few.
    pub(super) fn new(lines: Lines) -> Option<Self> {
        (lines.count() >= LINES).then_some(Self { lines })
    }

    /// Returns the flag with the next turn that the consumer wants (the turn's low half).
    pub(super) fn position(&self) -> Flag<'_> {
        self.lines.line(POSITION).flag(0)
    }

    /// Returns the word of a hold: the slot that the consumer holds, plus one, or 0 for none.
    pub(super) fn hold(&self, index: usize) -> &AtomicU32 {
        self.lines.line(HELD).word(index)
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &AtomicU32> {
        (0..HOLDS).map(|index| self.hold(index))
    }

    /// Returns the flag at which the consumer sleeps.
    pub(super) fn sleepers(&self) -> Flag<'_> {
        self.lines.line(EVENTS).flag(0)
    }

    /// Returns the word that a consumer sets before the last check that precedes its sleep. The supplier that
    /// wakes the consumer clears it, so that a consumer that is stopped while it sleeps is woken only once.
    pub(super) fn asleep(&self) -> &AtomicU32 {
        self.lines.line(EVENTS).word(14)
    }

    /// Returns the same word as [`asleep`](Self::asleep), but for a consumer that waits at its descriptor.
    pub(super) fn polled(&self) -> &AtomicU32 {
        self.lines.line(EVENTS).word(15)
    }

    /// Returns the same word as [`polled`](Self::polled), but for a supplier that waits for room.
    pub(super) fn room_polled(&self) -> &AtomicU32 {
        self.lines.line(POSITION).word(15)
    }

    pub(super) fn regime(&self) -> Regime<'_> {
        Regime::new(self.lines.line(REGIME))
    }
}
