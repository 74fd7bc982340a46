#![doc = include_str!("../README.md")]
//! # Reading the crate
//!
//! ```text
//!   frame/        the bytes of each frame         spec.rs, ring.rs, notice.rs: the JSON in them
//!   transport/    the contract of a transport; Unix, TCP, TLS, UDP
//!   datagram/     QUIC without sockets and without a clock, and the admission of programs
//!   memory/       rings in shared memory: from supplier to consumer, and a transport of two of them
//!   tls/          certificates from files
//! ```
//! Read `frame/mod.rs` first, then `transport/mod.rs` and `memory/mod.rs`.
#![forbid(unsafe_code)]
// Under loom the library is empty: the models in tests/loom.rs include the files that they check one by one.
#![cfg(not(loom))]

mod address;
mod body;
mod buffers;
mod channel_wait;
mod content;
pub mod datagram;
mod destination;
pub mod frame;
mod greeting;
pub mod interrupt;
pub mod memory;
mod name;
mod notice;
mod reload;
mod ring;
mod spec;
mod statistics;
mod take_over;
pub mod tls;
mod topic_names;
pub mod transport;

pub use address::{AddressError, BrokerAddress, HOST_SOCKET, TlsAddress, check_owner, default_socket};
pub use body::EventBytes;
pub use buffers::{AllMemory, BufferAccount, BufferShare};
pub use channel_wait::{ChannelWait, spin_once};
pub use content::{CONTENT_TYPE, PayloadForm, SCHEMA};
pub use destination::{Destination, EVENT_COST, PathTransport, credit_cost};
pub use frame::{Bad, Frame, PublishOutcome};
pub use greeting::{Greeting, WelcomeTerms};
pub use name::{check_program_name, own_program_name, shown};
pub use notice::NoticeText;
pub use reload::{EndedConnection, ReloadReport};
pub use ring::{DirectCounts, LinkKeys, MAX_OF_REPORT, RefusalCounts, RingOrder, RingReport};
pub use spec::{
    Advertisement, AgainSpec, Durability, EventOrder, ExceptSpec, InterestError, InterestSpec, KeptHistory,
    MIN_PERIOD, PartRule, PathSpec, RemoteSupplier, ReservedTime, ResumeSpec, SubscriptionSpec,
    SupplierOrder, TogetherSpec, WhenFull, WhenLate,
};
pub use statistics::{
    ClassStatistics, ConsumerStatistics, DelayDistribution, LogStatistics, OTHERS, Statistics,
};
pub use take_over::{TakeOverReport, TakeOverStep};
pub use tls::{
    CertificateChain, CertifiedFiles, ClientCertificateCheck, TlsCertificates, TlsClient, TlsError,
    TlsService, Uncertified,
};
pub use topic_names::TopicNames;
pub use unisono_eventchannel::{ContentFilter, FieldSet, FieldValue, NO_DEADLINE, TopicPattern};
/// The clock of deadlines (`CLOCK_MONOTONIC`).
pub use unisono_linux::clock::{Duration, Instant, now};
