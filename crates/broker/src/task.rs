//! What the broker asks of whoever runs it, and who is meant.

use crate::destination::Destination;

/// A program that is connected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

/// A channel, by the broker's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId(pub u32);

/// What the broker wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Send a program a frame.
    Answer { client: ClientId, frame: Vec<u8> },
    /// Open a socket, and say how it went by [`Broker::opened`](crate::Broker::opened).
    Open {
        /// For which channel.
        channel: ChannelId,
        destination: Destination,
    },
    /// Close a channel's socket.
    Release { channel: ChannelId },
    /// End a program's connection; the broker has forgotten it.
    SendAway { client: ClientId },
}

/// What is to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Send this now, and say how it went by [`Broker::transmitted`](crate::Broker::transmitted).
    Transmit {
        /// On which channel.
        channel: ChannelId,
        payload: Vec<u8>,
    },
    /// Ask again at this time, or when something has happened.
    Wait(u64),
    Idle,
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
