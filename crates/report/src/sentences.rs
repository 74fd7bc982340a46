//! An answer's sentences as a list, each with a link to the study that it rests on.

use crate::escape::{Escaped, slug};
use crate::study::Study;
use std::fmt::Write as _;

/// What a study says in one sentence, if it has the figures.
pub(crate) type Say = fn(&Study<'_>) -> Option<String>;

/// The sentences of the studies that `of` finds by name, in this order; nothing if none has anything to say.
pub(crate) fn html<'s, 'r: 's>(
    of: impl Fn(&str) -> Option<&'s Study<'r>>,
    sentences: &[(&str, Say)],
) -> String {
    let mut list = String::new();
    for (id, say) in sentences {
        let Some((study, text)) = of(id).and_then(|study| Some((study, say(study)?))) else { continue };
        let _ = writeln!(
            list,
            "<li>{} <small><a href=\"#{}\">{}</a></small></li>",
            Escaped(&text),
            slug(&study.head.study),
            Escaped(&study.head.title)
        );
    }
    if list.is_empty() { list } else { format!("<ul class=\"verdicts\">\n{list}</ul>\n") }
}
