//! The page's first screen: for each topic an answer in a sentence, a small picture, and the command to type.
//!
//! It has the same answers as the last screen of a terminal ([`crate::screen`]), unshortened. The picture
//! draws the comparison of the first sentence ([`crate::topic_answer`]).

use crate::escape::Escaped;
use crate::screen::{self, ScreenBlock};
use crate::study::Study;
use askama::Template;

/// The maximum length of an answer (bytes): five lines of a card.
const MAX_ANSWER_LENGTH: usize = 230;

#[derive(Template)]
#[template(path = "answer_cards.html")]
struct AnswersSection {
    answers: Vec<ScreenBlock>,
    /// The meaning of the thin lines and small figures in the pictures.
    reach: &'static str,
}

pub(crate) fn html(studies: &[Study<'_>]) -> String {
    let answer = |topic: &&str| {
        let block = screen::block(studies, topic);
        ScreenBlock { answer: first_sentences(&block.answer), ..block }
    };
    let mut answers: Vec<ScreenBlock> = screen::topics(studies).iter().map(answer).collect();
    answers.sort_by_key(|block| block.picture.is_none());
    let reach = reach_in_words(&answers);
    AnswersSection { answers, reach }.to_string()
}

/// Returns the meaning of the ends beside a median: few runs have no interval of 95 %.
fn reach_in_words(answers: &[ScreenBlock]) -> &'static str {
    let bars =
        || answers.iter().filter_map(|answer| answer.picture.as_ref()).flat_map(|picture| &picture.bars);
    match (bars().any(|bar| bar.is_range), bars().any(|bar| !bar.is_range)) {
        (true, true) => {
            "the least and the greatest run, or (marked 95 %, from six runs on) the interval of the median"
        }
        (false, true) => "the 95 % interval of the median",
        _ => "the least and the greatest run",
    }
}

/// Returns the first sentences of a text, as many as fit into a card, at least one.
fn first_sentences(text: &str) -> String {
    let ends = text.match_indices(". ").map(|(at, _)| at + 1).chain([text.len()]);
    let fits = ends.clone().take_while(|end| *end <= MAX_ANSWER_LENGTH).last();
    text[..fits.or(ends.clone().next()).unwrap_or_default()].to_owned()
}

/// Returns a name, escaped, with a possible line break after each sign that joins words.
pub(crate) fn breakable(name: &str) -> String {
    Escaped(name).to_string().replace('_', "_<wbr>").replace('=', "=<wbr>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_breaks_where_its_words_end() {
        assert_eq!(breakable("A_B=<c>"), "A_<wbr>B=<wbr>&lt;c&gt;");
    }

    #[test]
    fn a_card_has_whole_sentences_and_at_least_one() {
        let long = format!("One {}.", "word ".repeat(60));
        assert_eq!(first_sentences("One. Two."), "One. Two.");
        assert_eq!(first_sentences(&format!("One. {long}")), "One.");
        assert_eq!(first_sentences(&format!("{long} Two.")), long);
        assert_eq!(first_sentences(""), "");
    }
}
