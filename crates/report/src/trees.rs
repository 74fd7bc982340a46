//! The report's answer about trees in switches: when is a barrier in switches worth it, and which figures of
//! the paper can be reproduced?
//!
//! Uses the simulated studies of topic `tree`.

use crate::number;
use crate::sentences::{Average, TopicFigures, TopicQuestion};

/// A barrier that is faster by this factor is worth registers in switches.
const MIN_WORTHWHILE_FACTOR: f64 = 1.5;

/// A saving of fewer percent is hardly worth it; `templates/tree.txt` has the same number.
const MIN_SAVING_PERCENT: f64 = 5.0;

pub(crate) const QUESTION: TopicQuestion = TopicQuestion {
    topic: "tree",
    average: Average::Mean,
    places: &[],
    sentences: include_str!("../templates/tree.txt"),
    computed: |figures, what| if what == "roots" { root_sentence(figures) } else { headline(figures) },
};

fn headline(figures: TopicFigures<'_>) -> Option<String> {
    let sizes = figures.parameters("members");
    let factor = |members: &f64| figures.value(&format!("large-btin.times_faster@members={members}"));
    let [few, .., many] = sizes[..] else { return None };
    let (least, most) = (number::plain(factor(&few)?), number::plain(factor(&many)?));
    let many = number::count(many as usize);
    let worth =
        sizes.iter().find(|members| factor(members).is_some_and(|factor| factor >= MIN_WORTHWHILE_FACTOR));
    Some(match worth {
        Some(from) => format!(
            "Barriers in switches pay for large groups: {most} times as fast as multicast with {many} members, {least} times \
             with {few}; from {from} members on more than {MIN_WORTHWHILE_FACTOR} times."
        ),
        None => {
            format!(
                "A barrier in the switches does not pay: with {few} to {many} members it is {least} to {most} times \
                 as fast as multicast."
            )
        }
    })
}

fn root_sentence(figures: TopicFigures<'_>) -> Option<String> {
    let gain = |members: f64| {
        let of = |part| format!("tree-{part}.latency_us@members={members}");
        Some((members, figures.value(&format!("saving {} of {}", of("any"), of("turned")))?))
    };
    let gains: Vec<(f64, f64)> = figures.parameters("members").into_iter().filter_map(gain).collect();
    let (best, most) = gains.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (largest, last) = gains.last().copied()?;
    let worth = if most >= MIN_SAVING_PERCENT { "Worth it for small groups" } else { "Hardly worth it" };
    Some(format!(
        "{worth}: a root that need not be a member switch saves up to {most:.0} % of a turned barrier (with {best} \
         members), and {last:.0} % with {largest}, where nearly every switch has a member. It needs a switch that \
         answers by itself."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    fn page(factors: &[(u64, f64)]) -> String {
        let head =
            StudyLine { study: "tree-latency".into(), topic: QUESTION.topic.into(), ..StudyLine::default() };
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
        QUESTION.html(&crate::study::studies(&lines))
    }

    #[test]
    fn the_headline_says_from_how_many_members_on() {
        let worth = page(&[(2, 1.1), (64, 1.4), (128, 2.0), (1024, 10.0)]);
        assert!(worth.contains("from 128 members on") && worth.contains("1,024 members"), "{worth}");
        assert!(page(&[(2, 1.0), (64, 1.2)]).contains("does not pay: with 2 to 64 members"));
        assert!(page(&[]).contains("Not answered"));
    }

    #[test]
    fn no_study_about_trees_no_question_about_them() {
        assert_eq!(QUESTION.html(&[]), "");
    }
}
