//! The policy on simulated cores: what would a machine of another size do?
//!
//! The simulator asks the same [`Rotation`] that schedules real programs, and lets simulated gangs use what
//! it gives: a gang has threads, work for each of them, a weight and a time of arrival; while its turn lasts
//! each of its threads that has a core does its work. Backfilled gangs use cores that are idle. Switches
//! cost what the spec says. There is no randomness: the same spec gives the same answer.
//!
//! Cost: one step a turn, so 1,000 cores cost no more than two for the same number of gangs.
//! When not: it knows no caches, no memory bandwidth and no synchronization between threads.

use crate::error::{Error, Result};
use crate::gang::{GangId, GangWeight};
use crate::policy::{Backfill, Rotation};
use serde::{Deserialize, Serialize};
use unisono_linux::clock::Nanos;
use unisono_measure::units;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulationSpec {
    pub cores: usize,
    /// Length of a turn of weight 1, for example `20ms`.
    #[serde(default = "default_slice")]
    pub slice: String,
    /// What a switch costs every core.
    #[serde(default = "default_switch")]
    pub switch: String,
    /// Whether waiting gangs get idle cores.
    #[serde(default = "default_backfill")]
    pub backfill: bool,
    pub gangs: Vec<GangSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GangSpec {
    #[serde(default)]
    pub name: String,
    pub threads: usize,
    /// Processor time that each thread needs.
    pub work: String,
    #[serde(default = "default_weight")]
    pub weight: u32,
    #[serde(default = "default_arrival")]
    pub arrives: String,
    /// How many of these gangs there are.
    #[serde(default = "default_count")]
    pub count: usize,
}

fn default_slice() -> String {
    "20ms".into()
}
fn default_switch() -> String {
    "50us".into()
}
fn default_backfill() -> bool {
    true
}
fn default_weight() -> u32 {
    1
}
fn default_arrival() -> String {
    "0".into()
}
fn default_count() -> usize {
    1
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fate {
    pub name: String,
    pub threads: usize,
    /// When it came, seconds.
    pub arrived_s: f64,
    /// When it had done its work, seconds.
    pub finished_s: f64,
    /// How much longer it took than alone on the machine.
    pub stretch: f64,
    pub slices: u64,
    /// Processor time it got as backfill, seconds.
    pub backfilled_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub cores: usize,
    /// When the last gang was done, seconds.
    pub makespan_s: f64,
    /// Part of all processor time that did work.
    pub utilization: f64,
    pub turns: u64,
    /// The gangs in order of the spec.
    pub gangs: Vec<Fate>,
}

struct SimulatedGang {
    fate: Fate,
    weight: GangWeight,
    arrives: Nanos,
    /// Processor time still to do, over all threads.
    left: u64,
    alone: f64,
    joined: bool,
}

/// The most turns a simulation may take.
const BOUND: u64 = 50_000_000;

/// Runs a simulation to the end of its last gang. [`Error::Input`] names what is wrong in the spec.
pub fn simulate(spec: &SimulationSpec) -> Result<Report> {
    let input = |text: String| Error::Input(text);
    let time = |text: &str| units::duration(text).map(Nanos::from).map_err(|e| input(e.to_string()));
    let (slice, switch) = (time(&spec.slice)?, time(&spec.switch)?);
    if spec.cores == 0 || slice.0 == 0 || switch >= slice {
        return Err(input("a simulation needs cores, and a slice longer than a switch".into()));
    }
    let mut states = states(spec, &time)?;
    let backfill = if spec.backfill { Backfill::Offer } else { Backfill::Never };
    let mut rotation = Rotation::new(spec.cores, slice, backfill);
    let (mut now, mut worked, mut turns) = (Nanos::ZERO, 0u64, 0u64);
    let mut previous: Vec<GangId> = Vec::new();
    while states.iter().any(|state| state.left > 0) {
        for (i, state) in states.iter_mut().enumerate().filter(|(_, s)| !s.joined && s.arrives <= now) {
            state.joined = true;
            rotation.join(GangId(i), state.weight);
            rotation.set_width(GangId(i), state.fate.threads);
        }
        let Some(turn) = rotation.next_turn(now) else {
            // nobody is here yet: on to the next arrival
            let next = states.iter().filter(|s| !s.joined).map(|s| s.arrives).min();
            now = next.ok_or_else(|| input("the simulation lost a gang".into()))?;
            continue;
        };
        turns += 1;
        if turns > BOUND {
            return Err(input(format!("more than {BOUND} turns; choose less work or a longer slice")));
        }
        let run: Vec<GangId> = turn.run.iter().map(|place| place.gang).collect();
        let cost = if run == previous { Nanos::ZERO } else { switch };
        let begin = cost.after(turn.from).max(now).0;
        // up to the end of the turn, or the first end of a gang in it
        let finish =
            turn.run.iter().map(|place| begin + states[place.gang.0].left.div_ceil(place.cores.len() as u64));
        let end = finish.chain([turn.until.0]).min().unwrap_or(turn.until.0).max(begin);
        let length = end - begin;
        let mut idle = spec.cores;
        for place in &turn.run {
            let state = &mut states[place.gang.0];
            let done = (length * place.cores.len() as u64).min(state.left);
            idle -= place.cores.len();
            state.left -= done;
            state.fate.slices += 1;
            worked += done;
        }
        for gang in &turn.backfill {
            let state = &mut states[gang.0];
            let cores = state.fate.threads.min(idle);
            let done = (length * cores as u64).min(state.left);
            idle -= cores;
            state.left -= done;
            state.fate.backfilled_s += done as f64 / 1e9;
            worked += done;
        }
        now = Nanos(end);
        for (i, state) in states.iter_mut().enumerate().filter(|(_, s)| s.joined && s.left == 0) {
            if state.fate.finished_s == 0.0 {
                state.fate.finished_s = now.0 as f64 / 1e9;
                state.fate.stretch = (state.fate.finished_s - state.fate.arrived_s) / state.alone.max(1e-9);
                rotation.leave(GangId(i));
            }
        }
        previous = run;
    }
    let makespan_s = now.0 as f64 / 1e9;
    let utilization = worked as f64 / (now.0.max(1) as f64 * spec.cores as f64);
    let gangs = states.into_iter().map(|state| state.fate).collect();
    Ok(Report { cores: spec.cores, makespan_s, utilization, turns, gangs })
}

fn states(spec: &SimulationSpec, time: &dyn Fn(&str) -> Result<Nanos>) -> Result<Vec<SimulatedGang>> {
    let mut states = Vec::new();
    for (number, gang) in spec.gangs.iter().enumerate() {
        let name = if gang.name.is_empty() { format!("gang {}", number + 1) } else { gang.name.clone() };
        let wrong = |what: &str| Error::Input(format!("{name}: {what}"));
        let weight = GangWeight::new(gang.weight).ok_or_else(|| wrong("a weight is 1 to 1000"))?;
        let (work, arrives) = (time(&gang.work)?, time(&gang.arrives)?);
        if gang.threads == 0 || work.0 == 0 {
            return Err(wrong("it needs threads and work"));
        }
        for _ in 0..gang.count.max(1) {
            let rounds = gang.threads.div_ceil(spec.cores) as f64;
            let fate = Fate {
                name: name.clone(),
                threads: gang.threads,
                arrived_s: arrives.0 as f64 / 1e9,
                finished_s: 0.0,
                stretch: 0.0,
                slices: 0,
                backfilled_s: 0.0,
            };
            let left = work.0.saturating_mul(gang.threads as u64);
            states.push(SimulatedGang {
                fate,
                weight,
                arrives,
                left,
                alone: work.0 as f64 / 1e9 * rounds,
                joined: false,
            });
        }
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> SimulationSpec {
        serde_json::from_str(json).expect("a spec")
    }

    #[test]
    fn two_equal_gangs_take_twice_as_long_as_one() {
        let json = r#"{"cores":2,"switch":"0","gangs":[{"threads":2,"work":"1s","count":2}]}"#;
        let report = simulate(&spec(json)).expect("runs");
        assert!((report.makespan_s - 2.0).abs() < 1e-6, "{report:?}");
        assert!((report.utilization - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_heavier_gang_is_done_earlier() {
        let json = r#"{"cores":4,"gangs":[{"name":"a","threads":4,"work":"1s"},
                       {"name":"b","threads":4,"work":"1s","weight":3}]}"#;
        let report = simulate(&spec(json)).expect("runs");
        assert!(report.gangs[1].finished_s < 1.4, "{report:?}");
        assert!(report.gangs[0].finished_s > 1.9);
    }

    #[test]
    fn backfill_uses_the_cores_that_a_narrow_gang_leaves_idle() {
        let gangs = r#""gangs":[{"threads":3,"work":"1s"},{"threads":2,"work":"1s"}]"#;
        let with = simulate(&spec(&format!(r#"{{"cores":4,{gangs}}}"#))).expect("runs");
        let without = simulate(&spec(&format!(r#"{{"cores":4,"backfill":false,{gangs}}}"#))).expect("runs");
        assert!(with.makespan_s < without.makespan_s, "{with:?} {without:?}");
        assert!(with.gangs.iter().any(|gang| gang.backfilled_s > 0.0));
    }

    #[test]
    fn a_thousand_cores_are_simulated_and_all_work_is_done() {
        let json = r#"{"cores":1000,"gangs":[{"threads":700,"work":"2s","count":20},
                       {"threads":150,"work":"500ms","count":200,"arrives":"1s"}]}"#;
        let report = simulate(&spec(json)).expect("runs");
        assert_eq!(report.gangs.len(), 220);
        let work = 20.0 * 700.0 * 2.0 + 200.0 * 150.0 * 0.5;
        assert!((report.utilization * report.makespan_s * 1000.0 - work).abs() < 1e-3 * work);
        assert!(report.gangs.iter().all(|gang| gang.finished_s > 0.0));
    }

    #[test]
    fn wrong_specs_are_refused_with_the_gangs_name() {
        let zero = simulate(&spec(r#"{"cores":2,"gangs":[{"name":"x","threads":0,"work":"1s"}]}"#));
        assert!(zero.expect_err("no threads").to_string().starts_with("x: "));
        assert!(simulate(&spec(r#"{"cores":0,"gangs":[]}"#)).is_err());
    }
}
