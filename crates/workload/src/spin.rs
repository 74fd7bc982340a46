//! Computation of a known length.
//!
//! A round is a step of a chain in which each operation needs the previous result. So no compiler shortens
//! it, and its time is the processor's latency. Length is counted in rounds, calibrated once against
//! `CLOCK_MONOTONIC`. So a preempted thread still has the rest of its computation to do. A wait for a point
//! in time would end while the thread does not run, and hide the delay that is to be measured.
//!
//! Cost: about 1.6 ns a round, so lengths are exact to a nanosecond or two; calibration takes 2 ms. When not
//! to use it: frequency changes after the calibration scale the lengths.

use std::hint::black_box;
use unisono_linux::clock;

/// The initial state of every chain.
pub(crate) const FIRST_STATE: u64 = 88_172_645_463_325_252;

/// Advances the chain by this many rounds.
#[inline]
pub fn compute(mut state: u64, rounds: u64) -> u64 {
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

/// The speed of this computation on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpinRate {
    pub rounds_per_ns: f64,
}

impl SpinRate {
    /// Measures the speed as the best of many short trials, so that preemptions in some trials do not count.
    pub(crate) fn measure() -> Self {
        const ROUNDS: u64 = 20_000;
        let mut state = FIRST_STATE;
        let trial = |_| {
            let start = clock::now();
            state = black_box(compute(black_box(state), ROUNDS));
            (clock::now() - start).as_nanos().max(1)
        };
        let best = (0..64).map(trial).min().unwrap_or(1);
        Self { rounds_per_ns: ROUNDS as f64 / best as f64 }
    }

    /// Returns the number of rounds that take `ns`.
    pub(crate) fn rounds(self, ns: f64) -> u64 {
        (ns * self.rounds_per_ns).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_never_takes_much_less_than_its_length() {
        let calibration = SpinRate::measure();
        let start = clock::now();
        black_box(compute(FIRST_STATE, calibration.rounds(5e6)));
        let took = (clock::now() - start).as_nanos();
        assert!(took > 4_000_000, "5 ms of computation took {took} ns");
    }

    #[test]
    fn two_halves_of_a_chain_are_the_whole() {
        assert_eq!(compute(compute(FIRST_STATE, 300), 700), compute(FIRST_STATE, 1000));
        assert_ne!(compute(FIRST_STATE, 1), FIRST_STATE);
    }
}
