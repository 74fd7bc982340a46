//! What a broker has done, in the OpenMetrics format.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use unisono_broker::{ConsumerStatistics, LogStatistics, Statistics};

/// The text for a monitoring program. Consumers of one name are counted together.
pub(super) fn openmetrics(statistics: Statistics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(BrokerScrape(statistics)));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("because no value here fails to be written to memory");
    text
}

#[derive(Debug)]
struct BrokerScrape(Statistics);

/// A family: its name, what it is, and the value of one that has it.
type FamilyOf<T> = (MetricType, &'static str, &'static str, fn(&T) -> u64);

const OF_ALL: [FamilyOf<Statistics>; 4] = [
    (MetricType::Gauge, "programs", "Programs that are connected", |of| of.clients),
    (MetricType::Gauge, "paths", "Paths that are open or still drain", |of| of.paths),
    (
        MetricType::Counter,
        "refused",
        "Publications, topics and subscriptions that were refused",
        |of| of.refused,
    ),
    (
        MetricType::Counter,
        "sent_away",
        "Programs that were sent away because of what they sent",
        |of| of.sent_away,
    ),
];

const OF_CONSUMERS: [FamilyOf<ConsumerStatistics>; 8] = [
    (MetricType::Counter, "matched", "Events that matched", |of| of.matched),
    (MetricType::Counter, "delivered", "Events that were delivered", |of| of.delivered),
    (MetricType::Counter, "dropped_full", "Events dropped because the queue was full", |of| {
        of.dropped_full
    }),
    (MetricType::Counter, "dropped_late", "Events dropped because they were late", |of| {
        of.dropped_late
    }),
    (MetricType::Counter, "missed_deadlines", "Deadlines that were missed", |of| of.missed),
    (MetricType::Counter, "repeated", "Deliveries that were repeated", |of| of.repeated),
    (MetricType::Counter, "blocked", "Publications refused because the queue was full", |of| {
        of.blocked
    }),
    (MetricType::Gauge, "waiting", "Events that wait", |of| of.waiting),
];

const OF_LOG: [FamilyOf<LogStatistics>; 6] = [
    (MetricType::Gauge, "log_bytes", "Bytes of the log", |of| of.bytes),
    (MetricType::Counter, "log_written", "Events written to the log", |of| of.written),
    (MetricType::Counter, "log_failed", "Events that could not be written to the log", |of| {
        of.failed
    }),
    (MetricType::Counter, "log_syncs", "Times that the disk was waited for", |of| of.syncs),
    (MetricType::Gauge, "log_unsynced", "Events of the log that are not synced", |of| {
        of.next.saturating_sub(of.synced)
    }),
    (MetricType::Gauge, "log_damaged", "Places of the log where bytes are no events", |of| {
        of.damaged
    }),
];

impl Collector for BrokerScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let one = |of: u64| vec![(Vec::new(), of)];
        for (kind, name, what, of) in OF_ALL {
            family(&mut encoder, (kind, name, what), &one(of(&self.0)))?;
        }
        for (kind, name, what, of) in OF_CONSUMERS {
            let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
            for consumer in &self.0.consumers {
                *by_name.entry(&consumer.name).or_default() += of(consumer);
            }
            let samples: Vec<_> =
                by_name.into_iter().map(|(name, value)| (vec![("consumer", name)], value)).collect();
            family(&mut encoder, (kind, name, what), &samples)?;
        }
        for (kind, name, what, of) in OF_LOG {
            if let Some(log) = &self.0.log {
                family(&mut encoder, (kind, name, what), &one(of(log)))?;
            }
        }
        Ok(())
    }
}

/// A value with its labels.
type LabelledValue<'a> = (Vec<(&'static str, &'a str)>, u64);

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    (kind, name, what): (MetricType, &str, &str),
    samples: &[LabelledValue<'_>],
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
        MetricType::Counter => encoder.encode_counter::<Vec<(&str, &str)>, _, f64>(&value, None),
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
            ..Statistics::default()
        };
        let text = openmetrics(statistics);
        for line in [
            "# TYPE unisono_events_programs gauge",
            "unisono_events_programs 3",
            "# TYPE unisono_events_delivered counter",
            "unisono_events_delivered_total{consumer=\"a\"} 11",
            "unisono_events_log_unsynced 5",
            "# EOF",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
        }
    }
}
