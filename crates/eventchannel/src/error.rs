//! The errors, one variant for each action that the caller can take.

use crate::admission::AdmissionError;
use crate::pattern::NameError;
use crate::quality::Mismatch;
use crate::topic::TopicSpec;
use std::fmt;
use std::sync::Arc;
use unisono_time::Duration;

/// Why a topic, a supplier, a consumer or a subscription is refused. A refusal changes nothing.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    #[error("there is no {what} {number}; it was never made, or has gone")]
    Unknown { what: &'static str, number: u32 },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(
        "the topic `{}` is in use otherwise: declared: {declared}; asked: {asked}; ask for what is declared, or \
         wait until nobody offers the topic and it keeps nothing",
        declared.name
    )]
    TopicDiffers { declared: Box<TopicSpec>, asked: Box<TopicSpec> },
    #[error("the topic `{topic}` is of type {}, and the offer is of {}", kind(declared), kind(offered))]
    TypeDiffers { topic: Arc<str>, declared: Option<Arc<str>>, offered: Option<Arc<str>> },
    #[error("there is no class `{name}` that events can wait in; name a leaf of the policy, or no class")]
    Class { name: Arc<str> },
    #[error("the policy has no default class; name one of its leaves")]
    NoDefaultClass,
    #[error(
        "the group `{group}` has another inbox: {differences}; state the same as its other consumers, or name \
         another group"
    )]
    GroupDiffers { group: Arc<str>, differences: String },
    #[error("topic `{topic}`: {mismatch}")]
    Mismatch { topic: Arc<str>, mismatch: Mismatch },
    #[error("class `{class}`: {mismatch}")]
    ShareMismatch { class: String, mismatch: Mismatch },
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    #[error("an execution time of {longest} ns for an event of the largest payload is more than {most} ns")]
    TooLong { longest: u64, most: u64 },
    #[error("there are {most} {what} already, as many as may be")]
    TooMany { what: &'static str, most: usize },
    #[error(
        "the names of topics count as memory, and {whose} may have {most} bytes kept beside the queues; publish \
         on fewer topics, or on such with shorter names"
    )]
    NamesFull { whose: KeptBy, most: usize },
    #[error("one user may have {most} {what} at a time; give some back")]
    TenantLimit { what: &'static str, most: usize },
    #[error(
        "a consumer that reserves time and shares it out among suppliers; leave out one of the two, because what \
         was reserved is kept by deadlines"
    )]
    SharedReservation,
    #[error("{asked} events of history; a topic keeps at most {most}")]
    History { asked: usize, most: usize },
    #[error("a timer needs a period above zero")]
    ZeroPeriod,
    #[error("a correlation of {parts} parts; from 1 to {most}")]
    Parts { parts: usize, most: usize },
    #[error("the topic is still offered by {suppliers} suppliers")]
    InUse { suppliers: usize },
}

fn kind(event_type: &Option<Arc<str>>) -> String {
    event_type.as_ref().map_or_else(|| "no type".to_owned(), |name| format!("`{name}`"))
}

/// Whose bound on kept events is reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeptBy {
    Client,
    User,
    All,
}

impl fmt::Display for KeptBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "this client",
            Self::User => "the programs of one user",
            Self::All => "all together",
        })
    }
}

/// Why an event is refused to its supplier. No consumer gets a refused event.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    #[error("the supplier has not offered the topic, or is gone; offer it first")]
    NotOffered,
    #[error("a payload of {bytes} bytes; the largest has {most}")]
    TooLarge { bytes: usize, most: usize },
    #[error("an event with {fields} fields; at most {most}")]
    TooManyFields { fields: usize, most: usize },
    #[error(
        "the supplier has published number 2^64 - 1, the last one; withdraw the topic and offer it again"
    )]
    NumbersUsedUp,
    #[error("the deadline passed {by:.1} ago")]
    PastDeadline { by: Duration },
    #[error("more than the rate offered; try again in {after:.1}")]
    TooFast { after: Duration },
    #[error(
        "the topic keeps events for those who come late, and {whose} may have {most} bytes kept beside the \
         queues; remove retained events, or publish on a topic that keeps fewer"
    )]
    KeptFull { whose: KeptBy, most: usize },
    #[error("the queue of the consumer `{consumer}` is full; try again when it has taken something")]
    Full { consumer: Arc<str> },
    #[error("it cannot be kept: {reason}")]
    NotKept { reason: String },
}
