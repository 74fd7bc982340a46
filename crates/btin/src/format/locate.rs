//! Finds the position of an element in a JSON text.
//!
//! Each step parses the value that the previous steps found, and keeps only the start of the next value. Only
//! errors need positions, so this may be slow. For a text that is not JSON, the result is some position in
//! it.

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// One step down into a JSON text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonStep<'a> {
    /// The member of an object with this name; if several have it, the last one.
    Key(&'a str),
    /// The element of an array with this index, from 0.
    Index(usize),
}

/// Returns the byte offset of the element at `path`. If it does not exist, returns the offset of its nearest
/// ancestor.
pub fn locate(text: &str, path: &[JsonStep<'_>]) -> usize {
    let mut found = text.trim_start();
    for step in path {
        let Ok(Some(inside)) = step.deserialize(&mut serde_json::Deserializer::from_str(found)) else {
            break;
        };
        found = inside.get();
    }
    found.as_ptr().addr() - text.as_ptr().addr()
}

impl<'de> DeserializeSeed<'de> for JsonStep<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonStep<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value()?;
            found = if self == JsonStep::Key(&key) { Some(value) } else { found };
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let JsonStep::Index(wanted) = self else { return Ok(None) };
        for _ in 0..wanted {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = list.next_element()?;
        while list.next_element::<IgnoredAny>()?.is_some() {} // the parser demands the list's end
        Ok(found)
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
