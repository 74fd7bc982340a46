//! `unisono events subscribe`: events as they come.

use super::flags::{BrokerFlag, DirectChoice, in_words};
use super::show;
use crate::output;
use clap::ValueEnum;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_broker::{
    AgainSpec, InterestSpec, PartRule, Reception, ReservedTime, ResumeSpec, SubscriptionSpec, TogetherSpec,
    WhenFull, WhenLate,
};
use unisono_linux::clock::Nanos;
use unisono_measure::units;

/// What happens to events while the queue is full.
#[derive(Clone, Copy, ValueEnum)]
enum FullChoice {
    /// the oldest goes
    DropOldest,
    /// what is late goes, or else what is due last
    DropByDeadline,
    /// the supplier waits
    BlockSupplier,
}

/// What happens to events past their deadline.
#[derive(Clone, Copy, ValueEnum)]
enum LateChoice {
    Deliver,
    Drop,
    /// a gap is told instead
    Report,
}

/// Which events come together.
#[derive(Clone, Copy, ValueEnum)]
enum TogetherChoice {
    /// one of each pattern, in any order
    All,
    /// one of each pattern, in their order
    Sequence,
}

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
    /// End after so many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after so much time
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    timeout: Option<Duration>,
    /// The class of the broker's policy
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Share the events with the other consumers of a group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Events that may wait
    #[arg(long, value_name = "N", default_value_t = 1024)]
    queue: usize,
    /// What happens while the queue is full
    #[arg(long, value_name = "HOW", value_enum, default_value = "drop-oldest")]
    full: FullChoice,
    /// What happens to events past their deadline
    #[arg(long, value_name = "HOW", value_enum, default_value = "deliver")]
    late: LateChoice,
    /// Events come at least this far apart
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "due")]
    period: Option<Duration>,
    /// How long after its arrival an event has to be delivered
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "period")]
    due: Option<Duration>,
    /// Worst-case time for an event
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1us")]
    execution: Duration,
    /// Acknowledge each event; one that is not acknowledged in this time is delivered again
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    acknowledge: Option<Duration>,
    /// Go on under this name after what it has acknowledged, also when the broker was started again; the
    /// events come from the broker's log
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group", "together", "period", "full", "late"])]
    resume: Option<String>,
    /// Go on after this position of the log instead
    #[arg(long, value_name = "POSITION", requires = "resume")]
    after: Option<u64>,
    /// Deliver events of all patterns together
    #[arg(long, value_name = "RULE", value_enum, requires = "within")]
    together: Option<TogetherChoice>,
    /// From the first event of those to the last
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    within: Option<Duration>,
    /// Events straight from their suppliers, through shared memory
    #[arg(long, value_name = "CHOICE", value_enum, default_value = "yes")]
    direct: DirectChoice,
    /// Events and notices as JSON Lines
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
        let together = self.together.map(|together| TogetherSpec {
            rule: match together {
                TogetherChoice::All => PartRule::All,
                TogetherChoice::Sequence => PartRule::Sequence,
            },
            within_ns: nanos(self.within.unwrap_or_default()),
            report: true,
        });
        SubscriptionSpec {
            interests: self.topics.iter().map(interest).collect(),
            class: self.class.clone(),
            group: self.group.clone(),
            queue_events: self.queue,
            full: match self.full {
                FullChoice::DropOldest => WhenFull::DropOldest,
                FullChoice::DropByDeadline => WhenFull::DropByDeadline,
                FullChoice::BlockSupplier => WhenFull::BlockSupplier,
            },
            late: match self.late {
                LateChoice::Deliver => WhenLate::Deliver,
                LateChoice::Drop => WhenLate::Drop,
                LateChoice::Report => WhenLate::Report,
            },
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
