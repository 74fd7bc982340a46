//! Streams of bursty parallel requests under a regime: the paper's last condition, changing demand.
//!
//! Each program is one stream. It serves the requests that arrive for it; each request is a parallel
//! computation. All streams draw the same schedule from the same seed. The figure is the time from a
//! request's arrival to its answer, waiting included.

use super::launch::{self, ProgramSpec};
use super::regime::{self, RegimeSettings, SharingRegime};
use super::{Context, Driver, DriverKind, NoResult, RunResult};
use crate::peer::{PeerFile, PeerKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use unisono_measure::record::Figure;
use unisono_workload::options::flags;
use unisono_workload::{Measurement, Options};

pub(crate) const BURST: DriverKind = DriverKind::new::<BurstDriver>("burst");

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BurstDriver {
    /// Threads of each stream. `None`: one for each processor.
    threads: Option<usize>,
    wait: Option<String>,
    spin_budget_us: Option<f64>,
    size: Option<usize>,
    #[serde(flatten)]
    regime: RegimeSettings,
    /// Requests per second of all streams together.
    requests_per_s: Option<f64>,
    burst: Option<u32>,
    /// Rounds of a request; each round has two barriers.
    rounds: Option<u32>,
}

impl Driver for BurstDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        self.regime.estimated_overhead()
    }

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        if self.regime.regime == SharingRegime::Batch {
            return Err(NoResult::Skipped(
                "requests that arrive over time cannot be run as batch jobs".into(),
            ));
        }
        let streams = 1 + self.regime.others.unwrap_or(1);
        let app = |stream: usize| ProgramSpec {
            program: PeerFile::own(
                context.unisono,
                &format!("stream {stream}"),
                PeerKind::Requests,
                self.arguments(stream, streams),
            ),
            options: Options {
                threads: self.threads.unwrap_or_else(|| launch::threads(context)),
                size: self.size,
                // one seed for all: each stream draws the whole schedule and serves its own part
                seed,
                ..Options::default()
            },
        };
        let apps = (0..streams).map(app).collect();
        let (measured, figures) = regime::run_under(context, &self.regime, apps, seconds)?;
        let mut result = latencies(&measured)?;
        result.figures.extend(figures);
        Ok(result)
    }

    fn chosen_parameter(&self, context: Context) -> Option<(&'static str, Value)> {
        launch::chosen_threads(self.threads, context)
    }
}

impl BurstDriver {
    fn arguments(&self, stream: usize, streams: usize) -> Vec<String> {
        let flags = flags([
            ("--stream", Some(stream.to_string())),
            ("--streams", Some(streams.to_string())),
            ("--rate", self.requests_per_s.map(|r| r.to_string())),
            ("--burst", self.burst.map(|b| b.to_string())),
            ("--rounds", self.rounds.map(|r| r.to_string())),
            ("--wait", self.wait.clone()),
            ("--spin-budget", self.spin_budget_us.map(|us| format!("{us}us"))),
        ]);
        ["workload".to_owned(), "bursts".to_owned()].into_iter().chain(flags).collect()
    }
}

/// Returns the figures over all streams: every request counts once.
fn latencies(measured: &[Measurement]) -> Result<RunResult, NoResult> {
    let distribution = launch::latencies_ms(measured);
    let distribution = distribution.ok_or_else(|| NoResult::Failed("no request was served".into()))?;
    let served = distribution.n;
    let unfinished: u64 = measured.iter().filter_map(|m| m.unfinished).sum();
    let mut result = RunResult {
        figures: vec![
            Figure::from_distribution("latency_ms", "ms", distribution),
            Figure::new("latency_p99_ms", distribution.p99, "ms"),
            Figure::new("served", served as f64, "1"),
            Figure::new("unfinished", unfinished as f64, "1"),
        ],
        ..RunResult::default()
    };
    if unfinished > 0 {
        result.warnings.push(format!(
            "{unfinished} of {} requests were still waiting at the end: this regime cannot keep up with the demand",
            unfinished + served
        ));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::Distribution;

    fn stream(n: u64, median: f64, unfinished: u64) -> Measurement {
        let latency =
            Distribution { n, min: median, p25: median, median, p75: median, p99: median, max: median };
        Measurement { latency_us: Some(latency), unfinished: Some(unfinished), ..Measurement::default() }
    }

    #[test]
    fn streams_count_by_their_requests_and_overload_is_said() {
        let result = latencies(&[stream(30, 1000.0, 0), stream(10, 5000.0, 2)]).expect("served");
        assert!((result.figures[0].value - 2.0).abs() < 1e-9, "{result:?}");
        assert!(result.warnings[0].contains("2 of 42 requests"), "{result:?}");
        assert!(latencies(&[Measurement::default()]).is_err());
    }
}
