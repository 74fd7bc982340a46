//! The contents of a report as data: for `--json`, and for other programs that draw charts.

use crate::added::{LessonSummary, lessons};
use crate::study::{Study, question};
use crate::wording::{self, Tone};
use serde::Serialize;
use unisono_measure::paired::MIN_PAIRS;
use unisono_measure::record::{Outcome, Question};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordsSummary {
    pub measured: usize,
    pub skipped: usize,
    pub failed: usize,
    pub interrupted: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off_line: Option<usize>,
    pub verdicts: Vec<VerdictSummary>,
    /// The lessons of an extension; empty if the records have no study about them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lessons: Vec<LessonSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictSummary {
    pub study: String,
    pub variant: String,
    pub against: String,
    pub figure: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<serde_json::Value>,
    pub finding: Tone,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The confidence level that the interval may claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<f64>,
    pub pairs: usize,
    /// Whether there are too few pairs for a conclusion.
    pub seen_once: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_met: Option<bool>,
    /// The opening question that the verdict answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<Question>,
    pub words: String,
}

pub(crate) fn summary(studies: &[Study<'_>], cut_off_line: Option<usize>) -> RecordsSummary {
    let count = |outcome: Outcome| studies.iter().map(|study| study.count(outcome)).sum();
    let mut verdicts = Vec::new();
    for study in studies {
        for (verdict, judged) in study.verdicts() {
            for judgement in judged {
                let comparison = judgement.comparison();
                let finite = |value: f64| value.is_finite().then_some(value);
                verdicts.push(VerdictSummary {
                    study: study.head.study.clone(),
                    variant: verdict.variant.clone(),
                    against: verdict.against.clone(),
                    figure: verdict.figure.clone(),
                    by: verdict.by.clone(),
                    at: judgement.at.clone(),
                    finding: wording::tone(judgement),
                    ratio: comparison.and_then(|c| finite(c.ratio.value)),
                    low: comparison.and_then(|c| finite(c.ratio.low)),
                    high: comparison.and_then(|c| finite(c.ratio.high)),
                    level: comparison.filter(|c| c.ratio.n > 1).map(|c| c.ratio.honest_level()),
                    pairs: comparison.map_or(0, |c| c.ratio.n),
                    seen_once: comparison.is_some_and(|c| c.ratio.n < MIN_PAIRS),
                    expected: verdict.expected,
                    expected_met: comparison
                        .and_then(|c| unisono_measure::verdict::meets_expectation(verdict, c)),
                    answers: question(verdict),
                    words: wording::sentence(study, verdict, judgement),
                });
            }
        }
    }
    RecordsSummary {
        measured: count(Outcome::Measured),
        skipped: count(Outcome::Skipped),
        failed: count(Outcome::Failed),
        interrupted: count(Outcome::Interrupted),
        cut_off_line,
        verdicts,
        lessons: lessons(studies),
    }
}
