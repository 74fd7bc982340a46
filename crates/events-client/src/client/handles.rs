//! Handles of what a client has at its broker.

/// A topic that a client publishes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicHandle(pub(super) u32);

/// A subscription of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubscriptionHandle(pub(super) u32);
