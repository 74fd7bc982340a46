//! The report's answer about trees in switches: when is a barrier there worth it, and what of the paper's
//! figures can be had again?
//!
//! Rests on the simulated studies of topic `tree`; sentences whose figures are missing are left out.

use crate::number;
use crate::sentences::TopicAnswer;
use crate::study::Study;
use std::collections::BTreeMap;

/// The topic whose studies are about trees.
const TOPIC: &str = "tree";

/// From this factor on, a barrier that is faster pays for registers in switches.
const WORTH_IT: f64 = 1.5;

/// From how many percent on a saving is one.
const WORTH_SAYING: f64 = 5.0;

/// Whether a study is about trees.
pub(crate) fn is_about_trees(study: &Study<'_>) -> bool {
    study.head.topic == TOPIC
}

/// Means of a figure by the number of members.
fn by_members(study: &Study<'_>, variant: &str, figure: &str) -> BTreeMap<u64, f64> {
    means(study, variant, figure, "members")
}

/// Means of a figure by a parameter that is a whole number.
fn means(study: &Study<'_>, variant: &str, figure: &str, by: &str) -> BTreeMap<u64, f64> {
    let mut seen: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for run in study.runs.iter().filter(|run| run.variant == variant) {
        let whole = |value: &serde_json::Value| value.as_u64().or(value.as_f64().map(|value| value as u64));
        let at = run.parameters.get(by).and_then(whole);
        let value = run.value(figure).filter(|value| value.is_finite());
        if let Some((at, value)) = at.zip(value) {
            let (sum, n) = seen.entry(at).or_default();
            *sum += value;
            *n += 1.0;
        }
    }
    seen.into_iter().map(|(at, (sum, n))| (at, sum / n)).collect()
}

fn ends(values: &BTreeMap<u64, f64>) -> Option<((u64, f64), (u64, f64))> {
    let (first, last) = (values.first_key_value()?, values.last_key_value()?);
    Some(((*first.0, *first.1), (*last.0, *last.1)))
}

/// The answer as HTML, or nothing where no study is about trees.
pub(crate) fn html(studies: &[Study<'_>]) -> String {
    if !studies.iter().any(is_about_trees) {
        return String::new();
    }
    TopicAnswer::new(
        |id| studies.iter().find(|study| is_about_trees(study) && study.head.study == id),
        "Is a barrier in the switches worth it?",
        (
            "tree-latency",
            headline,
            "Not answered: no run in these records simulated groups of several sizes.",
        ),
        &[
            ("tree-latency", flat),
            ("tree-latency", turned),
            ("tree-latency", reproduced),
            ("tree-assumptions", assumed),
            ("tree-traffic", traffic),
            ("tree-roots", rooted),
            ("tree-collectives", gathered),
            ("tree-groups", crowded),
            ("tree-repair", repaired),
            ("tree-arrivals", spread),
        ],
        "Simulated with the paper\u{2019}s costs, the same on every machine. What it takes in the switches of \
         this kernel: <code>unisono tree bench</code>.",
    )
    .to_string()
}

fn headline(study: &Study<'_>) -> Option<String> {
    let factors = by_members(study, "large-btin", "times_faster");
    let ((few, least), (many, most)) = ends(&factors)?;
    if few == many {
        return None;
    }
    let (least, most_text) = (number::plain(least), number::plain(most));
    let many = number::count(usize::try_from(many).ok()?);
    let worth = factors.iter().find(|(_, factor)| **factor >= WORTH_IT);
    Some(match worth {
        Some((from, _)) => format!(
            "For large groups: with {many} members it is {most_text} times as fast as multicast, with {few} \
             members {least} times; from {from} members on it is more than {WORTH_IT} times as fast."
        ),
        None => format!(
            "No: with {few} to {many} members it is {least} to {most_text} times as fast as multicast."
        ),
    })
}

fn flat(study: &Study<'_>) -> Option<String> {
    let ((few, a), (many, b)) = ends(&by_members(study, "large-btin", "latency_us"))?;
    let (_, (_, d)) = ends(&by_members(study, "large-multicast", "latency_us"))?;
    let us = |value| number::quantity(value, "us");
    let many = number::count(usize::try_from(many).ok()?);
    Some(format!(
        "Worth it where groups are large or grow: the tree takes {} with {few} members and {} with {many}, for its \
         height grows with the logarithm; multicast then takes {}, for its root takes in one message a member. Not \
         worth it for a few members: two start-ups make up most of every barrier, and messages need no registers.",
        us(a),
        us(b),
        us(d),
    ))
}

fn turned(study: &Study<'_>) -> Option<String> {
    let (_, (_, node)) = ends(&by_members(study, "large-btin", "latency_us"))?;
    let (_, (_, switch)) = ends(&by_members(study, "large-btin_turn", "latency_us"))?;
    let less = (1.0 - switch / node) * 100.0;
    Some(format!(
        "Beyond the paper: a root switch that answers by itself saves {less:.0} % of the latency, and half of the \
         start-ups."
    ))
}

fn reproduced(study: &Study<'_>) -> Option<String> {
    let small = *by_members(study, "small-btin", "times_faster").get(&256)?;
    let large = by_members(study, "large-btin", "times_faster");
    let tree = *by_members(study, "large-btin", "latency_us").get(&1024)?;
    let multicast = *by_members(study, "large-multicast", "latency_us").get(&1024)?;
    Some(format!(
        "Reproduced, under one assumption that the paper does not state: with 256 members {} and {} times as fast \
         as multicast (published: 3.8 and 3.3), and with 1,024 members {tree:.1} us against {multicast:.1} us \
         (published: 11.5 and 120.5).",
        number::plain(small),
        number::plain(*large.get(&256)?),
    ))
}

fn assumed(study: &Study<'_>) -> Option<String> {
    let at = |variant: &str| by_members(study, variant, "times_faster").values().next().copied();
    Some(format!(
        "The assumption: the root of multicast takes messages in as if several links brought them at once. With one \
         port, as the paper describes its nodes, the factor is {} instead of {}; with a start-up for each message {}.",
        number::plain(at("one-port-btin")?),
        number::plain(at("side-by-side-btin")?),
        number::plain(at("startup-each-btin")?),
    ))
}

fn traffic(study: &Study<'_>) -> Option<String> {
    let at = |variant: &str| by_members(study, variant, "times_less_traffic").get(&256).copied();
    Some(format!(
        "Not reproducible: traffic that is lighter by factors of 46.8 and 88.6. Counted links give {} and {}. And \
         figure 8\u{2019}s networks with 50 % of the ports in use are not connected.",
        number::plain(at("small-btin")?),
        number::plain(at("large-btin")?),
    ))
}

/// By how many percent one value is less than another.
fn less(one: f64, other: f64) -> f64 {
    (1.0 - one / other) * 100.0
}

fn rooted(study: &Study<'_>) -> Option<String> {
    let of = |part: &str| by_members(study, &format!("tree-{part}"), "latency_us");
    let (turned, any) = (of("turned"), of("any"));
    let gain = |members: &u64| Some((*members, less(*any.get(members)?, *turned.get(members)?)));
    let gains: Vec<(u64, f64)> = turned.keys().filter_map(gain).collect();
    let (best, most) = gains.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (largest, last) = gains.last().copied()?;
    let worth = if most >= WORTH_SAYING { "Worth it for small groups" } else { "Hardly worth it" };
    Some(format!(
        "{worth}: a root that need not be a member switch saves up to {most:.0} % of a turned barrier (with {best} \
         members), and {last:.0} % with {largest}, where nearly every switch has a member. It needs a switch that \
         answers by itself."
    ))
}

/// The other collectives, at the largest group that was measured.
fn gathered(study: &Study<'_>) -> Option<String> {
    let of = |part: &str| {
        by_members(study, &format!("tree-{part}"), "latency_us").last_key_value().map(|(at, us)| (*at, *us))
    };
    let (members, sum) = of("sum-tree")?;
    let (_, messages) = of("sum-messages")?;
    let (_, exchange) = of("exchange-turned")?;
    let (_, direct) = of("exchange-messages")?;
    let text = |value| number::quantity(value, "us");
    let exchanged = if exchange < direct { "worth it, too" } else { "not worth it" };
    Some(format!(
        "The other collectives, {members} members: an allreduce of six bits or a multicast costs no more than the \
         barrier ({} against {} by messages); a total exchange is {exchanged}, for its barriers follow one another \
         ({} turned, against {}).",
        text(sum),
        text(messages),
        text(exchange),
        text(direct),
    ))
}

fn crowded(study: &Study<'_>) -> Option<String> {
    let of = |part: &str, figure: &str| {
        means(study, &format!("tree-{part}"), figure, "concurrent_groups")
            .last_key_value()
            .map(|(k, v)| (*k, *v))
    };
    let (groups, number) = of("number", "latency_us")?;
    let (_, load) = of("load", "latency_us")?;
    let (_, before) = of("number", "trees_on_busiest_link")?;
    let (_, after) = of("load", "trees_on_busiest_link")?;
    let saved = less(load, number);
    let (worth, why) = if saved >= WORTH_SAYING {
        ("Worth it for many groups at once", "")
    } else {
        ("Hardly worth it", ", for with so few links a switch there is seldom a choice of parents")
    };
    Some(format!(
        "{worth}: ties between parents broken by load leave {after:.0} instead of {before:.0} of {groups} trees on the \
         busiest link, and change the slowest barrier by {:+.0} %{why}. The price: groups have to be planned together.",
        -saved
    ))
}

fn repaired(study: &Study<'_>) -> Option<String> {
    let of = |part: &str, figure: &str| means(study, &format!("tree-{part}"), figure, "failed_links");
    let ((first, kept), (many, after)) = ends(&of("repaired", "latency_us"))?;
    let ((_, anew), (_, best)) = ends(&of("anew", "latency_us"))?;
    let ((_, few), _) = ends(&of("repaired", "registers_changed"))?;
    let ((_, all), _) = ends(&of("anew", "registers_changed"))?;
    Some(format!(
        "Repair first, plan anew later: after {first} failed link a repaired tree is {:.1} % slower than the best one, \
         after {many} it is {:.0} %; but a failure changes {few:.0} registers instead of {all:.0}, and every other \
         member goes on as before.",
        (kept / anew - 1.0) * 100.0,
        (after / best - 1.0) * 100.0,
    ))
}

fn spread(study: &Study<'_>) -> Option<String> {
    let of = |variant: &str| means(study, variant, "latency_us", "arrivals_us");
    let ((_, together), (late, apart)) = ends(&of("free-multicast"))?;
    let ((_, tree), (_, tree_apart)) = ends(&of("free-btin"))?;
    let ((_, contended), _) = ends(&of("contended-btin"))?;
    let ((_, crowd), _) = ends(&of("contended-multicast"))?;
    let times = |one: f64, other: f64| number::plain(one / other);
    Some(format!(
        "Worth it where members arrive together: the tree is {} times as fast as multicast then, and {} times where \
         they arrive within {} us, for the root has taken most messages in before the last comes. Where messages \
         wait for each other at links, the factor is {} instead of {}.",
        times(together, tree),
        times(apart, tree_apart),
        number::count(usize::try_from(late).ok()?),
        times(crowd, contended),
        times(together, tree),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    fn page(factors: &[(u64, f64)]) -> String {
        let head = StudyLine { study: "tree-latency".into(), topic: TOPIC.into(), ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (members, factor) in factors {
            lines.push(Line::Run(Box::new(RunLine {
                study: "tree-latency".into(),
                variant: "large-btin".into(),
                parameters: [("members".to_owned(), (*members).into())].into(),
                figures: vec![Figure { name: "times_faster".into(), value: *factor, ..Figure::default() }],
                ..RunLine::default()
            })));
        }
        html(&crate::study::studies(&lines))
    }

    #[test]
    fn the_headline_says_from_how_many_members_on() {
        let worth = page(&[(2, 1.1), (64, 1.4), (128, 2.0), (1024, 10.0)]);
        assert!(worth.contains("from 128 members on") && worth.contains("1,024 members"), "{worth}");
        assert!(page(&[(2, 1.0), (64, 1.2)]).contains("No: with 2 to 64 members"));
        assert!(page(&[]).contains("Not answered"));
    }

    #[test]
    fn no_study_about_trees_no_question_about_them() {
        assert_eq!(html(&[]), "");
    }
}
