//! Computes a run's figures: shares, their deviation from the policy's shares, goodput, delays and losses.

use crate::workload::traffic::{SentCount, SourceReceived, TrafficSource};
use unisono_measure::record::Figure;
use unisono_study::driver::RunResult;

/// The minimum share of a source's messages that must have arrived for its delays to be reported.
const MIN_ARRIVED_SHARE: f64 = 0.5;

pub(super) fn result(
    weights: &[u32],
    sources: &[TrafficSource],
    sent: &[SentCount],
    received: &[SourceReceived],
    seconds: f64,
) -> RunResult {
    let bytes = |at: usize| received.get(at).map_or(0, |r| r.bulk_bytes + r.message_bytes);
    let total: u64 = (0..sources.len()).map(bytes).sum();
    let mbit = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e6;
    let shared = shares(weights, sources, received);
    let mut result = RunResult::default();
    let mut add = |name: String, value: f64, unit: &str| result.figures.push(Figure::new(name, value, unit));
    add("goodput_mbit".to_owned(), mbit(total), "Mbit/s");
    for (at, source) in sources.iter().enumerate() {
        add(format!("{}_mbit", source.class), mbit(bytes(at)), "Mbit/s");
        let name = format!("{}_share_percent", source.class);
        if total > 0 && shared.iter().all(|(other, ..)| *other != name) {
            add(name, bytes(at) as f64 * 100.0 / total as f64, "%");
        }
    }
    for (name, value, unit) in shared {
        add(name, value, unit);
    }
    for ((source, sent), received) in sources.iter().zip(sent).zip(received) {
        if source.messages_per_s > 0.0 {
            messages(&mut result, source, *sent, received);
        }
    }
    result
}

/// Computes how far the shares of the classes that are always busy deviate from the policy's shares.
///
/// The shares count the bytes that the link carried, not the bytes delivered. TCP holds back all data after a
/// lost segment until that segment is retransmitted, which takes as long as a full queue. Data that are still
/// held back at the end would not be counted at all. The bytes delivered are a separate figure.
fn shares(
    weights: &[u32],
    sources: &[TrafficSource],
    received: &[SourceReceived],
) -> Vec<(String, f64, &'static str)> {
    let busy: Vec<usize> = (0..weights.len()).filter(|at| sources[*at].flows > 0).collect();
    let carried = |at: usize| received.get(at).map_or(0, |r| r.segments);
    let bytes = |at: usize| received.get(at).map_or(0, |r| r.bulk_bytes);
    if busy.len() < 2 || busy.iter().all(|at| carried(*at) == 0) {
        return Vec::new();
    }
    let wanted: f64 = busy.iter().map(|at| f64::from(weights[*at])).sum();
    // for each class: its share of the total, and the share that it should have
    let parts = |got: &dyn Fn(usize) -> u64| -> Vec<(f64, f64)> {
        let all: u64 = busy.iter().map(|at| got(*at)).sum();
        let part = |at: &usize| got(*at) as f64 / all.max(1) as f64;
        busy.iter().map(|at| (part(at), f64::from(weights[*at]) / wanted)).collect()
    };
    let off = |got: &dyn Fn(usize) -> u64| {
        parts(got).iter().map(|(got, ideal)| (got / ideal - 1.0).abs() * 100.0).fold(0.0, f64::max)
    };
    let points = parts(&carried).iter().map(|(got, ideal)| (got - ideal).abs() * 100.0).fold(0.0, f64::max);
    let mut figures = vec![
        ("share_off_percent".to_owned(), off(&carried), "%"),
        ("share_off_points".to_owned(), points, "%"),
        ("delivered_off_percent".to_owned(), off(&bytes), "%"),
    ];
    for (at, (part, _)) in busy.iter().zip(parts(&carried)) {
        figures.push((format!("{}_share_percent", sources[*at].class), part * 100.0, "%"));
    }
    if let [.., before, last] = busy[..]
        && carried(last) > 0
    {
        let name = format!("{}_to_{}", sources[before].class, sources[last].class);
        figures.push((name, carried(before) as f64 / carried(last) as f64, "1"));
    }
    figures
}

fn messages(result: &mut RunResult, source: &TrafficSource, sent: SentCount, received: &SourceReceived) {
    let class = &source.class;
    let lost = sent.messages.saturating_sub(received.messages);
    let part =
        |count: u64| if sent.messages == 0 { 0.0 } else { count as f64 * 100.0 / sent.messages as f64 };
    result.figures.push(Figure::new(format!("{class}_lost_percent"), part(lost), "%"));
    if source.deadline_ms.is_some() {
        let missed = part(received.late + lost);
        result.figures.push(Figure::new(format!("{class}_missed_percent"), missed, "%"));
    }
    if let Some(delay) = received.delay_us {
        result.figures.push(Figure::from_distribution(format!("{class}_delay_us"), "us", delay));
        result.figures.push(Figure::new(format!("{class}_delay_p99_us"), delay.p99, "us"));
    }
    if (received.messages as f64) < MIN_ARRIVED_SHARE * sent.messages as f64 {
        let text = format!("of {} messages of class {class} {} arrived", sent.messages, received.messages);
        result.warnings.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(class: &str, flows: u32) -> TrafficSource {
        TrafficSource {
            class: class.into(),
            port: 1,
            flows,
            messages_per_s: 0.0,
            message_bytes: 0,
            deadline_ms: None,
            cooperates: true,
        }
    }

    fn value(result: &RunResult, name: &str) -> f64 {
        result.figures.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no {name}")).value
    }

    #[test]
    fn shares_are_compared_among_those_that_want_more() {
        let sources = [source("a", 0), source("b", 2), source("c", 2)];
        let received: Vec<SourceReceived> = [(0, 0), (6_000_000, 750), (4_000_000, 250)]
            .map(|(bulk_bytes, segments)| SourceReceived {
                bulk_bytes,
                segments,
                ..SourceReceived::default()
            })
            .into();
        let result = result(&[60, 30, 10], &sources, &[SentCount::default(); 3], &received, 1.0);
        assert_eq!(value(&result, "goodput_mbit"), 80.0);
        assert_eq!(value(&result, "b_to_c"), 3.0);
        assert_eq!(value(&result, "b_share_percent"), 75.0);
        assert_eq!((value(&result, "share_off_percent"), value(&result, "share_off_points")), (0.0, 0.0));
        assert!((value(&result, "delivered_off_percent") - 60.0).abs() < 1e-9, "40 instead of 25");
    }

    #[test]
    fn lost_and_late_messages_are_missed_and_few_that_arrive_are_doubtful() {
        let mut a = source("a", 0);
        (a.messages_per_s, a.deadline_ms) = (100.0, Some(5.0));
        let received = SourceReceived { messages: 40, late: 10, ..SourceReceived::default() };
        let result = result(&[1], &[a], &[SentCount { messages: 100 }], &[received], 1.0);
        assert_eq!((value(&result, "a_lost_percent"), value(&result, "a_missed_percent")), (60.0, 70.0));
        assert_eq!(result.warnings, ["of 100 messages of class a 40 arrived"]);
    }
}
