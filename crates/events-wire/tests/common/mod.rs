//! Shared by the tests of transports.

pub(crate) mod authority;
