//! `unisono events hz`: counts the rate of events by topic.

use super::flags::{BrokerFlag, in_words};
use crate::columns::{self, Column};
use crate::completions;
use crate::live_view::table_width;
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
use unisono_measure::record::Distribution;
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
    output::answer(&table(&rates, seconds, table_width()))?;
    Ok(ExitCode::SUCCESS)
}

fn table(rates: &BTreeMap<Arc<str>, TopicRate>, seconds: f64, width: usize) -> String {
    let names: Vec<String> = rates.keys().map(|topic| topic.to_string()).collect();
    let column = |rank, width, head, cell: &dyn Fn(&TopicRate) -> String| Column {
        rank,
        width,
        head,
        cells: rates.values().map(cell).collect(),
    };
    let interval = |rate: &TopicRate, of: fn(&Distribution) -> f64| {
        let distribution = rate.intervals.distribution(1e3);
        distribution.map_or_else(|| "-".to_owned(), |all| format!("{:.0} us", of(&all)))
    };
    let columns = vec![
        column(0, 12, "hz", &|rate| format!("{:.1}", rate.events as f64 / seconds)),
        column(3, 8, "late", &|rate| rate.late.to_string()),
        column(1, 13, "median", &|rate| interval(rate, |all| all.median)),
        column(2, 13, "p99", &|rate| interval(rate, |all| all.p99)),
    ];
    columns::lines("topic", &names, columns, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_terminal_and_has_the_full_name_elsewhere() {
        let topic = "plant/1/".to_owned() + &"heat/".repeat(10);
        let rates = BTreeMap::from([(Arc::from(&*topic), TopicRate { events: 20, ..TopicRate::default() })]);
        for width in [80, 40] {
            let shown = table(&rates, 2.0, width);
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{shown}");
            assert!(shown.contains("10.0"), "{shown}");
        }
        let full = table(&rates, 2.0, usize::MAX);
        assert!(full.contains(&topic) && full.contains("p99"), "{full}");
    }
}
