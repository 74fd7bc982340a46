//! The real-time event channel: suppliers push events, the channel pushes them to consumers, by deadline and by share.
//!
//! ```text
//!  supplier --try_publish--> checks: offer, rate, deadline, size        EventChannel
//!                              |
//!                            SubscriptionIndex: topic (`+`, `#`), type, ContentFilter ("level > 80 and not armed")
//!                              |
//!                  +-----------+------------+
//!               Inbox        Inbox        Inbox     bounded, by deadline; gaps are remembered
//!                  |           |            |       admitted: execution time, period, deadline
//!                  +-----+-----+            |
//!                    class `video`       class `web`   earliest deadline first inside,
//!                        +--------+---------+          start-time fair queuing between
//!                                 |
//!                               next --> Delivery: consumer, notices, event
//! ```
//! To read: `topic.rs` and `event.rs`, `filter/mod.rs`, `index/mod.rs`, `inbox.rs`, `dispatch.rs`, `admission.rs`, and then `channel/mod.rs`, where
//! they meet.
//!
//! **Words.** A *supplier* pushes events of a *topic*; a *consumer* is pushed those that one of its *subscriptions* asks for, through its *inbox*
//! or that of its *group*. A *filter* is a condition on an event's fields. *Dispatch* is the choice of the next delivery. A *reservation* is
//! what a consumer was *admitted* with.
//!
//! **Idea.** Deadlines and shares, each where it is strong: inside a class the earliest deadline first, which meets all deadlines that can be met; between
//! classes start-time fair queuing, so that no deadline of one takes the share of another. What cannot be met is refused when a consumer comes, saying by how much.
//!
//! **Cost.** An event costs its matching (fields, and clauses met), and for each inbox that it enters, and for each delivery, some logarithms. No
//! payload is copied. Memory is bounded by the limits.
//!
//! **What it does not do.** It opens no sockets, starts no threads and reads no clock: time is an argument and never decreases, and whoever runs it
//! delivers what [`EventChannel::next`] says. It writes no log. It knows one server (a processor or a link) that the classes share.
//!
//! Reference: Shenoy et al., "Middleware versus Native OS Support", section 2.3.2; OMG Event Service, Data Distribution Service 1.4; Harrison, Levine,
//! Schmidt, "The Design and Performance of a Real-time CORBA Event Service" (OOPSLA 1997).
#![forbid(unsafe_code)]

mod admission;
mod channel;
mod delivery;
mod dispatch;
mod error;
mod event;
mod filter;
mod history;
mod inbox;
mod index;
mod pattern;
mod quality;
mod topic;
mod trie;
mod value;

pub use admission::{AdmissionError, ExecutionTime, Reservation};
pub use channel::{ChannelLimits, ConsumerSpec, EventChannel, Published};
pub use delivery::{ChannelNotice, ConsumerId, DeliveredEvent, Delivery, Lateness};
pub use error::{ChannelError, PublishError};
pub use event::{ChannelEvent, Criticality, EventPayload, NO_DEADLINE, Publication, SupplierId};
pub use filter::{ContentFilter, FilterError, MOST_FILTER};
pub use inbox::{FullInbox, Gap, GapCause, InboxCapacity, InboxCounters, InboxId, InboxSpec, LateEvents};
pub use index::{Interest, SubscriptionId, SubscriptionIndex, TopicRoute};
pub use pattern::{MOST_LEVELS, MOST_NAME, NameError, TopicPattern, check_name};
pub use quality::{Mismatch, Offer, QualityRequest, Reliability, SupplyRate};
pub use topic::{HistoryDepth, Ownership, TopicId, TopicSpec};
pub use value::{FieldSet, FieldValue, Numeric};
