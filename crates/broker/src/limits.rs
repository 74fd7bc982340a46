//! How much a broker takes on, and what a message costs of it.

use crate::frame::MESSAGE_HEAD;

/// How much a broker takes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Programs at a time.
    pub clients: usize,
    /// Programs of one user at a time.
    pub clients_of_user: usize,
    /// Channels of one program.
    pub channels: usize,
    /// The credit of a channel, in bytes; a message costs its payload and [`Limits::ENTRY`]. At least two of
    /// the longest messages.
    pub credit: u32,
    /// The credit of all channels together.
    pub memory: u64,
    /// The credit of one user's channels together.
    pub memory_of_user: u64,
    /// Nanoseconds that a destination may take nothing of what a program that has gone left for it, and that
    /// a program may take to greet.
    pub patience: u64,
    /// The longest payload: it is what a class may have to wait for.
    pub largest: u32,
}

impl Limits {
    /// What a message costs beside its payload, so that empty ones cost something too.
    pub const ENTRY: u32 = 128;

    /// What a message costs of its channel's credit.
    #[must_use]
    pub fn cost(payload: usize) -> u32 {
        u32::try_from(payload).unwrap_or(u32::MAX).saturating_add(Self::ENTRY)
    }

    /// The longest frame that a program may send.
    #[must_use]
    pub fn longest_frame(&self) -> usize {
        (self.largest as usize + MESSAGE_HEAD).max(512)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            clients_of_user: 128,
            channels: 64,
            credit: 128 << 10,
            memory: 64 << 20,
            memory_of_user: 32 << 20,
            // a connection that has lost packets tries again after 0.2, 0.4, 0.8, ... s: seven times in this
            // time
            patience: 30_000_000_000,
            largest: 16 << 10,
        }
    }
}
