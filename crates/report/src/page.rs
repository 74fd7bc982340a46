//! The page around the studies: title, host, notices, contents, and hints on what to do with the records.

use crate::escape::slug;
use crate::facts::{facts, machines};
use crate::section::StudySection;
use crate::study::Study;
use crate::wording::{self, Tone};
use crate::{added, answer_cards, number, screen, summary};
use askama::Template;
use std::collections::BTreeMap;
use unisono_measure::evidence::left_out;
use unisono_measure::record::{Outcome, RunLine};
use unisono_text::counted;

#[derive(Template)]
#[template(path = "page.html")]
struct ReportPage<'a> {
    machines: Vec<String>,
    facts: Vec<(&'static str, String)>,
    notices: Vec<String>,
    answers: String,
    topics: Vec<TopicPage<'a>>,
    /// The section of an extension.
    added: String,
    runs: String,
    version: &'static str,
}

/// Draws the page. `cut_off` is the number of the last line, if the records end in the middle of it.
pub(crate) fn html(studies: &[Study<'_>], cut_off: Option<usize>) -> String {
    let runs: Vec<&RunLine> = studies.iter().flat_map(|study| study.runs.iter().copied()).collect();
    let page = ReportPage {
        machines: machines(&runs),
        facts: facts(&runs),
        notices: notices(&runs, cut_off),
        answers: answer_cards::html(studies),
        topics: screen::topics(studies).into_iter().map(|topic| TopicPage::new(studies, topic)).collect(),
        added: added::section(studies),
        runs: number::count(runs.len()),
        version: env!("CARGO_PKG_VERSION"),
    };
    without_end_tags(&page.to_string())
}

/// Removes the end tags of cells and rows, which are optional in HTML. They are a tenth of the page's bytes.
fn without_end_tags(page: &str) -> String {
    // texts are escaped, so every `</td>` is a tag
    ["</td>", "</th>", "</tr>"].iter().fold(page.to_owned(), |page, tag| page.replace(tag, ""))
}

/// Number of studies of a topic that show their first figure; the others are folded.
const MAX_LEADING_STUDIES: usize = 3;

/// A topic: its long answer, the studies that show a figure, and the folded ones.
struct TopicPage<'a> {
    id: String,
    name: String,
    is_simulated: bool,
    answer: String,
    leading: Vec<StudySection<'a>>,
    folded: Vec<StudySection<'a>>,
    titles: Vec<&'a str>,
}

impl<'a> TopicPage<'a> {
    fn new(studies: &'a [Study<'a>], topic: &str) -> Self {
        let own = studies.iter().filter(|study| study.head.topic == topic);
        let (mut leading, mut folded) = (Vec::new(), Vec::new());
        for study in own {
            let leads = leading.len() < MAX_LEADING_STUDIES && study.count(Outcome::Measured) > 0;
            if leads { leading.push(study) } else { folded.push(study) }
        }
        let sections = |of: &[&'a Study<'a>], leads| {
            of.iter().map(|study| StudySection::new(study, leads)).collect::<Vec<_>>()
        };
        let block = screen::block(studies, topic);
        Self {
            id: format!("topic-{}", slug(topic)),
            name: block.name,
            is_simulated: block.is_simulated,
            answer: summary::topic_html(studies, topic),
            leading: sections(&leading, true),
            folded: sections(&folded, false),
            titles: folded.iter().map(|study| study.head.title.as_str()).collect(),
        }
    }

    /// Names the folded studies, for example `2 more studies: their titles`.
    fn more(&self) -> String {
        let more = if self.leading.is_empty() { "" } else { " more" };
        let count = self.titles.len();
        let studies = if count == 1 { "study" } else { "studies" };
        format!("{count}{more} {studies}: {}", self.titles.join("; "))
    }
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
            "Somebody else took processors during runs of these studies: {}. Those runs count nowhere; they were made again as far as there was time. Where a comparison lacks runs for this reason, measure it again when no other program comes and goes.",
            of.join(", ")
        ));
    }
    let cut = left_out(runs.iter().copied());
    if cut > 0 {
        notices.push(format!(
            "The study's time was over before all repetitions were made; left out: {}. Comparisons that lack them rest on fewer runs. A topic measured alone has more time.",
            counted(number::count(cut), "run")
        ));
    }
    let host = |run: &&RunLine| Some((run.host.background?, run.host.cpus));
    if let Some(words) = runs.iter().find_map(host).and_then(|(load, processors)| load.in_words(processors)) {
        notices.push(format!("Before the first run, {words}."));
    }
    let disturbed = runs.iter().filter(|run| unisono_measure::noise::has_foreign_load(run)).count();
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

/// Counts the verdicts of a study by tone, for example `▲ 3 better · = 2 no difference`.
pub(crate) fn verdict_tally(study: &Study<'_>) -> String {
    let mut tally: Vec<String> = Vec::new();
    for tone in [Tone::Better, Tone::Worse, Tone::Same, Tone::Undecided, Tone::Unanswered] {
        let n = study.judged.iter().flatten().filter(|judgement| wording::tone(judgement) == tone).count();
        if n > 0 {
            tally.push(format!("{} {n} {}", tone.sign(), tone.word()));
        }
    }
    if tally.is_empty() { "figures only".to_owned() } else { tally.join(" \u{b7} ") }
}
