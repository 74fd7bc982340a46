//! The run plan: the order of the runs, chosen so that neighbors in time can be compared.
//!
//! Within a repetition, all variants of one parameter point run directly after each other; their runs form
//! pairs. The next repetition reverses their order (A B C, C B A), so that a machine that gets slower favors
//! no variant. The parameter points are shuffled by the seed, so that drift does not look like a trend over
//! the parameter. Variants with more starts (plain Linux, which has modes) are started several times within
//! the same repetition, between the others.
//!
//! Cost: negligible. hyperfine runs all of A before B, and this order does not.

use crate::driver::{Driver, Settings};
use crate::file::{StudyFile, Variant};
use crate::profile::Profile;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

#[derive(Debug)]
pub struct PlannedRun {
    pub variant: String,
    /// The study's settings and the sweeps, without the variant's own settings.
    pub parameters: BTreeMap<String, Value>,
    pub driver: Box<dyn Driver>,
    /// The estimated total time of the run.
    pub estimate: Duration,
    pub repetition: u32,
    /// Number of the start within the repetition, from 0.
    pub start: u32,
    pub seed: u64,
    pub seconds: f64,
}

#[derive(Debug)]
pub struct RunPlan {
    pub runs: Vec<PlannedRun>,
    pub estimate: Duration,
}

/// Plans the runs; `seed` decides the shuffling and the runs' own seeds. Does not fail for a file that was
/// parsed.
pub fn plan(file: &StudyFile, profile: Profile, seed: u64) -> Result<RunPlan, String> {
    plan_repetitions(file, profile, seed, 0..*file.repetitions.value_for(profile))
}

/// Plans these repetitions only, as they would be in a plan of the same seed with more repetitions.
pub(crate) fn plan_repetitions(
    file: &StudyFile,
    profile: Profile,
    seed: u64,
    repetitions: Range<u32>,
) -> Result<RunPlan, String> {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ hash(&file.id));
    let seconds = *file.seconds.value_for(profile);
    let points = points(file, profile);
    let mut runs = Vec::new();
    for repetition in 0..repetitions.end {
        let mut order: Vec<&Settings> = points.iter().collect();
        order.shuffle(&mut random);
        for point in order {
            // one seed for each point and repetition: all variants get the same arrival times
            let seed = random.random::<u64>() >> 12;
            let mut group = Vec::new();
            for (variant, start) in start_order(file, profile, point) {
                let driver = file.run_of(variant, point.clone())?;
                let estimate = estimate(file, &*driver, seconds);
                let mut parameters: BTreeMap<String, Value> = file.settings.values().into_iter().collect();
                parameters.extend(point.iter().map(|(k, v)| (k.clone(), v.clone())));
                let variant = variant.name.clone();
                group.push(PlannedRun {
                    variant,
                    parameters,
                    driver,
                    estimate,
                    repetition,
                    start,
                    seed,
                    seconds,
                });
            }
            if repetition % 2 == 1 {
                group.reverse();
            }
            if repetitions.contains(&repetition) {
                runs.extend(group);
            }
        }
    }
    let estimate = runs.iter().map(|run| run.estimate).sum();
    Ok(RunPlan { runs, estimate })
}

fn estimate(file: &StudyFile, driver: &dyn Driver, seconds: f64) -> Duration {
    let around = driver.estimated_overhead(seconds);
    if file.driver.is_simulated {
        return around;
    }
    Duration::from_secs_f64(seconds) + around + crate::host::IDLE_INTERVAL
}

/// Returns every combination of the sweeps' values; one empty point if there are no sweeps.
fn points(file: &StudyFile, profile: Profile) -> Vec<Settings> {
    let mut points = vec![Settings::new()];
    for sweep in &file.sweeps {
        points = points
            .iter()
            .flat_map(|point| {
                sweep.values.value_for(profile).iter().map(|value| {
                    let mut point = point.clone();
                    point.insert(sweep.parameter.clone(), value.clone());
                    point
                })
            })
            .collect();
    }
    points
}

/// Returns the variants at a point, each with the number of its start. First starts come in the file's order,
/// second starts after all of them, and so on, so that starts of one variant are not neighbors.
fn start_order<'a>(file: &'a StudyFile, profile: Profile, point: &Settings) -> Vec<(&'a Variant, u32)> {
    let here: Vec<&Variant> = file
        .variants
        .iter()
        .filter(|v| v.from.is_none_or(|from| profile >= from))
        .filter(|v| {
            v.only.iter().all(|(name, values)| point.get(name).is_some_and(|got| values.contains(got)))
        })
        .collect();
    let starts = |v: &Variant| if profile == Profile::Smoke { 1 } else { v.starts };
    let most = here.iter().map(|v| starts(v)).max().unwrap_or(0);
    (0..most)
        .flat_map(|start| here.iter().filter(move |v| start < starts(v)).map(move |v| (*v, start)))
        .collect()
}

fn hash(text: &str) -> u64 {
    // FNV-1a: the same on every machine and in every version
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
id = "example"
topic = "gang"
title = "t"
question = "q"
method = "m"
driver = "pair"
repetitions = { smoke = 1, quick = 3, paper = 10 }
seconds = { smoke = 0.01, quick = 0.1, paper = 1.0 }
settings = { threads = 2 }
[[variant]]
name = "linux"
settings = { regime = "linux" }
starts = 2
[[variant]]
name = "spread"
settings = { regime = "spread" }
[[variant]]
name = "gang"
settings = { regime = "gang" }
[[variant]]
name = "gang-5ms"
settings = { regime = "gang", slice_ms = 5 }
from = "paper"
only = { interval_us = [0] }
[[sweep]]
parameter = "interval_us"
values = { smoke = [0], quick = [0, 10], paper = [0, 10, 100] }
"#;

    fn plan_for(profile: Profile, seed: u64) -> RunPlan {
        plan(&StudyFile::parse("f", FILE).expect("a good file"), profile, seed).expect("planned")
    }

    #[test]
    fn variants_of_a_point_are_neighbours_and_turn_round_every_other_repetition() {
        let runs = plan_for(Profile::Quick, 1).runs;
        assert_eq!(runs.len(), 3 * 2 * 4);
        for (i, group) in runs.chunks(4).enumerate() {
            assert!(
                group
                    .iter()
                    .all(|r| r.parameters == group[0].parameters && r.repetition == group[0].repetition)
            );
            assert!(
                group.iter().all(|r| r.seed == group[0].seed),
                "the variants of a pair see the same arrivals"
            );
            let names: Vec<&str> = group.iter().map(|r| r.variant.as_str()).collect();
            let forward = ["linux", "spread", "gang", "linux"];
            let mut wanted = forward;
            if (i / 2) % 2 == 1 {
                wanted.reverse();
            }
            assert_eq!(names, wanted, "group {i}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        let runs = |seed| format!("{:?}", plan_for(Profile::Paper, seed).runs);
        assert_eq!(runs(7), runs(7));
        assert_ne!(runs(7), runs(8));
    }

    #[test]
    fn profiles_and_points_choose_the_variants() {
        let paper = plan_for(Profile::Paper, 1).runs;
        let extra: Vec<&PlannedRun> = paper.iter().filter(|r| r.variant == "gang-5ms").collect();
        assert_eq!(extra.len(), 10, "only at interval 0, once a repetition");
        let slice = |run: &PlannedRun| format!("{:?}", run.driver).contains("slice_ms: Some(5.0)");
        assert!(extra.iter().all(|r| r.parameters["interval_us"] == 0 && slice(r)));
        assert_eq!(plan_for(Profile::Smoke, 1).runs.len(), 3, "one start each");
    }

    #[test]
    fn parameters_leave_out_what_belongs_to_the_variant() {
        let run = &plan_for(Profile::Smoke, 1).runs[0];
        let names: Vec<&str> = run.parameters.keys().map(String::as_str).collect();
        assert_eq!(names, ["interval_us", "threads"]);
    }

    #[test]
    fn the_estimate_is_at_least_the_measured_time() {
        let quick = plan_for(Profile::Quick, 1);
        assert!(quick.estimate >= Duration::from_secs_f64(24.0 * 0.1), "{:?}", quick.estimate);
    }
}
