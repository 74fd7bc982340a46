//! BARRIER: the synthetic program of the paper's Figure 1.
//!
//! ```text
//!   participant 0   |compute|......|compute|...|compute|
//!   participant 1   |compute....|..|compute....|compute|      each computes interval + rand(variance),
//!   participant 2   |comp|.........|compute..|.|compute|      waits (...) for the last, counts, repeats
//!                                 barrier     barrier
//! ```
//! Participants count iterations in cache lines of their own. Participant 0 also keeps the time (see
//! `meter`) and decides when to stop: before it arrives at the last episode it writes that episode's number.
//! Every participant that leaves an episode compares the episode's number with the written number. No
//! participant can have passed that episode when its number is written, and the barrier itself publishes it,
//! so all stop after the same iteration.
//!
//! Cost of the loop in addition to the barrier: a load of the computation, a count in a cache line of its own
//! and a load of a line that is not written meanwhile - about a nanosecond.
//!
//! Reference: Peter, Baumann, Anderson, Roscoe: Gang scheduling isn't worth it... yet, ETH TR 745, Figure 1.

use super::Error;
use super::arrival::Computation;
use super::meter::{LeaderMeter, Measurement, NextStep};
use super::options::{Options, RestoredAffinity, pin_participant};
use super::spin::{FIRST_STATE, SpinRate, compute};
use crossbeam_utils::CachePadded;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Runs BARRIER over any barrier. `seat(i)` is called on participant `i`'s thread and returns the
/// participant's function to wait.
pub fn run<S, W>(options: &Options, seat: S) -> Result<Measurement, Error>
where
    S: Fn(usize) -> W + Sync,
    W: FnMut() -> Result<(), String>,
{
    options.check()?;
    let calibration = SpinRate::measure();
    let mut measured = run_iterations(options, 1, |index| {
        let computation = Computation::new(options, index, calibration);
        let mut wait = seat(index);
        let mut state = FIRST_STATE + index as u64;
        move |episode| {
            state = compute(state, computation.rounds(episode));
            black_box(state);
            wait()
        }
    })?;
    measured.rounds_per_ns = calibration.rounds_per_ns;
    Ok(measured)
}

/// Runs iterations with at least one barrier each on all participants until the time is over.
/// `participant(i)` is called on participant `i`'s thread and returns its iteration.
pub fn run_iterations<P, I>(options: &Options, barriers: u32, participant: P) -> Result<Measurement, Error>
where
    P: Fn(usize) -> I + Sync,
    I: FnMut(u64) -> Result<(), String>,
{
    let placement = options.pin.placement()?;
    let _restored = RestoredAffinity::save(&placement);
    let shared = GroupRun::new(options.threads);
    let gate = ReadyGate::default();
    let get_ready = |index: usize| {
        pin_participant(&placement, index)?;
        Ok::<I, Error>(participant(index))
    };
    let failed = |index| move |reason| Error::Barrier { participant: index, reason };
    let meter = thread::scope(|scope| {
        let mut others = Vec::new();
        let mut ready = Ok(());
        for index in 1..options.threads {
            let (gate, shared, get_ready) = (&gate, &shared, &get_ready);
            let started =
                thread::Builder::new().name(format!("participant {index}")).spawn_scoped(scope, move || {
                    let iteration = get_ready(index);
                    match (gate.wait_for_decision(iteration.is_ok()), iteration) {
                        (GateDecision::Begin, Ok(iteration)) => {
                            shared.participate(index, None, iteration).map_err(failed(index))
                        }
                        (_, iteration) => iteration.map(|_| ()),
                    }
                });
            match started {
                Ok(handle) => others.push(handle),
                Err(source) => {
                    ready = Err(Error::Start { participant: index, threads: options.threads, source });
                    break;
                }
            }
        }
        let first = get_ready(0);
        // no participant enters a barrier that another participant will not reach
        let decision = if ready.is_ok() && first.is_ok() { gate.open(others.len()) } else { gate.close() };
        let mut meter = LeaderMeter::start(options);
        let mut result = ready.and(first).and_then(|iteration| match decision {
            GateDecision::Begin => shared.participate(0, Some(&mut meter), iteration).map_err(failed(0)),
            GateDecision::GiveUp => Ok(()),
        });
        for (index, other) in others.into_iter().enumerate() {
            let joined = other.join().unwrap_or(Err(Error::Panicked { participant: index + 1 }));
            result = result.and(joined);
        }
        result.map(|()| meter)
    })?;
    let iterations = shared.iterations.iter().map(|count| count.load(Relaxed)).collect();
    Ok(meter.measurement(options, iterations, barriers))
}

struct GroupRun {
    last_episode: CachePadded<AtomicU64>,
    iterations: Box<[CachePadded<AtomicU64>]>,
}

impl GroupRun {
    fn new(threads: usize) -> Self {
        Self {
            last_episode: CachePadded::new(AtomicU64::new(u64::MAX)),
            iterations: (0..threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    #[inline]
    fn participate<I>(
        &self,
        index: usize,
        mut meter: Option<&mut LeaderMeter>,
        mut iterate: I,
    ) -> Result<(), String>
    where
        I: FnMut(u64) -> Result<(), String>,
    {
        let count = &self.iterations[index];
        for episode in 1.. {
            if let Some(meter) = meter.as_deref_mut()
                && meter.episode(episode) == NextStep::Stop
            {
                // SYNC(last-episode) release: arriving at the barrier of this episode publishes the number
                self.last_episode.store(episode, Relaxed);
            }
            iterate(episode)?;
            count.store(episode, Relaxed);
            // SYNC(last-episode) acquire: leaving the barrier of this episode, which orders the load after
            // the store
            if self.last_episode.load(Relaxed) == episode {
                break;
            }
        }
        Ok(())
    }
}

/// A gate where participants wait until participant 0 decides whether all begin or all give up.
#[derive(Default)]
struct ReadyGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    arrived: usize,
    failed: bool,
    decision: Option<GateDecision>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GateDecision {
    Begin,
    GiveUp,
}

impl ReadyGate {
    /// Waits for the decision whether to begin or to give up.
    fn wait_for_decision(&self, ready: bool) -> GateDecision {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        state.failed |= !ready;
        self.changed.notify_all();
        loop {
            if let Some(decision) = state.decision {
                return decision;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until all others have arrived, and lets them begin if all are ready. Called by participant 0.
    fn open(&self, others: usize) -> GateDecision {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.arrived < others {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let decision = if state.failed { GateDecision::GiveUp } else { GateDecision::Begin };
        state.decision = Some(decision);
        self.changed.notify_all();
        decision
    }

    /// Makes all others give up. Called by participant 0.
    fn close(&self) -> GateDecision {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).decision = Some(GateDecision::GiveUp);
        self.changed.notify_all();
        GateDecision::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;
    use unisono_linux::affinity::{self, Tid};

    fn over_std(options: &Options) -> Result<Measurement, Error> {
        let barrier = Barrier::new(options.threads);
        run(options, |_| {
            || {
                barrier.wait();
                Ok(())
            }
        })
    }

    #[test]
    fn all_participants_stop_after_the_same_iteration() {
        for threads in [1, 2, 3, 8] {
            let options = Options {
                threads,
                seconds: 0.05,
                warm_up: Duration::from_millis(5),
                variance: Duration::from_micros(20),
                ..Options::default()
            };
            let measured = over_std(&options).expect("measured");
            assert_eq!(measured.iterations.len(), threads);
            assert!(measured.iterations.iter().all(|count| *count == measured.iterations[0]));
            assert!(measured.episodes > 0 && measured.episodes <= measured.iterations[0]);
        }
    }

    #[test]
    fn an_episode_is_at_least_as_long_as_its_interval() {
        let options = Options { seconds: 0.1, interval: Duration::from_micros(200), ..Options::default() };
        let measured = over_std(&options).expect("measured");
        assert!(measured.ns_per_barrier.mean > 180_000.0, "{:?}", measured.ns_per_barrier);
    }

    #[test]
    fn a_barrier_that_gives_up_ends_the_run_with_its_words() {
        let options = Options { threads: 1, ..Options::default() };
        let error = run(&options, |_| || Err("participant 1 is gone".into())).expect_err("failed");
        assert!(error.to_string().contains("participant 1 is gone"), "{error}");
    }

    #[test]
    fn the_caller_gets_its_processors_back() {
        let allowed = || affinity::allowed(Tid::SELF).expect("readable");
        let before = allowed();
        let options = Options { pin: super::super::Pin::Spread, seconds: 0.01, ..Options::default() };
        over_std(&options).expect("measured");
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_participant_that_cannot_be_pinned_sends_everybody_home() {
        let options = Options { threads: 2, pin: super::super::Pin::List(vec![7999]), ..Options::default() };
        assert!(over_std(&options).is_err());
    }
}
