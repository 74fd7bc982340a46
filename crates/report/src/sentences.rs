//! The answer to a question of one topic: a headline, and sentences that each link to the study on which they
//! rest.

use crate::study::Study;
use askama::Template;

/// What a study says in one sentence, if it has the figures.
pub(crate) type Say = fn(&Study<'_>) -> Option<String>;

#[derive(Template)]
#[template(path = "answer.html")]
pub(crate) struct TopicAnswer<'a> {
    question: &'static str,
    headline: String,
    sentences: Vec<(String, &'a Study<'a>)>,
    /// What to type next, as HTML.
    hint: &'static str,
}

impl<'a> TopicAnswer<'a> {
    /// The answer of the studies that `of` finds by name, in this order; `headline` is the study with the
    /// headline, and what it says.
    pub(crate) fn new(
        of: impl Fn(&str) -> Option<&'a Study<'a>>,
        question: &'static str,
        (study, headline, otherwise): (&str, Say, &str),
        sentences: &[(&str, Say)],
        hint: &'static str,
    ) -> Self {
        let sentence = |(id, say): &(&str, Say)| of(id).and_then(|study| Some((say(study)?, study)));
        let headline = of(study).and_then(headline).unwrap_or_else(|| otherwise.to_owned());
        Self { question, headline, sentences: sentences.iter().filter_map(sentence).collect(), hint }
    }
}
