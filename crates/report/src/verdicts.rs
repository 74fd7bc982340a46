//! What a report says, as data: for `--json` and for whoever draws the report from another program.

use crate::said::{self, Tone};
use crate::study::{Study, question};
use serde::Serialize;
use unisono_measure::record::{Outcome, Question};

/// What the records say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordsSummary {
    /// Runs by how they ended.
    pub measured: usize,
    /// Runs that this host could not make.
    pub skipped: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Runs that the user stopped.
    pub interrupted: usize,
    /// The line in whose middle the records end, as after a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off_line: Option<usize>,
    /// All verdicts, in the order of the report.
    pub verdicts: Vec<VerdictSummary>,
}

/// One comparison at one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictSummary {
    pub study: String,
    /// What is judged.
    pub variant: String,
    /// What it is compared with.
    pub against: String,
    /// The figure compared.
    pub figure: String,
    /// Name of the parameter by which the comparison is split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Its value here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<serde_json::Value>,
    /// What may be said.
    pub finding: Tone,
    /// Median of the paired ratios (variant / against).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Lower end of its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The level that the interval can claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<f64>,
    /// Number of pairs.
    pub pairs: usize,
    /// The ratio that was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    /// Whether it was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_met: Option<bool>,
    /// Which of the opening questions it answers.
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
                let comparison = said::comparison(judgement);
                let finite = |value: f64| value.is_finite().then_some(value);
                verdicts.push(VerdictSummary {
                    study: study.head.study.clone(),
                    variant: verdict.variant.clone(),
                    against: verdict.against.clone(),
                    figure: verdict.figure.clone(),
                    by: verdict.by.clone(),
                    at: judgement.at.clone(),
                    finding: said::tone(judgement),
                    ratio: comparison.and_then(|c| finite(c.ratio.value)),
                    low: comparison.and_then(|c| finite(c.ratio.low)),
                    high: comparison.and_then(|c| finite(c.ratio.high)),
                    level: comparison.filter(|c| c.ratio.n > 1).map(|c| c.ratio.honest_level()),
                    pairs: comparison.map_or(0, |c| c.ratio.n),
                    expected: verdict.expected,
                    expected_met: comparison.and_then(|c| said::met(verdict, c)),
                    answers: question(verdict),
                    words: said::sentence(study, verdict, judgement),
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
    }
}
