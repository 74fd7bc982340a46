//! The summary of a run: its figures, reported at the end.

use super::options::Options;
use super::program::GangProgram;
use super::scheduler::SchedulerOutcome;
use crate::cgroups::GangCgroups;
use crate::gang::GangId;
use crate::mechanism::MechanismKind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_text::counted;

/// Median and 99th percentile of a number of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of the samples are below this value.
    pub median: f64,
    /// 99 % of the samples are below this value.
    pub p99: f64,
    /// Number of samples.
    pub n: usize,
}

impl Quantiles {
    fn from_samples(samples: &[f64]) -> Option<Quantiles> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at =
            |part: f64| sorted.get(((sorted.len() as f64 * part) as usize).min(sorted.len() - 1)).copied();
        if sorted.is_empty() {
            return None;
        }
        Some(Quantiles { median: at(0.5)?, p99: at(0.99)?, n: sorted.len() })
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct GangSummary {
    pub command: String,
    /// The program's exit code; 128 plus the signal's number after a signal.
    pub exit_code: i32,
    /// Processor time of all processes of the gang; without control groups, only of processes that their
    /// parents waited for.
    pub cpu_s: f64,
    pub slices: u64,
    /// Total rest: time in which the gang ran without turns, because it blocked.
    pub rested_s: f64,
    pub weight: u32,
    /// From the start of the run, just before its first program was started, to the end of this gang's
    /// program.
    pub elapsed_s: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// The gangs, in the order of the command line.
    pub gangs: Vec<GangSummary>,
    /// Number of switches from one gang to another.
    pub switches: u64,
    /// Time from the planned moment until all cores ran the new gang, in microseconds; from watched turns.
    pub switch_us: Option<Quantiles>,
    /// Time from the planned moment until the mechanism had finished, in microseconds; from every switch.
    pub enforced_us: Option<Quantiles>,
    /// Median time between the switches of the first and the last core, in microseconds.
    pub skew_us: Option<f64>,
    /// Part of the watched processor time that waiting gangs used, switches included.
    pub leak: Option<f64>,
    /// The reason if no switch time was measured.
    pub not_measured: Option<String>,
    pub mechanism: MechanismKind,
    pub reason: String,
    /// Part of contended processor time that the gangs ask for; `None` if gangs have no weight against other
    /// programs.
    pub share: Option<f64>,
    /// Part of the cores' time that other programs and the scheduler used during the run. `None`: not
    /// measured.
    pub others: Option<f64>,
    /// Scheduling class of the scheduler's own thread.
    pub scheduler_class: &'static str,
    /// Length of a turn of weight 1, milliseconds.
    pub slice_ms: f64,
    pub cores: usize,
    /// Time from the start of the first program to the end of the last.
    pub elapsed_s: f64,
    pub warnings: Vec<String>,
    /// Changes to the host that were not undone.
    pub not_restored: Vec<String>,
}

impl RunSummary {
    /// Returns the first gang that failed, and its exit code.
    pub fn first_failure(&self) -> Option<(GangId, i32)> {
        let failed = self.gangs.iter().position(|gang| gang.exit_code != 0)?;
        Some((GangId(failed), self.gangs[failed].exit_code))
    }
}

/// Returns warnings about gangs that reached the limit on threads.
pub(crate) fn refused(cgroups: Option<&GangCgroups>, limit: u32) -> Vec<String> {
    let Some(cgroups) = cgroups else { return Vec::new() };
    let count =
        |text: String| text.lines().find_map(|line| line.strip_prefix("max ")?.trim().parse::<u64>().ok());
    let times = |gang: usize| cgroups.gangs[gang].pids.as_ref()?.read("pids.events").ok().and_then(count);
    (0..cgroups.gangs.len())
        .filter_map(|gang| Some((gang, times(gang).filter(|n| *n > 0)?)))
        .map(|(gang, times)| {
            let times = counted(times, "time");
            let gang = GangId(gang);
            format!(
                "{gang} was refused a new thread {times} at its limit of {limit}; raise it with --max-threads"
            )
        })
        .collect()
}

/// Facts about a run, beside the figures of its gangs.
pub(crate) struct RunFacts {
    pub(crate) kind: MechanismKind,
    pub(crate) reason: String,
    pub(crate) cores: usize,
    /// Just before the first program was started.
    pub(crate) started: Instant,
    pub(crate) others: Option<f64>,
    /// Whether gangs had a weight against other programs.
    pub(crate) weighed: bool,
}

pub(crate) fn summarize(
    options: &Options,
    run: RunFacts,
    programs: &[GangProgram],
    outcome: SchedulerOutcome,
    warnings: Vec<String>,
) -> RunSummary {
    let RunFacts { kind, reason, cores, started, others, weighed } = run;
    let code = |status: Option<ExitStatus>| {
        status.map_or(1, |s| s.code().or_else(|| s.signal().map(|n| 128 + n)).unwrap_or(1))
    };
    let slices: &BTreeMap<GangId, u64> = &outcome.slices;
    let gangs = programs
        .iter()
        .enumerate()
        .map(|(gang, state)| GangSummary {
            command: options.commands[gang]
                .iter()
                .map(|part| part.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" "),
            exit_code: code(state.status),
            cpu_s: state.cpu.as_secs_f64(),
            slices: slices.get(&GangId(gang)).copied().unwrap_or(0),
            rested_s: outcome.rested.get(&GangId(gang)).map_or(0.0, |rested| rested.as_secs_f64()),
            weight: options.weights[gang].number(),
            elapsed_s: state.ended.map_or(0.0, |end| (end - started).as_secs_f64()),
        })
        .collect();
    let samples = &outcome.samples;
    RunSummary {
        gangs,
        switches: outcome.switches,
        switch_us: Quantiles::from_samples(&samples.switch_us),
        enforced_us: Quantiles::from_samples(&samples.enforced_us),
        skew_us: Quantiles::from_samples(&samples.skew_us).map(|s| s.median),
        leak: (samples.watched > Duration::ZERO)
            .then(|| samples.leaked.as_secs_f64() / samples.watched.as_secs_f64()),
        not_measured: samples.not_measured(),
        mechanism: kind,
        reason,
        share: weighed.then_some(options.share),
        others,
        scheduler_class: outcome.class,
        slice_ms: options.slice.as_secs_f64() * 1e3,
        cores,
        elapsed_s: (clock::now() - started).as_secs_f64(),
        warnings,
        not_restored: Vec::new(),
    }
}
