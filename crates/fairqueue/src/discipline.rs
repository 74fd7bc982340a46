//! What every queueing discipline here can do: ours, and those it is compared with.

use crate::hierarchy::ClassId;
use crate::packet::Packet;
use unisono_linux::clock::Nanos;

/// Why a packet cannot be taken. (One that is dropped because a class is full is no error: see
/// [`Discipline::dropped`].)
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    #[error("class {class} has children, and packets wait at leaves; name one of its leaves")]
    NotALeaf { class: String },
    #[error("a packet of {length} bytes is too long: at most {most}")]
    TooLong { length: u32, most: u32 },
}

/// How much waits; the packet in service does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
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

/// One server, many classes: which class is served next.
///
/// The caller is the server. It asks for a packet, serves it, and says that it has finished; asking for the
/// next one says so too. Times are in nanoseconds of the caller's clock and never decrease; start-time fair
/// queuing needs none of them.
pub trait Discipline<T> {
    /// A packet arrives. Fails if the class has children, or if the packet is too long; nothing has changed
    /// then.
    fn enqueue(&mut self, now: Nanos, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError>;

    /// The packet in service has been served. Without one, nothing.
    fn finish(&mut self, now: Nanos);

    /// Chooses the packet to serve next; it is in service then.
    fn dequeue(&mut self, now: Nanos) -> Option<(ClassId, Packet<T>)>;

    /// A packet that was dropped because a class was full, the oldest first; until they are asked for they
    /// are kept.
    fn dropped(&mut self) -> Option<(ClassId, Packet<T>)>;

    fn backlog(&self) -> Backlog;
}
