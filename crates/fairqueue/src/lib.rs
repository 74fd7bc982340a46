#![doc = include_str!("../README.md")]
//! # Parts
//!
//! ```text
//!   Hierarchy (classes, weights) --> Scheduler: enqueue, dequeue, finish    <- exact, no time, no allocation
//!                                    Discipline: the same for FIFO, WFQ, deficit round robin
//!     apply: other classes and weights while packets wait
//!   bounds                           fairness, delay and service bounds         <- oracles of the tests
//!   trace, simulate                  a simulated link
//!   Policy                           classes, their shares and their packets, as an operator writes them
//!   Live                             counters per class of an enforced policy (read by other crates)
//! ```
#![forbid(unsafe_code)]

pub mod bounds;
mod buffer_limits;
mod calendar;
mod cello;
mod deadlines;
mod discipline;
mod exact;
mod fifo;
mod hierarchy;
#[cfg(feature = "policy")]
mod live;
mod natural;
mod pace;
mod packed_queue;
mod packet;
mod packet_queues;
#[cfg(feature = "policy")]
mod policy;
mod processor;
mod rate;
mod ring;
mod round_robin;
mod scheduler;
#[cfg(feature = "trace")]
mod seconds;
#[cfg(feature = "trace")]
mod simulate;
#[cfg(feature = "trace")]
mod trace;
mod weight;
mod weighted;
mod wheel;

pub use cello::{Cello, Disk, DiskRequest, Purpose};
pub use discipline::{Backlog, Discipline, EnqueueError};
pub use exact::{Exact, start_time};
pub use fifo::Fifo;
pub use hierarchy::{Class, ClassId, ClassSpec, Hierarchy, HierarchyError, Limit, Order, Overflow};
#[cfg(feature = "policy")]
pub use live::{DelayFigures, Live, LiveClass, Pace, ReceivingFigures, TrafficDirection};
pub use pace::LinkPace;
pub use packet::{NO_DEADLINE, Packet};
#[cfg(feature = "policy")]
pub use policy::{
    ChangedPolicy, ClassReceiving, ClassTerms, DiskClass, Dscp, Facts, Flows, GroupShare, GroupShares,
    IpProtocol, LeafQueue, LinkFraming, MacAddress, Matcher, Network, NetworkError, Policy, PolicyError,
    Position, RateColumns, Rule, SocketClass, SoleCondition, SubscribersError, SubscribersFile, TermsChange,
    TermsChangeError, WithSubscribers,
};
pub use processor::{Processor, Wants};
pub use rate::{Rate, RateError};
pub use round_robin::RoundRobin;
pub use scheduler::{ChangeError, Changes, Closed, Scheduler, Served};
#[cfg(feature = "trace")]
pub use seconds::Seconds;
#[cfg(feature = "trace")]
pub use simulate::{Delays, Departure};
#[cfg(feature = "trace")]
pub use trace::{Trace, TraceError};
pub use unisono_time::{Duration, Instant};
pub use weight::{Weight, WeightError};
pub use weighted::Weighted;
