//! Random programs of three identities: the identities with their rules, the names that they use, and the
//! steps that they take.

use super::bench::Comes;
use proptest::prelude::*;
use unisono_events_client::TopicPattern;

/// Ada, Bob, and all who prove nothing.
pub(crate) const IDENTITIES: [Comes; 3] = [Comes::User(7), Comes::User(8), Comes::Anonymous];
pub(crate) const PROGRAMS: [&str; 3] = ["program-of-ada", "program-of-bob", "program-of-nobody"];
pub(crate) const ANONYMOUS: usize = 2;
pub(crate) const TOPICS: [&str; 4] = ["public/a", "public/b", "secret/a", "team/a"];
pub(crate) const PATTERNS: [&str; 6] = ["public/#", "public/a", "secret/#", "team/a", "+/a", "#"];
/// Names of groups, and how long they linger.
pub(crate) const GROUPS: [(&str, u64); 4] =
    [("crew", 0), ("jobs", 0), ("lasting", LINGER), ("stays", LINGER)];
pub(crate) const LINGER: u64 = 20_000_000_000;
pub(crate) const CONSUMERS: [&str; 3] = ["billing", "jobs", "audit"];
pub(crate) const WRITERS: [&str; 2] = ["shop", "jobs"];
/// Names that the rules of Ada and Bob list.
pub(crate) const LISTED: [&str; 2] = ["jobs", "stays"];

pub(crate) const RULES: &str = r##"
[[allow]]
who = ["unix:7"]
publish = ["#"]
subscribe = ["#"]
names = ["jobs", "stays"]

[[allow]]
who = ["unix:8"]
publish = ["public/#", "team/#"]
subscribe = ["public/#", "team/#"]
names = ["jobs", "stays"]

[[allow]]
who = ["anonymous"]
publish = ["public/#"]
subscribe = ["public/#"]
"##;

/// Returns whether an identity may see all topics of a pattern; of these few patterns it is enough to look at
/// what they begin with.
pub(crate) fn may_see(identity: usize, pattern: &str) -> bool {
    match (identity, pattern) {
        (0, _) => true,
        (1, pattern) => pattern.starts_with("public/") || pattern.starts_with("team/"),
        (_, pattern) => pattern.starts_with("public/"),
    }
}

pub(crate) fn matches(pattern: &str, topic: &str) -> bool {
    pattern.parse::<TopicPattern>().expect("a pattern").matches(topic)
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A program of an identity comes.
    Come(usize),
    /// Ends one of the connections.
    Go(usize),
    Subscribe(usize, usize, Mode),
    Unsubscribe(usize),
    Publish(usize, usize, Option<usize>),
    Mqtt {
        identity: usize,
        client: usize,
        clean: bool,
        lasts: bool,
    },
    MqttSubscribe(usize, usize, Option<usize>),
    /// Ada's program joins a group that lingers and goes; something may be published; Bob's program comes.
    Handover(usize, Option<usize>),
    Ask(usize),
    Wait(u64),
    Restart,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Alone,
    Group(usize),
    Resume(usize),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (which, identity) = (0_usize..8, 0_usize..3);
    let mode = prop_oneof![
        1 => Just(Mode::Alone),
        5 => (0..GROUPS.len()).prop_map(Mode::Group),
        3 => (0..CONSUMERS.len()).prop_map(Mode::Resume),
    ];
    let step = prop_oneof![
        4 => identity.clone().prop_map(Step::Come),
        2 => which.clone().prop_map(Step::Go),
        14 => (which.clone(), 0..PATTERNS.len(), mode).prop_map(|(at, pattern, mode)| Step::Subscribe(at, pattern, mode)),
        4 => which.clone().prop_map(Step::Unsubscribe),
        8 => (which.clone(), 0..TOPICS.len(), prop::option::of(0..WRITERS.len()))
            .prop_map(|(at, topic, writer)| Step::Publish(at, topic, writer)),
        3 => (identity, 0_usize..2, any::<bool>(), any::<bool>())
            .prop_map(|(identity, client, clean, lasts)| Step::Mqtt { identity, client, clean, lasts }),
        3 => (which.clone(), 0..PATTERNS.len(), prop::option::of(0..GROUPS.len()))
            .prop_map(|(at, pattern, group)| Step::MqttSubscribe(at, pattern, group)),
        2 => (0..PATTERNS.len(), prop::option::of(0..TOPICS.len()))
            .prop_map(|(pattern, topic)| Step::Handover(pattern, topic)),
        2 => which.prop_map(Step::Ask),
        2 => (1_u64..30).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..120)
}
