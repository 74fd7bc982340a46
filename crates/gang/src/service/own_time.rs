//! The bound on the processor time that the daemon takes for switching.
//!
//! A switch costs 10 to 70 us on every core, so the time that switching takes depends on the length of turns.
//! The user of a gang influences this length, because a quota makes turns shorter. The daemon adds up the
//! time of its own threads. If it is more than [`MAX_SHARE`] of the cores' time, all turns last longer by the
//! same factor, until it is less. Pure: times are arguments. Cost: a system call in a round of the daemon.

use unisono_linux::clock::{Duration, Instant};

/// The largest share of the cores' time that switching may take. Turns of 20 ms need 0.5 % on the measured
/// host, turns of 5 ms, the shortest that a quota makes, 1.4 %.
pub(super) const MAX_SHARE: f64 = 0.02;
/// Turns get shorter again once they would take less than this part of the bound, so that the factor does not
/// swing.
const EASED: f64 = 0.7;
/// The largest factor: a slice of 20 ms becomes a slice of a second.
const MAX_FACTOR: u32 = 50;
/// The time over which the share is measured: enough turns for a mean.
const INTERVAL: Duration = Duration::SECOND;

/// The factor by which turns are longer than requested, and its cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OwnTime {
    since: Instant,
    used: Duration,
    factor: u32,
    share: f64,
}

impl OwnTime {
    pub(super) fn new(now: Instant, used: Duration) -> OwnTime {
        OwnTime { since: now, used, factor: 1, share: 0.0 }
    }

    /// Returns the factor by which turns are longer than requested.
    pub(super) fn factor(&self) -> u32 {
        self.factor
    }

    /// Returns the part of the cores' time that switching took lately.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Adapts the factor to `used`, the total time that the switching threads have used until now. Returns
    /// the new factor if it changes.
    pub(super) fn update(&mut self, now: Instant, used: Duration, cores: usize) -> Option<u32> {
        let passed = now - self.since;
        if passed < INTERVAL {
            return None;
        }
        let had = used - self.used;
        (self.since, self.used) = (now, used);
        self.share = had.as_nanos() as f64 / passed.as_nanos() as f64 / cores.max(1) as f64;
        // the time for switching falls as turns grow
        let needed = |bound: f64| (f64::from(self.factor) * self.share / bound).ceil();
        let next = if self.share > MAX_SHARE {
            needed(MAX_SHARE)
        } else {
            needed(MAX_SHARE * EASED).min(f64::from(self.factor))
        };
        let next = (next as u32).clamp(1, MAX_FACTOR);
        (std::mem::replace(&mut self.factor, next) != next).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_grow_until_switching_takes_less_than_the_bound_and_shrink_when_it_is_cheap() {
        let mut own = OwnTime::new(Instant::ZERO, Duration::ZERO);
        let (mut now, mut used) = (Instant::ZERO, Duration::ZERO);
        // on two cores switching takes this part of the time while turns are as long as requested
        let mut run = |own: &mut OwnTime, part: f64, seconds: usize| {
            let mut factors = Vec::new();
            for _ in 0..seconds {
                now += INTERVAL;
                used += Duration::from_nanos((2e9 * part / f64::from(own.factor())) as u64);
                factors.extend(own.update(now, used, 2));
            }
            factors
        };
        assert!(run(&mut own, 0.014, 5).is_empty(), "below the bound");
        assert_eq!(run(&mut own, 0.3, 10), [15], "found at once, and it stays");
        assert!((own.share() - 0.02).abs() < 1e-6);
        assert!(run(&mut own, 0.25, 10).is_empty(), "it does not swing");
        assert_eq!(run(&mut own, 0.004, 10), [1]);
        assert_eq!(run(&mut own, 1.9, 10), [50], "there is a largest factor");
    }

    #[test]
    fn a_look_before_a_second_has_passed_says_nothing() {
        let mut own = OwnTime::new(Instant::ZERO, Duration::ZERO);
        assert_eq!(own.update(Instant::from_nanos(999_999_999), Duration::from_millis(500), 2), None);
        assert_eq!(
            own.update(Instant::ZERO + INTERVAL, Duration::from_millis(500), 2),
            Some(13),
            "of the whole time"
        );
    }
}
