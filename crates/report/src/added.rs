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
    /// The effect of the command, before a colon.
    pub does: &'static str,
    pub answer: fn(&[Study<'_>]) -> Option<TopicAnswer>,
    /// The long answer as HTML, if the extension has one.
    pub long: Option<fn(&[Study<'_>]) -> String>,
}

/// A lesson of a paper, and the result of these runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LessonSummary {
    pub name: &'static str,
    /// The result, sentence by sentence; empty if these runs say nothing about the lesson.
    pub found: Vec<String>,
}

/// The answers of one program.
pub struct ReportExtension {
    /// Topics with answers of their own; they take precedence over the built-in ones.
    pub topics: &'static [ScreenTopic],
    /// A section behind the topics, as HTML; may be empty.
    pub section: fn(&[Study<'_>]) -> String,
    /// The lessons of a paper beside these studies.
    pub lessons: fn(&[Study<'_>]) -> Vec<LessonSummary>,
    /// The claims of the papers beside these studies: as JSON, or in Markdown.
    pub claims: fn(&[Study<'_>], ClaimsFormat) -> String,
}

/// The form of a document of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimsFormat {
    Json,
    Markdown,
}

static ADDED: OnceLock<ReportExtension> = OnceLock::new();

/// Adds an extension, before pages are drawn. A second extension has no effect.
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
