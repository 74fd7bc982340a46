//! The page around the studies: title, host, notices, contents, and what to do with the records.

use crate::conditions;
use crate::escape::{Escaped, slug};
use crate::number;
use crate::one_sided;
use crate::queues;
use crate::said::{self, Tone};
use crate::section;
use crate::study::Study;
use crate::summary;
use crate::trees;
use std::fmt::Write as _;
use unisono_linux::counted::counted;
use unisono_measure::record::{HostFacts, Outcome, RunLine};

const STYLE: &str = include_str!("style.css");

/// The whole page; `cut_off` is the line in whose middle the records end.
pub(crate) fn html(studies: &[Study<'_>], cut_off: Option<usize>) -> String {
    let runs: Vec<&RunLine> = studies.iter().flat_map(|study| study.runs.iter().copied()).collect();
    let mut page = String::with_capacity(256 * 1024);
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n<title>Unisono: what waiting costs here</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    page.push_str(&header(&runs));
    page.push_str(&notices(&runs, cut_off));
    page.push_str(&summary::html(studies));
    page.push_str(&contents(studies));
    let elsewhere = |study: &Study<'_>| {
        one_sided::is_about_windows(study) || trees::is_about_trees(study) || queues::is_about_queues(study)
    };
    if !studies.iter().all(elsewhere) || studies.is_empty() {
        page.push_str(&conditions::html(studies));
    }
    for study in studies {
        page.push_str(&section::html(study));
    }
    page.push_str(&footer(&runs));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn header(runs: &[&RunLine]) -> String {
    let mut html =
        String::from("<header>\n<p class=\"mark\">Unisono</p>\n<h1>Waiting is a scheduling decision</h1>\n");
    html.push_str("<p class=\"lead\">What it costs this machine when threads wait for each other, and which way of scheduling them is worth it.</p>\n<dl class=\"facts\">\n");
    for (name, text) in facts(runs) {
        let _ = writeln!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(&text));
    }
    html.push_str("</dl>\n</header>\n");
    html
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
    for (outcome, word) in
        [(Outcome::Skipped, "skipped"), (Outcome::Failed, "failed"), (Outcome::Interrupted, "interrupted")]
    {
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

fn notices(runs: &[&RunLine], cut_off: Option<usize>) -> String {
    let mut notices = Vec::new();
    if runs.iter().any(|run| run.outcome == Outcome::Interrupted) {
        notices.push("The study was interrupted. What had been measured until then is shown; comparisons rest on fewer runs than planned.".to_owned());
    }
    if let Some(line) = cut_off {
        notices.push(format!(
            "The records end in the middle of line {line}, as after a crash. That line was left out."
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
    let mut html = String::new();
    for notice in notices {
        let _ = writeln!(html, "<p class=\"notice\" role=\"note\">{}</p>", Escaped(&notice));
    }
    html
}

fn contents(studies: &[Study<'_>]) -> String {
    let mut html = String::from("<nav aria-label=\"Studies\"><h2>Studies</h2>\n<ol class=\"contents\">\n");
    for study in studies {
        let tones: Vec<Tone> = study.judged.iter().flatten().map(said::tone).collect();
        let mut tally: Vec<String> = Vec::new();
        for tone in [Tone::Better, Tone::Worse, Tone::Same, Tone::Undecided, Tone::Unanswered] {
            let n = tones.iter().filter(|t| **t == tone).count();
            if n > 0 {
                tally.push(format!("{} {n} {}", tone.sign(), tone.word()));
            }
        }
        let tally = if tally.is_empty() { "figures only".to_owned() } else { tally.join(" \u{b7} ") };
        let _ = writeln!(
            html,
            "<li><a href=\"#{}\">{}</a> <span>{}</span></li>",
            slug(&study.head.study),
            Escaped(&study.head.title),
            Escaped(&tally)
        );
    }
    html.push_str("</ol></nav>\n");
    html
}

fn footer(runs: &[&RunLine]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let n = number::count(runs.len());
    format!(
        concat!(
            "<footer>\n<h2>Reading and redrawing</h2>\n",
            "<p>A ratio is formed within a repetition: both programs ran within moments of each other, and the ",
            "median of these ratios is shown with its bootstrap interval. Of fewer than six pairs no interval ",
            "can promise 95&nbsp;%; the level written is the one it can. Of two or three pairs it is said how many ",
            "agree and how far they reach; fewer than three get no verdict. ",
            "<em>Spread Linux</em> is plain Linux with each thread pinned to a core of its own. ",
            "<em>No difference</em> means that the interval is narrow and contains 1; ",
            "<em>not decided</em> that it is wide and contains 1.</p>\n",
            "<p>Every number comes from the {n} runs in <code>records.jsonl</code> beside this file, one JSON ",
            "object a line. To draw this page again: <code>unisono report DIR</code>; to get the verdicts as ",
            "JSON: <code>unisono report --json DIR</code>.</p>\n",
            "<p class=\"key\">The paper: S. Peter, A. Baumann, Z. Anderson, T. Roscoe, <cite>Gang scheduling ",
            "isn\u{2019}t worth it\u{2026} yet</cite>, ETH Zurich, Systems Group, Technical Report 745, 2011. ",
            "Its machine: 16 cores of 2.5&nbsp;GHz, Linux 2.6.32.</p>\n",
            "<p class=\"key\">Unisono {version}</p>\n</footer>\n"
        ),
        n = n,
        version = version
    )
}
