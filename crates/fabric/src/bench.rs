//! For `unisono tree bench`: compares barriers in the switches with barriers in software, on the same
//! network, with the same processes.
//!
//! All variants run in one deployment, one after the other and then in the opposite order (A B C C B A),
//! because the speed of a machine drifts. A run is long compared with the resolution of the clock; its result
//! is the mean time of a barrier.
//!
//! With more nodes than processors, the measured time is the processor time of all nodes' work, shared out
//! among the processors, and not the latency of the messages. The result then shows how many messages a
//! barrier in the switches saves; only the simulator shows the effect of the smaller height.

use crate::deployment::Deployment;
use crate::error::Error;
use crate::orders::BarrierRun;
use crate::software::SoftwareAlgorithm;
use std::fmt;
use std::time::Duration;
use unisono_btin::TurnPoint;
use unisono_measure::interval::{Estimate, LEVEL, median_interval};
use unisono_measure::paired::{self, Comparison};
use unisono_measure::record::Better;

/// The minimum number of barriers in a run; half as many if they would take more than [`TOO_LONG`]
/// microseconds.
const MIN_BARRIERS: u32 = 10;
const TOO_LONG: f64 = 1e6;
/// The number of barriers in the first trial, and the minimum for all trials.
const TRIAL: u32 = 3;
/// The number of barriers that must precede a trial that counts as warm. The first barriers of a run take
/// longer, because each process touches its memory for the first time and learns its retransmission timeout.
/// A run whose length was derived from them had only a tenth of the intended barriers.
const COLD: u32 = 20;
/// A trial is warm if its time per barrier is at least this fraction of the previous trial's.
const STEADY: f64 = 0.8;
/// The total time of trials, in microseconds, after which fewer barriers than [`COLD`] are enough.
const MAX_TRIAL_TIME: f64 = 4e6;
/// The maximum number of trials: after them, a variant is measured even if it is still getting faster.
const MAX_TRIALS: u32 = 12;
/// A barrier that takes longer than this, in milliseconds, counts as stuck.
const STUCK_AFTER: u64 = 20_000;
/// The ratios of [`advantage`] are the better for the switches the higher they are.
pub const ADVANTAGE: Better = Better::Higher;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BenchVariant {
    /// A barrier in the switches: the index of the job, and where its messages turn around.
    Switches(usize, TurnPoint),
    Software(SoftwareAlgorithm),
}

impl fmt::Display for BenchVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switches(_, TurnPoint::AtNode) => write!(f, "switches, root node"),
            Self::Switches(_, TurnPoint::AtSwitch) => write!(f, "switches, turning"),
            Self::Software(algorithm) => write!(f, "UDP, {algorithm}"),
        }
    }
}

pub const SOFTWARE: [SoftwareAlgorithm; 4] = [
    SoftwareAlgorithm::Central,
    SoftwareAlgorithm::Tree(4),
    SoftwareAlgorithm::Tree(8),
    SoftwareAlgorithm::Dissemination,
];

#[derive(Clone, Debug)]
pub struct BenchRow {
    pub variant: BenchVariant,
    /// The mean time of a barrier in each run, in microseconds.
    pub runs: Vec<f64>,
    /// The median of `runs`, with its 95 % confidence interval.
    pub micros: Option<Estimate>,
    pub barriers: u32,
    /// The number of timeouts of the members' waits. After each timeout, a member sends its messages again.
    pub repeated: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum BenchProgress<'a> {
    /// The trials of all variants are over: the expected time of all runs together.
    Planned(Duration),
    /// A run of a variant begins: its number, from 0, and the number of runs.
    Run(u32, u32, &'a BenchVariant),
}

/// Measures the variants in `repetitions` runs of about `length` each. A run has at least ten barriers, or
/// five slow ones.
///
/// Before the runs, trials of each variant, until it is warm, determine the number of barriers in a run. In
/// the trials, the members also learn the time of a barrier, so that a slow barrier causes no timeout later.
pub fn compare(
    deployment: &mut Deployment<'_>,
    variants: &[BenchVariant],
    repetitions: u32,
    length: Duration,
    mut progress: impl FnMut(BenchProgress<'_>),
) -> Result<Vec<BenchRow>, Error> {
    let mut rows = Vec::new();
    let mut planned = 0.0;
    for variant in variants {
        let wanted = length.as_secs_f64() * 1e6;
        let (barriers, micros) = calibrate(wanted, |count| Ok(run_once(deployment, *variant, 0, count)?.0))?;
        planned += micros / 1e6 * f64::from(barriers + warm_up(barriers)) * f64::from(repetitions);
        rows.push(BenchRow { variant: *variant, runs: Vec::new(), micros: None, barriers, repeated: 0 });
    }
    progress(BenchProgress::Planned(Duration::from_secs_f64(planned)));
    let (mut begun, all) = (0, repetitions * rows.len() as u32);
    for repetition in 0..repetitions {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        if repetition % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let row = &mut rows[at];
            progress(BenchProgress::Run(begun, all, &row.variant));
            begun += 1;
            let (micros, repeated) = run_once(deployment, row.variant, warm_up(row.barriers), row.barriers)?;
            row.runs.push(micros);
            row.repeated += repeated;
        }
    }
    for row in &mut rows {
        row.micros = median_interval(&row.runs, LEVEL);
    }
    Ok(rows)
}

/// Returns the fastest variant in the switches, the fastest variant in software, and the ratio of the
/// software variant's time to the switch variant's time, compared within each repetition. Ratios above one
/// favor the switches ([`ADVANTAGE`]).
pub fn advantage(rows: &[BenchRow]) -> Option<(BenchVariant, BenchVariant, Comparison)> {
    let median = |row: &BenchRow| row.micros.map_or(f64::INFINITY, |micros| micros.value);
    let is_switch = |row: &&BenchRow| matches!(row.variant, BenchVariant::Switches(..));
    let best =
        |rows: Vec<&BenchRow>| rows.into_iter().min_by(|a, b| median(a).total_cmp(&median(b))).cloned();
    let ours = best(rows.iter().filter(is_switch).collect())?;
    let theirs = best(rows.iter().filter(|row| !is_switch(row)).collect())?;
    let pairs: Vec<(f64, f64)> = theirs.runs.into_iter().zip(ours.runs).collect();
    let compared = paired::compare(&pairs, ADVANTAGE, LEVEL)?;
    Some((ours.variant, theirs.variant, compared))
}

/// Returns the number of barriers in a run of `wanted` microseconds, and the time of one barrier. `trial`
/// runs barriers and returns their mean time in microseconds. Because the first barriers are slower than
/// later ones, trials are repeated until barriers no longer get faster; the last trial decides.
fn calibrate(wanted: f64, mut trial: impl FnMut(u32) -> Result<f64, Error>) -> Result<(u32, f64), Error> {
    let mut micros = trial(TRIAL)?;
    let (mut done, mut spent) = (TRIAL, micros * f64::from(TRIAL));
    for _ in 1..MAX_TRIALS {
        // a quarter of a run, but at most twice as many barriers as were run so far, because the time of the
        // first barriers is not representative
        let count = ((wanted / 4.0 / micros) as u32).clamp(TRIAL, 2 * done);
        let before = std::mem::replace(&mut micros, trial(count)?);
        done += count;
        spent += micros * f64::from(count);
        let took_long = spent > MAX_TRIAL_TIME;
        if (done - count >= COLD || took_long) && micros >= before * STEADY {
            break;
        }
    }
    let fewest = if micros * f64::from(MIN_BARRIERS) > TOO_LONG { MIN_BARRIERS / 2 } else { MIN_BARRIERS };
    let barriers = (wanted / micros).clamp(f64::from(fewest), 1e6) as u32;
    Ok((barriers, micros))
}

/// Returns the number of barriers to run before the measurement begins.
fn warm_up(barriers: u32) -> u32 {
    barriers / 20 + 2
}

fn run_once(
    deployment: &mut Deployment<'_>,
    variant: BenchVariant,
    warm_up: u32,
    count: u32,
) -> Result<(f64, u64), Error> {
    let run = BarrierRun { warm_up, count, trace: false, stuck_after: STUCK_AFTER };
    let ran = match variant {
        BenchVariant::Switches(job, _) => deployment.barriers(&[job], run)?,
        BenchVariant::Software(algorithm) => deployment.software(algorithm, 0, run)?,
    };
    Ok((ran.took.as_nanos() as f64 / 1e3 / f64::from(count), ran.repeated))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a variant whose first barriers take longer. The closure returns the mean time of the next
    /// `count` barriers, in microseconds.
    fn variant(cold: u32, slow: f64, warm: f64) -> impl FnMut(u32) -> Result<f64, Error> {
        let mut done = 0;
        move |count| {
            let left = f64::from(u32::min(count, cold.saturating_sub(done)));
            done += count;
            Ok((left * slow + (f64::from(count) - left) * warm) / f64::from(count))
        }
    }

    #[test]
    fn a_run_is_sized_by_barriers_that_are_warm_however_slow_the_first_ones_were() {
        for cold in [0, 3, 10, 20] {
            for slow in [1_000.0, 10_000.0, 100_000.0] {
                let (barriers, micros) = calibrate(2e5, variant(cold, slow, 1_000.0)).expect("it runs");
                assert!((900.0..1_300.0).contains(&micros), "{cold} barriers of {slow} us: {micros} us");
                assert!((150..=220).contains(&barriers), "{cold} barriers of {slow} us: {barriers}");
            }
        }
    }

    #[test]
    fn a_variant_that_is_slow_when_warm_too_gets_five_barriers() {
        let (barriers, micros) = calibrate(2e5, variant(2, 9e5, 3e5)).expect("it runs");
        assert_eq!((barriers, micros), (5, 3e5));
    }
}
