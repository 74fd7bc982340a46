//! When the link is free again: a server of a rate, on paper.
//!
//! A message takes its length over the rate, one after the other. A process wakes late; what the link could
//! have carried meanwhile is made up for, up to [`PathPace::LATE`], so that the rate holds and no burst is
//! longer than that.

use unisono_linux::clock::Nanos;

#[derive(Clone, Debug)]
pub struct PathPace {
    bits_per_s: u64,
    late: Nanos,
    free_at: Nanos,
}

impl PathPace {
    /// How much lateness is made up for: 2 ms.
    pub const LATE: Nanos = Nanos(2_000_000);

    /// A link of so many bits a second (at least one).
    #[must_use]
    pub fn new(bits_per_s: u64) -> Self {
        Self { bits_per_s: bits_per_s.max(1), late: Self::LATE, free_at: Nanos::ZERO }
    }

    /// The same, with another lateness to make up for.
    #[must_use]
    pub fn making_up_for(mut self, late: Nanos) -> Self {
        self.late = late;
        self
    }

    /// When the link is free.
    #[must_use]
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// How long a message of `bytes` takes.
    #[must_use]
    pub fn time_of(&self, bytes: u32) -> Nanos {
        let took = u128::from(bytes) * 8_000_000_000 / u128::from(self.bits_per_s);
        Nanos(u64::try_from(took).unwrap_or(u64::MAX))
    }

    /// Something of so many bytes goes on the link now.
    pub fn take(&mut self, now: Nanos, bytes: u32) {
        let took = self.time_of(bytes);
        self.free_at = took.after(self.free_at.max(now.since(self.late)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_its_length_over_the_rate() {
        let mut pace = PathPace::new(100_000_000).making_up_for(Nanos(0));
        pace.take(Nanos(5_000), 1250);
        assert_eq!(pace.free_at(), Nanos(105_000));
        pace.take(Nanos(105_000), 1250);
        assert_eq!(pace.free_at(), Nanos(205_000));
    }

    #[test]
    fn who_wakes_late_makes_up_for_it_but_not_for_ever() {
        let mut pace = PathPace::new(8_000_000_000).making_up_for(Nanos(1_000));
        pace.take(Nanos(0), 500);
        pace.take(Nanos(900), 500); // free at 500, asked at 900
        assert_eq!(pace.free_at(), Nanos(1_000));
        pace.take(Nanos(1_000_000), 500);
        assert_eq!(pace.free_at(), Nanos(1_000_000 - 1_000 + 500));
    }
}
