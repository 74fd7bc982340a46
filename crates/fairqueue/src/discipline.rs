//! The trait that every queueing discipline here implements: start-time fair queuing and the baselines.

use crate::hierarchy::ClassId;
use crate::packet::Packet;
use unisono_time::Instant;

/// Why a packet is refused. (A packet that is dropped because a class is full is no error: see
/// [`Discipline::dropped`].)
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    #[error("class {class} has children, and packets wait at leaves; name one of its leaves")]
    NotALeaf { class: String },
    #[error("a packet of {length} bytes is too long: at most {max}")]
    TooLong { length: u32, max: u32 },
}

/// The packets that wait, and their bytes; the packet in service does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Backlog {
    pub packets: u64,
    pub bytes: u64,
}

impl std::ops::AddAssign for Backlog {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// A queueing discipline: one server that serves the packets of many classes.
///
/// The caller is the server. It takes a packet ([`dequeue`](Self::dequeue)), serves it, and reports the end
/// of the service ([`finish`](Self::finish)); taking the next packet also reports it. The instants are on the
/// caller's clock and must never decrease; start-time fair queuing does not use them.
pub trait Discipline<T> {
    /// Queues a packet that arrives. Fails if the class has children, or if the packet is too long; then
    /// nothing has changed.
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError>;

    /// Ends the service of the packet in service, if there is one.
    fn finish(&mut self, now: Instant);

    /// Chooses the next packet and takes it into service.
    fn dequeue(&mut self, now: Instant) -> Option<(ClassId, Packet<T>)>;

    /// Takes the oldest packet that was dropped because a class was full. Dropped packets are kept until the
    /// caller takes them here.
    fn dropped(&mut self) -> Option<(ClassId, Packet<T>)>;

    fn backlog(&self) -> Backlog;
}
