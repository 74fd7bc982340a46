//! The event channel: deadlines that it keeps when nearly full, within this process and through a broker, and
//! the cost of an event among many subscriptions.

pub mod brokered;
pub mod deadlines;
pub mod subscriptions;
