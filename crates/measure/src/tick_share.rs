//! The ticks that other programs or the hypervisor took of all processors, and a test whether chance explains
//! that many.

use std::iter::Sum;
use std::ops::AddAssign;

/// Share of all processors that other programs or the hypervisor may take during a run beyond the normal
/// rate.
pub const DISTURBANCE_LIMIT: f64 = 0.02;

/// The significance level of the test: at a rate that is harmless, chance alone rejects a run with at most
/// this probability.
const SIGNIFICANCE: f64 = 0.01;

/// Counts of ticks of a hundredth of a second, of all processors together: the ticks that others took, and
/// all ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickShare {
    pub taken: u64,
    pub all: u64,
}

impl TickShare {
    /// Returns the share of the ticks that were taken; `None` if there are no ticks.
    pub fn share(self) -> Option<f64> {
        (self.all > 0).then(|| self.taken as f64 / self.all as f64)
    }

    /// Returns whether more ticks were taken than a rate of at most `rate` explains: at that rate, the
    /// probability of at least as many ticks is below `SIGNIFICANCE`.
    pub fn exceeds(self, rate: f64) -> bool {
        self.taken > 0 && tail(self.taken.min(self.all), self.all, rate) < SIGNIFICANCE
    }
}

impl AddAssign for TickShare {
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        self.all += other.all;
    }
}

impl Sum for TickShare {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// Returns the probability of at least `taken` of `all` ticks, each taken with probability `rate`.
pub(crate) fn tail(taken: u64, all: u64, rate: f64) -> f64 {
    if rate >= 1.0 {
        return 1.0;
    }
    // logarithms, because the first term underflows for a long run
    let (odds, mut term) = ((rate / (1.0 - rate)).ln(), all as f64 * (1.0 - rate).ln());
    let mut below = 0.0;
    for i in 0..taken {
        below += term.exp();
        term += ((all - i) as f64 / (i + 1) as f64).ln() + odds;
    }
    (1.0 - below).max(0.0)
}
