//! Simulates each remedy, to compare the simulator's prediction with the measured runs. Pure.
//!
//! The programs are simulated as equal teams of threads that meet at barriers. The number of threads is the
//! largest number that worked at a time. The interval between barriers is computed from the sleeps of threads
//! that sleep while they wait. So there is no prediction for threads that never sleep, or sleep so seldom
//! that they may have waited for a file. The threads' default way to wait follows from the runtime that the
//! programs loaded.
//!
//! A prediction far from the measurement means that something matters that the simulator does not model
//! (docs/simulator.md): caches, memory, other programs.
//!
//! Cost: a fraction of a second for 16 processors. Reference: [`unisono_gang::simulate`].

use crate::judge::{Circumstances, MIN_WAIT_SLEEPS_PER_S, wait_sleeps_per_s};
use crate::remedy::TriedRemedy;
use crate::trial::TrialRuns;
use unisono_gang::policy::Backfill;
use unisono_gang::simulate::{
    KernelModel, MAX_CORES, Sharing, SimulatedMachine, SimulatedProgram, SimulatedWait, WaitCosts, simulate,
};
use unisono_linux::clock::Duration;

/// Seeds of the simulation. With some seeds, plain Linux places several threads on one processor; with
/// others, it spreads them.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// Simulated time: three turns of each of two gangs at the maximum slice.
const SIMULATED_TIME: Duration = Duration::from_millis(600);

/// The observed properties of the programs that a simulation needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamShape {
    pub programs: usize,
    /// Threads of each program; at least 2.
    pub threads: usize,
    /// Work between two barriers.
    pub interval: Duration,
    /// The maximum additional time that a thread may compute before a barrier.
    pub variance: Duration,
    pub wait: SimulatedWait,
    /// Whether the runtime starts as many threads as the affinity has processors.
    pub counts_affinity: bool,
}

/// The simulated speed of each remedy relative to plain Linux.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    pub shape: TeamShape,
    pub remedies: Vec<(TriedRemedy, f64)>,
}

/// Derives these properties from the runs; `None` if the threads were not seen to wait for each other.
pub fn team_shape(trials: &TrialRuns, circumstances: &Circumstances) -> Option<TeamShape> {
    let programs = circumstances.programs.max(1);
    let seen = trials.runs.iter().map(|run| &run.observation);
    let threads = seen.clone().map(|seen| seen.threads).max()?.div_ceil(programs);
    let sleeps = wait_sleeps_per_s(trials);
    if threads < 2 || sleeps < MIN_WAIT_SLEEPS_PER_S {
        return None;
    }
    // the last thread to arrive at a barrier does not sleep; a sleep takes some of the time between two
    // barriers, but not all of it
    let between = 1e9 / sleeps * (threads - 1) as f64 / threads as f64;
    let interval = (between - WaitCosts::EXAMPLE_HOST.block.as_nanos() as f64).max(between / 2.0);
    let uneven = seen.map(|seen| seen.imbalance).filter(|one| *one >= 1.0).fold(f64::INFINITY, f64::min);
    // the mean of the additional time is half of its maximum, which is called `variance` here
    let variance = if uneven.is_finite() { interval * (uneven - 1.0).min(2.0) * 2.0 } else { 0.0 };
    let runtimes: Vec<&str> = trials.runtimes.iter().map(String::as_str).collect();
    Some(TeamShape {
        programs,
        threads,
        interval: Duration::from_nanos(interval as u64),
        variance: Duration::from_nanos(variance as u64),
        wait: default_wait(&runtimes),
        counts_affinity: runtimes
            .iter()
            .any(|name| AFFINITY_COUNTING.iter().any(|known| name.starts_with(known))),
    })
}

const AFFINITY_COUNTING: [&str; 5] = ["libgomp", "libomp", "libiomp5", "libopenblas", "libmkl_"];

/// Returns how threads of these runtimes wait by default.
fn default_wait(runtimes: &[&str]) -> SimulatedWait {
    let has = |name: &str| runtimes.iter().any(|runtime| runtime.starts_with(name));
    if has("libmpi") {
        // MPICH and Open MPI poll forever
        SimulatedWait::Spin
    } else if has("libomp") || has("libiomp5") {
        // KMP_BLOCKTIME: 200 ms
        SimulatedWait::SpinBlock(Duration::from_millis(200))
    } else if has("libopenblas") {
        // THREAD_TIMEOUT of 26: 2^26 cycles
        SimulatedWait::SpinBlock(Duration::from_millis(25))
    } else if has("libgomp") {
        // GOMP_SPINCOUNT: 300,000 iterations of about 16 ns
        SimulatedWait::SpinBlock(Duration::from_millis(5))
    } else {
        SimulatedWait::Block
    }
}

/// Simulates the remedies. Leaves out remedies that the simulator refuses; `None` if it refuses plain Linux.
pub fn predict(
    shape: &TeamShape,
    circumstances: &Circumstances,
    remedies: &[TriedRemedy],
) -> Option<Prediction> {
    let cores = circumstances.processors.clamp(1, MAX_CORES);
    let plain = simulated_rate(shape, circumstances, cores, TriedRemedy::Plain)?;
    let one =
        |remedy: &TriedRemedy| Some((*remedy, simulated_rate(shape, circumstances, cores, *remedy)? / plain));
    let remedies = remedies.iter().filter(|remedy| **remedy != TriedRemedy::Plain).filter_map(one).collect();
    Some(Prediction { shape: shape.clone(), remedies })
}

/// Returns the barriers per second of all programs together. A barrier stands for the same work with every
/// remedy.
fn simulated_rate(
    shape: &TeamShape,
    circumstances: &Circumstances,
    cores: usize,
    remedy: TriedRemedy,
) -> Option<f64> {
    let fits = shape.programs <= cores;
    let slice = remedy.slice_ms().map(Duration::from_millis);
    let sharing = match remedy {
        TriedRemedy::Plain | TriedRemedy::Passive | TriedRemedy::Mpi | TriedRemedy::Priority => {
            Sharing::Linux
        }
        TriedRemedy::Fit | TriedRemedy::Partition if fits && shape.programs > 1 => Sharing::Partition,
        TriedRemedy::Fit | TriedRemedy::Partition | TriedRemedy::Pin => Sharing::Spread,
        TriedRemedy::InTurn => Sharing::Batch,
        _ => Sharing::Gang { slice: slice?, backfill: Backfill::Offer },
    };
    let fewer = match remedy {
        TriedRemedy::Fit => circumstances.fit.fewer_threads() || shape.programs > 1,
        TriedRemedy::Partition => shape.counts_affinity,
        _ => false,
    };
    let threads = if fewer { (cores / shape.programs).clamp(1, shape.threads) } else { shape.threads };
    let passive = matches!(remedy, TriedRemedy::Passive | TriedRemedy::Mpi)
        || remedy == TriedRemedy::Fit && circumstances.fit.waits();
    let longer = |time: Duration| time * shape.threads as u64 / threads as u64;
    let program = |number: usize| SimulatedProgram {
        wait: if passive { SimulatedWait::Block } else { shape.wait },
        nice: if remedy == TriedRemedy::Priority && number > 0 { 19 } else { 0 },
        ..SimulatedProgram::barriers(
            &number.to_string(),
            threads,
            longer(shape.interval),
            longer(shape.variance),
        )
    };
    let programs: Vec<SimulatedProgram> = (0..shape.programs).map(program).collect();
    let machine = SimulatedMachine {
        cores,
        cache_cores: 16,
        kernel: KernelModel::Eevdf,
        costs: WaitCosts::EXAMPLE_HOST,
    };
    let rate_of = |seed| {
        let report = simulate(&machine, &programs, sharing, SIMULATED_TIME, seed).ok()?;
        Some(report.gangs.iter().map(|fate| fate.barriers_per_s).sum::<f64>())
    };
    let rates: Vec<f64> = SEEDS.map(rate_of).collect::<Option<_>>()?;
    Some(rates.iter().sum::<f64>() / rates.len() as f64).filter(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{RunEnd, TrialRun};
    use crate::watch::Observation;

    fn trials(threads: usize, sleeps_per_s: f64, runtimes: &[&str]) -> TrialRuns {
        let observation = Observation { threads, sleeps_per_s, imbalance: 1.0, ..Observation::default() };
        let run = TrialRun {
            remedy: TriedRemedy::Passive,
            round: 0,
            ended: RunEnd::Succeeded,
            seconds: 1.0,
            observation,
        };
        TrialRuns {
            runs: vec![run],
            runtimes: runtimes.iter().map(|name| (*name).to_owned()).collect(),
            ..TrialRuns::default()
        }
    }

    fn two_on(processors: usize) -> Circumstances {
        Circumstances { programs: 2, processors, ..Circumstances::default() }
    }

    fn gain(prediction: &Prediction, remedy: TriedRemedy) -> f64 {
        prediction.remedies.iter().find(|(one, _)| *one == remedy).expect("simulated").1
    }

    #[test]
    fn the_interval_is_that_of_the_sleeps_and_threads_that_never_sleep_have_none() {
        // two programs of two threads; one thread of each program sleeps at each barrier, every 100 us
        let shape = team_shape(&trials(4, 4_655.0, &["libgomp.so.1.0.0"]), &two_on(2)).expect("they sleep");
        assert_eq!((shape.programs, shape.threads), (2, 2));
        assert!((99_000..101_000).contains(&shape.interval.as_nanos()), "{shape:?}");
        assert_eq!(shape.wait, SimulatedWait::SpinBlock(Duration::from_millis(5)));
        assert_eq!(super::team_shape(&trials(4, 20.0, &[]), &two_on(2)), None, "as for a file");
        assert_eq!(super::team_shape(&trials(2, 9_000.0, &[]), &two_on(2)), None, "one thread each");
    }

    #[test]
    fn spinning_programs_gain_by_gangs_and_hardly_while_their_threads_sleep() {
        let fine = TeamShape {
            programs: 2,
            threads: 2,
            interval: Duration::from_micros(20),
            variance: Duration::ZERO,
            wait: SimulatedWait::Spin,
            counts_affinity: true,
        };
        let prediction = predict(&fine, &two_on(2), &TriedRemedy::ALL).expect("a simulation");
        assert_eq!(prediction.remedies.len(), TriedRemedy::ALL.len() - 1);
        let gangs = gain(&prediction, TriedRemedy::Gangs);
        assert_eq!(
            gain(&prediction, TriedRemedy::Partition),
            gain(&prediction, TriedRemedy::Fit),
            "one thread each"
        );
        assert!(gangs > 3.0, "{prediction:?}");
        assert!(
            gain(&prediction, TriedRemedy::InTurn) > 3.0 && gain(&prediction, TriedRemedy::Passive) < gangs,
            "{prediction:?}"
        );
        let coarse = TeamShape { interval: Duration::from_millis(50), wait: SimulatedWait::Block, ..fine };
        let prediction = predict(&coarse, &two_on(2), &TriedRemedy::ALL).expect("a simulation");
        assert!(gain(&prediction, TriedRemedy::Gangs) < 1.5, "{prediction:?}");
    }
}
