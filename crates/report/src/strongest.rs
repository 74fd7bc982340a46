//! The comparison with the largest gain: an answer for topics that have no question of their own.

use crate::study::Study;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use crate::wording::{self, Tone};

/// Returns the comparison with the largest gain; `None` if nothing was better.
pub(crate) fn strongest_comparison(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let better = studies.iter().flat_map(|study| {
        let all = study.verdicts().flat_map(|(verdict, judged)| judged.iter().map(move |j| (verdict, j)));
        let better = all.filter(|(_, judgement)| wording::tone(judgement) == Tone::Better);
        better.filter_map(move |(verdict, judgement)| {
            let ratio = judgement.comparison()?.ratio.value;
            let strength = ratio.ln().abs();
            strength.is_finite().then_some((strength, ratio, study, verdict, judgement))
        })
    });
    let (_, ratio, study, verdict, judgement) = better.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (ours, theirs) = wording::sides(study, verdict);
    let place = wording::place_in_words(study, verdict, judgement);
    let evidence = study.evidence(&verdict.selector(&judgement.place));
    let words = if evidence.is_some_and(|evidence| evidence.too_few_in_words().is_some()) {
        format!("{ours} against {theirs}: seen better{place}; no factor yet.")
    } else {
        let factor = wording::factor_in_words(study, verdict, ratio);
        format!("{ours} against {theirs}: up to {factor}{place}.")
    };
    let picture = AnswerPicture::from_comparison(study, verdict, judgement);
    Some(TopicAnswer::new(wording::capitalized(&words), picture).resting_on(evidence))
}
