//! `unisono events hz`: counts the rate of events by topic.

use super::flags::{BrokerFlag, in_words};
use crate::completions;
use crate::machine_output::{self, CsvFlag};
use crate::output;
use clap_complete::engine::ArgValueCandidates;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};
use unisono_events_client::{Reception, SubscriptionSpec, now};
use unisono_linux::clock::Instant;
use unisono_measure::histogram::Histogram;
use unisono_measure::units;

/// Say how often events come, and how evenly
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events hz 'plant/#'
  unisono events hz feed --time 10s --json")]
pub(crate) struct Args {
    /// Topics
    #[arg(value_name = "PATTERN", add = ArgValueCandidates::new(completions::topics))]
    topics: String,
    /// How long to count
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s")]
    time: Duration,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
    #[command(flatten)]
    broker: BrokerFlag,
}

#[derive(Default)]
struct TopicRate {
    events: u64,
    late: u64,
    last: Option<Instant>,
    intervals: Histogram,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.client()?;
    client.subscribe(&SubscriptionSpec::new(&args.topics)).map_err(in_words)?;
    let start = StdInstant::now();
    let mut rates: BTreeMap<Arc<str>, TopicRate> = BTreeMap::new();
    while let Some(reception) = client.receive(Some(args.time.saturating_sub(start.elapsed())))? {
        if let Reception::Event(event) = reception
            && !event.retained
        {
            let rate = rates.entry(event.topic).or_default();
            let at = now();
            if let Some(last) = rate.last.replace(at) {
                rate.intervals.record_nanos((at - last).as_nanos());
            }
            rate.events += 1;
            rate.late += u64::from(event.late);
        }
        if start.elapsed() >= args.time {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    if args.json || args.table.csv {
        let topics: Vec<_> = rates
            .iter()
            .map(|(topic, rate)| {
                serde_json::json!({
                    "topic": &**topic, "events": rate.events, "hz": rate.events as f64 / seconds, "late": rate.late,
                    "interval_us": rate.intervals.distribution(1e3),
                })
            })
            .collect();
        let text = match args.table.csv {
            true => machine_output::csv(&topics)?,
            false => {
                let object = serde_json::json!({ "seconds": seconds, "topics": topics });
                machine_output::json("unisono-events-hz-1", &object)?
            }
        };
        output::answer(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("{:<32} {:>12} {:>8} {:>14} {:>14}", "topic", "hz", "late", "median", "p99");
    for (topic, rate) in &rates {
        let of = rate.intervals.distribution(1e3);
        let interval = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.0} us"));
        text += &format!(
            "\n{topic:<32} {:>12.1} {:>8} {:>14} {:>14}",
            rate.events as f64 / seconds,
            rate.late,
            interval(of.map(|of| of.median)),
            interval(of.map(|of| of.p99))
        );
    }
    output::answer(&text)?;
    Ok(ExitCode::SUCCESS)
}
