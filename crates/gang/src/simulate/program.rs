//! The simulated state of a program: its progress, and the computations of its threads.

use super::model::{Meets, SimulatedProgram};
use super::state::{ProgramState, QuotaState};
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;

impl<'a> ProgramState<'a> {
    pub(super) fn new(
        description: &'a SimulatedProgram,
        first: usize,
        cores: usize,
        generator: Pcg64Mcg,
    ) -> Self {
        let interval = description.interval.map_or(0, |interval| interval.as_nanos());
        // the mean of the variance's distribution is half of the variance
        let mean = (interval + description.variance.as_nanos() / 2).max(1);
        let barriers = description.work.map(|work| {
            work.as_nanos().div_ceil(mean).saturating_mul(u64::from(description.light_barriers) + 1)
        });
        Self {
            description,
            first,
            generator,
            barrier: 0,
            phase: 0,
            arrived: 0,
            barriers: 0,
            barriers_left: if description.meets == Meets::AtBarriers { barriers } else { None },
            to_do: vec![description.work.map_or(u64::MAX, |work| work.as_nanos()); description.threads],
            threads_ended: 0,
            jobs: VecDeque::new(),
            job: None,
            latencies: Vec::new(),
            quota: description.quota.map(|quota| QuotaState::new(quota, cores)),
            together: None,
            together_number: 0,
            used: 0,
            filled: 0,
            work: 0,
            spun: 0,
            overhead: 0,
            blocks: 0,
            slices: 0,
            is_here: false,
            ended: None,
            spread_samples: 0,
            unstacked: 0.0,
        }
    }

    /// Draws a thread's next computation.
    pub(super) fn draw(&mut self) -> u64 {
        draw(self.description, self.phase, &mut self.generator)
    }

    /// Advances to the phase of the next barrier.
    pub(super) fn next_phase(&mut self) {
        self.phase = (self.phase + 1) % (self.description.light_barriers + 1);
    }

    pub(super) fn threads(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.description.threads
    }
}

pub(super) fn draw(description: &SimulatedProgram, phase: u32, generator: &mut Pcg64Mcg) -> u64 {
    let Some(interval) = description.interval else { return u64::MAX / 4 };
    if phase > 0 {
        return 0;
    }
    if description.variance.is_zero() {
        return interval.as_nanos();
    }
    // The sum of three uniform numbers is nearly normal, within [0, 1] after division by three; its deviation
    // is a sixth, as in the measured workload (truncated at three deviations).
    let bits: u64 = generator.random();
    let sum = (bits & 0x1f_ffff) + (bits >> 21 & 0x1f_ffff) + (bits >> 42 & 0x1f_ffff);
    let fraction = sum as f64 / (3.0 * f64::from(0x1f_ffff));
    interval.as_nanos() + (description.variance.as_nanos() as f64 * fraction) as u64
}
