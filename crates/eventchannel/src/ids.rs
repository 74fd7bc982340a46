//! The numbers by which topics, parties and the rest are named. All modules that use them depend on this one.
//!
//! The channel gives a number once, until 2^31 of them were given. Then it begins again, and passes
//! over those that are in use.

/// Numbers from this one on are the caller's, for topics and suppliers that the channel does not know.
pub const FIRST_FOREIGN: u32 = 1 << 31;

/// A topic, by the channel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicId(pub u32);

/// A supplier, by the channel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SupplierId(pub u32);

/// A consumer, by the channel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerId(pub u32);

/// An inbox, by the channel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InboxId(pub u32);

/// A subscription, by the channel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriptionId(pub u32);

/// A correlation, by the channel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CorrelationId(pub u32);

/// A timer, by the channel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId(pub u32);
