//! Answers that another program adds to the page and the last screen, and the parts from which that program
//! makes the answers.
//!
//! The laboratory adds the claims of the papers and the answers about its studies in this way.

pub use crate::added::{ClaimsFormat, ReportExtension, ScreenTopic, add};
pub use crate::escape::Disarmed;
pub use crate::facts::{facts, machines};
pub use crate::number::{NO_BREAK_SPACE, plain, quantity};
pub use crate::sentences::list;
pub use crate::study::{Study, studies};
pub use crate::topic_answer::{AnswerPicture, TopicAnswer};
pub use crate::wording::{capitalized, interval_in_words, multiple, multiple_interval, times_sign};

use crate::queues;
use crate::strongest::strongest_comparison;

/// Returns the sentences that answer the topic of shares from one of its studies.
#[must_use]
pub fn findings_about_shares(studies: &[Study<'_>], study: &str) -> Vec<String> {
    queues::QUESTION.sentences_about(studies, study)
}

/// Returns the comparison with the largest gain, as an answer. `None` if nothing was better.
#[must_use]
pub fn strongest_answer(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    strongest_comparison(studies)
}
