//! How long to wait before saying something again.
//!
//! Eight times what a fast barrier takes, so that a repetition is rare when nothing is lost, and at least 30 ms,
//! because processes that share a processor wait for each other; doubled each time that nothing comes. What a
//! barrier takes falls at once and rises slowly: where others lose frames, barriers are slow, and waiting longer for
//! that would make them slower. Barriers in which this node repeated something teach nothing (Karn's rule): nobody knows
//! which of the messages was answered.

use std::time::Duration;

const LEAST: Duration = Duration::from_millis(30);
const MOST: Duration = Duration::from_millis(500);
/// Barriers between two looks at the clock.
const LOOKS: u32 = 15;

#[derive(Clone, Debug)]
pub(super) struct Patience {
    usual: Duration,
    now: Duration,
    /// Barriers until the clock is looked at again.
    unseen: u32,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { usual: Duration::from_millis(10), now: Duration::from_millis(80), unseen: 0 }
    }

    /// How long to wait now.
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Nothing came. Waits no longer than `left`, after which somebody wants to know.
    pub(super) fn lost(&mut self, left: Duration) {
        self.now = (self.now * 2).min(MOST).min(left.max(LEAST));
    }

    /// It is not release any more that is waited for.
    pub(super) fn hurry(&mut self) {
        self.now = LEAST;
    }

    /// Whether the next barrier's time is wanted: of one in so many, because looks at the clock cost time.
    pub(super) fn looks(&mut self) -> bool {
        self.unseen = self.unseen.checked_sub(1).unwrap_or(LOOKS);
        self.unseen == LOOKS
    }

    /// A barrier ended, after this time if that was looked at, with nothing repeated or with something; answers
    /// whether how long to wait is another now.
    pub(super) fn ended(&mut self, took: Option<Duration>, repeated: u64) -> bool {
        if let (Some(took), 0) = (took, repeated) {
            self.usual = took.min(self.usual + self.usual / 8).max(Duration::from_micros(10));
        }
        let wanted = (self.usual * 8).clamp(LEAST, MOST);
        // changing it costs a system call: only where it matters
        let changes = repeated > 0 || wanted > self.now || wanted * 2 < self.now;
        if changes {
            self.now = wanted;
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_while_nothing_comes_and_returns_to_what_is_usual() {
        let mut patience = Patience::new();
        (0..20).for_each(|_| {
            patience.ended(Some(Duration::from_millis(10)), 0);
        });
        let usual = patience.now();
        patience.lost(MOST);
        assert_eq!(patience.now(), usual * 2);
        (0..20).for_each(|_| patience.lost(MOST));
        assert_eq!(patience.now(), MOST);
        {
            patience.ended(Some(Duration::from_secs(9)), 21);
        };
        assert_eq!(patience.now(), usual, "what was repeated teaches nothing");
    }

    #[test]
    fn a_slow_barrier_among_fast_ones_hardly_counts() {
        let mut patience = Patience::new();
        (0..99).for_each(|_| {
            patience.ended(Some(Duration::from_millis(10)), 0);
        });
        {
            patience.ended(Some(Duration::from_secs(1)), 0);
        };
        assert_eq!(patience.now(), Duration::from_millis(90));
    }

    #[test]
    fn fast_barriers_do_not_make_it_shorter_than_sharing_a_processor_takes() {
        let mut patience = Patience::new();
        (0..99).for_each(|_| {
            patience.ended(Some(Duration::from_micros(20)), 0);
        });
        assert!(patience.now() >= LEAST && patience.now() < 2 * LEAST);
    }
}
