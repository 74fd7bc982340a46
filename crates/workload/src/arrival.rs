//! The participants' arrival times: the interval and the variance of the paper's Figure 1.
//!
//! The paper draws "a normally-distributed random number in [0, a]" without further details. Here it is a
//! normal distribution with mean `a/2` and standard deviation `a/6`, drawn again if outside `[0, a]`. So the
//! interval is symmetric around the mean, with three standard deviations to either side. One draw in 370 is
//! repeated, the mean stays `a/2`, and the standard deviation becomes `0.9866 a/6`.
//!
//! Generator: PCG XSH RR 64/32, seeded with the run's seed; the stream is the participant's number; the
//! Box-Muller method makes the draws normally distributed. The C header `peers/computation.h` does the same,
//! and a test compares the draws.
//!
//! Cost: each participant's 1,024 draws are made before the run and then reused cyclically, so an episode
//! costs one load (8 KiB in the cache; none without variance).

use super::options::Options;
use super::spin::SpinRate;
use rand::RngCore;
use rand_pcg::Pcg32;

/// The number of draws for each participant, a power of two.
pub(crate) const DRAWS: usize = 1024;

/// The standard deviation of the distribution in `[0, 1]` before its tails are cut.
pub(crate) const SIGMA: f64 = 1.0 / 6.0;

/// Draws a number in `[0, a]`.
pub fn truncated_normal(generator: &mut Pcg32, a: f64) -> f64 {
    loop {
        let u = (f64::from(generator.next_u32()) + 1.0) / 4_294_967_296.0;
        let v = f64::from(generator.next_u32()) / 4_294_967_296.0;
        let z = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        let x = a / 2.0 + a * SIGMA * z;
        if (0.0..=a).contains(&x) {
            return x;
        }
    }
}

/// The computation of one participant before each barrier.
#[derive(Clone, Debug)]
pub(crate) struct Computation {
    mask: u64,
    rounds: Box<[u64]>,
}

impl Computation {
    pub(crate) fn new(options: &Options, index: usize, calibration: SpinRate) -> Self {
        let (interval, variance) = (options.interval.as_nanos() as f64, options.variance.as_nanos() as f64);
        let mut generator = Pcg32::new(options.seed, index as u64);
        let count = if variance > 0.0 { DRAWS } else { 1 };
        let mut draw = || if variance > 0.0 { truncated_normal(&mut generator, variance) } else { 0.0 };
        let rounds = (0..count).map(|_| calibration.rounds(interval + draw())).collect();
        Self { mask: count as u64 - 1, rounds }
    }

    /// Returns the number of rounds before the barrier of this episode.
    #[inline]
    pub(crate) fn rounds(&self, episode: u64) -> u64 {
        self.rounds[(episode & self.mask) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn density(z: f64) -> f64 {
        (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
    }

    #[test]
    fn draws_have_the_mean_and_deviation_of_the_truncated_distribution() {
        const N: usize = 200_000;
        let a = 1000.0;
        let mut generator = Pcg32::new(7, 0);
        let draws: Vec<f64> = (0..N).map(|_| truncated_normal(&mut generator, a)).collect();
        let mean = draws.iter().sum::<f64>() / N as f64;
        let deviation = (draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / N as f64).sqrt();
        // cut at +-3 sigma, which contain 99.73 % of the distribution: variance 1 - 2*3*density(3)/0.9973
        let expected = a * SIGMA * (1.0 - 6.0 * density(3.0) / 0.997_300_2).sqrt();
        let error_of_mean = expected / (N as f64).sqrt();
        assert!((mean - a / 2.0).abs() < 5.0 * error_of_mean, "mean {mean}");
        assert!(
            (deviation - expected).abs() < 5.0 * error_of_mean,
            "deviation {deviation}, not {expected}"
        );
        assert!(draws.iter().all(|x| (0.0..=a).contains(x)));
    }

    #[test]
    fn participants_draw_different_numbers_and_a_seed_repeats_them() {
        let options = Options { variance: Duration::from_millis(1), ..Options::default() };
        let of = |index| Computation::new(&options, index, SpinRate { rounds_per_ns: 1.0 }).rounds;
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
    }

    #[test]
    fn without_variance_every_computation_is_the_interval() {
        let options = Options { interval: Duration::from_micros(10), ..Options::default() };
        let computation = Computation::new(&options, 3, SpinRate { rounds_per_ns: 0.5 });
        assert!((0..5000).all(|episode| computation.rounds(episode) == 5000));
    }
}
