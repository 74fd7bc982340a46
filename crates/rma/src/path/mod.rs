//! The ways that an operation takes to its target: memory that both sides map, or messages.

pub(crate) mod hook;
pub(crate) mod mapped;
pub(crate) mod message;
