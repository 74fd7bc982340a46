//! The machine, the time and the number of the runs, in words.

use crate::number;
use std::fmt::Write as _;
use unisono_measure::evidence::left_out;
use unisono_measure::record::{HostFacts, Outcome, RunLine};
use unisono_text::counted;

/// Returns a line for each machine of the runs: at most four.
pub fn machines(runs: &[&RunLine]) -> Vec<String> {
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
    let line = |host: &HostFacts| {
        let cpus = counted(host.cpus, "processor");
        let kind = host.virtualization.as_deref().filter(|kind| !kind.is_empty());
        let kind = kind.map(|kind| format!(", {kind}")).unwrap_or_default();
        let kernel = if host.kernel.starts_with("Linux") { String::new() } else { "Linux ".to_owned() };
        let user = if host.root { "as root" } else { "as an ordinary user" };
        format!("{cpus}, {}{kind}; {kernel}{}; {user}", host.cpu, host.kernel)
    };
    hosts.into_iter().map(line).collect()
}

/// Returns the start, number and commit of the runs: pairs of a name and a text.
pub fn facts(runs: &[&RunLine]) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
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
        (Outcome::Disturbed, "disturbed and not used"),
        (Outcome::Skipped, "skipped"),
        (Outcome::Failed, "failed"),
        (Outcome::Interrupted, "interrupted"),
        (Outcome::Cut, "left out for lack of time"),
    ] {
        let n = match outcome {
            Outcome::Cut => left_out(runs.iter().copied()),
            _ => count(outcome),
        };
        if n > 0 {
            let _ = write!(counts, ", {} {word}", number::count(n));
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
