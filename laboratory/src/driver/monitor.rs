//! Runs network monitors under a regime (the paper's section 4).
//!
//! Each program clusters the packets of one TCP stream ([`crate::workload::monitor`]). The figures are the
//! time from a chunk's last packet to the updated clusters, and the time before and in each barrier.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use unisono_measure::record::Figure;
use unisono_study::driver::launch::{self, ProgramSpec};
use unisono_study::driver::regime::{self, RegimeSettings, SharingRegime};
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};
use unisono_study::peer::{PeerFile, PeerKind};
use unisono_workload::options::flags;
use unisono_workload::{Measurement, Options};

pub const MONITOR: DriverKind = DriverKind::new::<MonitorDriver>("monitor");

/// The maximum number of threads per stream: the paper's. More would be useless even on a machine with more
/// processors, because a stream has little work.
const MAX_THREADS: usize = 8;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitorDriver {
    /// The number of threads of each stream. `None`: half as many as there are processors, but at least 2 and
    /// at most 8.
    threads: Option<usize>,
    wait: Option<String>,
    spin_budget_us: Option<f64>,
    /// `pthread` for the C library's barrier. `None`: Unisono's.
    barrier: Option<String>,
    /// `others` is the number of streams in addition to the first. `None`: all streams together have twice as
    /// many threads as there are processors, as in the paper.
    #[serde(flatten)]
    regime: RegimeSettings,
    /// Packets per second of each stream. `None`: chunks arrive without pauses.
    packets_per_s: Option<f64>,
    /// Factor by which packets arrive faster within a burst.
    burst: Option<f64>,
    /// Packets between two updates.
    chunk: Option<usize>,
    /// The maximum number of cluster centers. `None`: 20.
    centres: Option<usize>,
}

impl Driver for MonitorDriver {
    fn estimated_overhead(&self, seconds: f64) -> Duration {
        // chunks that still wait at the end are processed for at most as long as the run itself
        self.regime.estimated_overhead() + Duration::from_secs_f64(seconds * 0.25)
    }

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        if self.regime.regime == SharingRegime::Batch {
            return Err(NoResult::Skipped(
                "packets that arrive over time cannot be clustered as batch jobs".into(),
            ));
        }
        let threads = self.threads.unwrap_or_else(|| threads(context));
        let streams = 1 + self.regime.others.unwrap_or_else(|| streams(context, threads) - 1);
        let app = |stream: usize| ProgramSpec {
            program: PeerFile::own(
                context.unisono,
                &format!("monitor {stream}"),
                PeerKind::Requests,
                self.arguments(stream),
            ),
            options: Options { threads, seed, ..Options::default() },
        };
        let apps = (0..streams).map(app).collect();
        let (measured, figures) = regime::run_under(context, &self.regime, apps, seconds)?;
        let mut result = stream_figures(&measured)?;
        result.figures.extend(figures);
        result.warnings.extend(launch::late_warning(&measured));
        Ok(result)
    }

    fn chosen_parameter(&self, context: Context) -> Option<(&'static str, Value)> {
        self.threads.is_none().then(|| ("threads", threads(context).into()))
    }
}

fn threads(context: Context) -> usize {
    (context.cpus.len() / 2).clamp(2, MAX_THREADS)
}

fn streams(context: Context, threads: usize) -> usize {
    (2 * context.cpus.len() / threads.max(1)).max(2)
}

impl MonitorDriver {
    fn arguments(&self, stream: usize) -> Vec<String> {
        let flags = flags([
            ("--stream", Some(stream.to_string())),
            ("--packets-per-s", self.packets_per_s.map(|rate| rate.to_string())),
            ("--burst", self.burst.map(|burst| burst.to_string())),
            ("--chunk", self.chunk.map(|chunk| chunk.to_string())),
            ("--centres", self.centres.map(|centres| centres.to_string())),
            ("--barrier", self.barrier.clone()),
            ("--wait", self.wait.clone()),
            ("--spin-budget", self.spin_budget_us.map(|us| format!("{us}us"))),
        ]);
        ["workload".to_owned(), "monitor".to_owned()].into_iter().chain(flags).collect()
    }
}

/// Computes the figures over all streams. Every chunk counts once.
fn stream_figures(measured: &[Measurement]) -> Result<RunResult, NoResult> {
    // Chunks that were never clustered count with their waiting time. Otherwise a regime that starves all
    // streams would have no bad values.
    let Some(distribution) = launch::latencies_ms(measured) else {
        return Err(NoResult::Failed(
            "no chunk of packets was complete in time; use longer runs (--paper)".into(),
        ));
    };
    let updates: u64 = measured.iter().filter_map(|m| m.requests).sum();
    let unfinished: u64 = measured.iter().filter_map(|m| m.unfinished).sum();
    let mean = |of: fn(&Measurement) -> Option<f64>| {
        let values: Vec<f64> = measured.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let mut result = RunResult {
        figures: vec![
            Figure::from_distribution("latency_ms", "ms", distribution),
            Figure::new("latency_max_ms", distribution.max, "ms"),
            Figure::new("latency_spread_ms", distribution.max - distribution.min, "ms"),
            Figure::new("updates", updates as f64, "1"),
            Figure::new("unfinished", unfinished as f64, "1"),
            Figure::new("streams", measured.len() as f64, "1"),
        ],
        ..RunResult::default()
    };
    let barriers = [
        ("barriers_per_s", mean(|m| m.processing_us.map(|_| m.barriers_per_s)), "1/s"),
        ("processing_us", mean(|m| m.processing_us), "us"),
        ("waiting_us", mean(|m| m.waiting_us), "us"),
    ];
    let barriers = barriers.into_iter().filter_map(|(name, mean, unit)| Some(Figure::new(name, mean?, unit)));
    result.figures.extend(barriers);
    if unfinished > 0 {
        result.warnings.push(format!(
            "{unfinished} of {} updates had not begun in time and count as long as they had waited: this regime cannot keep up with the packets",
            unfinished + updates
        ));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::Distribution;

    fn stream(n: u64, median: f64, max: f64, unfinished: u64) -> Measurement {
        let latency = Distribution { n, min: 500.0, p25: median, median, p75: median, p99: max, max };
        Measurement {
            latency_us: Some(latency),
            requests: Some(n - unfinished),
            unfinished: Some(unfinished),
            processing_us: Some(median / 100.0),
            ..Measurement::default()
        }
    }

    #[test]
    fn streams_count_by_their_updates_and_the_spread_is_over_all() {
        let measured = [stream(30, 1000.0, 2000.0, 0), stream(10, 5000.0, 9000.0, 2)];
        let result = stream_figures(&measured).expect("updated");
        let figure = |name: &str| result.figures.iter().find(|f| f.name == name).map(|f| f.value);
        assert_eq!(figure("latency_ms"), Some(2.0));
        assert_eq!(figure("latency_spread_ms"), Some(8.5));
        assert_eq!(figure("processing_us"), Some(30.0));
        assert!(result.warnings[0].contains("2 of 40 updates"), "{result:?}");
        assert!(stream_figures(&[Measurement::default()]).is_err());
    }

    #[test]
    fn streams_that_nobody_served_are_shown_with_the_time_that_they_waited() {
        let starved = Measurement { processing_us: None, ..stream(3, 5e6, 6e6, 3) };
        let result = stream_figures(&[starved]).expect("they waited");
        let figure = |name: &str| result.figures.iter().find(|f| f.name == name).map(|f| f.value);
        assert_eq!((figure("latency_ms"), figure("updates")), (Some(5000.0), Some(0.0)));
        assert_eq!(figure("processing_us"), None, "nobody met at a barrier");
        assert!(result.warnings[0].contains("3 of 3 updates"), "{result:?}");
    }
}
