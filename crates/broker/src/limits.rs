//! Limits of a broker, and the cost of an event in a path's credit.

use unisono_linux::clock::Nanos;

/// The limits of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Programs at a time.
    pub clients: usize,
    /// Programs of one user at a time.
    pub clients_of_user: usize,
    /// Topics and paths that one program publishes on.
    pub topics: usize,
    /// Consumers of one program.
    pub consumers: usize,
    /// Interests of one consumer.
    pub interests: usize,
    /// Bytes of the largest payload.
    pub largest: u32,
    /// Bytes of the largest payload on a path: the longest message that another class may have to wait for on
    /// the link.
    pub path_largest: u32,
    /// The credit of a path, in bytes; an event costs its payload and [`Limits::ENTRY`]. The broker
    /// raises it to two of the largest events.
    pub credit: u32,
    /// The credit of all paths and the queues of all consumers together, in bytes.
    pub memory: u64,
    /// Bytes of `memory` that one user may have.
    pub memory_of_user: u64,
    /// Time limit for a destination that takes no bytes of a path without a program, and for the greeting of
    /// a new connection.
    pub patience: Nanos,
}

impl Limits {
    /// The greatest lateness that the link of the paths makes up for. With less, the link is idle for a while
    /// after the broker waited for a processor; with more, the broker then sends a burst. Chosen by this
    /// argument, not measured.
    pub const LATE: Nanos = Nanos(2_000_000);
    /// The cost of an event without its payload, so that empty events are not free: about the size of the
    /// broker's structures for an event.
    pub const ENTRY: u32 = 128;
    /// Most bytes of a frame without its payload: names, filters, fields. A topic's name takes up to 64 KiB,
    /// the user properties of MQTT up to 128 KiB.
    const REST: usize = 256 << 10;

    /// Most bytes of a request frame: a subscription with all its filters. Parsing as much JSON takes about 2
    /// ms.
    pub(crate) const REQUEST: usize = 256 << 10;
    /// Most bytes of the first frame: a name and a token.
    pub(crate) const GREETING: usize = 16 << 10;
    /// Most bytes of an MQTT CONNECT, which may hold a will of 64 KiB and its topic.
    pub(crate) const CONNECT: usize = 160 << 10;

    /// The cost of an event in its path's credit.
    #[must_use]
    pub fn cost(payload: usize) -> u32 {
        u32::try_from(payload).unwrap_or(u32::MAX).saturating_add(Self::ENTRY)
    }

    /// Bytes of the largest frame.
    #[must_use]
    pub fn largest_frame(&self) -> usize {
        self.largest as usize + Self::REST
    }

    /// Bytes of the largest frame of a program whose payloads have at most `payload` bytes.
    pub(crate) fn largest_frame_for(&self, payload: usize) -> usize {
        payload.min(self.largest as usize) + Self::REST
    }
}

impl Default for Limits {
    /// Bounds against programs with unlimited requests. One user may have half of the places and of the
    /// memory, so that another user always finds room. A message of 16 KiB on a path delays a message of
    /// another class by 1.3 ms at 100 Mbit/s. Chosen, not measured.
    fn default() -> Self {
        Self {
            clients: 256,
            clients_of_user: 128,
            topics: 1024,
            consumers: 1024,
            interests: 1024,
            largest: 4 << 20,
            path_largest: 16 << 10,
            credit: 128 << 10,
            memory: 1 << 30,
            memory_of_user: 512 << 20,
            // a connection that has lost packets tries again after 0.2, 0.4, 0.8, ... s: seven times in this
            // time
            patience: Nanos::SECOND.times(30),
        }
    }
}
