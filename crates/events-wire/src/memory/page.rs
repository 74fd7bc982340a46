//! The page of words that a consumer shares with one supplier; both may write it.
//!
//! ```text
//!   line 0  position   flag 0: the next turn it wants, told every quarter of the ring, and when the
//!                      ring is empty; the supplier sleeps here; word 15: the supplier polls for room
//!   line 1  holds      words 0 to 3: a slot that it holds, plus one
//!   line 2  events     sleepers of flag 0: the consumer sleeps here; word 14 asleep, word 15 polled
//!   line 3  regime     how the two of them wait
//! Each line has one writer as a rule, so that a supplier that publishes to running consumers only reads
//! words in its own cache. Another page cannot change any of this: a consumer has one page for each supplier.

use super::geometry::HOLDS;
use unisono_sync::atomics::AtomicU32;
use unisono_sync::{Flag, Lines, Regime};

const POSITION: usize = 0;
const HELD: usize = 1;
const EVENTS: usize = 2;
const REGIME: usize = 3;

/// Lines of a page.
pub(super) const LINES: usize = 4;

/// A consumer's page.
#[derive(Debug)]
pub(super) struct ConsumerPage {
    lines: Lines,
}

impl ConsumerPage {
    /// `None`: there are too few lines.
    pub(super) fn new(lines: Lines) -> Option<Self> {
        (lines.count() >= LINES).then_some(Self { lines })
    }

    /// The next turn that the consumer wants (its low half).
    pub(super) fn position(&self) -> Flag<'_> {
        self.lines.line(POSITION).flag(0)
    }

    /// A slot that the consumer holds, plus one; 0: none.
    pub(super) fn hold(&self, index: usize) -> &AtomicU32 {
        self.lines.line(HELD).word(index)
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &AtomicU32> {
        (0..HOLDS).map(|index| self.hold(index))
    }

    /// The consumer's sleep flag.
    pub(super) fn sleepers(&self) -> Flag<'_> {
        self.lines.line(EVENTS).flag(0)
    }

    /// Set by a consumer after its last check before it sleeps, cleared by the supplier that wakes it, so
    /// that a consumer that is stopped in its sleep is woken only once.
    pub(super) fn asleep(&self) -> &AtomicU32 {
        self.lines.line(EVENTS).word(14)
    }

    /// As [`asleep`](Self::asleep), for a consumer that waits at its descriptor.
    pub(super) fn polled(&self) -> &AtomicU32 {
        self.lines.line(EVENTS).word(15)
    }

    /// As [`polled`](Self::polled), for a supplier that waits for room.
    pub(super) fn room_polled(&self) -> &AtomicU32 {
        self.lines.line(POSITION).word(15)
    }

    pub(super) fn regime(&self) -> Regime<'_> {
        Regime::new(self.lines.line(REGIME))
    }
}
