//! The text form of a simulation: JSON with durations like `20ms`.

use super::kernel::KernelModel;
use super::model::{
    CpuQuota, JobArrivals, Meets, Sharing, SimulatedMachine, SimulatedProgram, SimulatedWait, WaitCosts,
};
use super::outcome::Report;
use crate::error::{Error, Result};
use crate::gang::GangWeight;
use crate::policy::Backfill;
use serde::Deserialize;
use std::str::FromStr;
use unisono_linux::clock::{Duration, Instant};
use unisono_measure::units;

/// A machine and its programs. Only `cores` and `gangs` are required.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulationSpec {
    pub cores: usize,
    /// `eevdf` or `cfs-2.6.32`.
    pub kernel: Option<String>,
    /// `gang`, `paired`, `linux`, `spread`, `partition` or `batch`.
    pub scheduler: Option<String>,
    /// Length of a turn of weight 1, for example `20ms`.
    pub slice: Option<String>,
    /// Cost of a switch of gangs, on every core.
    pub switch: Option<String>,
    /// Whether waiting gangs get idle cores.
    pub backfill: Option<bool>,
    /// Simulated time; `None`: until all work is done.
    pub seconds: Option<f64>,
    pub seed: Option<u64>,
    /// Cost of blocking and waking, all parts together.
    pub block: Option<String>,
    /// Cost of a barrier of two threads that both run.
    pub barrier: Option<String>,
    /// Number of cores that share a last-level cache.
    pub cache_cores: Option<usize>,
    #[serde(alias = "programs")]
    pub gangs: Vec<GangSpec>,
}

/// A program of a simulation. Only `threads` is required.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GangSpec {
    pub name: String,
    pub threads: usize,
    /// Processor time that each thread needs.
    pub work: Option<String>,
    /// Computation between barriers; `None`: threads never wait.
    pub interval: Option<String>,
    pub variance: Option<String>,
    /// Number of barriers without computation after each barrier with computation.
    pub light_barriers: u32,
    /// Sleep after each computation.
    pub pause: Option<String>,
    /// `spin`, `block`, or the time to spin before blocking: `50us`.
    pub wait: Option<String>,
    /// `false`: the threads never meet.
    pub barriers: Option<bool>,
    pub weight: Option<u32>,
    pub nice: i8,
    /// 1 to 99: the threads run before all threads without a priority (SCHED_FIFO).
    pub priority: Option<u8>,
    /// Processor time in cores, in periods of 100 ms.
    pub quota: Option<f64>,
    pub arrives: Option<String>,
    /// Number of barriers of a job.
    pub job: Option<u64>,
    /// Mean interval between jobs.
    pub every: Option<String>,
    /// Number of jobs that arrive at once.
    pub together: Option<u32>,
    /// Number of copies of this program.
    pub count: Option<usize>,
}

/// A checked specification.
#[derive(Clone, Debug)]
pub struct Simulation {
    pub machine: SimulatedMachine,
    pub programs: Vec<SimulatedProgram>,
    pub sharing: Sharing,
    pub length: Duration,
    pub seed: u64,
}

/// Limit for a simulation without `seconds`: a day of simulated time.
const MAX_SIMULATED: Duration = Duration::from_secs(86_400);

impl SimulationSpec {
    pub fn understand(&self) -> Result<Simulation> {
        let text = |given: &Option<String>, default: &str| time(given.as_deref().unwrap_or(default));
        let slice = text(&self.slice, "20ms")?;
        let sharing = match self.scheduler.as_deref().unwrap_or("gang") {
            "gang" if self.backfill == Some(false) => Sharing::Gang { slice, backfill: Backfill::Never },
            "gang" => Sharing::Gang { slice, backfill: Backfill::Offer },
            "paired" => Sharing::PairedGang { slice },
            "linux" => Sharing::Linux,
            "spread" => Sharing::Spread,
            "partition" => Sharing::Partition,
            "batch" => Sharing::Batch,
            other => {
                return Err(Error::Input(format!(
                    "{other:?} is no scheduler; choose gang, paired, linux, spread, partition or batch"
                )));
            }
        };
        let kernel = match &self.kernel {
            Some(kernel) => kernel.parse::<KernelModel>().map_err(|error| Error::Input(error.to_string()))?,
            None => KernelModel::default(),
        };
        let usual = match kernel {
            KernelModel::Cfs => WaitCosts::PAPER,
            KernelModel::Eevdf => WaitCosts::EXAMPLE_HOST,
        };
        let or = |given: &Option<String>, usual: Duration| given.as_deref().map_or(Ok(usual), time);
        let costs = WaitCosts {
            barrier: or(&self.barrier, usual.barrier)?,
            block: or(&self.block, usual.block)?,
            switch: usual.switch,
            gang_switch: or(&self.switch, usual.gang_switch)?,
        };
        let mut programs = Vec::new();
        for (number, gang) in (1..).zip(&self.gangs) {
            let name = if gang.name.is_empty() { format!("gang {number}") } else { gang.name.clone() };
            let program = gang.understand(&name)?;
            let count = gang.count.unwrap_or(1).clamp(1, 100_000);
            programs.extend(std::iter::repeat_n(program, count));
        }
        let length = match self.seconds {
            Some(seconds) if seconds > 0.0 && seconds <= 86_400.0 => {
                Duration::from_nanos((seconds * 1e9) as u64)
            }
            Some(seconds) => {
                return Err(Error::Input(format!(
                    "{seconds} simulated seconds; choose more than 0, at most a day"
                )));
            }
            None => match programs.iter().find(|program| program.work.is_none()) {
                Some(program) => {
                    return Err(Error::Input(format!(
                        "{} never ends; give it work, or give the simulation seconds",
                        program.name
                    )));
                }
                None => MAX_SIMULATED,
            },
        };
        let cache_cores = self.cache_cores.unwrap_or(16);
        let machine = SimulatedMachine { cores: self.cores, cache_cores, kernel, costs };
        Ok(Simulation { machine, programs, sharing, length, seed: self.seed.unwrap_or(1) })
    }
}

/// Parses `16x50us+2ms`: threads, interval, variance. `2xloop`: threads that never wait.
impl FromStr for GangSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::Input(format!(
                "{text:?} is no program; write threads x interval, for example 16x50us, 16x50us+2ms or 2xloop"
            ))
        };
        let (threads, times) = text.split_once('x').ok_or_else(bad)?;
        let threads = threads.trim().parse().map_err(|_| bad())?;
        let mut spec = Self { name: text.to_owned(), threads, ..Self::default() };
        if times != "loop" {
            let (interval, variance) = times.split_once('+').unwrap_or((times, "0"));
            (spec.interval, spec.variance) = (Some(interval.to_owned()), Some(variance.to_owned()));
        }
        Ok(spec)
    }
}

impl GangSpec {
    fn understand(&self, name: &str) -> Result<SimulatedProgram> {
        let wrong = |what: String| Error::Input(format!("{name}: {what}"));
        let time = |text: &str| time(text).map_err(|error| wrong(error.to_string()));
        let or_zero = |given: &Option<String>| given.as_deref().map_or(Ok(Duration::ZERO), time);
        let interval = self.interval.as_deref().map(time).transpose()?;
        let meets = match (interval, self.barriers) {
            (None, Some(true)) => return Err(wrong("barriers need an interval".into())),
            (None, _) | (_, Some(false)) => Meets::Never,
            _ => Meets::AtBarriers,
        };
        let wait = match self.wait.as_deref() {
            None => SimulatedWait::SpinBlock(Duration::from_micros(50)),
            Some("spin") => SimulatedWait::Spin,
            Some("block") => SimulatedWait::Block,
            Some(budget) => SimulatedWait::SpinBlock(time(budget)?),
        };
        let jobs = match (self.job, &self.every) {
            (Some(barriers), Some(every)) => {
                Some(JobArrivals { barriers, every: time(every)?, together: self.together.unwrap_or(1) })
            }
            (None, None) => None,
            _ => return Err(wrong("jobs need both `job` (barriers) and `every` (time)".into())),
        };
        let quota = self.quota.map(|cores| CpuQuota {
            quota: Duration::from_nanos((cores.max(0.0) * 1e8) as u64),
            // the kernel's default period
            period: Duration::from_millis(100),
        });
        let weight =
            GangWeight::new(self.weight.unwrap_or(1)).ok_or_else(|| wrong("a weight is 1 to 1000".into()))?;
        Ok(SimulatedProgram {
            name: name.into(),
            threads: self.threads,
            interval,
            variance: or_zero(&self.variance)?,
            light_barriers: self.light_barriers,
            pause: or_zero(&self.pause)?,
            meets,
            wait,
            work: self.work.as_deref().map(time).transpose()?,
            jobs,
            weight,
            nice: self.nice,
            priority: self.priority,
            quota,
            arrives: Instant::ZERO + or_zero(&self.arrives)?,
        })
    }
}

impl Simulation {
    /// Runs the simulation; `progress` as for [`super::simulate_with`].
    pub fn run(&self, progress: &mut dyn FnMut(Instant) -> bool) -> Result<Report> {
        super::simulate_with(&self.machine, &self.programs, self.sharing, self.length, self.seed, progress)
    }
}

fn time(text: &str) -> Result<Duration> {
    units::duration(text).map(Duration::from).map_err(|error| Error::Input(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_threads_interval_and_variance() {
        let full: GangSpec = "16x50us+2ms".parse().expect("a program");
        assert_eq!(
            (full.threads, full.interval.as_deref(), full.variance.as_deref()),
            (16, Some("50us"), Some("2ms"))
        );
        assert_eq!("2xloop".parse::<GangSpec>().expect("a program").interval, None);
        for text in ["", "x", "16", "ax1us", "-1x1us"] {
            assert!(text.parse::<GangSpec>().is_err(), "{text}");
        }
    }
}
