//! Measures the cost of an event that matches few subscriptions, among 10 and among 10,000 subscriptions.
//!
//! ```text
//! cargo bench -p unisono-eventchannel --bench subscriptions -- [samples=12] [events=100000]
//! cargo bench -p unisono-eventchannel --bench subscriptions -- only=KIND,NUMBER [events=N]   under callgrind
//! ```
//! Each kind of subscription is measured with both numbers, interleaved (A B B A). Output: the median ratio,
//! with the range of the middle 80 % of the samples. About two subscriptions match each event, whatever their
//! number, so only the search differs. `only` runs one kind with one number, for a tool that counts
//! instructions; the kind `none` runs the loop without the search, so that its count can be subtracted.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::hint::black_box;
use std::time::Instant;
use unisono_eventchannel::{FieldSet, Interest, SubscriptionId, SubscriptionIndex, TopicRoute};

const KINDS: [&str; 6] = ["topic", "equal", "range", "half", "prefix", "mixed"];

/// Makes the subscription number `at` of `all` of a kind. Subscriptions `2n` and `2n + 1` ask for the same
/// events.
fn interest(kind: &str, at: u32, all: u32) -> Interest {
    let (at, all) = (at / 2, all / 2);
    let filter = match kind {
        "topic" => {
            let pattern = if at == 0 { "plant/+/hot".to_owned() } else { format!("plant/{at}/hot") };
            return Interest::in_topics(pattern.parse().expect("a pattern"));
        }
        "equal" => format!("sensor == {at} and site == \"roof\""),
        "range" => format!("level >= {at} and level < {}", at + 1),
        // half-open ranges, chosen so that few of them match
        "half" => {
            format!("level > {}", 2_000_000 + i64::from(at) - i64::from(u32::from(at == 0)) * 1_999_999)
        }
        "prefix" => format!("name starts_with \"n{at}-\""),
        _ => format!("site == \"roof\" and (sensor == {at} or level > {}) and not closed", 1_000_000 + all),
    };
    Interest::in_topics("plant/#".parse().expect("a pattern")).filtered(filter.parse().expect("a filter"))
}

fn index(kind: &str, all: u32) -> SubscriptionIndex {
    let mut index = SubscriptionIndex::default();
    for at in 0..all {
        index.insert(SubscriptionId(at), interest(kind, at, all));
    }
    index
}

/// Makes events that match the subscriptions 0 to 9 in turn.
fn events() -> Vec<FieldSet> {
    let event = |at: i64| {
        FieldSet::new()
            .with("sensor", at)
            .with("site", "roof")
            .with("level", at as f64 + 0.5)
            .with("name", format!("n{at}-x").as_str())
            .with("closed", false)
    };
    (0..5).map(event).collect()
}

fn run(index: &mut SubscriptionIndex, events: &[FieldSet], count: u32) -> f64 {
    let (mut route, mut found) = (TopicRoute::default(), Vec::new());
    let start = Instant::now();
    for fields in events.iter().cycle().take(count as usize) {
        index.matching(("plant/7777777/hot", None), &mut route, black_box(fields), &mut found);
        black_box(&found);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

fn main() {
    let count =
        |name: &str, default: u32| argument(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (samples, count) = (count("samples", 12), count("events", 100_000));
    let events = events();
    if let Some(only) = argument("only") {
        let (kind, number) = only.split_once(',').expect("only=KIND,NUMBER");
        let mut index = index(kind, number.parse().expect("a number"));
        run(&mut index, &events, count);
        return;
    }
    println!("{:<8} {:>12} {:>12} {:>7}   [10 % .. 90 %]", "kind", "10: ns", "10,000: ns", "ratio");
    for kind in KINDS {
        let (mut few, mut many) = (index(kind, 10), index(kind, 10_000));
        let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for _ in 0..samples {
            let first = run(&mut few, &events, count);
            let second = run(&mut many, &events, count);
            let third = run(&mut many, &events, count);
            let fourth = run(&mut few, &events, count);
            times[0].push(first + fourth);
            times[1].push(second + third);
            ratios.push((second + third) / (first + fourth));
        }
        ratios.sort_by(f64::total_cmp);
        let middle = |of: &mut Vec<f64>| {
            of.sort_by(f64::total_cmp);
            of[of.len() / 2] / 2.0
        };
        let [few, many] = &mut times;
        let (low, high) = (ratios[ratios.len() / 10], ratios[ratios.len() - 1 - ratios.len() / 10]);
        let ratio = ratios[ratios.len() / 2];
        println!(
            "{kind:<8} {:>12.1} {:>12.1} {ratio:>7.2}   [{low:.2} .. {high:.2}]",
            middle(few),
            middle(many)
        );
    }
}
