//! What the broker asks of whoever runs it, and who is meant.

use crate::body::EventBody;
use crate::destination::Destination;
use unisono_linux::clock::Nanos;

/// A program that is connected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

/// A path, by the broker's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u32);

/// What the broker wants done.
#[derive(Clone, Debug)]
pub enum Task {
    /// Send a program a frame; the body is its payload.
    Answer { client: ClientId, head: Vec<u8>, body: Option<EventBody> },
    /// Send a program a frame that may be lost on the way, and waits for no other one.
    Loosely { client: ClientId, head: Vec<u8>, body: EventBody },
    /// Send a program an order about a ring. It has to know before the next task that there is one, also if
    /// its connection is full.
    Order { client: ClientId, head: Vec<u8> },
    /// Make a connected pair of sockets, pass one end on to a program, then send it the order. The other end
    /// waits for [`Task::Pass`]. What cannot be done is said by [`Broker::link_failed`].
    ///
    /// [`Broker::link_failed`]: crate::Broker::link_failed
    Introduce { client: ClientId, link: u32, head: Vec<u8> },
    /// Pass the other end of that pair on to a program, then send it the frame.
    Pass { client: ClientId, link: u32, head: Vec<u8> },
    /// Close the other end of that pair, if it still waits.
    Forget { link: u32 },
    /// Open a socket, and say how it went by [`Broker::opened`](crate::Broker::opened).
    Open { path: PathId, destination: Destination },
    /// Close a path's socket.
    Release { path: PathId },
    /// Tell whoever runs the broker, as a line of its log.
    Note { text: String },
    /// End a program's connection; the broker has forgotten it.
    SendAway { client: ClientId },
}

/// What is to be sent.
#[derive(Clone, Debug)]
pub enum Next {
    /// An event is among the tasks; ask again.
    Delivered,
    /// Send this on a path now, and say how it went by
    /// [`Broker::transmitted`](crate::Broker::transmitted).
    Transmit { path: PathId, body: EventBody },
    /// Ask again at this time, or when something has happened.
    Wait(Nanos),
    /// Ask again when something has happened, or after a second.
    Idle,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Received {
    Done,
    /// A consumer's inbox is full, and its policy blocks suppliers. Read nothing more from the program, and
    /// hand over the same frame again after the next delivery.
    Blocked,
    /// It was taken. Many events of the program wait for their turn among classes that compete. Read nothing
    /// more from the program while [`Broker::is_ahead`](crate::Broker::is_ahead) says so.
    Ahead,
}

/// How sending went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It has left.
    Whole,
    /// The destination takes nothing more; it is kept, [`Broker::drained`](crate::Broker::drained) follows.
    Kept,
    /// It is gone and will not arrive.
    Lost,
}
