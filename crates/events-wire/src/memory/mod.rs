//! Events between processes of one host through shared memory.
//!
//! The idea: a supplier writes each event once, into memory that only the supplier may write, and announces
//! it in a ring of entries that any number of consumers read. There is no lock, no counter that two processes
//! change, and no copy for each consumer. A consumer that falls behind finds its entry overwritten; the
//! number of the event in that entry says how many events the consumer has lost. A stopped or dead consumer
//! costs the supplier nothing, unless the consumer's policy blocks the supplier. See `PROTOCOL.md` for the
//! writer of each word, and the reasons.
//!
//! Cost: the transfer of one cache line to see an event, and the transfers of the event itself; for each
//! consumer, the supplier only checks whether it sleeps. When not to use it: between hosts, or if the broker
//! has to decide on the events (shares, filters on content); then rings between the broker and each program
//! carry them.
//!
//! | file | holds |
//! |---|---|
//! | `geometry.rs` | the layout |
//! | `entry.rs` | one entry: the numbers of events (*turns*), announcing an event, reading an entry |
//! | `page.rs` | the words from a consumer to the supplier |
//! | `supplier.rs`, `consumer.rs` | the two ends |
//! | `doorbell.rs`, `offer.rs` | a socket through which the ends wake each other and pass the memory |
//! | `transport.rs` | a ring in each direction: frames between a program and the broker |
//! | `listener.rs` | the socket on which a broker accepts local programs, with memory or with frames |
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
pub use transport::{APART, WAY, shared_payload};

/// The number of cache lines of the page that a consumer shares with one supplier.
pub const PAGE_LINES: usize = page::LINES;
