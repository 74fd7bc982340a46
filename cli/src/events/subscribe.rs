//! `unisono events subscribe`: events as they come.

use super::flags::{BrokerFlag, DirectChoice, in_words};
use super::show;
use crate::flags::one_of;
use crate::output;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_broker::{
    AgainSpec, InterestSpec, PartRule, Reception, ReservedTime, ResumeSpec, SubscriptionSpec, TogetherSpec,
    WhenFull, WhenLate,
};
use unisono_linux::clock::Nanos;
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
const TOGETHER: [(PartRule, &str, &str); 2] = [
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
  unisono events subscribe 'plant/+/heat' --filter 'celsius > 80 and not (site in (\"lab\"))'
  unisono events subscribe '#' --json --count 10
  unisono events subscribe feed --queue 100 --full drop-by-deadline --late report
  unisono events subscribe feed --period 10ms --execution 2ms --due 5ms     admitted, or refused saying by how much
  unisono events subscribe jobs --group workers --acknowledge 1s            each event to one worker, until it is done
  unisono events subscribe door motion --together sequence --within 5s      both, in this order
  unisono events subscribe 'orders/#' --resume billing                      go on where `billing` was")]
pub(crate) struct Args {
    /// Topics
    #[arg(value_name = "PATTERN", required = true)]
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
    /// What happens when an event comes and the queue is full
    #[arg(long, value_name = "HOW", value_parser = one_of(&WHEN_FULL), default_value = "drop-oldest")]
    full: WhenFull,
    /// What happens to events past their deadline
    #[arg(long, value_name = "HOW", value_parser = one_of(&WHEN_LATE), default_value = "deliver")]
    late: WhenLate,
    /// The shortest time between two events
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "due")]
    period: Option<Duration>,
    /// How long after its arrival an event has to be delivered
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "period")]
    due: Option<Duration>,
    /// The longest time that the delivery of one event takes
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1us")]
    execution: Duration,
    /// Acknowledge each event; one that is not acknowledged in this time is delivered again
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    acknowledge: Option<Duration>,
    /// Continue as the consumer of this name: the broker's log delivers what that consumer has not
    /// acknowledged, also after the broker was started again
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group", "together", "period", "full", "late"])]
    resume: Option<String>,
    /// Continue after this position of the log instead
    #[arg(long, value_name = "POSITION", requires = "resume")]
    after: Option<u64>,
    /// Deliver events of several patterns together
    #[arg(long, value_name = "RULE", value_parser = one_of(&TOGETHER), requires = "within")]
    together: Option<PartRule>,
    /// The longest time from the first to the last event of those delivered together
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    within: Option<Duration>,
    /// Whether events may come directly from their suppliers, through shared memory
    #[arg(long, value_name = "CHOICE", value_enum, default_value = "yes")]
    direct: DirectChoice,
    /// Print events and notices as JSON Lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerFlag,
}

fn nanos(duration: Duration) -> u64 {
    Nanos::from(duration).0
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
            largest: 64 << 10,
        });
        let together = self.together.map(|rule| TogetherSpec {
            rule,
            within_ns: nanos(self.within.unwrap_or_default()),
            report: true,
        });
        SubscriptionSpec {
            interests: self.topics.iter().map(interest).collect(),
            class: self.class.clone(),
            group: self.group.clone(),
            queue_events: self.queue,
            full: self.full,
            late: self.late,
            reserve,
            execution_ns: nanos(self.execution),
            again: self.acknowledge.map(|after| AgainSpec {
                after_ns: nanos(after),
                attempts: 16,
                window: 64,
            }),
            together,
            direct: self.direct == DirectChoice::Yes,
            resume: self.resume.clone().map(|name| ResumeSpec { name, after: self.after }),
            ..SubscriptionSpec::default()
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.client()?;
    client.subscribe(&args.spec()).map_err(in_words)?;
    let start = Instant::now();
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
        if !output::is_read(&show::line(&reception, args.json))? {
            break;
        }
        if let Reception::Event(event) = &reception {
            events += 1;
            client.acknowledge(event)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
