//! Tasks that the broker gives to the server, and numbers of clients and paths.

use crate::body::EventBody;
use unisono_events_wire::{Destination, TakeOverStep};
use unisono_linux::clock::Instant;

/// The number of a connected program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

/// The number of a path in the broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u32);

/// A task for the server.
#[derive(Clone, Debug)]
pub enum Task {
    /// Send a program a frame; the body is its payload.
    Answer { client: ClientId, head: Vec<u8>, body: Option<EventBody> },
    /// Send a program a frame that may be lost on the way and does not wait for others.
    Unreliable { client: ClientId, head: Vec<u8>, body: EventBody },
    /// Send a program an order about a ring. The program must learn before the next task that an order
    /// exists, even if its connection is full.
    Order { client: ClientId, head: Vec<u8> },
    /// Make a connected pair of sockets, pass one end to a program, then send it the order. The other end
    /// waits for [`Task::Pass`]. Report a failure with [`Broker::link_failed`].
    ///
    /// [`Broker::link_failed`]: crate::Broker::link_failed
    Introduce { client: ClientId, link: u32, head: Vec<u8> },
    /// Pass the other end of that pair to a program, then send it the frame.
    Pass { client: ClientId, link: u32, head: Vec<u8> },
    /// Close the other end of that pair, if it still waits.
    Forget { link: u32 },
    /// Open a socket, and report the result with [`Broker::opened`](crate::Broker::opened).
    Open { path: PathId, destination: Destination },
    /// Close a path's socket.
    Release { path: PathId },
    /// Write a line to the log of the broker's operator.
    Note { text: String },
    /// Read the broker's files again, because this program asks for it, and pass their contents to
    /// [`Broker::reload`](crate::Broker::reload), or their error to
    /// [`Broker::reload_refused`](crate::Broker::reload_refused).
    Reload { client: ClientId },
    /// Carry out a step of the hand-over to this program, and report the result with
    /// [`Broker::taken_over`](crate::Broker::taken_over) or
    /// [`Broker::take_over_refused`](crate::Broker::take_over_refused).
    TakeOver { client: ClientId, step: TakeOverStep },
    /// End a program's connection; the broker has forgotten the program. The reason is that of the BYE
    /// before; it is empty for an MQTT client.
    SendAway { client: ClientId, reason: String },
}

/// The next step of a delivery.
#[derive(Clone, Debug)]
pub enum Next {
    /// An event is among the tasks; call again.
    Delivered,
    /// Send this body on a path now, and report the result with
    /// [`Broker::transmitted`](crate::Broker::transmitted).
    Transmit { path: PathId, body: EventBody },
    /// Call again at this time, or when an event or a frame has come.
    Wait(Instant),
    /// Call again when an event or a frame has come, or after a second.
    Idle,
}

/// The result of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Received {
    Done,
    /// A consumer's inbox is full, and its policy blocks suppliers. Read no more frames from the program, and
    /// pass the same frame again after the next delivery.
    Blocked,
    /// The frame was taken. Many events of the program wait for their turn among competing classes. Read no
    /// more frames from the program while [`Broker::is_ahead`](crate::Broker::is_ahead) returns true.
    Ahead,
}

/// The result of a transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The whole message has left.
    Whole,
    /// The destination takes no more bytes; the message is kept, and
    /// [`Broker::drained`](crate::Broker::drained) follows.
    Kept,
    /// The message is lost.
    Lost,
}
