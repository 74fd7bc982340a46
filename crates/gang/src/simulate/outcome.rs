//! The results of a simulation.

use super::model::SimulatedMachine;
use super::state::CoreSimulation;
use serde::Serialize;

/// The results of one program. Processor times are sums over its threads, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProgramResult {
    pub name: String,
    pub threads: usize,
    pub arrived_s: f64,
    /// When the program completed its work, in seconds. `None`: it ran to the end of the simulation.
    pub finished_s: Option<f64>,
    /// Run time relative to a run alone on the machine.
    pub stretch: Option<f64>,
    /// Number of turns as a gang.
    pub slices: u64,
    /// Processor time that the program got as backfill.
    pub backfilled_s: f64,
    /// Barriers per second of the program's presence; for threads that never meet, rounds per second.
    pub barriers_per_s: f64,
    pub barriers: u64,
    pub work_s: f64,
    /// Time spent spinning at barriers.
    pub spin_s: f64,
    /// Time spent in barriers themselves, switches, blocking and waking.
    pub overhead_s: f64,
    pub blocks: u64,
    /// Mean number of cores on which its threads were, as a part of the cores that they could use: less than
    /// 1 if they were stacked.
    pub unstacked: f64,
    /// Number of finished jobs.
    pub jobs: u64,
    /// Latencies of the jobs, in seconds.
    pub latency_s: Option<Latencies>,
    /// With a quota: number of periods with a stop of the program.
    pub throttled_periods: u64,
    /// With a quota: number of all periods.
    pub periods: u64,
    /// With a quota: maximum processor time used in one period.
    pub most_in_period_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    pub median: f64,
    pub p90: f64,
    pub max: f64,
}

/// The results of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub cores: usize,
    pub kernel: String,
    /// The end of the last program, or the end of the simulation.
    pub makespan_s: f64,
    /// Part of all processor time that was used for computation.
    pub utilization: f64,
    /// Idle part of all processor time.
    pub idle: f64,
    /// Part spent spinning at barriers.
    pub spinning: f64,
    /// Part spent switching, blocking, waking and passing barriers.
    pub overhead: f64,
    pub turns: u64,
    pub switches: u64,
    pub migrations: u64,
    /// In the order of the programs.
    pub gangs: Vec<ProgramResult>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl CoreSimulation<'_> {
    pub(super) fn report(&self, machine: &SimulatedMachine) -> Report {
        let all = (self.now.max(1) * machine.cores as u64) as f64;
        let part = |ns: u64| ns as f64 / all;
        let sum = |of: fn(&ProgramResult) -> f64, results: &[ProgramResult]| {
            results.iter().map(of).sum::<f64>() * 1e9 / all
        };
        let gangs: Vec<ProgramResult> = (0..self.programs.len()).map(|p| self.result(p)).collect();
        Report {
            cores: machine.cores,
            kernel: machine.kernel.to_string(),
            makespan_s: seconds(self.now),
            utilization: sum(|result| result.work_s, &gangs),
            idle: part(self.cores.iter().map(|core| core.idle).sum()),
            spinning: sum(|result| result.spin_s, &gangs),
            overhead: sum(|result| result.overhead_s, &gangs),
            turns: self.turns.taken,
            switches: self.switches,
            migrations: self.migrations,
            gangs,
        }
    }

    fn result(&self, p: usize) -> ProgramResult {
        let state = &self.programs[p];
        let description = state.description;
        let arrived = description.arrives.as_nanos().min(self.now);
        let finished = state.ended.filter(|_| description.work.is_some());
        let there = finished.unwrap_or(self.now) - arrived;
        let rounds = description.threads.div_ceil(self.machine.cores) as f64;
        let alone = description.work.map_or(0.0, |work| seconds(work.as_nanos()) * rounds);
        let mut latencies = state.latencies.clone();
        latencies.sort_unstable();
        let at = |part: f64| {
            let place = (part * (latencies.len() as f64 - 1.0)).round();
            latencies.get(place.max(0.0) as usize).map_or(0.0, |ns| seconds(*ns))
        };
        ProgramResult {
            name: description.name.clone(),
            threads: description.threads,
            arrived_s: seconds(arrived),
            finished_s: finished.map(seconds),
            stretch: finished.map(|_| seconds(there) / alone.max(1e-9)),
            slices: state.slices,
            backfilled_s: seconds(state.filled),
            barriers_per_s: state.barriers as f64 / seconds(there.max(1)),
            barriers: state.barriers,
            work_s: seconds(state.work),
            spin_s: seconds(state.spun),
            overhead_s: seconds(state.overhead),
            blocks: state.blocks,
            unstacked: state.unstacked / state.spread_samples.max(1) as f64,
            jobs: state.latencies.len() as u64,
            latency_s: (!state.latencies.is_empty()).then(|| Latencies {
                median: at(0.5),
                p90: at(0.9),
                max: at(1.0),
            }),
            throttled_periods: state.quota.as_ref().map_or(0, |quota| quota.stopped),
            periods: state.quota.as_ref().map_or(0, |quota| quota.periods),
            most_in_period_s: state.quota.as_ref().map_or(0.0, |quota| seconds(quota.max_used)),
        }
    }
}
