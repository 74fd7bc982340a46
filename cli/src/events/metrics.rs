//! A broker's statistics in the OpenMetrics format.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use unisono_events_client::{ConsumerStatistics, LogStatistics, OTHERS, Statistics};

/// Returns the text for a monitoring program. Consumers with the same name are counted together. The number
/// of series is bounded: the first [`MAX_CONSUMERS`] names have a series each, all other consumers share one,
/// and departed consumers share another.
pub(super) fn openmetrics(statistics: Statistics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(BrokerScrape(statistics)));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("because no value here fails to be written to memory");
    text
}

#[derive(Debug)]
struct BrokerScrape(Statistics);

/// A metric family: type, name, help text, and how to read its value.
type FamilyOf<T> = (MetricType, &'static str, &'static str, fn(&T) -> u64);

const OF_ALL: [FamilyOf<Statistics>; 5] = [
    (Gauge, "programs", "Programs that are connected", |of| of.clients),
    (Gauge, "paths", "Paths that are open or still drain", |of| of.paths),
    (Counter, "refused", "Publications, topics and subscriptions that were refused", |of| {
        of.refused
    }),
    (Counter, "sent_away", "Programs that were sent away because of what they sent", |of| {
        of.sent_away
    }),
    (Counter, "audit_lost", "Entries of the audit that could not be written", |of| {
        of.audit_lost
    }),
];

const OF_CONSUMERS: [FamilyOf<ConsumerStatistics>; 11] = [
    (Counter, "matched", "Events that matched", |of| of.matched),
    (Counter, "delivered", "Events that were delivered", |of| of.delivered),
    (Counter, "dropped_full", "Events dropped because the queue was full", |of| of.dropped_full),
    (Counter, "dropped_late", "Events dropped because they were late", |of| of.dropped_late),
    (
        Counter,
        "dropped_large",
        "Events dropped because the reservation does not hold for them",
        |of| of.dropped_large,
    ),
    (Counter, "given_up", "Events that nobody acknowledged", |of| of.given_up),
    (Counter, "lost", "Events that matched and will never be delivered", |of| of.lost),
    (Counter, "missed_deadlines", "Deadlines that were missed", |of| of.missed),
    (Counter, "repeated", "Deliveries that were repeated", |of| of.repeated),
    (Counter, "blocked", "Publications refused because the queue was full", |of| of.blocked),
    (Gauge, "waiting", "Events that wait", |of| of.waiting),
];

const OF_LOG: [FamilyOf<LogStatistics>; 6] = [
    (Gauge, "log_bytes", "Bytes of the log", |of| of.bytes),
    (Counter, "log_written", "Events written to the log", |of| of.written),
    (Counter, "log_failed", "Events that could not be written to the log", |of| of.failed),
    (Counter, "log_syncs", "Times that the disk was waited for", |of| of.syncs),
    (Gauge, "log_unsynced", "Events of the log that are not synced", |of| {
        of.next.saturating_sub(of.synced)
    }),
    (Gauge, "log_damaged", "Places of the log where bytes are no events", |of| of.damaged),
];

impl Collector for BrokerScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let one = |of: u64| vec![(Vec::new(), of)];
        for (kind, name, what, of) in OF_ALL {
            family(&mut encoder, (kind, name, what), &one(of(&self.0)))?;
        }
        for (kind, name, what, of) in OF_CONSUMERS {
            let samples = of_consumers(&self.0, of);
            family(&mut encoder, (kind, name, what), &samples)?;
        }
        let counted = |label: &'static str, counts: &'_ BTreeMap<String, u64>| -> Vec<_> {
            counts.iter().map(|(name, count)| (vec![(label, name.clone())], *count)).collect()
        };
        let refusals = counted("reason", &self.0.refusals);
        family(&mut encoder, (Counter, "refusals", "What was refused, by the reason"), &refusals)?;
        let missed = counted("topic", &self.0.missed_by_topic);
        let what = "Deadlines that were missed, by the topic; the topics with the most";
        family(&mut encoder, (Counter, "missed_deadlines_by_topic", what), &missed)?;
        for (kind, name, what, of) in OF_LOG {
            if let Some(log) = &self.0.log {
                family(&mut encoder, (kind, name, what), &one(of(log)))?;
            }
        }
        Ok(())
    }
}

/// Maximum number of consumers with a series of their own.
const MAX_CONSUMERS: usize = 200;

/// Returns one value for each of the first [`MAX_CONSUMERS`] names, one for all further consumers, and one
/// for all departed consumers.
fn of_consumers(statistics: &Statistics, of: fn(&ConsumerStatistics) -> u64) -> Vec<LabelledValue> {
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for consumer in &statistics.consumers {
        let is_own = by_name.len() < MAX_CONSUMERS || by_name.contains_key(&consumer.name);
        let name = if is_own { consumer.name.clone() } else { OTHERS.to_owned() };
        let value = by_name.entry(name).or_default();
        // some counts are reported by the consumer's program, which may send any number: the sum must not
        // overflow
        *value = value.saturating_add(of(consumer));
    }
    by_name.insert("(departed)".to_owned(), of(&statistics.departed));
    by_name.into_iter().map(|(name, value)| (vec![("consumer", name)], value)).collect()
}

/// A value with its labels.
type LabelledValue = (Vec<(&'static str, String)>, u64);

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    (kind, name, what): (MetricType, &str, &str),
    samples: &[LabelledValue],
) -> fmt::Result {
    if samples.is_empty() {
        return Ok(());
    }
    let name = format!("unisono_events_{name}");
    let mut family = encoder.encode_descriptor(&name, what, None, kind)?;
    for (labels, value) in samples {
        match labels.is_empty() {
            true => sample(&mut family, kind, *value)?,
            false => sample(&mut family.encode_family(labels)?, kind, *value)?,
        }
    }
    Ok(())
}

fn sample(encoder: &mut MetricEncoder<'_>, kind: MetricType, value: u64) -> fmt::Result {
    match kind {
        Counter => encoder.encode_counter::<Vec<(&str, &str)>, _, f64>(&value, None),
        _ => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_that_monitoring_programs_know_and_consumers_of_one_name_are_summed() {
        let consumer = |delivered| ConsumerStatistics {
            name: "a".to_owned(),
            delivered,
            ..ConsumerStatistics::default()
        };
        let log = Some(LogStatistics { next: 9, synced: 4, ..LogStatistics::default() });
        let statistics = Statistics {
            clients: 3,
            consumers: vec![consumer(5), consumer(6)],
            log,
            departed: ConsumerStatistics { lost: 7, ..ConsumerStatistics::default() },
            refusals: BTreeMap::from([("admission".to_owned(), 2)]),
            missed_by_topic: BTreeMap::from([("plant/1".to_owned(), 3)]),
            ..Statistics::default()
        };
        let text = openmetrics(statistics);
        for line in [
            "# TYPE unisono_events_programs gauge",
            "unisono_events_programs 3",
            "# TYPE unisono_events_delivered counter",
            "unisono_events_delivered_total{consumer=\"a\"} 11",
            "unisono_events_lost_total{consumer=\"(departed)\"} 7",
            "unisono_events_refusals_total{reason=\"admission\"} 2",
            "unisono_events_missed_deadlines_by_topic_total{topic=\"plant/1\"} 3",
            "unisono_events_log_unsynced 5",
            "# EOF",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn however_many_consumers_there_are_the_series_are_bounded_and_their_sum_is_right() {
        let consumer = |number| ConsumerStatistics {
            name: format!("consumer {number}"),
            delivered: 1,
            ..ConsumerStatistics::default()
        };
        let statistics = Statistics { consumers: (0..1000).map(consumer).collect(), ..Statistics::default() };
        let text = openmetrics(statistics);
        let lines = text.lines().filter(|line| line.starts_with("unisono_events_delivered_total"));
        let values: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert_eq!((values.len(), values.iter().sum::<f64>()), (MAX_CONSUMERS + 2, 1000.0));
    }
}
