//! Streams of bursty parallel requests under a regime: the paper's last condition, changing demand.
//!
//! Each program is one stream and serves the requests that arrive for it, each a parallel computation; all
//! streams draw one schedule from one seed. The figure is the latency from a request's arrival to its answer,
//! its time in the queue included.

use super::figures::figure;
use super::launch::{self, App};
use super::{Context, Driver, NoOutcome, Outcome, pair};
use crate::peer::{PeerFile, PeerKind};
use crate::settings::{Regime, Settings};
use crate::workload::{Measurement, Options};
use std::time::Duration;
use unisono_measure::record::{Distribution, Figure};

#[derive(Debug)]
pub struct BurstDriver;

impl Driver for BurstDriver {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn reads(&self) -> &'static [&'static str] {
        &[
            "threads",
            "wait",
            "spin_budget_us",
            "size",
            "regime",
            "slice_ms",
            "mechanism",
            "nice",
            "favoured",
            "others",
            "requests_per_s",
            "burst",
            "rounds",
        ]
    }

    fn around(&self, settings: &Settings, seconds: f64) -> Duration {
        super::pair::PairDriver.around(settings, seconds)
    }

    fn beside_others(&self) -> bool {
        true
    }

    fn run(
        &self,
        context: Context,
        settings: &Settings,
        seconds: f64,
        seed: u64,
    ) -> Result<Outcome, NoOutcome> {
        if settings.regime == Some(Regime::Batch) {
            return Err(NoOutcome::Skipped(
                "requests that arrive over time cannot be run as batch jobs".into(),
            ));
        }
        let streams = 1 + settings.others.unwrap_or(1);
        let app = |stream: usize| App {
            program: PeerFile::own(
                context.unisono,
                &format!("stream {stream}"),
                PeerKind::Requests,
                arguments(settings, stream, streams),
            ),
            options: Options {
                threads: settings.threads.unwrap_or_else(|| launch::threads(context)),
                size: settings.size,
                // one seed: each stream draws the whole schedule and serves its own part
                seed,
                ..Options::default()
            },
        };
        let (measured, figures) = pair::under(context, settings, (0..streams).map(app).collect(), seconds)?;
        let mut outcome = latencies(&measured)?;
        outcome.figures.extend(figures);
        Ok(outcome)
    }
}

fn arguments(settings: &Settings, stream: usize, streams: usize) -> Vec<String> {
    let mut arguments = vec!["workload".to_owned(), "bursts".to_owned()];
    let mut flag = |name: &str, value: Option<String>| {
        arguments.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    };
    flag("--stream", Some(stream.to_string()));
    flag("--streams", Some(streams.to_string()));
    flag("--rate", settings.requests_per_s.map(|r| r.to_string()));
    flag("--burst", settings.burst.map(|b| b.to_string()));
    flag("--rounds", settings.rounds.map(|r| r.to_string()));
    flag("--wait", settings.wait.clone());
    flag("--spin-budget", settings.spin_budget_us.map(|us| format!("{us}us")));
    arguments
}

/// The figures over all streams: every request counts once.
fn latencies(measured: &[Measurement]) -> Result<Outcome, NoOutcome> {
    let streams: Vec<&Distribution> = measured.iter().filter_map(|m| m.latency_us.as_ref()).collect();
    let served: u64 = streams.iter().map(|d| d.n).sum();
    if served == 0 {
        return Err(NoOutcome::Failed("no request was served".into()));
    }
    let unfinished: u64 = measured.iter().filter_map(|m| m.unfinished).sum();
    let weighted = |of: fn(&Distribution) -> f64| {
        streams.iter().map(|d| of(d) * d.n as f64).sum::<f64>() / served as f64 / 1e3
    };
    let greatest = |of: fn(&Distribution) -> f64| streams.iter().map(|d| of(d)).fold(0.0, f64::max) / 1e3;
    let least = streams.iter().map(|d| d.min).fold(f64::INFINITY, f64::min) / 1e3;
    let distribution = Distribution {
        n: served,
        min: least,
        p25: weighted(|d| d.p25),
        median: weighted(|d| d.median),
        p75: weighted(|d| d.p75),
        p99: greatest(|d| d.p99),
        max: greatest(|d| d.max),
    };
    let latency = Figure {
        name: "latency_ms".into(),
        value: distribution.median,
        unit: "ms".into(),
        distribution: Some(distribution),
    };
    let mut outcome = Outcome {
        figures: vec![
            latency,
            figure("latency_p99_ms", distribution.p99, "ms"),
            figure("served", served as f64, "1"),
            figure("unfinished", unfinished as f64, "1"),
        ],
        ..Outcome::default()
    };
    if unfinished > 0 {
        outcome.warnings.push(format!(
            "{unfinished} of {} requests were still waiting at the end: this regime cannot keep up with the demand",
            unfinished + served
        ));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(n: u64, median: f64, unfinished: u64) -> Measurement {
        let latency =
            Distribution { n, min: median, p25: median, median, p75: median, p99: median, max: median };
        Measurement { latency_us: Some(latency), unfinished: Some(unfinished), ..Measurement::default() }
    }

    #[test]
    fn streams_count_by_their_requests_and_overload_is_said() {
        let outcome = latencies(&[stream(30, 1000.0, 0), stream(10, 5000.0, 2)]).expect("served");
        assert!((outcome.figures[0].value - 2.0).abs() < 1e-9, "{outcome:?}");
        assert!(outcome.warnings[0].contains("2 of 42 requests"), "{outcome:?}");
        assert!(latencies(&[Measurement::default()]).is_err());
    }
}
