//! Helpers for the tests of transports.

pub(crate) mod authority;
