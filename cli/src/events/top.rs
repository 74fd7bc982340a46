//! `unisono events top`: shows the broker's counters, live.

use super::flags::BrokerFlag;
use super::show;
use crate::live_view::{LiveOutput, LiveViewFlags};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use unisono_broker::{ConsumerStatistics, Statistics};

/// Watch what each consumer gets: rates, drops, missed deadlines, what waits
///
/// Two readings give rates; a new table every interval until Ctrl-C, in place on a terminal. There `q` and
/// Esc end it, too. The busiest consumers come first; a group is one of them, with the number of its
/// programs. `full`, `late`, `lost` and `missed` count since a consumer came: what its full queue dropped,
/// what was dropped because it was late, all that it lost, and the deadlines that it missed. The missed
/// deadlines of each topic follow. What consumers had that have gone is in `(departed)`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events top
  unisono events top --once --json")]
pub(crate) struct Args {
    #[command(flatten)]
    view: LiveViewFlags,
    /// JSON Lines: the broker's counters, with rates
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.client()?;
    let mut earlier = client.statistics()?;
    let output = if args.json { LiveOutput::Json } else { LiveOutput::Table };
    args.view.show(output, |width| {
        let now = client.statistics()?;
        let text = match output {
            LiveOutput::Json => as_json(&now, &earlier)?.to_string(),
            LiveOutput::Table => table(&now, &earlier, width),
        };
        earlier = now;
        Ok(text)
    })
}

/// A consumer's matched and delivered events per second since the earlier reading.
struct ConsumerRate<'a> {
    of: &'a ConsumerStatistics,
    matched: f64,
    delivered: f64,
}

fn per_second(count: u64, earlier: u64, nanos: u64) -> f64 {
    count.saturating_sub(earlier) as f64 / (nanos.max(1) as f64 / 1e9)
}

/// In the broker's order. Consumers of the same name are distinguished by that order.
fn rates<'a>(now: &'a Statistics, earlier: &'a Statistics) -> Vec<ConsumerRate<'a>> {
    let nanos = now.at_ns.saturating_sub(earlier.at_ns);
    let mut before: HashMap<(&str, bool), Vec<&ConsumerStatistics>> = HashMap::new();
    for consumer in earlier.consumers.iter().rev() {
        before.entry((&consumer.name, consumer.programs.is_some())).or_default().push(consumer);
    }
    let rate = |of: &'a ConsumerStatistics| {
        let known = before.get_mut(&(&*of.name, of.programs.is_some())).and_then(Vec::pop);
        let (matched, delivered) = known.map_or((0, 0), |of| (of.matched, of.delivered));
        ConsumerRate {
            of,
            matched: per_second(of.matched, matched, nanos),
            delivered: per_second(of.delivered, delivered, nanos),
        }
    };
    now.consumers.iter().map(rate).collect()
}

fn as_json(now: &Statistics, earlier: &Statistics) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(now)?;
    let of_all: Vec<Value> = rates(now, earlier)
        .iter()
        .map(|rate| {
            let mut consumer = serde_json::to_value(rate.of)?;
            consumer["matched_per_s"] = json!(rate.matched);
            consumer["delivered_per_s"] = json!(rate.delivered);
            Ok(consumer)
        })
        .collect::<serde_json::Result<_>>()?;
    value["consumers"] = of_all.into();
    Ok(value)
}

fn table(now: &Statistics, earlier: &Statistics, width: usize) -> String {
    let nanos = now.at_ns.saturating_sub(earlier.at_ns);
    let mut text = format!(
        "{} programs, {} paths, {} refused{}, {} sent away\n",
        now.clients,
        now.paths,
        now.refused,
        show::refusals(now),
        now.sent_away
    );
    if let Some(log) = &now.log {
        let before = earlier.log.as_ref().map_or((0, 0), |log| (log.written, log.syncs));
        let _ = writeln!(
            text,
            "log: {} bytes, positions {} to {}, {:.0} events/s, {:.0} syncs/s, {} failed, {} damaged places",
            log.bytes,
            log.first,
            log.next.saturating_sub(1),
            per_second(log.written, before.0, nanos),
            per_second(log.syncs, before.1, nanos),
            log.failed,
            log.damaged
        );
    }
    let _ = write!(
        text,
        "{:<24} {:>12} {:>12} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "consumer", "matched/s", "delivered/s", "waiting", "full", "late", "lost", "missed"
    );
    let mut rates = rates(now, earlier);
    rates.sort_by(|one, other| other.delivered.total_cmp(&one.delivered));
    let gone = ConsumerRate {
        of: &now.departed,
        matched: per_second(now.departed.matched, earlier.departed.matched, nanos),
        delivered: per_second(now.departed.delivered, earlier.departed.delivered, nanos),
    };
    for ConsumerRate { of, matched, delivered } in rates.iter().chain((gone.of.matched > 0).then_some(&gone))
    {
        let name = match std::ptr::eq(*of, gone.of) {
            true => "(departed)".to_owned(),
            false => show::consumer(of),
        };
        let _ = write!(
            text,
            "\n{:<24} {matched:>12.0} {delivered:>12.0} {:>8} {:>10} {:>10} {:>10} {:>10}{}",
            name.chars().take(24).collect::<String>(),
            of.waiting,
            of.dropped_full,
            of.dropped_late,
            of.lost,
            of.missed,
            if of.paused { " paused" } else { "" }
        );
    }
    if now.left_out > 0 {
        let _ = write!(text, "\nand {} more", now.left_out);
    }
    text.push_str(&show::missed_topics(now));
    let lines: Vec<String> = text.lines().map(|line| line.chars().take(width).collect()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ns: u64, delivered: &[(&str, u64)]) -> Statistics {
        let consumer = |(name, delivered): &(&str, u64)| ConsumerStatistics {
            name: (*name).to_owned(),
            matched: 2 * delivered,
            delivered: *delivered,
            ..ConsumerStatistics::default()
        };
        Statistics { at_ns, consumers: delivered.iter().map(consumer).collect(), ..Statistics::default() }
    }

    #[test]
    fn rates_are_what_came_between_two_readings_and_the_busiest_is_first() {
        let earlier = reading(0, &[("a", 10), ("b", 0), ("a", 100)]);
        let now = reading(2_000_000_000, &[("a", 14), ("b", 6), ("a", 100), ("new", 1)]);
        let text = table(&now, &earlier, usize::MAX);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        let rates: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[2])).collect();
        assert_eq!(rates, [("b", "6", "3"), ("a", "4", "2"), ("new", "1", "0"), ("a", "0", "0")]);
        let json = as_json(&now, &earlier).expect("numbers");
        assert_eq!(json["consumers"][1]["delivered_per_s"], 3.0);
        assert!(table(&now, &earlier, 30).lines().all(|line| line.chars().count() <= 30));
    }
}
