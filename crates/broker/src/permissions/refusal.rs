//! The reasons of refusals, and the errors that have them.

use unisono_eventchannel::{ChannelError, PublishError};
use unisono_events_wire::InterestError;

/// Reasons of refusals, each with a counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum RefusalKind {
    Tls,
    Token,
    Identity,
    Connections,
    Publish,
    Subscribe,
    Rate,
    Size,
    Memory,
    Paths,
    /// A supplier of another broker, by a client that is no join.
    Join,
    Lease,
    /// A topic's name or type, or a conflict with its declaration by others.
    Topic,
    Filter,
    Class,
    Group,
    /// The offered quality is less than the requested one.
    Offered,
    /// A deadline that cannot be guaranteed.
    Admission,
    /// A name that belongs to another identity, or that no identity may keep.
    Name,
    /// A consumer that would block suppliers.
    Block,
    /// The limit on a number is reached.
    Limit,
    /// A deadline in the past.
    Deadline,
    /// A consumer's queue is full, and it blocks its suppliers.
    Full,
    /// The log does not accept the event.
    Log,
    /// A request to read the files again that was not carried out.
    Reload,
    /// A hand-over of the listening sockets that was not carried out.
    TakeOver,
    /// A request that contradicts itself, or that this broker cannot serve.
    Request,
}

impl RefusalKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Token => "token",
            Self::Identity => "identity",
            Self::Connections => "connections",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Memory => "memory",
            Self::Paths => "paths",
            Self::Join => "join",
            Self::Lease => "lease",
            Self::Topic => "topic",
            Self::Filter => "filter",
            Self::Class => "class",
            Self::Group => "group",
            Self::Offered => "offered",
            Self::Admission => "admission",
            Self::Name => "name",
            Self::Block => "block",
            Self::Limit => "limit",
            Self::Deadline => "deadline",
            Self::Full => "full",
            Self::Log => "log",
            Self::Reload => "reload",
            Self::TakeOver => "take-over",
            Self::Request => "request",
        }
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
