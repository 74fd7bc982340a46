//! Brokers of several hosts, joined: what a join does, without a network and without a clock.
//!
//! ```text
//!   host a                                                                        host b
//!   broker --local_only--> JoinSender --JoinEnvelope--> network --> JoinReceiver --from_elsewhere--> broker
//!   broker <-------------- JoinReceiver <-------------- network <-- JoinSender <-------------------- broker
//! ```
//! One pair of [`JoinSender`] and [`JoinReceiver`] serves one class of events; classes share nothing, so that
//! the flood of one does not delay another. The queue in front of the network is that of the sender's
//! subscription: bounded, with the policy that the class chose, and counted by the broker. Behind the network
//! is an [`ArrivalQueue`] of the same size, which drops the oldest: no host waits for another one's broker.
//!
//! **Once.** An event is known by the run of the broker where it was published, its supplier there, its topic
//! and its number. The receiver passes an event on if its number is above the last one of the same supplier
//! and topic. A second copy is a duplicate, whichever way it took.
//!
//! **Gaps.** The receiver publishes the event under its original number. The receiving broker's channel tells
//! consumers which numbers have not come. A join that was away is noticed so, too: its broker kept its run.
//!
//! **No loops.** A sender's subscription is `local_only`, so that the broker gives it no event that a join
//! published (`from_elsewhere`). An event makes one hop. Hosts that should share events need a network that
//! connects each with each, which is the network's own routing.
//!
//! **Time.** Clocks of hosts differ, so an event carries the time that remained when it was handed to the
//! network. How long the network takes nobody knows. The deadline on the receiving host is later by that
//! time than the one that the supplier meant.
//!
//! Cost: a copy on each side; memory for at most [`MOST_STREAMS`] pairs of supplier and topic. When not to
//! use: programs of other hosts that only read may connect to the broker by TLS.
//!
//! `crates/join` is the program that runs it over zenoh. To read: `envelope.rs`, `sender.rs`,
//! `receiver.rs`.

mod arrivals;
mod envelope;
mod exposure;
mod receiver;
mod sender;
mod settings;

pub use arrivals::{ArrivalQueue, JoinArrivals, JoinedHost};
pub use envelope::{ENVELOPE_MAGIC, JoinBody, JoinEnvelope, StreamOrigin};
pub use exposure::{ExposedJoin, JoinProof, check_join_exposure};
pub use receiver::{JoinReceiver, JoinStep, JoinStream, JoinedEvent, MOST_STREAMS, ReceiverCounters};
pub use sender::{JoinSender, SenderCounters};
pub use settings::{JoinClass, JoinPatternError, JoinPriority, JoinSettings, JoinSettingsError};
