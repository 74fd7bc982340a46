//! The reader of filters: no text makes it panic, the text form of a filter is read as the same filter, and
//! the index agrees with the filter. The first byte is the length of the text; the bytes after the text make
//! an event's fields.
#![no_main]

use unisono_eventchannel::{
    ContentFilter, FieldSet, Interest, SubscriptionId, SubscriptionIndex, TopicRoute,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first() else { return };
    let (text, rest) = rest.split_at(rest.len().min(usize::from(*length)));
    let Ok(text) = std::str::from_utf8(text) else { return };
    let filter: ContentFilter = match text.parse() {
        Ok(filter) => filter,
        Err(error) => {
            assert!(!format!("{error}").is_empty());
            return;
        }
    };
    let mut fields = FieldSet::new();
    for (name, pair) in ["a", "b", "c", "d"].into_iter().zip(rest.chunks(2)) {
        match pair {
            [0, value] => fields.set(name, i64::from(*value)),
            [1, value] => fields.set(name, f64::from(*value) / 4.0),
            [2, value] => fields.set(name, value % 2 == 0),
            [3, value] => fields.set(name, "abcabc".get(..usize::from(value % 7)).unwrap_or("")),
            _ => {}
        }
    }
    let interest = Interest::in_topics("t".parse().expect("a pattern")).filtered(filter.clone());
    let (mut index, mut found) = (SubscriptionIndex::default(), Vec::new());
    index.insert(SubscriptionId(1), interest);
    index.matching(("t", None), &mut TopicRoute::default(), &fields, &mut found);
    assert_eq!(!found.is_empty(), filter.matches(&fields));
    index.remove(SubscriptionId(1));
    index.matching(("t", None), &mut TopicRoute::default(), &fields, &mut found);
    assert!(found.is_empty());
});
