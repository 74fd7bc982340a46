//! The two sides of a transfer, for the raw layer: addresses, counts and layouts.

use crate::model::{Layout, Rank};

/// Data at the origin that is read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Of the first element. May be null if there is no data.
    pub address: *const u8,
    pub count: u64,
    pub layout: &'a Layout,
}

/// Memory at the origin that is written.
#[derive(Clone, Copy, Debug)]
pub struct Sink<'a> {
    /// Of the first element. May be null if there is no data.
    pub address: *mut u8,
    pub count: u64,
    pub layout: &'a Layout,
}

/// A place in a target's window.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub rank: Rank,
    /// From the window's base, in the target's displacement units; in a dynamic window an address.
    pub place: i64,
    pub count: u64,
    pub layout: &'a Layout,
}

/// What a member announced about its part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    pub(crate) unit: u32,
}
