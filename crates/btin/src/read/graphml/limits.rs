//! Refuses GraphML that would take too long to parse, before the XML parser reads the text.
//!
//! The parser compares each attribute of an element with all others, and it takes as many steps to find the
//! ancestors of an element as the element is deep. Both times grow with the square of the text. A document
//! type may define entities that grow without bound when they are used; GraphML needs none. So this check
//! walks over the text once, from `<` to `<`, and stores only the depth. It leaves text that is not XML to
//! the parser, whose error names the position.

use crate::format::ReadError;

/// The maximum depth of nested elements. Graph programs write at most six levels for each graph within a
/// graph.
const DEEPEST: usize = 64;

/// The maximum number of attributes of one element. The GraphML schema knows ten; programs add a few of their
/// own.
const MAX_ATTRIBUTES: usize = 256;

pub(super) fn check(text: &str) -> Result<(), ReadError> {
    let mut depth = 0_usize;
    let mut from = 0;
    while let Some(found) = text[from..].find('<') {
        let at = from + found;
        let rest = &text[at..];
        let wrong = |problem: String| Err(ReadError::at(text, at, "", problem));
        let end = if rest.starts_with("<!--") {
            rest.find("-->")
        } else if rest.starts_with("<![CDATA[") {
            rest.find("]]>")
        } else if rest.starts_with("<?") {
            rest.find("?>")
        } else if rest.starts_with("<!") {
            return wrong("a document type (<!DOCTYPE ...>) is not read; remove it".to_owned());
        } else if rest.starts_with("</") {
            depth = depth.saturating_sub(1);
            rest.find('>')
        } else {
            let tag = ElementTag::read(rest);
            if tag.attributes > MAX_ATTRIBUTES {
                return wrong(format!("an element with more than {MAX_ATTRIBUTES} attributes"));
            }
            depth += usize::from(tag.opens);
            if depth > DEEPEST {
                return wrong(format!("elements more than {DEEPEST} deep"));
            }
            tag.end
        };
        let Some(end) = end else { return Ok(()) };
        from = at + end;
    }
    Ok(())
}

/// The opening tag of an element.
struct ElementTag {
    attributes: usize,
    /// Whether the element has content, so that a closing tag follows.
    opens: bool,
    /// The byte offset of the `>`, or `None` if the text ends before it.
    end: Option<usize>,
}

impl ElementTag {
    fn read(text: &str) -> Self {
        let (mut attributes, mut quote, mut before) = (0, None, 0);
        for (at, byte) in text.bytes().enumerate() {
            match (quote, byte) {
                (Some(open), _) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'=') => attributes += 1,
                (None, b'>') => return Self { attributes, opens: before != b'/', end: Some(at) },
                (None, _) => {}
            }
            before = byte;
        }
        Self { attributes, opens: true, end: None }
    }
}
