//! `unisono events top`: shows the broker's counters, live.

use super::flags::BrokerFlag;
use super::show;
use crate::columns::{self, Column, cut, fold};
use crate::live_view::{LiveViewFlags, LiveViewText};
use crate::machine_output::{self, CsvFlag, TableForm};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::process::ExitCode;
use unisono_events_client::{ConsumerStatistics, Statistics};
use unisono_text::counted;

/// Watch each consumer: rates, drops, missed deadlines, waiting events
///
/// The command prints a table at every interval until Ctrl-C. Rates come from two readings. On a terminal the
/// new table replaces the old one, and `q` and Esc end the command, too. The busiest consumers come first; a
/// group counts as a consumer, with the number of its programs. `full`, `late`, `lost` and `missed` count
/// since a consumer came: events dropped by its full queue, events dropped because they were late, all lost
/// events, and missed deadlines. An event that is late for three consumers counts three times in `missed`,
/// once for each. The missed deadlines of each topic follow. The figures of departed consumers are in
/// `(departed)`. Columns are left out if they do not fit the terminal, or the exported COLUMNS.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events top
  unisono events top --once --json
  unisono events top --topics --once
      the topics, with the events of each")]
pub(crate) struct Args {
    #[command(flatten)]
    view: LiveViewFlags,
    /// JSON Lines: the broker's counters, with rates of consumers and topics
    #[arg(long)]
    json: bool,
    /// Show topics in place of consumers: events per second, events since the broker began, missed deadlines
    ///
    /// A topic is listed once the broker has taken an event of it. Events that go straight from a supplier to
    /// consumers, through direct rings, are not counted here; the table of consumers counts them. With
    /// permissions these are topics to which the program may subscribe.
    #[arg(long, conflicts_with = "json")]
    topics: bool,
    #[command(flatten)]
    table: CsvFlag,
    #[command(flatten)]
    broker: BrokerFlag,
}

const VIEW: LiveViewText = LiveViewText {
    title: "unisono events top",
    help: "matched/s, delivered/s: events that a consumer's filters matched, and that it got, since the last table. \
           waiting: events in its queue. Since it came: full, dropped by its full queue; late, dropped because they were \
           late; lost, all lost events; missed, missed deadlines, once for each consumer. xN: a group of N programs. \
           Columns that do not fit are left out.",
};

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.client()?;
    let mut earlier = client.statistics()?;
    let output = TableForm::chosen(args.json, args.table.csv);
    args.view.show(output, &VIEW, |width| {
        let now = client.statistics()?;
        let text = match output {
            TableForm::Json => machine_output::json("unisono-events-top-1", &as_json(&now, &earlier)?)?,
            TableForm::Csv if args.topics => machine_output::csv(&topics(&now, &earlier))?,
            TableForm::Csv => machine_output::csv(&consumers(&now, &earlier)?)?,
            TableForm::Text if args.topics => topic_table(&now, &earlier, width),
            TableForm::Text => table(&now, &earlier, width),
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

/// Returns the rates in the broker's order of consumers. Consumers of the same name are matched between the
/// two readings by that order.
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

/// Returns the counters with the rates since the earlier reading.
pub(super) fn as_json(now: &Statistics, earlier: &Statistics) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(now)?;
    let nanos = now.at_ns.saturating_sub(earlier.at_ns);
    let rate = |(topic, count): (&String, &u64)| {
        let before = earlier.published_by_topic.get(topic).copied().unwrap_or_default();
        (topic.clone(), per_second(*count, before, nanos))
    };
    value["published_per_s"] = json!(now.published_by_topic.iter().map(rate).collect::<BTreeMap<_, _>>());
    value["consumers"] = consumers(now, earlier)?.into();
    Ok(value)
}

/// Returns the counters and the rates of each consumer.
fn consumers(now: &Statistics, earlier: &Statistics) -> serde_json::Result<Vec<Value>> {
    let with_rates = |rate: &ConsumerRate<'_>| {
        let mut consumer = serde_json::to_value(rate.of)?;
        consumer["matched_per_s"] = json!(rate.matched);
        consumer["delivered_per_s"] = json!(rate.delivered);
        Ok(consumer)
    };
    rates(now, earlier).iter().map(with_rates).collect()
}

/// Returns the counters and the rate of each topic, the busiest first.
fn topics(now: &Statistics, earlier: &Statistics) -> Vec<Value> {
    let nanos = now.at_ns.saturating_sub(earlier.at_ns);
    let mut topics: Vec<_> = now.published_by_topic.iter().collect();
    topics.sort_by(|(one, few), (other, many)| many.cmp(few).then(one.cmp(other)));
    let row = |(topic, published): (&String, &u64)| {
        let before = earlier.published_by_topic.get(topic).copied().unwrap_or_default();
        json!({
            "topic": topic, "published_per_s": per_second(*published, before, nanos), "published": published,
            "missed": now.missed_by_topic.get(topic).copied().unwrap_or_default(),
        })
    };
    topics.into_iter().map(row).collect()
}

fn topic_table(now: &Statistics, earlier: &Statistics, width: usize) -> String {
    let rows = topics(now, earlier);
    let names: Vec<String> =
        rows.iter().map(|row| row["topic"].as_str().unwrap_or_default().to_owned()).collect();
    let column = |rank, head, cell: &dyn Fn(&Value) -> String| Column {
        rank,
        width: 12,
        head,
        cells: rows.iter().map(cell).collect(),
    };
    let columns = vec![
        column(0, "published/s", &|row| {
            format!("{:.0}", row["published_per_s"].as_f64().unwrap_or_default())
        }),
        column(1, "published", &|row| row["published"].to_string()),
        column(2, "missed", &|row| row["missed"].to_string()),
    ];
    let mut text = columns::lines("topic", &names, columns, width);
    if now.direct > 0 {
        let links = counted(now.direct, "direct link");
        let note = format!("not listed by topic: events of {links} (without --topics they are counted)");
        let _ = write!(text, "\n{}", fold(&note, width));
    }
    text
}

fn table(now: &Statistics, earlier: &Statistics, width: usize) -> String {
    let nanos = now.at_ns.saturating_sub(earlier.at_ns);
    let mut text = format!(
        "{}, {}, {} refused{}, {} sent away\n",
        counted(now.clients, "program"),
        counted(now.paths, "path"),
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
    let mut text = fold(&text, width) + "\n";
    let mut rates = rates(now, earlier);
    rates.sort_by(|one, other| other.delivered.total_cmp(&one.delivered));
    let gone = ConsumerRate {
        of: &now.departed,
        matched: per_second(now.departed.matched, earlier.departed.matched, nanos),
        delivered: per_second(now.departed.delivered, earlier.departed.delivered, nanos),
    };
    let rows: Vec<_> = rates.iter().chain((gone.of.matched > 0).then_some(&gone)).collect();
    let names: Vec<String> = rows
        .iter()
        .map(
            |row| {
                if std::ptr::eq(row.of, gone.of) { "(departed)".to_owned() } else { show::consumer(row.of) }
            },
        )
        .collect();
    text.push_str(&columns::lines("consumer", &names, consumer_columns(&rows), width));
    if now.left_out > 0 {
        let _ = write!(text, "\nand {} more", now.left_out);
    }
    text.push_str(&show::missed_topics(now));
    let lines: Vec<String> = text.lines().map(|line| cut(line, width)).collect();
    lines.join("\n")
}

fn consumer_columns(rows: &[&ConsumerRate<'_>]) -> Vec<Column> {
    let column = |rank, width, head, cell: &dyn Fn(&ConsumerRate<'_>) -> String| Column {
        rank,
        width,
        head,
        cells: rows.iter().map(|row| cell(row)).collect(),
    };
    vec![
        column(3, 11, "matched/s", &|row| format!("{:.0}", row.matched)),
        column(0, 11, "delivered/s", &|row| format!("{:.0}", row.delivered)),
        column(1, 8, "waiting", &|row| row.of.waiting.to_string()),
        column(5, 8, "full", &|row| row.of.dropped_full.to_string()),
        column(6, 8, "late", &|row| row.of.dropped_late.to_string()),
        column(4, 8, "lost", &|row| row.of.lost.to_string()),
        column(2, 8, "missed", &|row| row.of.missed.to_string()),
        column(7, 6, "", &|row| if row.of.paused { "paused".to_owned() } else { String::new() }),
    ]
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
    fn topics_are_listed_with_their_rates_and_the_busiest_is_first() {
        let reading = |at_ns, counts: &[(&str, u64)]| Statistics {
            at_ns,
            published_by_topic: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            ..Statistics::default()
        };
        let text = topic_table(&reading(2_000_000_000, &[("a", 4), ("b", 10)]), &reading(0, &[("b", 6)]), 80);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1..], [["b", "2", "10", "0"], ["a", "2", "4", "0"]]);
        let direct = Statistics { direct: 2, ..Statistics::default() };
        let text = topic_table(&direct, &Statistics::default(), 40);
        assert!(text.contains("\nnot listed by topic: events of 2 direct"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
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
        for width in [30, 80] {
            let table = table(&now, &earlier, width);
            assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
            let head = table.lines().find(|line| line.starts_with("consumer")).expect("a head");
            assert!(head.contains(" delivered/s") && (width < 80 || head.ends_with(" missed")), "{table}");
        }
    }
}
