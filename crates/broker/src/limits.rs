//! How much a broker takes on, and what an event on a path costs of its credit.

use unisono_linux::clock::Nanos;

/// How much a broker takes on.
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
    /// The same of an event on a path: what a class may have to wait for on the link.
    pub path_largest: u32,
    /// The credit of a path, in bytes; an event costs its payload and [`Limits::ENTRY`]. At least two of the
    /// largest events.
    pub credit: u32,
    /// The credit of all paths and the queues of all consumers together, in bytes.
    pub memory: u64,
    /// The same of one user.
    pub memory_of_user: u64,
    /// Time that a destination may take nothing of what a program that has gone left for it, and that
    /// a program may take to greet.
    pub patience: Nanos,
}

impl Limits {
    /// How much lateness the link of the paths makes up for. With less, the link is idle for a while after
    /// the broker waited for a processor; with more, the broker then sends a burst. Chosen by this argument,
    /// not measured.
    pub const LATE: Nanos = Nanos(2_000_000);
    /// What an event costs beside its payload, so that empty ones cost something too: about the size of the
    /// broker's structures for it.
    pub const ENTRY: u32 = 128;
    /// Bytes of a frame beside the payload, at most: names, filters, fields. A topic's name takes up to 64
    /// KiB, the user properties of MQTT up to 128 KiB.
    const REST: usize = 256 << 10;

    /// Bytes of a frame that asks for something, at most: a subscription with all its filters. To read as
    /// much JSON takes about 2 ms.
    pub(crate) const REQUEST: usize = 256 << 10;
    /// Bytes of the first frame, at most: a name and a token.
    pub(crate) const GREETING: usize = 16 << 10;
    /// The same of MQTT, whose CONNECT may hold a will of 64 KiB and its topic.
    pub(crate) const CONNECT: usize = 160 << 10;

    /// What an event costs of its path's credit.
    #[must_use]
    pub fn cost(payload: usize) -> u32 {
        u32::try_from(payload).unwrap_or(u32::MAX).saturating_add(Self::ENTRY)
    }

    /// Bytes of the largest frame.
    #[must_use]
    pub fn largest_frame(&self) -> usize {
        self.largest as usize + Self::REST
    }

    /// Bytes of the largest frame of a program whose payloads have at most so many.
    pub(crate) fn largest_frame_for(&self, payload: usize) -> usize {
        payload.min(self.largest as usize) + Self::REST
    }
}

impl Default for Limits {
    /// Bounds against programs that ask for ever more. One user may have half of the places and of the
    /// memory, so that another one always finds room. A message of 16 KiB on a path delays one of another
    /// class by 1.3 ms at 100 Mbit/s. Chosen, not measured.
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
