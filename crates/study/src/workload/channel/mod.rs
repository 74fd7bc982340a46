//! The event channel in this process, without sockets or a broker: which deadlines it keeps when it is nearly
//! full, and what an event costs among many subscriptions.

pub mod deadlines;
pub mod subscriptions;
