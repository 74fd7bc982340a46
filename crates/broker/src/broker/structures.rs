//! Memory charges for structures: outlets, subscriptions, sessions.
//!
//! The charges are upper bounds, with room for the allocator: a structure takes no more memory than its
//! charge.

use crate::mqtt::LastWill;
use unisono_events_wire::{Advertisement, InterestSpec, SubscriptionSpec};

/// Bytes that a client may use beyond the memory limit in its access rule, for its basic structures: its
/// name, its topics, some filters. So the memory limit in a rule can equal the size of the queues that the
/// client asks for, with nothing added for names.
pub(super) const NAMES: u64 = 64 << 10;
/// A topic that a program publishes on: its outlet, and the supplier of the channel.
const OUTLET: u64 = 1024;
/// A pattern of a subscription, in all maps that hold it, without its text.
const PATTERN: u64 = 768;
/// A level of a pattern, in the tree of levels.
const LEVEL: u64 = 256;
/// Copies of a pattern's text.
const PATTERN_COPIES: u64 = 8;
/// Bytes for each byte of a filter: the shortest operation has two bytes, and takes up to 192 in the index.
const FILTER_BYTES: u64 = 96;
/// An MQTT session with its client, without structures that are charged separately.
pub(super) const SESSION: u64 = 4096;
/// A topic that an MQTT client publishes on.
pub(super) const OFFERED: u64 = 384;
/// A topic alias, without the topic's name.
pub(super) const ALIAS: u64 = 128;
/// The position of a logged message that waits for a session.
pub(super) const WAITING_POSITION: u64 = 24;
/// Unreleased messages of QoS 2 are charged in blocks of this many: each time a session has used up its
/// block, it pays for the next one in advance.
pub(super) const UNRELEASED: usize = 256;
/// An unreleased message of QoS 2.
pub(super) const UNRELEASED_ENTRY: u64 = 16;

fn length(text: &str) -> u64 {
    text.len() as u64
}

/// Returns the charge of a program's outlet, including the outlet's copies of the topic's name. The channel
/// charges for its own copy of the name.
pub(super) fn outlet(spec: &Advertisement) -> u64 {
    let texts = [Some(&spec.topic), spec.event_type.as_ref(), spec.writer.as_ref()];
    texts.into_iter().flatten().fold(OUTLET, |sum, text| sum.saturating_add(3 * length(text)))
}

/// Returns the charge of a subscription's names, patterns and filters.
pub(super) fn subscription(spec: &SubscriptionSpec) -> u64 {
    let resume = spec.resume.as_ref().map(|resume| &resume.name);
    let names = [Some(&spec.name), spec.group.as_ref(), resume, spec.class.as_ref()];
    let names = names.into_iter().flatten().map(|name| 4 * length(name));
    names.chain(spec.interests.iter().map(interest)).fold(0, u64::saturating_add)
}

fn interest(interest: &InterestSpec) -> u64 {
    let except = interest.except.iter().flat_map(|except| std::iter::once(&except.topics).chain(&except.but));
    let patterns = except.chain([&interest.topics]).map(|text| pattern(text));
    let event_type = interest.event_type.as_ref().map_or(0, |event_type| 4 * length(event_type));
    let filter = interest.filter.as_ref().map_or(0, |filter| FILTER_BYTES * length(filter));
    patterns.fold(event_type + filter, u64::saturating_add)
}

/// Returns the charge of a pattern, or of the topic filter of an MQTT client.
pub(super) fn pattern(text: &str) -> u64 {
    let levels = text.bytes().filter(|byte| *byte == b'/').count() as u64 + 1;
    PATTERN + PATTERN_COPIES * length(text) + LEVEL * levels
}

/// Returns the charge of a session and its client identifier.
pub(super) fn session(name: &str) -> u64 {
    SESSION + 4 * length(name)
}

pub(super) fn will(will: &LastWill) -> u64 {
    let properties = will.properties.iter().map(|property| 128 + property.size() as u64).sum::<u64>();
    length(&will.topic) + will.payload.len() as u64 + properties
}
