//! `unisono events replay`: publishes a recording again.

use super::flags::BrokerFlag;
use super::record::open;
use crate::exit::Failure;
use crate::machine_output;
use crate::output;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_broker::log::{LogCursor, LogEntry, LoggedEvent};
use unisono_events_client::{Advertisement, Client, Error, EventDraft, TopicHandle, TopicPattern};
use unisono_linux::interrupt;

/// Publish what was recorded again, at its times
///
/// The events keep their topics, types, keys, fields and payloads, and the time from one to the next.
/// Events of several suppliers come from several suppliers again. The time from the publication of an event
/// to its deadline stays the same. The log of a broker that does not run can be replayed, too. Events that
/// the broker rejects are counted, and the replay goes on.
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
    /// Each event as a JSON line, with how late it was published or why it was rejected
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
    let client = args.broker.client()?;
    interrupt::catch()?;
    let (mut cursor, mut clock) = (LogCursor::at(args.from.max(log.first())), None);
    let mut replay = Replay { client, topics: HashMap::new(), used: 0 };
    let (mut events, mut rejected, mut missing) = (0_u64, 0_u64, 0);
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
        let after = Duration::from(event.published - first).div_f64(args.speed);
        if !args.at_once && !wait_until(start + after) {
            break;
        }
        let mut line = match replay.publish(&event)? {
            Replayed::As(sequence) => {
                events += 1;
                serde_json::json!({ "sequence": sequence })
            }
            Replayed::Rejected(reason) => {
                if rejected == 0 && !args.json {
                    eprintln!("position {position}, {}: {reason}", event.topic);
                }
                rejected += 1;
                serde_json::json!({ "rejected": reason })
            }
            Replayed::Interrupted => break,
        };
        if args.json {
            let behind = if args.at_once { Duration::ZERO } else { start.elapsed().saturating_sub(after) };
            line["position"] = position.into();
            line["topic"] = event.topic.into();
            line["behind_us"] = u64::try_from(behind.as_micros()).unwrap_or(u64::MAX).into();
            if !output::is_read(&machine_output::json("unisono-events-replay-1", &line)?)? {
                break;
            }
        }
    }
    if !args.json {
        output::answer(&format!("{events} events, {rejected} rejected, {missing} missing in the recording"))?;
    }
    if events == 0 && rejected > 0 {
        anyhow::bail!("the broker rejected all {rejected} events");
    }
    Ok(ExitCode::SUCCESS)
}

/// Interval between two checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Sleeps until `due`; returns false if a signal interrupted it.
fn wait_until(due: Instant) -> bool {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if interrupt::caught().is_some() {
            return false;
        }
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

/// Maximum number of topics of recorded suppliers that are open at a time. By default a broker allows a
/// program 1024.
const MAX_TOPICS: usize = 1000;

/// The state of a replay: the connection to the broker that gets the events, and the open topics.
struct Replay {
    client: Client,
    /// The open topics, by the name of the topic and the number of the recorded supplier.
    topics: HashMap<(String, u32), ReplayedTopic>,
    /// Ticks once per lookup of a topic; orders topics for LRU eviction.
    used: u64,
}

/// A topic on which recorded events are published again.
struct ReplayedTopic {
    handle: TopicHandle,
    /// Value of [`Replay::used`] at its last lookup.
    used: u64,
}

/// The outcome of replaying a recorded event.
enum Replayed {
    /// The event was published with this sequence number.
    As(u64),
    Rejected(String),
    /// The replay was interrupted while the event waited for a consumer.
    Interrupted,
}

impl Replay {
    /// Publishes an event; blocks while a consumer with the blocking policy has a full queue.
    fn publish(&mut self, event: &LoggedEvent<'_>) -> anyhow::Result<Replayed> {
        let topic = match self.topic(event) {
            Ok(topic) => topic,
            Err(Error::Refused(reason)) => return Ok(Replayed::Rejected(reason)),
            Err(error) => return Err(error.into()),
        };
        let draft = draft(event);
        let handed = match self.client.publish_with_receipt(topic, &draft, None) {
            Err(error @ Error::TooLong { .. }) => return Ok(Replayed::Rejected(error.to_string())),
            handed => handed?,
        };
        loop {
            match self.client.outcome_within(handed, POLL_INTERVAL) {
                Ok(Some(published)) => return Ok(Replayed::As(published.sequence)),
                Ok(None) if interrupt::caught().is_some() => return Ok(Replayed::Interrupted),
                Ok(None) => {}
                Err(Error::Rejected(reason)) => return Ok(Replayed::Rejected(reason)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the open topic of an event's supplier. Opens it first if necessary; beyond [`MAX_TOPICS`] the
    /// topic that was least recently used is closed.
    fn topic(&mut self, event: &LoggedEvent<'_>) -> Result<TopicHandle, Error> {
        self.used += 1;
        let key = (event.topic.to_owned(), event.supplier);
        if let Some(known) = self.topics.get_mut(&key) {
            known.used = self.used;
            return Ok(known.handle);
        }
        if self.topics.len() >= MAX_TOPICS {
            let oldest = self.topics.iter().min_by_key(|(_, topic)| topic.used).map(|(key, _)| key.clone());
            if let Some(topic) = oldest.and_then(|oldest| self.topics.remove(&oldest)) {
                self.client.withdraw(topic.handle)?;
            }
        }
        let event_type = event.event_type.map(str::to_owned);
        let handle =
            self.client.advertise(&Advertisement { event_type, ..Advertisement::new(event.topic) })?;
        self.topics.insert(key, ReplayedTopic { handle, used: self.used });
        Ok(handle)
    }
}

fn draft<'a>(event: &LoggedEvent<'a>) -> EventDraft<'a> {
    let draft = EventDraft::new(event.payload).keyed(event.key).critical(event.criticality);
    let draft = draft.with_fields(event.fields.clone());
    match event.due_after {
        unisono_events_client::Duration::MAX => draft,
        after => draft.due_in(after),
    }
}
