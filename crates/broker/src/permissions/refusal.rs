//! The reasons of refusals, and the errors that have them.

use unisono_eventchannel::{ChannelError, PublishError};
use unisono_events_wire::InterestError;
use unisono_text::named;

named! {
    /// Reasons of refusals, each with a counter.
    #[derive(PartialOrd, Ord)]
    pub(crate) enum RefusalKind {
        Tls = "tls",
        Token = "token",
        Identity = "identity",
        Connections = "connections",
        Publish = "publish",
        Subscribe = "subscribe",
        Rate = "rate",
        Size = "size",
        Memory = "memory",
        Paths = "paths",
        /// A supplier of another broker, by a client that is no join.
        Join = "join",
        Lease = "lease",
        /// A topic's name or type, or a conflict with its declaration by others.
        Topic = "topic",
        Filter = "filter",
        Class = "class",
        Group = "group",
        /// The offered quality is less than the requested one.
        Offered = "offered",
        /// A deadline that cannot be guaranteed.
        Admission = "admission",
        /// A name that belongs to another identity, or that no identity may keep.
        Name = "name",
        /// A consumer that would block suppliers.
        Block = "block",
        /// The limit on a number is reached.
        Limit = "limit",
        /// A deadline in the past.
        Deadline = "deadline",
        /// A consumer's queue is full, and it blocks its suppliers.
        Full = "full",
        /// The log does not accept the event.
        Log = "log",
        /// A request to read the files again that was not carried out.
        Reload = "reload",
        /// A hand-over of the listening sockets that was not carried out.
        TakeOver = "take-over",
        /// A request that contradicts itself, or that this broker cannot serve.
        Request = "request",
    }
}

impl From<&ChannelError> for RefusalKind {
    fn from(error: &ChannelError) -> Self {
        match error {
            ChannelError::Class { .. } | ChannelError::NoDefaultClass => Self::Class,
            ChannelError::GroupDiffers { .. } => Self::Group,
            ChannelError::Mismatch { .. } | ChannelError::ShareMismatch { .. } => Self::Offered,
            ChannelError::Admission(_) | ChannelError::TooLong { .. } => Self::Admission,
            ChannelError::TooMany { .. } | ChannelError::TenantLimit { .. } | ChannelError::Parts { .. } => {
                Self::Limit
            }
            ChannelError::NamesFull { .. } => Self::Memory,
            _ => Self::Topic,
        }
    }
}

impl From<&InterestError> for RefusalKind {
    fn from(error: &InterestError) -> Self {
        match error {
            InterestError::Name(_) => Self::Topic,
            InterestError::Filter { .. } => Self::Filter,
        }
    }
}

impl From<&PublishError> for RefusalKind {
    fn from(error: &PublishError) -> Self {
        match error {
            PublishError::TooLarge { .. } => Self::Size,
            PublishError::PastDeadline { .. } => Self::Deadline,
            PublishError::TooFast { .. } => Self::Rate,
            PublishError::Full { .. } => Self::Full,
            PublishError::NotKept { .. } => Self::Log,
            PublishError::KeptFull { .. } => Self::Memory,
            PublishError::TooManyFields { .. } => Self::Limit,
            _ => Self::Topic,
        }
    }
}
