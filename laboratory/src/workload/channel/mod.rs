//! The event channel: the deadlines that it meets when almost fully loaded, within this process and through a
//! broker, and the cost of an event among many subscriptions.

pub mod brokered;
pub mod deadlines;
pub mod subscriptions;
