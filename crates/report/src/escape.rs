//! Escapes text. Text from records is untrusted, so all of it passes through here. Templates escape by
//! [`Disarmed`], drawings by [`Escaped`]; `|safe` in a template marks HTML and SVG that this crate has
//! produced itself.
//!
//! The five characters with a meaning in HTML and SVG become entities. Control characters, which no parser of
//! either accepts, become U+FFFD. Escaped text is safe between tags and inside double or single quotes, but
//! not inside `<style>` or `<script>`; no text from records is ever put there.

use std::fmt::{self, Write as _};

/// Displays a text with all characters escaped that could end a text node or an attribute.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(' ')?,
                c if c.is_control() || is_direction(c) || is_noncharacter(c) => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// `Escaped` for templates; `askama.toml` names it.
#[derive(Clone, Copy)]
pub struct Disarmed;

impl askama::filters::Escaper for Disarmed {
    fn write_escaped_str<W: fmt::Write>(&self, mut to: W, text: &str) -> fmt::Result {
        write!(to, "{}", Escaped(text))
    }
}

/// Whether a character reorders the text around it: a name with such characters could rewrite a verdict.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_noncharacter(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}') || (u32::from(c) & 0xfffe) == 0xfffe
}

/// Returns a name for `id` and `href`: the letters and digits of the text, joined by hyphens; never empty.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::with_capacity(text.len());
    for c in text.chars().take(64) {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_matches('-');
    if slug.is_empty() { "x".to_owned() } else { slug.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn escape(text: &str) -> String {
        Escaped(text).to_string()
    }

    #[test]
    fn markup_becomes_entities() {
        assert_eq!(escape("<b a='1'>&\"</b>"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;&lt;/b&gt;");
    }

    #[test]
    fn text_that_reorders_its_neighbours_is_disarmed() {
        assert_eq!(escape("a\u{202e}b\u{0}c"), "a\u{fffd}b\u{fffd}c");
    }

    proptest! {
        #[test]
        fn no_escaped_text_can_open_a_tag_or_close_an_attribute(text in ".*") {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
            for (at, _) in escaped.match_indices('&') {
                let rest = &escaped[at..];
                let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
                prop_assert!(known.iter().any(|entity| rest.starts_with(entity)));
            }
        }

        #[test]
        fn a_slug_is_a_plain_word(text in ".*") {
            let slug = slug(&text);
            prop_assert!(!slug.is_empty());
            prop_assert!(slug.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
        }
    }
}
