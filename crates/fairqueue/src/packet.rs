//! The unit of work that disciplines schedule.

use unisono_time::Instant;

/// A deadline later than all others.
pub const NO_DEADLINE: Instant = Instant::NEVER;

/// A packet, or a quantum of processor time, or a request to a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<T> {
    /// The service that the packet needs, in bytes or microseconds; at most [`Packet::MAX_LENGTH`].
    pub length: u32,
    /// Packets of one flow never overtake each other, whatever their deadlines. The caller chooses the
    /// number.
    pub flow: u32,
    /// The time by which the packet should have left, on the caller's clock, or [`NO_DEADLINE`]; used in
    /// classes that order by deadline.
    pub deadline: Instant,
    pub item: T,
}

impl<T> Packet<T> {
    /// The longest packet: 16 MiB less one byte.
    pub const MAX_LENGTH: u32 = (1 << 24) - 1;

    /// Returns a packet of flow 0 without a deadline.
    pub fn new(length: u32, item: T) -> Self {
        Self { length, flow: 0, deadline: NO_DEADLINE, item }
    }
}
