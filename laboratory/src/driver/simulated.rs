//! Runs programs on simulated cores: on the paper's machine, on the example host, and on machines that the
//! user does not have.
//!
//! The parameters of the first program vary; the other programs are the load. The figures have the same names
//! as in the studies that measure. No figure depends on elapsed time: the same seed gives the same figures on
//! every machine.

use serde::{Deserialize, Serialize};
use std::time::Duration as StdDuration;
use unisono_gang::GangWeight;
use unisono_gang::policy::Backfill;
use unisono_gang::simulate::{
    JobArrivals, KernelModel, Report, Sharing, SimulatedMachine, SimulatedProgram, SimulatedWait, WaitCosts,
    simulate_with,
};
use unisono_linux::clock::Duration;
use unisono_measure::record::Figure;
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};

pub const SIMULATED: DriverKind = DriverKind::new::<SimulatedDriver>("simulated").simulated();

/// Measurements of docs/example-report on 2 cores (study `granularity`, medians of the varied program's
/// barriers per second): regime, interval in us, rate. Plain Linux is in its stacked mode, as in 15 of the 18
/// runs.
const EXAMPLE_HOST: [(&str, f64, f64); 12] = [
    ("linux", 0.0, 16_880.0),
    ("linux", 10.0, 12_500.0),
    ("linux", 100.0, 3_760.0),
    ("spread", 0.0, 7_649_280.0),
    ("spread", 10.0, 46_070.0),
    ("spread", 100.0, 4_870.0),
    ("batch", 0.0, 7_863_314.0),
    ("batch", 10.0, 43_717.0),
    ("batch", 100.0, 4_737.0),
    ("gang", 0.0, 7_816_160.0),
    ("gang", 10.0, 53_300.0),
    ("gang", 100.0, 4_320.0),
];

/// The defaults are 16 cores under EEVDF, plain Linux, and one program in addition to the first.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SimulatedDriver {
    cores: Option<usize>,
    /// `cfs-2.6.32` with the paper's costs, or `eevdf` with the costs of the example host. `None`: `eevdf`.
    kernel: Option<String>,
    scheduler: Option<String>,
    slice_ms: Option<f64>,
    simulated_s: Option<f64>,
    /// The number of threads of each program. `None`: one for each core.
    threads: Option<usize>,
    interval_us: f64,
    variance_us: f64,
    /// The number of programs in addition to the first. `None`: 1.
    others: Option<usize>,
    /// The interval of the other programs. `None`: the interval of the first program.
    other_interval_us: Option<f64>,
    other_variance_us: Option<f64>,
    /// The spin budget of the last program.
    other_spin_budget_us: Option<f64>,
    other_nice: Option<i8>,
    other_weight: Option<u32>,
    /// The number of barriers in a job of each program. `None`: a program always has work.
    job_barriers: Option<u64>,
    job_every_s: Option<f64>,
    /// The number of jobs that arrive at the same time.
    burst: Option<u32>,
    light_barriers: Option<u32>,
    /// Whether to simulate plain Linux and pinned threads as well, and to record how much more the programs
    /// get than under these.
    compare: bool,
    /// Whether to record the difference from the example host's measurements.
    validate: bool,
}

impl SimulatedDriver {
    fn machine(&self) -> Result<SimulatedMachine, String> {
        let named = self.kernel.as_deref().map(str::parse::<KernelModel>).transpose();
        let kernel = named.map_err(|error| error.to_string())?.unwrap_or_default();
        let (costs, cache_cores) = match kernel {
            KernelModel::Cfs => (WaitCosts::PAPER, 4),
            KernelModel::Eevdf => (WaitCosts::EXAMPLE_HOST, 16),
        };
        Ok(SimulatedMachine { cores: self.cores.unwrap_or(16), cache_cores, kernel, costs })
    }

    fn sharing(&self) -> Result<Sharing, String> {
        let slice = Duration::from_nanos((self.slice_ms.unwrap_or(20.0) * 1e6) as u64);
        Ok(match self.scheduler.as_deref().unwrap_or("linux") {
            "linux" => Sharing::Linux,
            "spread" => Sharing::Spread,
            "gang" => Sharing::Gang { slice, backfill: Backfill::Offer },
            "partition" => Sharing::Partition,
            "batch" => Sharing::Batch,
            other => return Err(format!("there is no scheduler {other:?} to simulate")),
        })
    }

    fn programs(&self, cores: usize) -> Result<Vec<SimulatedProgram>, String> {
        let us = |us: f64| Duration::from_nanos((us.max(0.0) * 1e3) as u64);
        let jobs = self.job_barriers.map(|barriers| JobArrivals {
            barriers,
            every: us(self.job_every_s.unwrap_or(1.0) * 1e6),
            together: self.burst.unwrap_or(1),
        });
        let threads = self.threads.unwrap_or(cores);
        let program = |name: String, interval: f64, variance: f64| SimulatedProgram {
            jobs,
            light_barriers: self.light_barriers.unwrap_or(0),
            ..SimulatedProgram::barriers(&name, threads, us(interval), us(variance))
        };
        let mut programs = vec![program("1".into(), self.interval_us, self.variance_us)];
        for other in 0..self.others.unwrap_or(1) {
            let interval = self.other_interval_us.unwrap_or(self.interval_us);
            let variance = self.other_variance_us.unwrap_or(self.variance_us);
            programs.push(program((other + 2).to_string(), interval, variance));
        }
        if let Some(last) = programs.last_mut() {
            last.nice = self.other_nice.unwrap_or(0);
            last.weight = GangWeight::new(self.other_weight.unwrap_or(1)).ok_or("a weight is 1 to 1000")?;
            last.wait =
                self.other_spin_budget_us.map_or(last.wait, |budget| SimulatedWait::SpinBlock(us(budget)));
        }
        Ok(programs)
    }

    fn simulate(&self, context: &Context, how: Sharing, seed: u64) -> Result<Report, NoResult> {
        let machine = self.machine().map_err(NoResult::Failed)?;
        let programs = self.programs(machine.cores).map_err(NoResult::Failed)?;
        let length = Duration::from_nanos((self.simulated_s.unwrap_or(1.0) * 1e9) as u64);
        let mut go_on = |_| (context.interrupted)().is_none();
        simulate_with(&machine, &programs, how, length, seed, &mut go_on).map_err(|error| {
            match (context.interrupted)() {
                Some(signal) => NoResult::Interrupted(signal.to_owned()),
                None => NoResult::Failed(error.to_string()),
            }
        })
    }
}

fn rate(report: &Report) -> f64 {
    report.gangs.iter().map(|fate| fate.barriers_per_s).sum()
}

impl Driver for SimulatedDriver {
    fn estimated_overhead(&self, _: f64) -> StdDuration {
        // with 16 cores, a simulated second of plain Linux takes about 0.1 s
        let cores = self.cores.unwrap_or(16) as f64;
        StdDuration::from_secs_f64(self.simulated_s.unwrap_or(1.0) * cores / 160.0)
    }

    fn run(&self, context: Context, _: f64, seed: u64) -> Result<RunResult, NoResult> {
        let report = self.simulate(&context, self.sharing().map_err(NoResult::Failed)?, seed)?;
        let app1 = report.gangs[0].barriers_per_s;
        let mut figures = vec![
            Figure::new("app1_barriers_per_s", app1, "1/s"),
            Figure::new("app2_barriers_per_s", rate(&report) - app1, "1/s"),
            Figure::new("barriers_per_s", rate(&report), "1/s"),
            Figure::new("unstacked", report.gangs[0].unstacked, "1"),
            Figure::new("computing", report.utilization, "1"),
        ];
        let latencies: Vec<_> = report.gangs.iter().filter_map(|fate| fate.latency_s).collect();
        if !latencies.is_empty() {
            let count = latencies.len() as f64;
            let median = latencies.iter().map(|latency| latency.median).sum::<f64>() / count;
            let most = latencies.iter().map(|latency| latency.max).fold(0.0, f64::max);
            figures.push(Figure::new("latency_s", median, "s"));
            figures.push(Figure::new("longest_latency_s", most, "s"));
        }
        if self.compare {
            for (name, how) in [("gain_over_linux", Sharing::Linux), ("gain_over_spread", Sharing::Spread)] {
                let other = rate(&self.simulate(&context, how, seed)?);
                figures.push(Figure::new(name, rate(&report) / other.max(1e-9), "1"));
            }
        }
        if self.validate {
            let regime = self.scheduler.as_deref().unwrap_or("linux");
            let cell = EXAMPLE_HOST.iter().find(|cell| cell.0 == regime && cell.1 == self.interval_us);
            if let Some((_, _, measured)) = cell {
                figures.push(Figure::new("measured_barriers_per_s", *measured, "1/s"));
                figures.push(Figure::new("error_percent", (app1 / measured - 1.0) * 100.0, "%"));
            }
        }
        Ok(RunResult { figures, ..RunResult::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(settings: &SimulatedDriver) -> RunResult {
        let (bench, nowhere) = (unisono_study::peer::PeerBench::default(), std::path::Path::new("/"));
        let never = || None;
        let context =
            Context { bench: &bench, unisono: nowhere, directory: nowhere, cpus: &[], interrupted: &never };
        settings.run(context, 0.0, 1).expect("a simulation")
    }

    fn figure(result: &RunResult, name: &str) -> f64 {
        result.figures.iter().find(|figure| figure.name == name).expect(name).value
    }

    #[test]
    fn every_cell_of_the_example_host_is_predicted_within_a_fifth() {
        for (regime, interval_us, measured) in EXAMPLE_HOST {
            let settings = SimulatedDriver {
                cores: Some(2),
                scheduler: Some(regime.into()),
                interval_us,
                other_interval_us: Some(0.0),
                // an even number of turns
                simulated_s: Some(0.4),
                validate: true,
                ..SimulatedDriver::default()
            };
            let result = run(&settings);
            let error = figure(&result, "error_percent");
            assert!(error.abs() < 20.0, "{regime} {interval_us}: {error} % of {measured}");
        }
    }

    #[test]
    fn gangs_of_fine_grained_programs_gain_over_plain_linux_on_the_papers_machine() {
        let settings = SimulatedDriver {
            kernel: Some("cfs-2.6.32".into()),
            scheduler: Some("gang".into()),
            interval_us: 50.0,
            simulated_s: Some(0.2),
            compare: true,
            ..SimulatedDriver::default()
        };
        assert!(figure(&run(&settings), "gain_over_linux") > 1.5);
    }
}
