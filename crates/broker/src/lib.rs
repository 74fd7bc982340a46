//! The middleware: programs hand their messages to a broker, which decides in which order they go on the
//! link.
//!
//! ```text
//!   program --Client--\   unix socket     +--------------------------------------+   UDP or TCP
//!   program --Client---+----------------> | Broker: classes, credit, H-SFQ, pace | ------------> destinations
//!   program --Client--/  one frame each   +--------------------------------------+
//! ```
//! [`Broker`] is a state machine without sockets and without a clock: time is an argument, what is to be done
//! is its answer. [`Server`] runs it over sockets. [`Client`] is what programs link. The protocol between
//! them, and what it takes for granted: `PROTOCOL.md`.
//!
//! **Idea.** The broker holds the queue instead of the kernel: it sends no faster than the policy's rate, so
//! that nothing waits behind it, and takes no more from a program than its credit, so that memory is bounded
//! and a program that is too fast waits at home. Deadlines order within a class, never between classes.
//!
//! **Cost.** Two copies and three system calls a message above a plain socket, some 10 to 20 us of delay; no
//! privilege, no change of the host.
//!
//! **When not to use it.** It controls who cooperates. A program that opens a socket of its own passes it by,
//! and takes from everybody: where programs cannot be changed or trusted, the kernel or the interposed place
//! is right.
//!
//! Reference: Shenoy et al., "Middleware versus Native OS Support", sections 2.2 and 3.7.
#![forbid(unsafe_code)]

mod account;
mod broker;
mod client;
mod destination;
pub mod frame;
mod limits;
mod outgoing;
mod pace;
mod server;
mod task;

pub use account::{ClassStatistics, Statistics};
pub use broker::Broker;
pub use client::{Channel, Client, Error};
pub use destination::{Destination, Transport};
pub use frame::{Bad, Frame};
pub use limits::Limits;
pub use pace::Pace;
pub use server::{OWNER, ServeError, Server};
pub use task::{ChannelId, ClientId, Next, Sent, Task};

/// A deadline later than all others: none.
pub const NO_DEADLINE: u64 = unisono_fairqueue::NO_DEADLINE;

/// The time of the clock that deadlines are of (`CLOCK_MONOTONIC`), in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    unisono_linux::clock::now().0
}
