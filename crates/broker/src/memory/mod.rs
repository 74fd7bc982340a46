//! Events between processes of one host through shared memory.
//!
//! The idea: a supplier writes each event once, into memory that it alone may write, and announces it in a
//! ring of entries that any number of consumers read. Nobody else has a part in it: no lock, no count that
//! two processes change, no copy for each consumer. A consumer that falls behind finds its entry overwritten
//! and knows by the turn how many events it has lost; one that is stopped or dead costs the supplier nothing,
//! because the supplier never waits for anybody but those it promised to. See `PROTOCOL.md` for who writes
//! which word, and why.
//!
//! Cost: one cache line's transfer to see an event, and the event's own; nothing for each consumer but a look
//! whether it sleeps. When not to use: between hosts, or where the one who decides the order of events
//! (shares, filters on content) has to be asked; the broker's rings then carry the events to it and from it.
//!
//! | file | holds |
//! |---|---|
//! | `geometry.rs` | where everything lies |
//! | `entry.rs` | one entry: turns, announcing, looking |
//! | `page.rs` | what a consumer tells the supplier |
//! | `supplier.rs`, `consumer.rs` | the two ends |
//! | `doorbell.rs`, `offer.rs` | a socket by which both wake each other, and by which the memory is passed on |
//! | `transport.rs` | a ring in each direction: frames between a program and the broker |
//! | `listener.rs` | where programs of a broker's host connect, by memory or by frames over the socket |
//!
//! Reference: Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012 (announcing
//! and copying); Michael, "Hazard pointers", IEEE TPDS 15(6), 2004 (holding a slot).

mod consumer;
mod doorbell;
mod entry;
mod geometry;
mod listener;
mod offer;
mod page;
mod supplier;
mod transport;

pub use consumer::{EventMark, HeldEvent, JoinRefused, MemoryConsumer, NextEvent, ReceiveRefused};
pub use doorbell::{Doorbell, DoorbellState, DoorbellWatch};
pub use geometry::MemoryGeometry;
pub use listener::LocalListener;
pub use offer::MemoryOffer;
pub use supplier::{AttachRefused, ConsumerNumber, Loan, MemorySupplier, PublishRefused, WhenBehind};
pub use transport::MemoryTransport;
pub(crate) use transport::{APART, WAY, shared_payload};

/// Lines of the page by which a consumer speaks to one supplier.
pub const PAGE_LINES: usize = page::LINES;
