//! The settings file of a join: the topics that travel, their classes, and the networks.

use serde::Deserialize;
use toml::Spanned;
use unisono_eventchannel::TopicPattern;
use unisono_events_wire::{EventOrder, ExceptSpec, InterestSpec, SubscriptionSpec, WhenFull, WhenLate};
use unisono_text::Position;

/// Why a text is not a valid settings file: the position, and the text to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {what}")]
pub struct JoinSettingsError {
    pub at: Position,
    pub what: String,
}

/// Why a text is not a valid topic pattern for a join.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct JoinPatternError(String);

/// The network's priority for the events of a class; the names are zenoh's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinPriority {
    RealTime,
    InteractiveHigh,
    InteractiveLow,
    DataHigh,
    #[default]
    Data,
    DataLow,
    Background,
}

/// A class of events that travel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinClass {
    /// The same on all hosts.
    pub name: String,
    pub topics: Vec<TopicPattern>,
    /// Topics excluded from `topics`.
    pub except: Vec<TopicPattern>,
    pub priority: JoinPriority,
    /// The class of the broker's policy for the deliveries to this join. `None`: the default class.
    pub broker_class: Option<String>,
    pub queue_events: usize,
    pub queue_bytes: usize,
    pub full: WhenFull,
    /// Zenoh endpoints for listening.
    pub listen: Vec<String>,
    /// Zenoh endpoints of peers to connect to.
    pub connect: Vec<String>,
}

/// The classes of a join. An event belongs to the first class that includes its topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinSettings {
    pub classes: Vec<JoinClass>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenJoin {
    #[serde(default)]
    class: Vec<Spanned<WrittenJoinClass>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenJoinClass {
    name: Spanned<String>,
    topics: Vec<Spanned<String>>,
    #[serde(default)]
    except: Vec<Spanned<String>>,
    #[serde(default)]
    priority: JoinPriority,
    broker_class: Option<String>,
    queue_events: Option<Spanned<usize>>,
    queue_bytes: Option<Spanned<usize>>,
    full: Option<Spanned<WhenFull>>,
    #[serde(default)]
    listen: Vec<String>,
    #[serde(default)]
    connect: Vec<String>,
}

impl JoinSettings {
    /// Parses a settings file.
    ///
    /// # Errors
    /// The file is not valid.
    pub fn parse(text: &str) -> Result<Self, JoinSettingsError> {
        let at = |start| Position::at_offset(text, start);
        let written: WrittenJoin = toml::from_str(text).map_err(|error| JoinSettingsError {
            at: at(error.span().map_or(0, |span| span.start)),
            what: error.message().to_owned(),
        })?;
        let wrong = |start, what: String| Err(JoinSettingsError { at: at(start), what });
        if written.class.is_empty() {
            return wrong(0, "no class; write [[class]], with name and topics".to_owned());
        }
        let mut classes: Vec<JoinClass> = Vec::new();
        for class in written.class {
            let start = class.span().start;
            let class = class.into_inner();
            let (place, name) = (class.name.span().start, class.name.into_inner());
            if !is_name(&name) {
                return wrong(
                    place,
                    format!("the class `{name}`: 1 to 64 of the characters a-z, A-Z, 0-9, - and _"),
                );
            }
            if classes.iter().any(|other| other.name == name) {
                return wrong(
                    place,
                    format!("the class `{name}` is there already; give this one another name"),
                );
            }
            if class.topics.is_empty() {
                return wrong(
                    start,
                    format!("the class `{name}` has no topics; write topics = [\"#\"] for all"),
                );
            }
            let patterns = |texts: Vec<Spanned<String>>| {
                let parsed = texts.into_iter().map(|text| {
                    let place = text.span().start;
                    pattern(text.get_ref()).map_err(|what| JoinSettingsError { at: at(place), what })
                });
                parsed.collect::<Result<Vec<_>, _>>()
            };
            let defaults = SubscriptionSpec::default();
            let bound = |value: Option<Spanned<usize>>, default| match value {
                Some(value) if *value.get_ref() == 0 => Err(JoinSettingsError {
                    at: at(value.span().start),
                    what: "a queue of nothing".to_owned(),
                }),
                Some(value) => Ok(value.into_inner()),
                None => Ok(default),
            };
            let full = match class.full {
                Some(full) if *full.get_ref() == WhenFull::BlockSupplier => {
                    let what = "a network must not block suppliers; write drop-oldest or drop-by-deadline";
                    return wrong(full.span().start, what.to_owned());
                }
                full => full.map_or_else(WhenFull::default, Spanned::into_inner),
            };
            classes.push(JoinClass {
                name,
                topics: patterns(class.topics)?,
                except: patterns(class.except)?,
                priority: class.priority,
                broker_class: class.broker_class,
                queue_events: bound(class.queue_events, defaults.queue_events)?,
                queue_bytes: bound(class.queue_bytes, defaults.queue_bytes)?,
                full,
                listen: class.listen,
                connect: class.connect,
            });
        }
        Ok(Self { classes })
    }

    /// Makes settings with one class, called `events`, with these patterns and endpoints.
    ///
    /// # Errors
    /// A pattern is not valid.
    pub fn of_topics(
        topics: &[String],
        except: &[String],
        (listen, connect): (&[String], &[String]),
    ) -> Result<Self, JoinPatternError> {
        let patterns =
            |texts: &[String]| texts.iter().map(|text| pattern(text)).collect::<Result<Vec<_>, _>>();
        let defaults = SubscriptionSpec::default();
        let class = JoinClass {
            name: "events".to_owned(),
            topics: patterns(topics).map_err(JoinPatternError)?,
            except: patterns(except).map_err(JoinPatternError)?,
            priority: JoinPriority::default(),
            broker_class: None,
            queue_events: defaults.queue_events,
            queue_bytes: defaults.queue_bytes,
            full: defaults.full,
            listen: listen.to_vec(),
            connect: connect.to_vec(),
        };
        Ok(Self { classes: vec![class] })
    }

    /// Returns the class of a topic's events, or `None` if they do not travel.
    pub fn class_of(&self, topic: &str) -> Option<usize> {
        let has = |patterns: &[TopicPattern]| patterns.iter().any(|pattern| pattern.matches(topic));
        self.classes.iter().position(|class| has(&class.topics) && !has(&class.except))
    }

    /// Returns the subscription of a class's join.
    pub fn subscription(&self, class: usize) -> Option<SubscriptionSpec> {
        let (before, class) = (self.classes.get(..class)?, self.classes.get(class)?);
        let texts = |patterns: &[TopicPattern]| patterns.iter().map(ToString::to_string).collect();
        // topics of earlier classes, and excluded topics, take no room in this class's queue
        let earlier = before.iter().flat_map(|class| class.topics.iter().map(|it| (it, &class.except[..])));
        let own = class.except.iter().map(|it| (it, &[][..]));
        let excepted: Vec<_> = earlier.chain(own).collect();
        let interest = |pattern: &TopicPattern| {
            let theirs = excepted.iter().filter(|(topics, _)| topics.overlaps(pattern));
            InterestSpec {
                topics: pattern.to_string(),
                except: theirs
                    .map(|(topics, but)| ExceptSpec { topics: topics.to_string(), but: texts(but) })
                    .collect(),
                ..InterestSpec::default()
            }
        };
        Some(SubscriptionSpec {
            name: format!("join:{}", class.name),
            class: class.broker_class.clone(),
            interests: class.topics.iter().map(interest).collect(),
            queue_events: class.queue_events,
            queue_bytes: class.queue_bytes,
            full: class.full,
            late: WhenLate::Report,
            order: EventOrder::Publication, // the other broker accepts only ascending numbers
            local_only: true,
            ..SubscriptionSpec::default()
        })
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

fn pattern(text: &str) -> Result<TopicPattern, String> {
    if text.starts_with('$') {
        return Err(format!("`{text}`: topics that begin with `$` are the broker's own and do not travel"));
    }
    text.parse().map_err(|error: unisono_eventchannel::NameError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &str = r##"
[[class]]
name = "control"
topics = ["plant/+/control", "alarm/#"]
except = ["alarm/test"]
priority = "real-time"
queue_events = 10
full = "drop-by-deadline"
listen = ["tcp/0.0.0.0:7447"]

[[class]]
name = "rest"
topics = ["#"]
"##;

    #[test]
    fn an_event_travels_in_the_first_class_that_has_its_topic() {
        let settings = JoinSettings::parse(FILE).expect("it is sound");
        let class = |topic| settings.class_of(topic);
        assert_eq!([class("plant/1/control"), class("alarm"), class("alarm/fire")], [Some(0); 3]);
        assert_eq!([class("alarm/test"), class("plant/1/heat")], [Some(1); 2]);
        assert_eq!(class("$channel/deaths"), None);
        let spec = settings.subscription(0).expect("it is there");
        assert_eq!((spec.queue_events, spec.full, spec.local_only), (10, WhenFull::DropByDeadline, true));
        assert_eq!((spec.interests.len(), settings.subscription(2)), (2, None));
    }

    proptest! {
        #[test]
        fn a_class_asks_the_broker_for_the_topics_that_travel_in_it_and_no_others(
            classes in proptest::collection::vec((patterns(), proptest::option::of(patterns())), 1..4),
            topic in "[ab](/[ab]){0,3}",
        ) {
            let class = |(topics, except): &(Vec<String>, Option<Vec<String>>), number: usize| {
                format!("[[class]]\nname = \"c{number}\"\ntopics = {topics:?}\nexcept = {:?}\n", except.clone().unwrap_or_default())
            };
            let text: String = classes.iter().enumerate().map(|(number, it)| class(it, number)).collect();
            let settings = JoinSettings::parse(&text).expect("it is sound");
            for class in 0..classes.len() {
                let spec = settings.subscription(class).expect("it is there");
                let asks = spec.interests().expect("patterns").iter().any(|it| it.asks_for(&topic, None));
                prop_assert_eq!(asks, settings.class_of(&topic) == Some(class), "class {} of\n{}", class, text);
            }
        }
    }

    fn patterns() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("([ab+]/){0,2}[ab+#]", 1..4)
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_place() {
        let said = |text: &str| JoinSettings::parse(text).expect_err("wrong").to_string();
        for (text, part) in [
            ("", "1:1: no class"),
            ("[[class]]\nname = \"a b\"\ntopics = [\"#\"]", "2:8: the class `a b`"),
            ("[[class]]\nname = \"a\"\ntopics = []", "has no topics"),
            ("[[class]]\nname = \"a\"\ntopics = [\"x/#/y\"]", "3:11: `x/#/y`"),
            ("[[class]]\nname = \"a\"\ntopics = [\"$channel/#\"]", "do not travel"),
            ("[[class]]\nname = \"a\"\ntopics = [\"#\"]\nfull = \"block-supplier\"", "must not block"),
            ("[[class]]\nname = \"a\"\ntopics = [\"#\"]\nqueue_events = 0", "4:16: a queue of nothing"),
            ("[[class]]\nname = \"a\"\ntopics = [\"#\"]\nfulll = 1", "unknown field"),
            (&format!("{FILE}[[class]]\nname = \"rest\"\ntopics = [\"#\"]"), "is there already"),
        ] {
            assert!(said(text).contains(part), "{text}\n{}", said(text));
        }
    }
}
