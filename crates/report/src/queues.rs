//! The report's answer about links that many share: does a policy hold, wherever it is enforced, what does it cost, and
//! what becomes of it where somebody does not cooperate?
//!
//! Rests on the studies of topic `queue`; sentences whose figures are missing are left out.

use crate::escape::{Escaped, slug};
use crate::number;
use crate::study::Study;
use std::fmt::Write as _;
use unisono_measure::quantile;

/// The topic whose studies are about shared links.
const TOPIC: &str = "queue";

/// The places, and what to call them in a sentence.
const PLACES: [(&str, &str); 4] = [
    ("kernel", "the kernel (HTB)"),
    ("tun", "the interposed place over TUN"),
    ("af-xdp", "the interposed place over AF_XDP"),
    ("middleware", "the middleware"),
];

/// More messages missed than this and a stream is no stream.
const SPOILT_PERCENT: f64 = 5.0;

/// What a study says in one sentence, if it has the figures.
type Say = fn(&Study<'_>) -> Option<String>;

/// Whether a study is about a shared link.
pub(crate) fn is_about_queues(study: &Study<'_>) -> bool {
    study.head.topic == TOPIC
}

/// The median of a figure of a variant, where a parameter has a value.
fn median(study: &Study<'_>, variant: &str, figure: &str, at: Option<(&str, f64)>) -> Option<f64> {
    let runs = study.runs.iter().filter(|run| {
        let is_there = |(name, value): (&str, f64)| {
            run.parameters.get(name).and_then(serde_json::Value::as_f64) == Some(value)
        };
        run.variant == variant && at.is_none_or(is_there)
    });
    let values: Vec<f64> =
        runs.filter_map(|run| run.value(figure)).filter(|value| value.is_finite()).collect();
    quantile::median(&values)
}

/// The greatest value of a parameter that a study was run with.
fn most(study: &Study<'_>, parameter: &str) -> Option<f64> {
    let values = study.runs.iter().filter_map(|run| run.parameters.get(parameter)?.as_f64());
    values.reduce(f64::max)
}

/// `a, b and c`.
fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Each place with its value, in words.
fn by_place(study: &Study<'_>, figure: &str, unit: &str, at: Option<(&str, f64)>) -> Vec<String> {
    let said = |(variant, name): &(&str, &str)| {
        let value = median(study, variant, figure, at)?;
        Some(format!("{} under {name}", number::quantity(value, unit)))
    };
    PLACES.iter().filter_map(said).collect()
}

/// The answer as HTML, or nothing where no study is about shared links.
pub(crate) fn html(studies: &[Study<'_>]) -> String {
    if !studies.iter().any(is_about_queues) {
        return String::new();
    }
    let of = |id: &str| studies.iter().find(|study| is_about_queues(study) && study.head.study == id);
    let mut html = String::from("<h2>Who should share out the link?</h2>\n");
    let headline = of("queue-isolation").and_then(headline).unwrap_or_else(|| {
        "Not answered: no run in these records had a program that does not cooperate.".to_owned()
    });
    let _ = writeln!(html, "<p class=\"headline\">{}</p>", Escaped(&headline));
    let sentences: [(&str, Say); 7] = [
        ("queue-shares", shares),
        ("queue-borrow", borrowed),
        ("queue-delay", delayed),
        ("queue-latency", added),
        ("queue-isolation", isolated),
        ("queue-processor", of_a_processor),
        ("queue-decisions", decided),
    ];
    let said: Vec<(&Study<'_>, String)> = sentences
        .iter()
        .filter_map(|(id, say)| of(id).and_then(|study| Some((study, say(study)?))))
        .collect();
    if !said.is_empty() {
        html.push_str("<ul class=\"verdicts\">\n");
        for (study, text) in said {
            let _ = writeln!(
                html,
                "<li>{} <small><a href=\"#{}\">{}</a></small></li>",
                Escaped(&text),
                slug(&study.head.study),
                Escaped(&study.head.title)
            );
        }
        html.push_str("</ul>\n");
    }
    html.push_str(
        "<p class=\"key\">Put a policy into force with <code>unisono queue apply POLICY --dev DEV</code>; for programs that \
         cooperate, <code>unisono queue broker POLICY --listen SOCKET</code>.</p>\n",
    );
    html
}

fn headline(study: &Study<'_>) -> Option<String> {
    let flows = most(study, "legacy_flows")?;
    let missed = |variant: &str| median(study, variant, "a_missed_percent", Some(("legacy_flows", flows)));
    let holds: Vec<String> = PLACES
        .iter()
        .filter(|(variant, _)| *variant != "middleware")
        .filter(|(variant, _)| missed(variant).is_some_and(|missed| missed <= SPOILT_PERCENT))
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let middleware = missed("middleware")?;
    let flows = number::plain(flows);
    Some(match (holds.is_empty(), middleware > SPOILT_PERCENT) {
        (false, true) => format!(
            "A place that sees every packet: with {flows} connections past the policy a stream keeps its share under {}; \
             under the middleware it misses {middleware:.0} % of its messages, for it orders only what it is given.",
            list(&holds)
        ),
        (true, true) => format!(
            "Not the middleware alone: with {flows} connections past the policy a stream there misses {middleware:.0} % of its \
             messages."
        ),
        (_, false) => format!(
            "Here even the middleware keeps a stream within its share with {flows} connections past it: the link is not full."
        ),
    })
}

fn shares(study: &Study<'_>) -> Option<String> {
    let without = median(study, "none", "share_off_percent", None)?;
    let places = by_place(study, "share_off_percent", "%", None);
    let goodput = by_place(study, "goodput_mbit", "Mbit/s", None);
    (!places.is_empty()).then(|| {
        format!(
            "Three classes that all want the whole link, wanted 60, 30 and 10 %: the class that is farthest from its share is off by {} \
             of it; without a policy by {}. All classes together get {}.",
            list(&places),
            number::quantity(without, "%"),
            list(&goodput)
        )
    })
}

fn borrowed(study: &Study<'_>) -> Option<String> {
    let kernel = median(study, "kernel", "b_to_c", None);
    let others: Vec<String> = PLACES[1..]
        .iter()
        .filter_map(|(variant, name)| {
            Some(format!("{:.2} to 1 under {name}", median(study, variant, "b_to_c", None)?))
        })
        .collect();
    match (kernel, others.is_empty()) {
        (_, true) => None,
        (None, false) => {
            Some(format!("What an idle class leaves goes to weights 30 and 10 as {}.", list(&others)))
        }
        (Some(kernel), false) => Some(format!(
            "What an idle class leaves goes to weights 30 and 10 as {kernel:.2} to 1 under the kernel\u{2019}s HTB, which lends almost \
             equally; start-time fair queuing lends by weight: {}.",
            list(&others)
        )),
    }
}

fn delayed(study: &Study<'_>) -> Option<String> {
    let without = median(study, "none", "c_delay_p99_us", None)?;
    let places = by_place(study, "c_delay_p99_us", "us", None);
    (!places.is_empty()).then(|| {
        format!(
            "Small messages beside bulk transfers: 99 of 100 take at most {}; without a policy {}.",
            list(&places),
            number::quantity(without, "us")
        )
    })
}

fn added(study: &Study<'_>) -> Option<String> {
    let without = median(study, "none", "c_delay_us", None)?;
    let added: Vec<String> = PLACES
        .iter()
        .filter_map(|(variant, name)| {
            let more = median(study, variant, "c_delay_us", None)? - without;
            Some(format!("{more:+.1} us under {name}"))
        })
        .collect();
    (!added.is_empty()).then(|| {
        format!(
            "What a place adds to messages that are alone, median, to {} without a policy: {}. (The paper: TAO took 2.45 \
             times as long as a socket.)",
            number::quantity(without, "us"),
            list(&added)
        )
    })
}

fn isolated(study: &Study<'_>) -> Option<String> {
    let flows = most(study, "legacy_flows")?;
    let places = by_place(study, "a_missed_percent", "%", Some(("legacy_flows", flows)));
    let without = median(study, "none", "a_missed_percent", Some(("legacy_flows", flows)))?;
    (!places.is_empty()).then(|| {
        format!(
            "Figure 8 of the paper, with one scheduler in every place: beside {} connections of a program that knows nothing of the \
             policy, a stream misses {}, and {} without a policy. What a middleware cannot do is a matter of where it is, not of how \
             it was made.",
            number::plain(flows),
            list(&places),
            number::quantity(without, "%")
        )
    })
}

fn of_a_processor(study: &Study<'_>) -> Option<String> {
    let off = |variant: &str| Some(number::quantity(median(study, variant, "share_off_percent", None)?, "%"));
    let used = |variant: &str| Some(number::quantity(median(study, variant, "used_percent", None)?, "%"));
    Some(format!(
        "The same scheduler shares out a processor: the farthest of three programs is off its share by {}, and they get {} of the \
         processor; under the kernel\u{2019}s control groups {} and {}.",
        off("core")?,
        used("core")?,
        off("kernel")?,
        used("kernel")?
    ))
}

fn decided(study: &Study<'_>) -> Option<String> {
    let at = |variant: &str, classes: f64| {
        median(study, &format!("saturated-{variant}"), "ns_per_packet", Some(("classes", classes)))
    };
    let all = most(study, "classes")?;
    let ns = |value: f64| number::quantity(value, "ns");
    Some(format!(
        "A decision costs {} among 10 classes and {} among {}; the textbook\u{2019}s heap {} and {}, deficit round robin {} and {}. At 100 \
         Mbit/s a full packet takes 121 us.",
        ns(at("start-time", 10.0)?),
        ns(at("start-time", all)?),
        number::count(all as usize),
        ns(at("heap", 10.0)?),
        ns(at("heap", all)?),
        ns(at("round-robin", 10.0)?),
        ns(at("round-robin", all)?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    fn page(study: &str, runs: &[(&str, u32, &str, f64)]) -> String {
        let head = StudyLine { study: study.into(), topic: TOPIC.into(), ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (variant, flows, figure, value) in runs {
            lines.push(Line::Run(Box::new(RunLine {
                study: study.into(),
                variant: (*variant).into(),
                parameters: [("legacy_flows".to_owned(), (*flows).into())].into(),
                figures: vec![Figure { name: (*figure).into(), value: *value, ..Figure::default() }],
                ..RunLine::default()
            })));
        }
        html(&crate::study::studies(&lines))
    }

    #[test]
    fn the_headline_says_who_keeps_a_stream_from_those_past_the_policy() {
        let missed = |kernel, middleware| {
            page(
                "queue-isolation",
                &[
                    ("kernel", 32, "a_missed_percent", kernel),
                    ("middleware", 32, "a_missed_percent", middleware),
                    ("middleware", 0, "a_missed_percent", 0.0),
                ],
            )
        };
        let both = missed(0.1, 97.0);
        assert!(both.contains("under the kernel (HTB)") && both.contains("misses 97 %"), "{both}");
        assert!(missed(50.0, 97.0).contains("Not the middleware alone"));
        assert!(missed(0.0, 0.0).contains("the link is not full"));
        assert!(page("queue-isolation", &[]).contains("Not answered"));
    }

    #[test]
    fn lending_is_compared_with_the_kernels() {
        let runs = [("kernel", 0, "b_to_c", 1.5), ("middleware", 0, "b_to_c", 3.0)];
        let said = page("queue-borrow", &runs);
        assert!(said.contains("1.50 to 1") && said.contains("3.00 to 1 under the middleware"), "{said}");
    }

    #[test]
    fn no_study_about_links_no_question_about_them() {
        assert_eq!(html(&[]), "");
    }
}
