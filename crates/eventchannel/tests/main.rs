//! The tests of the event channel, as one program.

mod bounded;
mod classes;
mod common;
mod crowds;
mod deadlines;
mod groups;
mod lifetimes;
mod memory;
mod model;
mod origins;
mod same_consumer;
mod scenarios;
mod shares;
mod subscriptions;
mod topic_runs;
mod topics;
