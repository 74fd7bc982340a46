//! `unisono events publish`: publishes events on a topic, from the command line or line by line.

use super::flags::{BrokerFlag, EventFlags, ReconnectFlag, StayFlags, in_words};
use super::subscribe::ORDER;
use crate::completions;
use crate::flags::one_of;
use crate::machine_output;
use crate::output;
use anyhow::Context as _;
use clap_complete::engine::ArgValueCandidates;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal as _};
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use unisono_events_client::{
    Advertisement, Client, Durability, Error, EventOrder, KeptHistory, PublishOutcome, TopicHandle,
};
use unisono_measure::units;
use unisono_text::counted;

const DURABILITY: [(Durability, &str, &str); 3] = [
    (Durability::Received, "received", "The queues of its consumers have it"),
    (Durability::Written, "written", "The log has it: it survives the broker"),
    (Durability::Synced, "synced", "The disk has it: it survives a power failure"),
];

/// Publish an event, or each line of standard input as one
///
/// An event that is refused, as when its deadline has passed, is counted, and the next one follows. The end
/// of standard error says how many were refused, and why. The exit status is 1 if all events were refused.
/// With --writer the first refusal ends the command with that status, so that the same command, run again,
/// publishes the event.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events publish plant/1/heat --field celsius=81.5 hot
  unisono events publish plant/1/heat --keep 1 --deadline 5ms hot
      the broker keeps the last one for late joiners
  seq 1000 | unisono events publish counter --every 10ms
      each line, a hundred a second
  seq 1000 | unisono events publish counter --durability synced --writer counter
      run it again: what the log has is not published again
  seq 1000 | unisono events publish counter --every 10ms --reconnect=10min
      goes on when the broker is started again
  seq 1000 | unisono events publish speed --every 10ms --exclusive --strength 2
      heard alone; when it dies, the next strongest is heard
  seq 1000 | unisono events publish speed --every 10ms --exclusive --lease 1s
      the same also when it is stopped or hangs for a second")]
pub(crate) struct Args {
    /// The topic: levels with / between them
    #[arg(value_name = "TOPIC", add = ArgValueCandidates::new(completions::topics))]
    topic: String,
    /// The payload. Without it, each line of standard input is a payload
    #[arg(value_name = "PAYLOAD")]
    payload: Option<String>,
    #[command(flatten)]
    event: EventFlags,
    /// The type of the topic's events
    #[arg(long = "type", value_name = "NAME")]
    event_type: Option<String>,
    /// How many events the broker keeps for late subscribers; all suppliers of a topic must say the same
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep: usize,
    /// Instead of --keep: the broker keeps the last event of each key, for at most this many keys
    #[arg(long, value_name = "KEYS", conflicts_with = "keep")]
    keep_values: Option<usize>,
    /// Offer that events may be delivered again until they are acknowledged
    #[arg(long)]
    reliable: bool,
    /// Offer that each event is due this long after its publication, unless it has a deadline of its own
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    offer_deadline: Option<Duration>,
    /// Offer that events come at least this far apart; faster ones are refused
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    period: Option<Duration>,
    /// Number of events that may come at once despite --period
    #[arg(long, value_name = "N", default_value_t = 1, requires = "period")]
    burst: u32,
    /// Only events of the strongest living supplier of the topic are delivered; the others stand by. All
    /// suppliers of the topic must say this
    #[arg(long)]
    exclusive: bool,
    /// How strong this supplier is. Of equally strong suppliers, the first one delivers
    #[arg(long, value_name = "N", default_value_t = 0, requires = "exclusive")]
    strength: u32,
    /// Weight of this supplier's events at consumers that divide their time among suppliers
    /// (`subscribe --between shares`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    share: Option<u32>,
    /// The order of its events: at each consumer, or at those that ask for the order of publication
    #[arg(long, value_name = "HOW", value_parser = one_of(&ORDER), default_value = "deadlines")]
    order: EventOrder,
    /// Publish the payload this many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// Time from one event to the next
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    every: Option<Duration>,
    /// When an event counts as published
    #[arg(long, value_name = "HOW", value_parser = one_of(&DURABILITY), default_value = "received")]
    durability: Durability,
    /// Publish as this writer: its events are numbered from --number on, and events that the log already has
    /// are not published again
    #[arg(long, value_name = "NAME")]
    writer: Option<String>,
    /// The first number of the writer
    #[arg(long, value_name = "N", default_value_t = 1, requires = "writer")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=u64::MAX))]
    number: u64,
    /// Print what became of each event, as JSON Lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stay: StayFlags,
    #[command(flatten)]
    reconnect: ReconnectFlag,
    #[command(flatten)]
    broker: BrokerFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.lasting(&args.stay, &args.reconnect)?;
    let nanos = |duration: Duration| unisono_events_client::Duration::from(duration).as_nanos();
    let history = match (args.keep, args.keep_values) {
        (_, Some(keys)) => KeptHistory::LastValue(keys),
        (0, None) => KeptHistory::None,
        (events, None) => KeptHistory::Last(events),
    };
    let spec = Advertisement {
        event_type: args.event_type.clone(),
        history,
        exclusive: args.exclusive,
        strength: args.strength,
        share: args.share,
        order: args.order,
        reliable: args.reliable,
        deadline_ns: args.offer_deadline.map(nanos),
        period_ns: args.period.map(nanos),
        burst: args.burst,
        durability: args.durability,
        writer: args.writer.clone(),
        ..Advertisement::new(&args.topic)
    };
    let topic = client.advertise(&spec).map_err(in_words)?;
    let start = Instant::now();
    let mut number: u32 = 0;
    let mut unheard = false;
    let mut refused = RefusedEvents::default();
    let single = args.payload.is_some() && args.count == 1;
    let mut publish = |client: &mut Client, payload: &[u8]| {
        if let Some(every) = args.every {
            sleep_with_lease(client, args.stay.lease, (every * number).saturating_sub(start.elapsed()))?;
        }
        let sequence = match &args.writer {
            Some(_) => {
                let sequence = args.number.checked_add(u64::from(number));
                Some(sequence.with_context(|| format!("the writer's numbers end at {}", u64::MAX))?)
            }
            None => None,
        };
        number += 1;
        match publish_event(args, client, topic, (payload, sequence))? {
            EventResult::Heard => {}
            EventResult::Unheard => {
                if !unheard && std::io::stderr().is_terminal() {
                    unheard = true; // reported only once
                    eprintln!("nobody subscribes to {}; unisono events subscribe '{0}' does", args.topic);
                }
            }
            EventResult::Refused(reason) => {
                if let Some(sequence) = sequence {
                    // the log would take the number for a duplicate once it has a later one
                    anyhow::bail!("event {sequence} is refused: {reason}");
                }
                if single {
                    anyhow::bail!("the event is refused: {reason}");
                }
                if refused.all == 0 && !args.json {
                    eprintln!("event {number} is refused: {reason}");
                }
                refused.add(&reason);
            }
        }
        anyhow::Ok(())
    };
    match &args.payload {
        Some(payload) => {
            for _ in 0..args.count {
                publish(&mut client, payload.as_bytes())?;
            }
        }
        None => {
            if std::io::stdin().is_terminal() {
                eprintln!("reading standard input: each line is an event of {}; Ctrl-D ends it", args.topic);
            }
            publish_lines(&mut client, args.stay.lease, publish)?;
        }
    }
    if refused.all > 0 {
        let summary = refused.summary(number.into());
        if refused.all == u64::from(number) {
            anyhow::bail!(summary);
        }
        eprintln!("{summary}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Sleeps for `time`. A program with a lease renews it meanwhile.
fn sleep_with_lease(client: &mut Client, lease: Option<Duration>, time: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let max_sleep = lease.map_or(left, |lease| lease / 3);
        std::thread::sleep(left.min(max_sleep));
        if left <= max_sleep {
            return Ok(());
        }
        client.alive()?;
    }
}

/// Calls `publish` with each line of standard input. A program with a lease renews it while it waits for a
/// line.
fn publish_lines(
    client: &mut Client,
    lease: Option<Duration>,
    mut publish: impl FnMut(&mut Client, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Some(lease) = lease else {
        for line in byte_lines(std::io::stdin().lock()) {
            publish(client, &line?)?;
        }
        return Ok(());
    };
    let (sender, lines) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut lines = byte_lines(std::io::stdin().lock());
        while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
    });
    loop {
        match lines.recv_timeout(lease / 3) {
            Ok(line) => publish(client, &line?)?,
            Err(RecvTimeoutError::Timeout) => client.alive()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Splits the input into lines without their line ends. A payload need not be text.
fn byte_lines(input: impl BufRead) -> impl Iterator<Item = std::io::Result<Vec<u8>>> {
    input.split(b'\n').map(|line| {
        line.map(|mut line| {
            line.pop_if(|last| *last == b'\r');
            line
        })
    })
}

/// What became of an event.
enum EventResult {
    /// At least one consumer's queue has it, it waits for nobody (a stand-by's), or the log had it already.
    Heard,
    /// The broker accepted the event, but put it into no consumer's queue.
    Unheard,
    /// No consumer gets it, for this reason.
    Refused(String),
}

/// The beginnings of reasons that contain a time, with words that fit all such events.
const GENERAL_REASONS: [(&str, &str); 3] = [
    ("the deadline passed", "the deadline had passed"),
    ("more than the rate offered", "more than the rate offered"),
    ("more events in a second", "more events in a second than the permissions allow"),
];

/// Maximum number of reasons that are counted apart. Some name a size, so that each event has its own.
/// Chosen, not measured.
const MAX_REASONS: usize = 4;

/// The numbers of refused events.
#[derive(Default)]
struct RefusedEvents {
    all: u64,
    by_reason: BTreeMap<String, u64>,
}

impl RefusedEvents {
    fn add(&mut self, reason: &str) {
        self.all += 1;
        let general = GENERAL_REASONS.iter().find(|(start, _)| reason.starts_with(start));
        let reason = general.map_or(reason, |(_, words)| *words);
        let apart = self.by_reason.len() < MAX_REASONS || self.by_reason.contains_key(reason);
        let reason = if apart { reason } else { "other reasons" };
        *self.by_reason.entry(reason.to_owned()).or_default() += 1;
    }

    /// Says how many of `events` events were published, and why the others were refused.
    fn summary(&self, events: u64) -> String {
        let mut text = format!("published {} of {}", events - self.all, counted(events, "event"));
        for (reason, count) in &self.by_reason {
            let _ = write!(text, "; {count} refused: {reason}");
        }
        text
    }
}

fn publish_event(
    args: &Args,
    client: &mut Client,
    topic: TopicHandle,
    (payload, sequence): (&[u8], Option<u64>),
) -> anyhow::Result<EventResult> {
    let draft = args.event.draft(payload);
    // the call may block: a consumer with a full queue may have asked that suppliers wait for it
    let published = loop {
        match client.publish_with_receipt(topic, &draft, sequence).and_then(|event| client.outcome(event)) {
            Err(Error::Unanswered) => {
                let twice =
                    if sequence.is_some() { "" } else { ", which it may have taken (--writer: once)" };
                eprintln!("the broker is away; it will get the event again{twice}");
            }
            Err(Error::Rejected(reason)) => return refused_event(args, reason),
            Err(error @ Error::TooLong { .. }) => return refused_event(args, error.to_string()),
            published => break published.map_err(in_words)?,
        }
    };
    let (word, inboxes) = match published.outcome {
        PublishOutcome::Taken(inboxes) => ("taken", inboxes),
        PublishOutcome::Written(inboxes) => ("written", inboxes),
        PublishOutcome::Synced(inboxes) => ("synced", inboxes),
        PublishOutcome::Standby => ("standby", 0),
        PublishOutcome::Duplicate => ("duplicate", 0),
    };
    if args.json {
        let sequence = published.sequence;
        let line = serde_json::json!({ "sequence": sequence, "outcome": word, "consumers": inboxes });
        output::answer(&machine_output::json("unisono-events-publish-1", &line)?)?;
    }
    let taken = !matches!(published.outcome, PublishOutcome::Standby | PublishOutcome::Duplicate);
    Ok(if taken && inboxes == 0 { EventResult::Unheard } else { EventResult::Heard })
}

fn refused_event(args: &Args, reason: String) -> anyhow::Result<EventResult> {
    if args.json {
        let line = serde_json::json!({ "outcome": "refused", "reason": reason, "consumers": 0 });
        output::answer(&machine_output::json("unisono-events-publish-1", &line)?)?;
    }
    Ok(EventResult::Refused(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_need_not_be_texts() {
        let lines: Vec<Vec<u8>> =
            byte_lines(&b"a\xff\r\n\nend"[..]).map(|line| line.expect("bytes")).collect();
        assert_eq!(lines, [&b"a\xff"[..], b"", b"end"]);
    }
    #[test]
    fn refused_events_are_counted_by_the_reason_and_reasons_are_bounded() {
        let mut refused = RefusedEvents::default();
        refused.add("the deadline passed 32.7µs ago");
        refused.add("the deadline passed 1.2ms ago");
        assert_eq!(refused.summary(3), "published 1 of 3 events; 2 refused: the deadline had passed");
        for bytes in 0..9 {
            refused.add(&format!("a payload of {bytes} bytes"));
        }
        assert_eq!(refused.by_reason.values().sum::<u64>(), refused.all);
        assert_eq!((refused.by_reason.len(), refused.by_reason["other reasons"]), (MAX_REASONS + 1, 6));
    }
}
