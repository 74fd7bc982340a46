#![doc = include_str!("../README.md")]
//! # Reading the crate
//!
//! ```text
//!  supplier --try_publish--> checks: offer, rate, deadline, size        EventChannel
//!                              |
//!                            SubscriptionIndex: topic, type, ContentFilter ("level > 80 and not armed")
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
//! Read `topic.rs` and `event.rs` first, then `filter/mod.rs`, `index/mod.rs`, `inbox/mod.rs`, `dispatch.rs`,
//! `admission.rs`, `correlation.rs` and `kept.rs`. `channel/mod.rs`, which puts them together, comes last.
//!
//! **Words.** A *supplier* publishes events of a *topic*. A *consumer* gets the events that match its
//! *subscriptions*, through an *inbox* of its own or of its *group*. A *filter* is a condition on an event's
//! fields. *Dispatch* is the choice of the next delivery. A *reservation* is the guarantee that a consumer
//! gets at its *admission*. A *correlation* is a set of events that are delivered together. A *lease* is the
//! time for which a supplier or consumer may be silent.
//!
//! **Cost.** An event costs its matching (in proportion to its fields and to the clauses that it meets), and
//! a few logarithmic operations for each inbox that it enters and for each delivery. No payload is copied.
//! The limits bound the memory.
//!
//! The caller delivers the results of [`EventChannel::next`], and calls again at [`EventChannel::next_wake`].
//! The channel knows one server (a processor or a link) that the classes share.
//!
//! Reference: Shenoy et al., "Middleware versus Native OS Support", section 2.3.2; OMG Event Service, Data
//! Distribution Service 1.4; Harrison, Levine, Schmidt, "The Design and Performance of a Real-time CORBA
//! Event Service" (OOPSLA 1997).
#![forbid(unsafe_code)]

mod admission;
mod alarms;
mod channel;
mod correlation;
mod delivery;
mod dispatch;
mod error;
mod event;
mod filter;
mod history;
mod ids;
mod inbox;
mod index;
mod kept;
mod kept_memory;
mod member_list;
mod number_map;
mod oversize;
mod pattern;
mod quality;
mod tenant;
mod topic;
mod trie;
mod value;

pub use admission::{AdmissionError, ExecutionTime, Reservation};
pub use channel::{
    Acknowledged, ChangedAudiences, ChannelLimits, ClassChange, ClassChangeError, ConsumerSpec,
    DepartedInboxes, EventChannel, InboxAccount, PastEvents, Published, TimerSpec, shown_group,
};
pub use correlation::{Correlation, CorrelationRule, Incomplete, MAX_PARTS};
pub use delivery::{ChannelNotice, DeliveredEvent, Delivery, Lateness};
pub use error::{ChannelError, KeptBy, PublishError};
pub use event::{ChannelEvent, Criticality, EVENT_ENTRY, EventPayload, NO_DEADLINE, Publication, Retention};
pub use filter::{ContentFilter, FilterError, MAX_FILTER};
pub use ids::{
    ConsumerId, CorrelationId, FIRST_FOREIGN, InboxId, SubscriptionId, SupplierId, TimerId, TopicId,
};
pub use inbox::{
    BetweenSuppliers, FullInbox, Gap, GapCause, InboxCapacity, InboxCounters, InboxSpec, LateEvents,
    Redelivery,
};
pub use index::{AudienceChange, ExceptedTopics, Interest, SubscriptionIndex, TopicRoute};
pub use kept::{KEPT_ENTRY, KeepingAccount, KeepingTerms};
pub use number_map::{NumberHasher, NumberHashing, NumberMap, NumberSet, give_back};
pub use pattern::{MAX_LEVELS, MAX_NAME, NameError, TopicPattern, check_name};
pub use quality::{
    AcceptedOrigins, BlockedSuppliers, Departed, DispatchOrder, EventOrigin, Mismatch, Offer, OfferStanding,
    QualityRequest, Reliability, SupplierOwner, SupplyRate,
};
pub use tenant::{TenantId, TenantLimits};
pub use topic::{HistoryDepth, Ownership, TopicSpec};
pub use unisono_fairqueue::{ClassId, ClassSpec, Hierarchy, HierarchyError, Served, Weight};
pub use unisono_text::Position;
pub use unisono_time::{Duration, Instant};
pub use value::{FieldSet, FieldValue, Numeric};
