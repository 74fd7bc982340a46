//! The report's answer about shared links: does a policy hold with each backend, what does it cost, and what
//! happens if a program does not cooperate?
//!
//! Uses the studies of topic `queue`.

use crate::number;
use crate::sentences::{Average, TopicFigures, TopicQuestion, list};

/// More missed messages than this spoil a stream.
const MAX_MISSED_PERCENT: f64 = 5.0;

pub(crate) const QUESTION: TopicQuestion = TopicQuestion {
    topic: "queue",
    average: Average::Median,
    places: &[
        ("kernel", "the kernel (HTB)"),
        ("tun", "the interposed place over TUN"),
        ("af-xdp", "the interposed place over AF_XDP"),
        ("middleware", "the middleware"),
    ],
    sentences: include_str!("../templates/queue.txt"),
    computed: |figures, _| headline(figures),
};

fn headline(figures: TopicFigures<'_>) -> Option<String> {
    let missed = |variant: &str| figures.value(&format!("{variant}.a_missed_percent@legacy_flows=most"));
    let middleware = missed("middleware")?;
    let is_kept = |variant: &str| missed(variant).is_some_and(|missed| missed <= MAX_MISSED_PERCENT);
    let places = figures.question.places.iter();
    let places = places.filter(|(variant, _)| *variant != "middleware" && is_kept(variant));
    let holds = list(&places.map(|(_, name)| (*name).to_owned()).collect::<Vec<_>>());
    let flows = number::plain(*figures.parameters("legacy_flows").last()?);
    Some(match holds {
        _ if middleware <= MAX_MISSED_PERCENT => format!(
            "Here a stream keeps its share even under the middleware, with {flows} connections that bypass it: the link is not full."
        ),
        Some(holds) => format!(
            "A place that sees every packet: with {flows} connections that bypass the policy, a stream keeps its share \
             under {holds}; under the middleware it misses {middleware:.0} % of its messages, because the middleware \
             orders only what it is given."
        ),
        None => format!(
            "Not the middleware alone: with {flows} connections that bypass the policy, a stream misses \
             {middleware:.0} % of its messages there."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    fn page(study: &str, runs: &[(&str, u32, &str, f64)]) -> String {
        let head = StudyLine { study: study.into(), topic: QUESTION.topic.into(), ..StudyLine::default() };
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
        QUESTION.html(&crate::study::studies(&lines))
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
        let text = page("queue-borrow", &runs);
        assert!(text.contains("3.00 to 1 under the middleware."), "{text}");
        assert!(text.contains("no more than its rates lends as 1.50 to 1"), "{text}");
    }

    #[test]
    fn what_the_places_add_and_carry_and_a_disk_are_said_in_a_sentence_each() {
        let delay = |variant: &'static str, value| (variant, 0, "delay_us", value);
        let text = page("queue-added", &[delay("cable", 2.0), delay("af-xdp-spin", 5.5), delay("tun", 30.0)]);
        assert!(text.contains("busy polling adds +3.5 us, TUN +28.0 us"), "{text}");
        let goodput = |variant: &'static str, value| (variant, 0, "goodput_mbit", value);
        let runs =
            [("cable", 40_000.0), ("tun-spin", 2000.0), ("af-xdp-spin", 5100.0), ("af-xdp-fifo", 5000.0)];
        let text = page("queue-unshaped", &runs.map(|(variant, value)| goodput(variant, value)));
        assert!(text.contains("gets 5.10 Gbit/s") && text.contains("1.02 times"), "{text}");
        let got = ["cello", "fifo", "kernel"].map(|variant| {
            [(variant, 0, "interactive_ms", 0.5), (variant, 0, "real_time_late_percent", 4.0)]
        });
        let text = page("queue-disk", &got.concat());
        assert!(text.contains("under Cello") && text.contains("under one queue"), "{text}");
    }

    #[test]
    fn no_study_about_links_no_question_about_them() {
        assert_eq!(QUESTION.html(&[]), "");
    }
}
