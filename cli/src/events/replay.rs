//! `unisono events replay`: what was recorded is published again.

use super::flags::{BrokerFlag, in_words};
use super::record::open;
use crate::exit::Failure;
use crate::output;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_broker::log::{LogCursor, LogEntry, LoggedEvent};
use unisono_broker::{Advertisement, Client, EventDraft, TopicHandle, TopicPattern};
use unisono_linux::clock::Nanos;
use unisono_linux::interrupt;

/// Publish what was recorded again, at its times
///
/// The events keep their topics, keys, fields and payloads, and the time from one to the next. The time from
/// the publication of an event to its deadline stays the same. The log of a broker that does not run can be
/// replayed, too.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events replay monday
  unisono events replay monday 'plant/1/#' --speed 10      ten times as fast
  unisono events replay monday --at-once --json            without waiting")]
pub(crate) struct Args {
    /// Where it was recorded
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Topics
    #[arg(value_name = "PATTERN", default_value = "#")]
    topics: Vec<TopicPattern>,
    /// How much faster than it was: 2 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, conflicts_with = "at_once")]
    speed: f64,
    /// Wait for nothing
    #[arg(long)]
    at_once: bool,
    /// Begin at this position
    #[arg(long, value_name = "POSITION", default_value_t = 1)]
    from: u64,
    /// Each event as a JSON line, with how late it was published
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !(args.speed > 0.0 && args.speed.is_finite()) {
        return Err(Failure::Usage("--speed is a positive number, such as 2".to_owned()).into());
    }
    if !args.directory.is_dir() {
        let name = args.directory.display();
        return Err(Failure::Usage(format!(
            "{name} is no recording; make one: unisono events record {name}"
        ))
        .into());
    }
    let log = open(&args.directory)?;
    let mut client = args.broker.client()?;
    interrupt::catch()?;
    let (mut cursor, mut topics, mut clock) =
        (LogCursor::at(args.from.max(log.first())), HashMap::new(), None);
    let (mut events, mut missing) = (0_u64, 0);
    while interrupt::caught().is_none()
        && let Some(entry) = log.read(&mut cursor)?
    {
        let position = match entry {
            LogEntry::Event { position } => position,
            LogEntry::Lost { first, last } => {
                missing += last - first + 1;
                continue;
            }
        };
        let event = LoggedEvent::read(cursor.body())?;
        if !args.topics.iter().any(|pattern| pattern.matches(event.topic)) {
            continue;
        }
        let (start, first) = *clock.get_or_insert((Instant::now(), event.published));
        let after = Duration::from(event.published.since(first)).div_f64(args.speed);
        if !args.at_once && !wait_until(start + after) {
            break;
        }
        let topic = topic(&mut client, &mut topics, &event)?;
        let published = client.try_publish(topic, &draft(&event)).map_err(in_words)?;
        events += 1;
        if args.json {
            let behind = if args.at_once { Duration::ZERO } else { start.elapsed().saturating_sub(after) };
            let line = serde_json::json!({
                "position": position, "topic": event.topic, "sequence": published.sequence,
                "behind_us": u64::try_from(behind.as_micros()).unwrap_or(u64::MAX),
            });
            if !output::is_read(&line.to_string())? {
                break;
            }
        }
    }
    if !args.json {
        output::answer(&format!("{events} events, {missing} missing in the recording"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How often it looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// Sleeps; false if somebody has interrupted it.
fn wait_until(due: Instant) -> bool {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if interrupt::caught().is_some() {
            return false;
        }
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// The handle of an event's topic, which is advertised once.
fn topic(
    client: &mut Client,
    topics: &mut HashMap<String, TopicHandle>,
    event: &LoggedEvent<'_>,
) -> anyhow::Result<TopicHandle> {
    if let Some(topic) = topics.get(event.topic) {
        return Ok(*topic);
    }
    let event_type = event.event_type.map(str::to_owned);
    let spec = Advertisement { event_type, ..Advertisement::of(event.topic) };
    let topic = client.advertise(&spec).map_err(in_words)?;
    topics.insert(event.topic.to_owned(), topic);
    Ok(topic)
}

fn draft<'a>(event: &LoggedEvent<'a>) -> EventDraft<'a> {
    let draft = EventDraft::new(event.payload).keyed(event.key).critical(event.criticality);
    let draft = draft.with_fields(event.fields.clone());
    match event.due_after {
        Nanos::NEVER => draft,
        after => draft.due_in(after.into()),
    }
}
