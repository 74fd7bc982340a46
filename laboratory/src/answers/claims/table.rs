//! Writes the table of claims, for the page and as a Markdown document.

use super::{ClaimPaper, ClaimResult, ClaimSummary, claims};
use askama::Template;
use std::fmt::Write as _;
use unisono_measure::record::RunLine;
use unisono_report::extension::{Study, facts, machines};

#[derive(Template)]
#[template(path = "claims.html")]
struct ClaimsSection {
    tally: String,
    papers: Vec<PaperClaims>,
}

/// A paper's title, its tally, and its claims.
type PaperClaims = (&'static str, String, Vec<ClaimSummary>);

fn papers(claims: &[ClaimSummary]) -> Vec<PaperClaims> {
    let of_paper = |paper: ClaimPaper| {
        let of: Vec<ClaimSummary> = claims.iter().filter(|claim| claim.paper == paper).cloned().collect();
        (paper.name(), tally(&of), of)
    };
    ClaimPaper::ALL.into_iter().map(of_paper).collect()
}

/// Writes the table as HTML. The text is empty if these records answer no claim.
pub(in crate::answers) fn html(studies: &[Study<'_>]) -> String {
    let claims = claims(studies);
    if claims.iter().all(|claim| claim.found.is_none()) {
        return String::new();
    }
    ClaimsSection { tally: tally(&claims), papers: papers(&claims) }.to_string()
}

/// Counts the claims by result, for example `41 reproduced, 30 differ`.
fn tally(claims: &[ClaimSummary]) -> String {
    let counts = ClaimResult::ALL.into_iter().filter_map(|result| {
        let n = claims.iter().filter(|claim| claim.result == result).count();
        let word = match (result, n) {
            (_, 0) => return None,
            (ClaimResult::Differs, 2..) => "differ",
            _ => result.name(),
        };
        Some(format!("{n} {word}"))
    });
    counts.collect::<Vec<_>>().join(", ")
}

pub(in crate::answers) fn markdown(studies: &[Study<'_>]) -> String {
    let claims = claims(studies);
    let mut text = format!(
        "# What the papers say, and what was measured\n\n\
         What the four papers measured and stated, beside what was measured here. Of {} claims:\n{}.\n\n\
         *Reproduced*: the paper's number lies in the interval found here, or what was found differs from it by less than\n\
         10 % of the effect. A statement without a number is reproduced if the whole interval agrees with it. *Not\n\
         decided*: the runs scatter too much, or there are fewer than three rounds of them, simulated ones too. Ratios\n\
         are medians of pairs of runs. `unisono report DIR --claims` wrote this from records. Commands marked\n\
         (laboratory), and `report --claims`, need `unisono-laboratory`, which no package has: `unisono study --help`\n\
         says how to build it.\n",
        claims.len(),
        tally(&claims)
    );
    let runs: Vec<&RunLine> = studies.iter().flat_map(|study| study.runs.iter().copied()).collect();
    text.push('\n');
    let machines = machines(&runs).into_iter().map(|machine| ("Machine", machine));
    for (name, fact) in machines.chain(facts(&runs)) {
        // writing to a String cannot fail
        let _infallible = writeln!(text, "- {name}: {fact}");
    }
    for (title, tally, of) in papers(&claims) {
        let _infallible = write!(text, "\n## {title}\n\n{tally}.\n\n");
        text.push_str("| where | the paper | here | result | repeat it |\n|---|---|---|---|---|\n");
        for claim in &of {
            let result = match claim.remark.as_str() {
                "" => format!("**{}**", claim.result.name()),
                remark => format!("**{}**: {remark}", claim.result.name()),
            };
            let simulated = if claim.simulated { " (simulated)" } else { "" };
            let here = if claim.here.is_empty() { "\u{2013}" } else { &claim.here };
            let command = claim.command_cell();
            let row = format!("{} | {} | {here}{simulated} | {result} | {command}", claim.place, claim.says);
            let _infallible = writeln!(text, "| {} |", row.replace('\n', " "));
        }
    }
    text
}
