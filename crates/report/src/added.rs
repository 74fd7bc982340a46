//! The answers that another program has added; see [`crate::extension`].

use crate::study::Study;
use crate::topic_answer::TopicAnswer;
use serde::Serialize;
use std::sync::OnceLock;

/// A topic on the last screen of a study.
pub struct ScreenTopic {
    pub topic: &'static str,
    pub name: &'static str,
    /// The command that a reader types next.
    pub command: &'static str,
    /// The effect of the command, as words to which a colon is added.
    pub does: &'static str,
    pub answer: fn(&[Study<'_>]) -> Option<TopicAnswer>,
    /// The long answer as HTML, if the extension has one.
    pub long: Option<fn(&[Study<'_>]) -> String>,
}

/// A lesson of a paper, and the findings of the given studies about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LessonSummary {
    pub name: &'static str,
    /// The findings, one sentence each; empty if the studies say nothing about the lesson.
    pub found: Vec<String>,
}

/// The answers of one program.
pub struct ReportExtension {
    /// Topics with answers of their own; they take precedence over the built-in ones.
    pub topics: &'static [ScreenTopic],
    /// Returns a section that follows the topics, as HTML; may be empty.
    pub section: fn(&[Study<'_>]) -> String,
    /// Compares the lessons of a paper with the results of the given studies.
    pub lessons: fn(&[Study<'_>]) -> Vec<LessonSummary>,
    /// Compares the claims of the papers with the results of the given studies; returns the comparison as
    /// JSON or Markdown.
    pub claims: fn(&[Study<'_>], ClaimsFormat) -> String,
}

/// The form of a document of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimsFormat {
    Json,
    Markdown,
}

static ADDED: OnceLock<ReportExtension> = OnceLock::new();

/// Adds an extension. A program calls this before it draws a page. Only the first extension is kept; a second
/// call has no effect.
pub fn add(extension: ReportExtension) {
    // the first extension stays, as documented
    let _ = ADDED.set(extension);
}

pub(crate) fn added() -> Option<&'static ReportExtension> {
    ADDED.get()
}

pub(crate) fn section(studies: &[Study<'_>]) -> String {
    added().map(|extension| (extension.section)(studies)).unwrap_or_default()
}

pub(crate) fn lessons(studies: &[Study<'_>]) -> Vec<LessonSummary> {
    added().map(|extension| (extension.lessons)(studies)).unwrap_or_default()
}
