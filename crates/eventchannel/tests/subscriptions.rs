//! Compares the subscription index with the evaluation of every subscription. The evaluation of filters in
//! this test shares no code with the crate.

use proptest::prelude::*;
use unisono_eventchannel::{
    ContentFilter, ExceptedTopics, FieldSet, FieldValue, Interest, SubscriptionId, SubscriptionIndex,
    TopicRoute,
};

/// A filter as a tree, written as text for the crate and evaluated here.
#[derive(Clone, Debug)]
enum Wish {
    Compare(&'static str, &'static str, i64),
    Half(&'static str, &'static str, i64),
    Fields(&'static str, &'static str, &'static str),
    Sum(&'static str, i64, &'static str, &'static str),
    In(&'static str, Vec<i64>, bool),
    Text(&'static str, &'static str, bool),
    Starts(&'static str, &'static str),
    Exists(&'static str),
    Not(Box<Wish>),
    And(Vec<Wish>),
    Or(Vec<Wish>),
}

const NAMES: [&str; 4] = ["a", "b", "c.d", "_e"];
const SIGNS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];
const TEXTS: [&str; 4] = ["", "x", "xy", "xyz"];

fn ordered(sign: &str, one: f64, other: f64) -> bool {
    match sign {
        "==" => one == other,
        "!=" => one != other,
        "<" => one < other,
        "<=" => one <= other,
        ">" => one > other,
        _ => one >= other,
    }
}

fn number(fields: &FieldSet, name: &str) -> Option<f64> {
    match fields.field(name) {
        Some(FieldValue::Number(number)) => Some(number.to_f64()),
        _ => None,
    }
}

fn text<'a>(fields: &'a FieldSet, name: &str) -> Option<&'a str> {
    match fields.field(name) {
        Some(FieldValue::Text(text)) => Some(text),
        _ => None,
    }
}

impl Wish {
    fn written(&self) -> String {
        let join = |parts: &[Wish], word: &str| {
            let parts: Vec<String> = parts.iter().map(|part| format!("({})", part.written())).collect();
            parts.join(word)
        };
        match self {
            Self::Compare(name, sign, value) => format!("{name} {sign} {value}"),
            Self::Half(name, sign, value) => format!("{value}.5 {sign} {name}"),
            Self::Fields(name, sign, other) => format!("{name} {sign} {other}"),
            Self::Sum(name, value, sign, other) => format!("{name} * 2 - {value} {sign} -{other}"),
            Self::In(name, values, not) => {
                let values: Vec<String> = values.iter().map(i64::to_string).collect();
                format!("{name} {}in ({})", if *not { "not " } else { "" }, values.join(", "))
            }
            Self::Text(name, text, equal) => {
                format!("{name} {} \"{text}\"", if *equal { "==" } else { "!=" })
            }
            Self::Starts(name, text) => format!("{name} starts_with \"{text}\""),
            Self::Exists(name) => format!("exists {name}"),
            Self::Not(part) => format!("not ({})", part.written()),
            Self::And(parts) => join(parts, " and "),
            Self::Or(parts) => join(parts, " or "),
        }
    }

    fn holds(&self, fields: &FieldSet) -> bool {
        match self {
            Self::Compare(name, sign, value) => match number(fields, name) {
                Some(number) => ordered(sign, number, *value as f64),
                None => *sign == "!=" && fields.field(name).is_some(),
            },
            Self::Half(name, sign, value) => match number(fields, name) {
                Some(number) => ordered(sign, *value as f64 + 0.5, number),
                None => *sign == "!=" && fields.field(name).is_some(),
            },
            Self::Fields(name, sign, other) => match (number(fields, name), number(fields, other)) {
                (Some(one), Some(other)) => ordered(sign, one, other),
                _ => match (fields.field(name), fields.field(other)) {
                    (Some(one), Some(other)) => match *sign {
                        "==" => one == other,
                        "!=" => one != other,
                        _ => false,
                    },
                    _ => false,
                },
            },
            Self::Sum(name, value, sign, other) => match (number(fields, name), number(fields, other)) {
                (Some(one), Some(other)) => ordered(sign, one * 2.0 - *value as f64, -other),
                _ => false,
            },
            Self::In(name, values, not) => match fields.field(name) {
                None => false,
                Some(_) => {
                    number(fields, name)
                        .is_some_and(|number| values.iter().any(|value| *value as f64 == number))
                        != *not
                }
            },
            Self::Text(name, wanted, equal) => {
                fields.field(name).is_some() && (text(fields, name) == Some(wanted)) == *equal
            }
            Self::Starts(name, prefix) => text(fields, name).is_some_and(|text| text.starts_with(prefix)),
            Self::Exists(name) => fields.field(name).is_some(),
            Self::Not(part) => !part.holds(fields),
            Self::And(parts) => parts.iter().all(|part| part.holds(fields)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(fields)),
        }
    }
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn wish() -> impl Strategy<Value = Wish> {
    let sign = || prop::sample::select(SIGNS.to_vec());
    let text = || prop::sample::select(TEXTS.to_vec());
    // literals are not negative: a leading `-` is an operation of its own, which `Sum` covers
    let leaf = prop_oneof![
        4 => (name(), sign(), 0..6_i64).prop_map(|(name, sign, value)| Wish::Compare(name, sign, value)),
        1 => (name(), sign(), 0..6_i64).prop_map(|(name, sign, value)| Wish::Half(name, sign, value)),
        1 => (name(), sign(), name()).prop_map(|(name, sign, other)| Wish::Fields(name, sign, other)),
        1 => (name(), 0..6_i64, sign(), name()).prop_map(|(name, value, sign, other)| Wish::Sum(name, value, sign, other)),
        1 => (name(), prop::collection::vec(-2..6_i64, 1..4), any::<bool>())
            .prop_map(|(name, values, not)| Wish::In(name, values, not)),
        1 => (name(), text(), any::<bool>()).prop_map(|(name, text, equal)| Wish::Text(name, text, equal)),
        1 => (name(), text()).prop_map(|(name, text)| Wish::Starts(name, text)),
        1 => name().prop_map(Wish::Exists),
    ];
    leaf.prop_recursive(3, 16, 3, |part| {
        prop_oneof![
            part.clone().prop_map(|part| Wish::Not(Box::new(part))),
            prop::collection::vec(part.clone(), 2..4).prop_map(Wish::And),
            prop::collection::vec(part, 2..4).prop_map(Wish::Or),
        ]
    })
}

fn fields() -> impl Strategy<Value = FieldSet> {
    let value = prop_oneof![
        4 => (0..6_i64).prop_map(FieldValue::from),
        1 => (-3..12_i64).prop_map(|half| FieldValue::from(half as f64 / 2.0)),
        1 => prop::sample::select(TEXTS.to_vec()).prop_map(FieldValue::from),
        1 => any::<bool>().prop_map(FieldValue::from),
        1 => Just(FieldValue::from(f64::NAN)),
    ];
    prop::collection::vec((name(), value), 0..5).prop_map(|fields| {
        fields.into_iter().fold(FieldSet::new(), |set, (name, value)| set.with(name, value))
    })
}

proptest! {
    #[test]
    fn a_filter_means_what_its_tree_means(wish in wish(), fields in fields()) {
        let filter: ContentFilter = wish.written().parse().expect("written by the grammar");
        prop_assert_eq!(filter.matches(&fields), wish.holds(&fields), "{}", filter);
    }

    #[test]
    fn the_index_finds_the_subscriptions_that_match_one_by_one(
        subscriptions in prop::collection::vec(
            (
                (prop::sample::select(vec!["t", "t/u", "t/+", "#", "v/#"]), 0..4_usize),
                any::<bool>(),
                prop::option::of(wish()),
                any::<bool>(),
            ),
            0..24,
        ),
        events in prop::collection::vec((prop::sample::select(vec!["t", "t/u", "t/v", "w"]), any::<bool>(), fields()), 1..8),
    ) {
        let mut index = SubscriptionIndex::default();
        let mut interests = Vec::new();
        // excepted patterns, and the topic names that they match
        let excepted: [(_, &[&str]); 4] =
            [(None, &[]), (Some("t/#"), &["t", "t/u", "t/v"]), (Some("+"), &["t", "w"]), (Some("t"), &["t"])];
        for ((pattern, except), typed, wish, stays) in &subscriptions {
            let mut interest = Interest::in_topics(pattern.parse().expect("a pattern"));
            let parsed = |text: &str| ExceptedTopics { pattern: text.parse().expect("a pattern"), but: Vec::new() };
            interest = interest.leaving_out(excepted[*except].0.into_iter().map(parsed).collect());
            if *typed {
                interest = interest.typed("T");
            }
            if let Some(wish) = wish {
                interest = interest.filtered(wish.written().parse().expect("written by the grammar"));
            }
            interests.push((interest, *stays));
        }
        let ids = || (0..).map(SubscriptionId);
        for (id, (interest, _)) in ids().zip(&interests) {
            index.insert(id, interest.clone());
        }
        for (id, (_, stays)) in ids().zip(&interests) {
            if !stays {
                index.remove(id);
            }
        }
        let mut found = Vec::new();
        for (topic, typed, fields) in &events {
            let event_type = typed.then_some("T");
            index.matching((topic, event_type), &mut TopicRoute::default(), fields, &mut found);
            found.sort_unstable();
            let matching = ids().zip(&interests).zip(&subscriptions).filter(|((_, (interest, stays)), ((_, except), _, wish, _))| {
                let holds = wish.as_ref().is_none_or(|wish| wish.holds(fields));
                *stays && holds && interest.pattern.matches(topic) && (*typed || interest.event_type.is_none())
                    && !excepted[*except].1.contains(topic)
            });
            let expected: Vec<SubscriptionId> = matching.map(|((id, _), _)| id).collect();
            prop_assert_eq!(&found, &expected);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic_and_errors_have_a_place(text in "[a-c0-9 \"<>=!()+*/.,&|\\\\\\-\n]{0,40}|(and|or|not|in|exists|starts_with|true|[(]| |a|1|\"x\"){0,20}") {
        if let Err(error) = text.parse::<ContentFilter>() {
            prop_assert!(error.at.line >= 1 && error.at.column >= 1 && !error.what.is_empty());
        }
    }
}

#[test]
fn a_route_is_found_again_when_patterns_have_changed() {
    let mut index = SubscriptionIndex::default();
    let (mut route, mut found) = (TopicRoute::default(), Vec::new());
    let mut matching = |index: &mut SubscriptionIndex| {
        index.matching(("t/u", None), &mut route, &FieldSet::new(), &mut found);
        found.sort_unstable();
        found.clone()
    };
    let all = |text: &str| Interest::in_topics(text.parse().expect("a pattern"));
    assert_eq!(matching(&mut index), []);
    index.insert(SubscriptionId(1), all("t/+"));
    assert_eq!(matching(&mut index), [SubscriptionId(1)]);
    index.insert(SubscriptionId(2), all("#"));
    assert_eq!(matching(&mut index), [SubscriptionId(1), SubscriptionId(2)]);
    index.insert(SubscriptionId(2), all("x"));
    assert_eq!(matching(&mut index), [SubscriptionId(1)]);
    index.remove(SubscriptionId(1));
    assert_eq!(matching(&mut index), []);
}
