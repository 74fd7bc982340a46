//! The report's answer about links that many share: does a policy hold, wherever it is enforced, what does it
//! cost, and what becomes of it where somebody does not cooperate?
//!
//! Rests on the studies of topic `queue`; sentences whose figures are missing are left out.

use crate::number;
use crate::sentences::TopicAnswer;
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
    TopicAnswer::new(
        |id| studies.iter().find(|study| is_about_queues(study) && study.head.study == id),
        "Who should share out the link?",
        (
            "queue-isolation",
            headline,
            "Not answered: no run in these records had a program that does not cooperate.",
        ),
        &[
            ("queue-shares", shares),
            ("queue-borrow", borrowed),
            ("queue-delay", delayed),
            ("queue-latency", added),
            ("queue-added", added_alone),
            ("queue-unshaped", unshaped),
            ("queue-isolation", isolated),
            ("queue-processor", of_a_processor),
            ("queue-disk", of_a_disk),
            ("queue-decisions", decided),
        ],
        "Put a policy into force with <code>unisono queue apply POLICY --dev DEV</code>; for programs that \
         cooperate, <code>unisono queue broker POLICY --listen SOCKET</code>.",
    )
    .to_string()
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
    let to_one = |variant: &str| Some(format!("{:.2} to 1", median(study, variant, "b_to_c", None)?));
    let said = |(variant, name): &(&str, &str)| Some(format!("{} under {name}", to_one(variant)?));
    let places: Vec<String> = PLACES.iter().filter_map(said).collect();
    if places.is_empty() {
        return None;
    }
    let mut text = format!(
        "What an idle class leaves goes to weights 30 and 10, wanted 3 to 1, as {}.",
        list(&places)
    );
    if let Some(plain) = to_one("kernel-plain") {
        let _ = write!(
            text,
            " HTB that is told no more than its rates lends as {plain}, almost equally: each class that borrows has its turn, and a \
             packet longer than its quantum is a whole turn. Turns by weight and packets shorter than a turn are what mends it."
        );
    }
    Some(text)
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

fn added_alone(study: &Study<'_>) -> Option<String> {
    let cable = median(study, "cable", "delay_us", None)?;
    let more = |variant: &str| Some(format!("{:+.1} us", median(study, variant, "delay_us", None)? - cable));
    Some(format!(
        "Without anybody to wake, a message takes {} over the cable; AF_XDP with busy polling adds {}, TUN {}.",
        number::quantity(cable, "us"),
        more("af-xdp-spin")?,
        more("tun-spin").or_else(|| more("tun"))?
    ))
}

fn unshaped(study: &Study<'_>) -> Option<String> {
    let gbit = |variant: &str| Some(median(study, variant, "goodput_mbit", None)? / 1e3);
    let (fair, fifo) = (gbit("af-xdp-spin")?, gbit("af-xdp-fifo")?);
    Some(format!(
        "Where no rate holds it back, one TCP connection gets {fair:.2} Gbit/s over AF_XDP with start-time fair queuing, {:.2} times what \
         the same way carries without a scheduler; {:.2} over TUN, and {:.1} over the cable alone, which carries 64 KiB in one piece.",
        fair / fifo,
        gbit("tun-spin")?,
        gbit("cable")?
    ))
}

fn of_a_disk(study: &Study<'_>) -> Option<String> {
    let of = |variant: &str, figure: &str, unit: &str| {
        Some(number::quantity(median(study, variant, figure, None)?, unit))
    };
    let rule = |variant: &str, name: &str| {
        Some(format!(
            "{} and {} under {name}",
            of(variant, "interactive_ms", "ms")?,
            of(variant, "real_time_late_percent", "%")?
        ))
    };
    Some(format!(
        "A disk that downloads keep busy: a user waits half the time at most, and a player\u{2019}s reads are late: {}.",
        list(&[
            rule("cello", "Cello")?,
            rule("fifo", "one queue")?,
            rule("kernel", "the kernel\u{2019}s order")?
        ])
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
        let runs = [("kernel-plain", 0, "b_to_c", 1.5), ("middleware", 0, "b_to_c", 3.0)];
        let said = page("queue-borrow", &runs);
        assert!(said.contains("3.00 to 1 under the middleware."), "{said}");
        assert!(said.contains("no more than its rates lends as 1.50 to 1"), "{said}");
    }

    #[test]
    fn what_the_places_add_and_carry_and_a_disk_are_said_in_a_sentence_each() {
        let delay = |variant: &'static str, value| (variant, 0, "delay_us", value);
        let said = page("queue-added", &[delay("cable", 2.0), delay("af-xdp-spin", 5.5), delay("tun", 30.0)]);
        assert!(said.contains("busy polling adds +3.5 us, TUN +28.0 us"), "{said}");
        let goodput = |variant: &'static str, value| (variant, 0, "goodput_mbit", value);
        let runs =
            [("cable", 40_000.0), ("tun-spin", 2000.0), ("af-xdp-spin", 5100.0), ("af-xdp-fifo", 5000.0)];
        let said = page("queue-unshaped", &runs.map(|(variant, value)| goodput(variant, value)));
        assert!(said.contains("gets 5.10 Gbit/s") && said.contains("1.02 times"), "{said}");
        let got = ["cello", "fifo", "kernel"].map(|variant| {
            [(variant, 0, "interactive_ms", 0.5), (variant, 0, "real_time_late_percent", 4.0)]
        });
        let said = page("queue-disk", &got.concat());
        assert!(said.contains("under Cello") && said.contains("under one queue"), "{said}");
    }

    #[test]
    fn no_study_about_links_no_question_about_them() {
        assert_eq!(html(&[]), "");
    }
}
