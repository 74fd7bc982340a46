//! `unisono events record`: records the events of topics in a directory, for `replay`.

use super::flags::{BrokerFlag, ReconnectFlag, in_words};
use super::log;
use crate::completions;
use crate::machine_output;
use crate::output;
use clap_complete::engine::ArgValueCandidates;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_broker::log::{EventLog, LogBounds, LoggedEvent, WallTime};
use unisono_events_client::{
    EventOrder, InterestSpec, NoticeText, ReceivedEvent, Reception, SubscriptionSpec,
};
use unisono_linux::clock::wall_ahead;
use unisono_linux::interrupt;
use unisono_measure::units;

/// Interval between two checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Record events in a directory, until Ctrl-C
///
/// What is recorded has the form of a broker's log: topics, types, keys, fields, payloads, times and
/// deadlines. A recording is continued if the directory has one.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events record monday 'plant/#'
  unisono events record monday '#' --time 60s --json
  unisono events replay monday --speed 10")]
pub(crate) struct Args {
    /// Where to record
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Topics
    #[arg(value_name = "PATTERN", default_value = "#", add = ArgValueCandidates::new(completions::topics))]
    topics: Vec<String>,
    /// A condition on fields, as in celsius > 80
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    time: Option<Duration>,
    /// End when the recording has this many bytes
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "1GiB")]
    bytes: u64,
    /// What was recorded as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reconnect: ReconnectFlag,
    #[command(flatten)]
    broker: BrokerFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.with_types(&args.reconnect)?;
    let mut log = open(&args.directory)?;
    let interests = args.topics.iter().map(|topics| InterestSpec {
        topics: topics.clone(),
        filter: args.filter.clone(),
        ..InterestSpec::default()
    });
    let spec = SubscriptionSpec {
        name: "record".to_owned(),
        interests: interests.collect(),
        queue_events: 65_536,
        queue_bytes: 64 << 20,
        order: EventOrder::Publication, // the times in a recording ascend
        ..SubscriptionSpec::default()
    };
    client.subscribe(&spec).map_err(in_words)?;
    interrupt::catch()?;
    let (start, wall_ahead) = (Instant::now(), wall_ahead());
    let (mut events, mut missing, mut away) = (0, 0, 0);
    while interrupt::caught().is_none()
        && args.count.is_none_or(|count| events < count)
        && args.time.is_none_or(|time| start.elapsed() < time)
        && log.bytes() < args.bytes
    {
        match client.receive(Some(POLL_INTERVAL))? {
            Some(Reception::Event(event)) => {
                for event in event.with.iter().chain([&event]) {
                    record(&mut log, wall_ahead, event)?;
                }
                events += 1;
            }
            Some(Reception::Notice {
                notice: NoticeText::Gap { lost, .. } | NoticeText::FurtherGaps { lost },
                ..
            }) => missing += lost,
            // the number of events that were missed during the outage is unknown
            Some(Reception::Reconnected { away: time }) => {
                eprintln!("the broker was away for {time:.1?}; what was published meanwhile is missing");
                away += 1;
            }
            _ => {}
        }
    }
    if let Some(job) = log.sync() {
        job.run()?;
    }
    let text = match args.json {
        true => {
            let bytes = log.bytes();
            let counts =
                serde_json::json!({ "events": events, "missing": missing, "away": away, "bytes": bytes });
            machine_output::json("unisono-events-record-1", &counts)?
        }
        false => format!("{events} events, {missing} missing, {} bytes", log.bytes()),
    };
    output::answer(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the recording in a directory, without limits on age or size.
pub(super) fn open(directory: &std::path::Path) -> anyhow::Result<EventLog> {
    let log = log::open(directory, LogBounds { bytes: u64::MAX, age: unisono_events_client::Duration::MAX })?;
    log.damage().iter().for_each(|damage| eprintln!("warning: {damage}"));
    Ok(log)
}

fn record(
    log: &mut EventLog,
    wall_ahead: unisono_events_client::Duration,
    event: &ReceivedEvent,
) -> anyhow::Result<()> {
    let logged = LoggedEvent {
        topic: &event.topic,
        event_type: event.event_type.as_deref(),
        writer: "",
        supplier: event.supplier,
        sequence: event.sequence,
        criticality: event.criticality,
        retained: false,
        acknowledged: false,
        published: WallTime::at(event.published, wall_ahead),
        due_after: event
            .deadline
            .map_or(unisono_events_client::Duration::MAX, |deadline| deadline - event.published),
        key: event.key.as_deref().unwrap_or_default(),
        fields: event.fields.clone(),
        message: None,
        payload: &event.payload.bytes(),
    };
    log.append(&logged)?;
    Ok(())
}
