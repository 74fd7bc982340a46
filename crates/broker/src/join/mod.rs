//! Joins the brokers of several hosts: the logic of a join, without a network and without a clock.
//!
//! ```text
//!   host a                                                                        host b
//!   broker --local_only--> JoinSender --JoinEnvelope--> network --> JoinReceiver --from_elsewhere--> broker
//!   broker <-------------- JoinReceiver <-------------- network <-- JoinSender <-------------------- broker
//! ```
//! One pair of [`JoinSender`] and [`JoinReceiver`] serves one class of events; classes share no state, so
//! that a flood in one class does not delay another. The queue in front of the network belongs to the
//! sender's subscription: it is bounded, has the policy of its class, and is counted by the broker. Behind
//! the network is an [`ArrivalQueue`] of the same size, which drops the oldest event: no host waits for
//! another one's broker.
//!
//! **Once.** An event is identified by the run of its first broker, its supplier there, its topic and its
//! number. The receiver passes an event on if its number is above the last number of the same supplier and
//! topic. A second copy is a duplicate, whatever its route.
//!
//! **Gaps.** The receiver publishes the event under its original number. So the receiving broker's channel
//! detects missing numbers and notifies its consumers. This also covers the absence of a join, because its
//! broker kept its run.
//!
//! **No loops.** A sender's subscription is `local_only`, so that the broker gives it no event that a join
//! published (`from_elsewhere`). An event makes one hop. Hosts that share events need a network that connects
//! each pair of them; that is the network's own routing.
//!
//! **Time.** Clocks of hosts differ, so an event carries the time that remained when it was passed to the
//! network. The delay of the network is unknown. The deadline on the receiving host is later by that delay
//! than the supplier's deadline.
//!
//! Cost: a copy on each side; memory for at most [`MAX_STREAMS`] pairs of supplier and topic. When not to
//! use: programs of other hosts that only read may connect to the broker over TLS.
//!
//! The program `join` runs this over zenoh. Reading order: `envelope.rs`, `sender.rs`, `receiver.rs`.

mod arrivals;
mod envelope;
mod exposure;
mod receiver;
mod sender;
mod settings;

pub use arrivals::{ArrivalQueue, JoinArrivals, JoinedHost};
pub use envelope::{ENVELOPE_MAGIC, JoinBody, JoinEnvelope, StreamOrigin};
pub use exposure::{ExposedJoin, JoinProof, check_join_exposure};
pub use receiver::{JoinReceiver, JoinStep, JoinStream, JoinedEvent, MAX_STREAMS, ReceiverCounters};
pub use sender::{JoinSender, SenderCounters};
pub use settings::{JoinClass, JoinPatternError, JoinPriority, JoinSettings, JoinSettingsError};
