//! Notices to consumers, in their transmitted form.

use serde::{Deserialize, Serialize};
use std::fmt;
use unisono_eventchannel::{ChannelNotice, Departed, Gap, GapCause};

/// A notice. It identifies a topic by its number; the topic's name came in an earlier frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum NoticeText {
    /// Events of a supplier are missing: `lost` of the events from `first` to `last`. If `lost` is 0, the
    /// number of missing events from `first` on is unknown.
    Gap { topic: u32, supplier: u32, first: u64, last: u64, lost: u64, cause: String },
    /// More topics and suppliers have missing events than the broker records separately. `lost` is the number
    /// of missing events that are in no gap.
    FurtherGaps { lost: u64 },
    /// A supplier publishes no more.
    Gone { topic: u32, supplier: u32, died: bool },
    /// Another supplier is now the owner of the topic.
    Owner { topic: u32, supplier: u32 },
    /// The requested quality is no longer offered; the text has both values.
    Mismatch { topic: u32, text: String },
    /// A period of a timer has elapsed.
    Tick { at_ns: u64 },
    /// No event has come since this time.
    Silence { since_ns: u64 },
    /// A correlation began and was not completed in time.
    Incomplete {},
    /// A resuming consumer had not read these positions of the log, and they were removed by the log's bounds
    /// or are damaged.
    Lost { first: u64, last: u64 },
}

impl NoticeText {
    /// Converts a notice of the channel, or returns `None` if this protocol has no such kind of notice.
    pub fn from_channel(notice: &ChannelNotice) -> Option<Self> {
        Some(match notice {
            ChannelNotice::Gap(Gap { topic, supplier, first, last, lost, cause }) => {
                let cause = match cause {
                    GapCause::Full => "full",
                    GapCause::Late => "late",
                    GapCause::TooLarge => "too-large",
                    GapCause::GivenUp => "given-up",
                    GapCause::NotReceived => "not-received",
                    _ => "other",
                };
                let (topic, supplier, cause) = (topic.0, supplier.0, cause.to_owned());
                Self::Gap { topic, supplier, first: *first, last: *last, lost: *lost, cause }
            }
            ChannelNotice::FurtherGaps { lost } => Self::FurtherGaps { lost: *lost },
            ChannelNotice::Gone { topic, supplier, why } => {
                Self::Gone { topic: topic.0, supplier: supplier.0, died: *why == Departed::Died }
            }
            ChannelNotice::Owner { topic, supplier } => Self::Owner { topic: topic.0, supplier: supplier.0 },
            ChannelNotice::Mismatch { topic, mismatch } => {
                Self::Mismatch { topic: topic.0, text: mismatch.to_string() }
            }
            ChannelNotice::Tick { at, .. } => Self::Tick { at_ns: at.as_nanos() },
            ChannelNotice::Silence { since, .. } => Self::Silence { since_ns: since.as_nanos() },
            ChannelNotice::Incomplete { .. } => Self::Incomplete {},
            _ => return None,
        })
    }

    /// Returns the topic of the notice, if it has one.
    #[must_use]
    pub fn topic(&self) -> Option<u32> {
        match self {
            Self::Gap { topic, .. }
            | Self::Gone { topic, .. }
            | Self::Owner { topic, .. }
            | Self::Mismatch { topic, .. } => Some(*topic),
            Self::FurtherGaps { .. }
            | Self::Tick { .. }
            | Self::Silence { .. }
            | Self::Incomplete {}
            | Self::Lost { .. } => None,
        }
    }
}

impl fmt::Display for NoticeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gap { first, lost: 0, cause, .. } => {
                return write!(f, "events from {first} on are missing, nobody knows how many: {cause}");
            }
            Self::Gap { first, lost: 1, cause, .. } => {
                return write!(f, "event {first} is missing: {cause}");
            }
            Self::Gap { first, last, lost, cause, .. } => {
                return write!(f, "{lost} events are missing between {first} and {last}: {cause}");
            }
            Self::FurtherGaps { lost } => {
                return write!(f, "{lost} events of further topics and suppliers are missing");
            }
            Self::Gone { died: true, .. } => "a supplier has died",
            Self::Gone { died: false, .. } => "a supplier has left",
            Self::Owner { .. } => "another supplier is heard now",
            Self::Mismatch { text, .. } => text,
            Self::Tick { .. } => "a period is over",
            Self::Silence { .. } => "nothing has come for the time of silence",
            Self::Incomplete {} => "a correlation was not completed in time",
            Self::Lost { first, last } => {
                return write!(f, "the log no longer has the events at positions {first} to {last}");
            }
        })
    }
}
