//! `unisono events subscribe`: prints events as they arrive.

use super::flags::{BrokerFlag, DirectChoice, ReconnectFlag, StayFlags, in_words};
use super::reply::{self, ReplyCourse, ReplyFlags};
use super::show::{self, PastEvent};
use crate::completions;
use crate::flags::one_of;
use crate::output;
use clap_complete::engine::ArgValueCandidates;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_events_client::{
    AgainSpec, Client, ContentFilter, EventOrder, InterestSpec, KeptHistory, PartRule, Reception,
    ReservedTime, ResumeSpec, SubscriptionSpec, SupplierOrder, TogetherSpec, WhenFull, WhenLate,
};
use unisono_measure::units;

const WHEN_FULL: [(WhenFull, &str, &str); 3] = [
    (WhenFull::DropOldest, "drop-oldest", "Drop the oldest event"),
    (
        WhenFull::DropByDeadline,
        "drop-by-deadline",
        "Drop late events first, then the one that is due last",
    ),
    (WhenFull::BlockSupplier, "block-supplier", "Let the supplier wait"),
];
const WHEN_LATE: [(WhenLate, &str, &str); 3] = [
    (WhenLate::Deliver, "deliver", "Deliver them"),
    (WhenLate::Drop, "drop", "Drop them"),
    (WhenLate::Report, "report", "Drop them, and report the gap"),
];
const BETWEEN: [(SupplierOrder, &str, &str); 2] = [
    (SupplierOrder::Deadlines, "deadlines", "The event that is due first, whoever published it"),
    (
        SupplierOrder::Shares,
        "shares",
        "Suppliers in proportion to their shares (`publish --share`)",
    ),
];
pub(super) const ORDER: [(EventOrder, &str, &str); 2] = [
    (EventOrder::Deadlines, "deadlines", "The event that is due first"),
    (
        EventOrder::Publication,
        "publication",
        "Events of one supplier on one topic as they were published",
    ),
];
const TOGETHER: [(PartRule, &str, &str); 3] = [
    (PartRule::Any, "any", "The first event of any pattern"),
    (PartRule::All, "all", "One event of each pattern, in any order"),
    (PartRule::Sequence, "sequence", "One event of each pattern, in the order of the patterns"),
];

/// Print events as they come
///
/// `+` stands for one level of a topic, `#` for all further ones. Gaps, deaths of suppliers and the like are
/// printed in brackets.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono events subscribe 'plant/+/heat' \\
          --filter 'celsius > 80 and not (site in (\"lab\"))'
  unisono events subscribe '#' --json --count 10
  unisono events subscribe feed --queue 100 --full drop-by-deadline \\
          --late report
  unisono events subscribe feed --period 10ms --execution 2ms --due 5ms
      admitted, or refused saying by how much
  unisono events subscribe jobs --group workers --acknowledge 1s
      each event to one worker, until it is done
  unisono events subscribe door motion --together sequence --within 5s
      both, in this order
  unisono events subscribe 'orders/#' --resume billing
      go on where `billing` was
  unisono events subscribe 'orders/#' --resume billing --reconnect
      also when the broker is started again
  unisono events subscribe state --last-values 100
      what the topic keeps, or refused if it keeps less
  unisono events subscribe feed --deadline 10ms --share 0.5
      refused unless suppliers and the policy promise it
  unisono events subscribe feed --silence 5s
      told when nothing comes
  unisono events subscribe clock --reply date
      answers `unisono events request clock`")]
pub(crate) struct Args {
    /// Topics
    #[arg(value_name = "PATTERN", required = true, add = ArgValueCandidates::new(completions::topics))]
    topics: Vec<String>,
    /// A condition on fields, as in celsius > 80
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Only topics of this type
    #[arg(long = "type", value_name = "NAME")]
    event_type: Option<String>,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    timeout: Option<Duration>,
    /// The class of the broker's policy
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Share the events with the other consumers of a group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// How many events may wait in the queue
    #[arg(long, value_name = "N", default_value_t = 1024)]
    queue: usize,
    /// How many bytes of payload may wait in the queue
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    queue_bytes: Option<u64>,
    /// What happens when an event comes and the queue is full
    #[arg(long, value_name = "HOW", value_parser = one_of(&WHEN_FULL), default_value = "drop-oldest")]
    full: WhenFull,
    /// What happens to events past their deadline
    #[arg(long, value_name = "HOW", value_parser = one_of(&WHEN_LATE), default_value = "deliver")]
    late: WhenLate,
    /// Which supplier's events come first, and whose are kept while the queue is full
    #[arg(long, value_name = "HOW", value_parser = one_of(&BETWEEN), default_value = "deadlines")]
    between: SupplierOrder,
    /// Which of a supplier's events on a topic comes first
    #[arg(long, value_name = "HOW", value_parser = one_of(&ORDER), default_value = "deadlines")]
    order: EventOrder,
    /// For a reservation: the shortest time between two events
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "due")]
    period: Option<Duration>,
    /// How long after its arrival an event has to be delivered
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "period")]
    due: Option<Duration>,
    /// For a reservation: the longest time that the delivery of one event takes
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1us")]
    execution: Duration,
    /// The time that is added for each KiB of its payload
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    execution_per_kib: Option<Duration>,
    /// For a reservation: the largest payload; events with a larger one are dropped and reported as a gap
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "64KiB", requires = "period")]
    largest: u64,
    /// Refuse topics that keep fewer events than this for late subscribers
    #[arg(long, value_name = "N", conflicts_with = "last_values")]
    last: Option<usize>,
    /// Refuse topics that keep the last event of fewer keys than this
    #[arg(long, value_name = "KEYS")]
    last_values: Option<usize>,
    /// Refuse suppliers that do not offer redelivery (`publish --reliable`)
    #[arg(long)]
    reliable: bool,
    /// Refuse suppliers that do not offer this deadline, or a sooner one (`publish --offer-deadline`)
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    deadline: Option<Duration>,
    /// Refuse to subscribe if the policy guarantees the class less than this part of the whole, such as 0.25
    #[arg(long, value_name = "PART", value_parser = part_of_the_whole)]
    share: Option<f64>,
    /// Over UDP: do not resend an event that the network lost, but report it; later events need not wait
    #[arg(long)]
    best_effort: bool,
    /// Print a notice each period; at least 100us
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    every: Option<Duration>,
    /// Print a notice when no event came for this long; at least 100us
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    silence: Option<Duration>,
    /// Only events of programs at this broker: none from the brokers of other hosts
    #[arg(long)]
    local_only: bool,
    /// Acknowledge each event; one that is not acknowledged in this time, at least 100us, is delivered again
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    acknowledge: Option<Duration>,
    /// Maximum number of deliveries of one event; after that the event is dropped and reported as a gap
    #[arg(long, value_name = "N", default_value_t = 16, requires = "acknowledge")]
    attempts: u32,
    /// Events that may be delivered and not acknowledged at a time
    #[arg(long, value_name = "N", default_value_t = 64, requires = "acknowledge")]
    window: usize,
    /// How long the group's queue outlives its last consumer
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "group")]
    linger: Option<Duration>,
    /// Continue as the consumer of this name: the broker's log delivers what that consumer has not
    /// acknowledged, also after the broker was started again
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group", "together", "period", "full", "late"])]
    resume: Option<String>,
    /// Continue after this position of the log instead
    #[arg(long, value_name = "POSITION", requires = "resume")]
    after: Option<u64>,
    /// Free the name at the end: the broker forgets what the consumer has acknowledged
    #[arg(long, requires = "resume")]
    forget: bool,
    /// Deliver events of several patterns together
    #[arg(long, value_name = "RULE", value_parser = one_of(&TOGETHER), requires = "within")]
    together: Option<PartRule>,
    /// The longest time from the first to the last event of those delivered together
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "together")]
    within: Option<Duration>,
    /// Whether events may come directly from their suppliers, through shared memory
    #[arg(long, value_name = "CHOICE", value_enum, default_value = "yes")]
    direct: DirectChoice,
    #[command(flatten)]
    replies: ReplyFlags,
    /// Print events and notices as JSON Lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stay: StayFlags,
    #[command(flatten)]
    reconnect: ReconnectFlag,
    #[command(flatten)]
    broker: BrokerFlag,
}

fn nanos(duration: Duration) -> u64 {
    unisono_events_client::Duration::from(duration).as_nanos()
}

/// Parses a fraction from 0 to 1. Other values, such as NaN, would be sent as if the option had not been
/// given.
fn part_of_the_whole(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "write a part of the whole from 0 to 1, such as 0.25".to_owned())
}

impl Args {
    fn spec(&self) -> SubscriptionSpec {
        let interest = |topics: &String| InterestSpec {
            topics: topics.clone(),
            event_type: self.event_type.clone(),
            filter: self.filter.clone(),
            ..InterestSpec::default()
        };
        let reserve = self.period.zip(self.due).map(|(period, due)| ReservedTime {
            period_ns: nanos(period),
            deadline_ns: nanos(due),
            largest: usize::try_from(self.largest).unwrap_or(usize::MAX),
        });
        let together = self.together.map(|rule| TogetherSpec {
            rule,
            within_ns: nanos(self.within.unwrap_or_default()),
            report: true,
        });
        let default = SubscriptionSpec::default();
        SubscriptionSpec {
            interests: self.topics.iter().map(interest).collect(),
            class: self.class.clone(),
            group: self.group.clone(),
            queue_events: self.queue,
            full: self.full,
            late: self.late,
            between: self.between,
            order: self.order,
            best_effort: self.best_effort,
            reserve,
            execution_ns: nanos(self.execution),
            execution_per_kib_ns: nanos(self.execution_per_kib.unwrap_or_default()),
            history: match (self.last, self.last_values) {
                (Some(events), _) => KeptHistory::Last(events),
                (_, Some(keys)) => KeptHistory::LastValue(keys),
                _ => KeptHistory::None,
            },
            reliable: self.reliable,
            deadline_ns: self.deadline.map(nanos),
            share: self.share,
            every_ns: self.every.map(nanos),
            silence_ns: self.silence.map(nanos),
            linger_ns: nanos(self.linger.unwrap_or_default()),
            local_only: self.local_only,
            again: self.acknowledge.map(|after| AgainSpec {
                after_ns: nanos(after),
                attempts: self.attempts,
                window: self.window,
            }),
            together,
            direct: self.direct == DirectChoice::Yes,
            resume: self.resume.clone().map(|name| ResumeSpec {
                name,
                after: self.after,
                forget: self.forget,
            }),
            queue_bytes: self
                .queue_bytes
                .map_or(default.queue_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            ..default
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.lasting(&args.stay, &args.reconnect)?;
    let subscription = client.subscribe(&args.spec()).map_err(in_words)?;
    let filter: Option<ContentFilter> = args.filter.as_deref().and_then(|filter| filter.parse().ok());
    if let Some((field, text)) = filter.as_ref().and_then(ContentFilter::compared_fields) {
        eprintln!(
            "note: the filter compares the fields `{field}` and `{text}`; if `{text}` is a text, write it in double \
             quotes: --filter '{field} == \"{text}\"'"
        );
    }
    if let Some(command) = &args.replies.reply {
        let (count, timeout, lease, json) = (args.count, args.timeout, args.stay.lease, args.json);
        let course = ReplyCourse { count, timeout, lease, json };
        let answered = reply::serve(&args.replies, command, &mut client, &course)?;
        return match count {
            Some(count) if answered < count => anyhow::bail!("{answered} of {count} requests came in time"),
            _ => Ok(ExitCode::SUCCESS),
        };
    }
    let ended = show_events(args, &mut client)?;
    if args.forget {
        client.unsubscribe(subscription)?;
    }
    Ok(ended)
}

/// Prints events until `--count` of them have arrived, or the timeout has expired.
fn show_events(args: &Args, client: &mut Client) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let past = if args.resume.is_some() { PastEvent::Logged } else { PastEvent::Retained };
    let mut events = 0;
    while args.count.is_none_or(|count| events < count) {
        let left = args.timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let Some(reception) = client.receive(left)? else {
            return match args.count {
                Some(count) => {
                    anyhow::bail!("{events} of {count} events came in time")
                }
                None => Ok(ExitCode::SUCCESS),
            };
        };
        if !output::is_read(&show::line(&reception, args.json, past)?)? {
            break;
        }
        if let Reception::Event(event) = &reception {
            events += 1;
            client.acknowledge(event)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
