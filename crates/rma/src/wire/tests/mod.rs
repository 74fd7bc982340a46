//! For tests of this crate and of others: the suite that every transport has to pass, and a transport that
//! injects faults.

pub mod conformance;
pub mod fault;
