//! The page around the studies: title, host, notices, contents, and what to do with the records.

use crate::said::{self, Tone};
use crate::section::StudySection;
use crate::study::Study;
use crate::{conditions, number, summary};
use askama::Template;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unisono_linux::counted::counted;
use unisono_measure::record::{HostFacts, Outcome, RunLine};

#[derive(Template)]
#[template(path = "page.html")]
struct ReportPage<'a> {
    studies: &'a [Study<'a>],
    facts: Vec<(&'static str, String)>,
    notices: Vec<String>,
    summary: String,
    conditions: String,
    sections: Vec<StudySection<'a>>,
    runs: String,
    version: &'static str,
}

/// `cut_off` is the line in the middle of which the records end.
pub(crate) fn html(studies: &[Study<'_>], cut_off: Option<usize>) -> String {
    let runs: Vec<&RunLine> = studies.iter().flat_map(|study| study.runs.iter().copied()).collect();
    let is_about_gangs = studies.is_empty() || !studies.iter().all(summary::has_its_own_answer);
    let page = ReportPage {
        studies,
        facts: facts(&runs),
        notices: notices(&runs, cut_off),
        summary: summary::html(studies),
        conditions: if is_about_gangs { conditions::html(studies) } else { String::new() },
        sections: studies.iter().map(StudySection::new).collect(),
        runs: number::count(runs.len()),
        version: env!("CARGO_PKG_VERSION"),
    };
    page.to_string()
}

fn facts(runs: &[&RunLine]) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let mut hosts: Vec<&HostFacts> = Vec::new();
    for run in runs {
        let same = |host: &&HostFacts| {
            (&host.kernel, &host.cpu, host.cpus, &host.virtualization, host.root)
                == (&run.host.kernel, &run.host.cpu, run.host.cpus, &run.host.virtualization, run.host.root)
        };
        if !hosts.iter().any(same) && hosts.len() < 4 {
            hosts.push(&run.host);
        }
    }
    for host in hosts {
        let cpus = counted(host.cpus, "processor");
        let kind = host.virtualization.as_deref().filter(|kind| !kind.is_empty());
        let kind = kind.map(|kind| format!(", {kind}")).unwrap_or_default();
        let kernel = if host.kernel.starts_with("Linux") { String::new() } else { "Linux ".to_owned() };
        let user = if host.root { "as root" } else { "as an ordinary user" };
        facts.push(("Machine", format!("{cpus}, {}{kind}; {kernel}{}; {user}", host.cpu, host.kernel)));
    }
    if let Some(first) = runs.iter().map(|run| run.started.as_str()).filter(|s| !s.is_empty()).min() {
        let date: String = first.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect();
        let utc = if first.ends_with('Z') { " UTC" } else { "" };
        facts.push(("Started", format!("{date}{utc}")));
    }
    let count = |outcome: Outcome| runs.iter().filter(|run| run.outcome == outcome).count();
    let seconds: f64 = runs.iter().map(|run| run.elapsed_s).filter(|s| s.is_finite()).sum();
    let mut counts =
        format!("{} measured in {}", number::count(count(Outcome::Measured)), number::duration(seconds));
    for (outcome, word) in [
        (Outcome::Disturbed, "disturbed"),
        (Outcome::Skipped, "skipped"),
        (Outcome::Failed, "failed"),
        (Outcome::Interrupted, "interrupted"),
    ] {
        if count(outcome) > 0 {
            let _ = write!(counts, ", {} {word}", number::count(count(outcome)));
        }
    }
    facts.push(("Runs", counts));
    let mut commits: Vec<&str> =
        runs.iter().map(|run| run.commit.as_str()).filter(|c| !c.is_empty()).collect();
    commits.sort_unstable();
    commits.dedup();
    if !commits.is_empty() {
        let short: Vec<String> = commits.iter().take(3).map(|c| c.chars().take(12).collect()).collect();
        facts.push(("Commit", short.join(", ")));
    }
    facts
}

fn notices(runs: &[&RunLine], cut_off: Option<usize>) -> Vec<String> {
    let mut notices = Vec::new();
    if runs.iter().any(|run| run.outcome == Outcome::Interrupted) {
        notices.push("The study was interrupted. What had been measured until then is shown; comparisons rest on fewer runs than planned.".to_owned());
    }
    if let Some(line) = cut_off {
        notices.push(format!(
            "The records end in the middle of line {line}, as after a crash. That line was left out."
        ));
    }
    let mut disturbed: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.outcome == Outcome::Disturbed) {
        *disturbed.entry(&run.study).or_default() += 1;
    }
    if !disturbed.is_empty() {
        let of: Vec<String> =
            disturbed.iter().map(|(study, count)| format!("{study} ({})", number::count(*count))).collect();
        notices.push(format!(
            "Somebody else took processors during runs of these studies: {}. Those runs count nowhere; they were made again as far as there was time. Where a comparison lacks runs for this reason, measure it again when the machine is idle.",
            of.join(", ")
        ));
    }
    let disturbed = runs
        .iter()
        .filter(|run| run.host.foreign_load.is_some_and(|load| load >= unisono_measure::noise::FOREIGN_LOAD))
        .count();
    if disturbed * 5 > runs.len() {
        notices.push(format!(
            "Other programs were running during {} of {}. Stop them and measure again before trusting small differences.",
            number::count(disturbed),
            counted(number::count(runs.len()), "run")
        ));
    }
    if runs.is_empty() {
        notices.push("These records contain no runs.".to_owned());
    }
    notices
}

fn tally(study: &Study<'_>) -> String {
    let mut tally: Vec<String> = Vec::new();
    for tone in [Tone::Better, Tone::Worse, Tone::Same, Tone::Undecided, Tone::Unanswered] {
        let n = study.judged.iter().flatten().filter(|judgement| said::tone(judgement) == tone).count();
        if n > 0 {
            tally.push(format!("{} {n} {}", tone.sign(), tone.word()));
        }
    }
    if tally.is_empty() { "figures only".to_owned() } else { tally.join(" \u{b7} ") }
}
