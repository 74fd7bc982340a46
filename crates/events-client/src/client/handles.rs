//! Handles of a client's topics and subscriptions at its broker.

/// A topic on which a client publishes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicHandle(pub(super) u32);

/// A subscription of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubscriptionHandle(pub(super) u32);
