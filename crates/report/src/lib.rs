//! Turns records into one self-contained HTML file that reports the measurements in words and pictures.
//!
//! The idea: the first screen has an answer for each topic (a sentence, a small picture, the command to
//! type). Then come the longer answers, each of the paper's conditions, and one section per study with its
//! verdicts, its figures, the paper's statement beside the study's result, and reasons for doubt. The page
//! needs no script, no network and no other file. It is readable on a phone, on a dark background, on paper
//! and by a screen reader.
//!
//! ```text
//! records.jsonl -> records_file -> study (what belongs together) -> chart_figure (draw/) --+
//!                                    |                                                    +-> section -> page
//!                                    +-> measure::verdict -> wording ---------------------+
//!                                                             +-> summary, conditions
//! ```
//!
//! Cost: a few milliseconds and about 40 KiB of page for each study. The crate measures nothing and computes
//! no statistics ([`unisono_measure`] does). Records are untrusted: all their text passes through one escape
//! function, and no records make it panic. The HTML is in `templates/`, the drawings are in `draw/`.
#![forbid(unsafe_code)]

mod added;
mod answer_cards;
mod budgets;
mod changes;
mod chart_figure;
mod chart_table;
mod conditions;
mod draw;
mod error;
mod escape;
mod events;
pub mod extension;
mod facts;
mod fit_lines;
mod number;
mod one_sided;
mod open_questions;
mod page;
mod points;
mod queues;
mod records_file;
mod remedies;
mod screen;
mod section;
mod sentences;
mod situations;
mod strongest;
mod study;
mod summary;
mod topic_answer;
mod trees;
mod verdicts;
mod waiting;
mod wording;

pub use added::{ClaimsFormat, LessonSummary};
pub use changes::RecordsChange;
pub use error::Error;
pub use screen::{has_answer, screen};
pub use verdicts::{RecordsSummary, VerdictSummary};
pub use wording::Tone;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use unisono_measure::record::Line;

/// Writes the page for the records and returns its summary. An older page is replaced only when the new one
/// is complete.
pub fn render(records: &Path, html: &Path) -> Result<RecordsSummary, Error> {
    let read = records_file::read(records)?;
    let studies = study::studies(&read.lines);
    let page = page::html(&studies, read.cut_off);
    write(html, &page).map_err(|source| Error::Write { path: html.to_owned(), source })?;
    Ok(verdicts::summary(&studies, read.cut_off))
}

/// Like [`render`], but writes no page.
pub fn summarize(records: &Path) -> Result<RecordsSummary, Error> {
    let read = records_file::read(records)?;
    Ok(verdicts::summary(&study::studies(&read.lines), read.cut_off))
}

/// Returns the lines of a records file, without a last line that a crash cut off.
pub fn lines(records: &Path) -> Result<Vec<Line>, Error> {
    records_file::read(records).map(|read| read.lines)
}

/// Returns the lessons of the extension with the findings in these lines; empty if there is no extension.
pub fn lessons(lines: &[Line]) -> Vec<LessonSummary> {
    added::lessons(&study::studies(lines))
}

/// Returns the changes of all figures that both sets of lines have.
pub fn changes(first: &[Line], second: &[Line]) -> Vec<RecordsChange> {
    changes::changes(&study::studies(first), &study::studies(second))
}

/// Returns the changes as a text that starts with both machines.
pub fn changes_in_words(first: &[Line], second: &[Line]) -> String {
    let (first, second) = (study::studies(first), study::studies(second));
    let mut text = String::new();
    for (name, studies) in [("first", &first), ("second", &second)] {
        let runs: Vec<_> = studies.iter().flat_map(|study| study.runs.iter().copied()).collect();
        let mut facts = facts::machines(&runs);
        facts.extend(facts::facts(&runs).into_iter().map(|(_, fact)| fact));
        text += &format!("{name}: {}\n", facts.join("; "));
    }
    text + &changes::in_words(&changes::changes(&first, &second), &first, &second)
}

/// Returns a document that compares the papers' claims with the results in these lines, or `None` if there is
/// no extension.
pub fn claims(lines: &[Line], format: ClaimsFormat) -> Option<String> {
    added::added().map(|extension| (extension.claims)(&study::studies(lines), format))
}

/// Returns the page for these lines. The same lines give the same page, byte for byte.
pub fn html(lines: &[Line]) -> String {
    page::html(&study::studies(lines), None)
}

fn write(path: &Path, page: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = std::fs::File::create(&beside).and_then(|mut file| file.write_all(page.as_bytes()));
    let done = written.and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        // the half-written file is useless; the caller gets the first error
        let _ = std::fs::remove_file(&beside);
    }
    done
}
