//! Numeric identifiers of topics, suppliers, consumers and other objects of a channel.
//!
//! The channel does not reuse an identifier until it has assigned 2^31 of them. Then it starts again and
//! skips identifiers that are in use.

/// Numbers from this one on are reserved for the caller, for topics and suppliers unknown to the channel.
pub const FIRST_FOREIGN: u32 = 1 << 31;

/// Identifies a topic of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicId(pub u32);

/// Identifies a supplier of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SupplierId(pub u32);

/// Identifies a consumer of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerId(pub u32);

/// Identifies an inbox of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InboxId(pub u32);

/// Identifies a subscription of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriptionId(pub u32);

/// Identifies a correlation of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CorrelationId(pub u32);

/// Identifies a timer of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId(pub u32);

/// A tenant, as a number that the caller chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TenantId(pub u32);

impl TenantId {
    /// Resources of this tenant count only against the limits of the channel.
    pub const NONE: Self = Self(0);
}
