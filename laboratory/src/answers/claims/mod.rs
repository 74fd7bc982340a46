//! Compares the papers' claims with the results of the recorded runs.
//!
//! `claims.toml` has an entry for each figure and statement of the four papers. An entry names the study that
//! answers it, and, by a [`Selector`], the `value` to read there. With `from`, the growth from that value to
//! `value` is compared instead. The claim holds if the value is `near` a number, or at least (`least`) or at
//! most (`most`) a number. `why` is the probable reason if the claim does not hold. `open` is the reason why
//! no study here can answer it.

mod answer;
mod table;

pub(super) use table::{html, markdown};

use answer::ClaimAnswer;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;
use unisono_measure::Selector;
use unisono_report::extension::Study;
use unisono_text::named;

named! {
    /// A paper, with its authors and title as name.
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub(super) enum ClaimPaper {
        Gangs = "S. Peter, A. Baumann, Z. Anderson, T. Roscoe: Gang scheduling isn't worth it... yet (2011)",
        Windows = "R. Thakur, W. Gropp, B. Toonen: Minimizing Synchronization Overhead in the Implementation \
                   of MPI One-Sided Communication (2004)",
        Trees = "S. Moh, C. Yu, D. Han, B. Lee, D. Lee: A Fast Tree-Based Barrier Synchronization on \
                 Switch-Based Irregular Networks",
        Events = "P. Shenoy, S. Hasan, P. Kulkarni, K. Ramamritham: Middleware versus Native OS Support",
    }
}

/// An entry of `claims.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperClaim {
    paper: ClaimPaper,
    place: String,
    says: String,
    open: Option<String>,
    #[serde(default)]
    study: String,
    value: Option<Selector>,
    /// The starting value of the growth.
    from: Option<Selector>,
    /// The profile whose runs are long enough to answer the claim, if the runs of the default profile are too
    /// short.
    profile: Option<String>,
    near: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    #[serde(default)]
    why: String,
}

#[derive(Deserialize)]
struct ClaimsFile {
    claim: Vec<PaperClaim>,
}

static CLAIMS: LazyLock<Vec<PaperClaim>> = LazyLock::new(|| {
    let file: ClaimsFile =
        toml::from_str(include_str!("claims.toml")).expect("parses, as a test of this module shows");
    file.claim
});

named! {
    /// The result of the comparison of a claim with the runs.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub(super) enum ClaimResult {
        Reproduced = "reproduced",
        Differs = "differs",
        /// Measured, but the runs scatter too much to decide.
        Undecided = "not decided",
        /// The records do not have these runs.
        NotMeasured = "not in these records",
        /// No study here can answer the claim.
        Open = "cannot be answered here",
    }
}

/// A claim of a paper, and the result of these records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ClaimSummary {
    pub paper: ClaimPaper,
    /// The section, figure or table of the paper.
    pub place: String,
    pub says: String,
    pub result: ClaimResult,
    /// A value in the figure's unit, or a ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Whether the value comes from a simulation.
    pub simulated: bool,
    /// The result of these records, in words.
    pub here: String,
    /// The distance from the paper's number with its probable reason, or the reason why there is no result.
    pub remark: String,
    /// The command that repeats the figure; empty, and absent in JSON, if no study here can answer the claim.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl ClaimSummary {
    /// Returns the command for a cell of the table, marked if it needs the laboratory.
    fn command_cell(&self) -> String {
        let Some(study) = self.command.split(' ').nth(2) else { return "\u{2013}".to_owned() };
        let is_laboratory = unisono_cli::LABORATORY_STUDIES.iter().any(|(_, ids)| ids.contains(&study));
        let mark = if is_laboratory { " (laboratory)" } else { "" };
        format!("`{}`{mark}", self.command)
    }
}

/// Returns all claims of the papers, in the order of the file.
pub(super) fn claims(studies: &[Study<'_>]) -> Vec<ClaimSummary> {
    CLAIMS.iter().map(|claim| claim.summary(studies)).collect()
}

impl PaperClaim {
    fn summary(&self, studies: &[Study<'_>]) -> ClaimSummary {
        let summary = |result, remark: String| ClaimSummary {
            paper: self.paper,
            place: self.place.clone(),
            says: self.says.clone(),
            result,
            found: None,
            low: None,
            high: None,
            simulated: false,
            here: String::new(),
            remark,
            command: if self.open.is_some() { String::new() } else { self.command() },
        };
        if let Some(open) = &self.open {
            return summary(ClaimResult::Open, open.clone());
        }
        let Some(study) = studies.iter().find(|study| study.head.study == self.study) else {
            return summary(ClaimResult::NotMeasured, self.how_to_measure());
        };
        match self.evaluate(study) {
            ClaimAnswer::Missing(reason) => {
                let remark = if reason.is_empty() { self.how_to_measure() } else { reason };
                summary(ClaimResult::NotMeasured, remark)
            }
            ClaimAnswer::Found { result, found, here, distance } => ClaimSummary {
                found: Some(found.value),
                low: Some(found.low),
                high: Some(found.high),
                simulated: study.is_simulated(),
                here,
                ..summary(result, self.remark(result, distance.as_deref()))
            },
        }
    }

    fn command(&self) -> String {
        let profile = self.profile.as_deref().map(|profile| format!(" {profile}")).unwrap_or_default();
        format!("unisono study {}{profile}", self.study)
    }

    fn how_to_measure(&self) -> String {
        format!("`{}` measures it.", self.command())
    }

    fn remark(&self, result: ClaimResult, distance: Option<&str>) -> String {
        match (result, distance) {
            (ClaimResult::Differs, Some(distance)) => format!("{distance}. {}", self.why),
            (ClaimResult::Differs, None) => self.why.clone(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_is_open_or_says_what_answers_it() {
        assert!(CLAIMS.len() > 100, "{}", CLAIMS.len());
        for claim in CLAIMS.iter() {
            let expectations = [claim.near, claim.least, claim.most].into_iter().flatten().count();
            if claim.open.is_some() {
                assert!(claim.study.is_empty() && expectations == 0, "{claim:?}");
                continue;
            }
            assert_eq!(expectations, 1, "{claim:?}");
            assert!(!claim.study.is_empty() && !claim.why.is_empty() && claim.value.is_some(), "{claim:?}");
        }
    }

    #[test]
    fn the_document_of_claims_has_each_claim_as_it_is_now() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/claims.md");
        let document = std::fs::read_to_string(document).expect("docs/claims.md");
        for claim in claims(&[]) {
            let row = format!("| {} | {} |", claim.place, claim.says);
            let row = document.lines().find(|line| line.starts_with(&row));
            let row =
                row.unwrap_or_else(|| panic!("make it again by `unisono report DIR --claims`: {claim:?}"));
            assert!(row.ends_with(&format!("| {} |", claim.command_cell())), "{row}");
            assert!(claim.found.is_none() && claim.here.is_empty() && !claim.remark.is_empty(), "{claim:?}");
        }
    }

    #[test]
    fn each_paper_has_claims_and_no_claim_stands_twice() {
        for paper in ClaimPaper::ALL {
            assert!(CLAIMS.iter().any(|claim| claim.paper == paper));
        }
        let mut all: Vec<_> = CLAIMS.iter().map(|claim| (&claim.place, &claim.says)).collect();
        all.sort_unstable();
        let before = all.len();
        all.dedup();
        assert_eq!(all.len(), before);
    }
}
