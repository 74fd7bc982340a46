//! Where an element of a JSON text lies.
//!
//! Walks the text without building anything; only errors need it, so it may take a while. The text has been
//! parsed before, but nothing here depends on that: on text that is no JSON the answer is some place in it.

/// One step down into a JSON text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonStep<'a> {
    /// The member of an object; of several of that name the last.
    Key(&'a str),
    /// The element of an array, from 0.
    Index(usize),
}

/// The byte at which the element begins; if it is not there, where its nearest ancestor does.
#[must_use]
pub fn locate(text: &str, path: &[JsonStep<'_>]) -> usize {
    let mut walk = JsonWalk { text: text.as_bytes(), at: 0 };
    walk.space();
    let mut found = walk.at;
    for step in path {
        walk.at = found;
        let Some(inside) = walk.step(*step) else { break };
        found = inside;
    }
    found
}

struct JsonWalk<'a> {
    text: &'a [u8],
    at: usize,
}

impl JsonWalk<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// From the beginning of a container to the element asked for.
    fn step(&mut self, step: JsonStep<'_>) -> Option<usize> {
        let opening = self.peek()?;
        if !matches!((opening, step), (b'{', JsonStep::Key(_)) | (b'[', JsonStep::Index(_))) {
            return None;
        }
        self.at += 1;
        let mut found = None;
        for number in 0.. {
            self.space();
            if self.peek().is_none_or(|byte| matches!(byte, b'}' | b']')) {
                break;
            }
            let mut wanted = step == JsonStep::Index(number);
            if let JsonStep::Key(key) = step {
                let from = self.at;
                self.value();
                wanted = self.text.get(from + 1..self.at.saturating_sub(1)) == Some(key.as_bytes());
                self.space();
                if self.peek() == Some(b':') {
                    self.at += 1;
                }
                self.space();
            }
            if wanted {
                found = Some(self.at);
                if opening == b'[' {
                    break;
                }
            }
            self.value();
            self.space();
            if self.peek() == Some(b',') {
                self.at += 1;
            }
        }
        found
    }

    /// Over one value, however deep; always moves on, so that every loop ends.
    fn value(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                None => return,
                Some(b'"') => self.string(),
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                Some(_) if depth > 0 => self.at += 1,
                Some(_) => {
                    self.at += 1;
                    while self.peek().is_some_and(|byte| !b",:]} \t\r\n".contains(&byte)) {
                        self.at += 1;
                    }
                }
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JsonStep::{Index, Key};

    const TEXT: &str = r#" {"a, }": [1, [2, "]\"["], {"b": true}], "c":{"d" : 5}}"#;

    fn at(path: &[JsonStep<'_>]) -> &'static str {
        &TEXT[locate(TEXT, path)..]
    }

    #[test]
    fn elements_are_found_behind_strings_that_look_like_brackets() {
        assert!(at(&[]).starts_with("{\"a"));
        assert!(at(&[Key("a, }"), Index(1), Index(1)]).starts_with(r#""]\"["#));
        assert!(at(&[Key("a, }"), Index(2), Key("b")]).starts_with("true"));
        assert!(at(&[Key("c"), Key("d")]).starts_with("5}"));
    }

    #[test]
    fn what_is_not_there_is_placed_at_its_nearest_ancestor() {
        assert!(at(&[Key("c"), Key("x")]).starts_with("{\"d\""));
        assert!(at(&[Key("a, }"), Index(7)]).starts_with("[1, [2"));
    }

    proptest::proptest! {
        #[test]
        fn every_text_and_path_has_an_answer_within_the_text(text in "[\\[\\]{}\",:\\\\a1 ]{0,40}", path in 0..4_usize) {
            let steps = [Index(path), Key("a"), Index(0), Key("1")];
            proptest::prop_assert!(locate(&text, &steps) <= text.len());
            proptest::prop_assert!(locate(&text, &steps[1..]) <= text.len());
        }
    }
}
