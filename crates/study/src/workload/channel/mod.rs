//! The event channel: which deadlines it keeps when it is nearly full, in this process alone and through a
//! broker, and what an event costs among many subscriptions.

pub mod brokered;
pub mod deadlines;
pub mod subscriptions;
