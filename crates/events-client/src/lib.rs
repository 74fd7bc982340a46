#![doc = include_str!("../README.md")]
//! # Subscriptions
//!
//! A [`SubscriptionSpec`] states which events a consumer gets and how they wait for it: patterns of topics
//! and a filter on fields ([`InterestSpec`]), the length of its queue, and the treatment of events when the
//! queue is full ([`WhenFull`]) or an event is late ([`WhenLate`]).
//!
//! ```
//! # mod serving { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.rs")); }
//! use std::time::Duration;
//! use unisono_events_client::{
//!     Advertisement, Client, EventDraft, FieldSet, InterestSpec, Reception, SubscriptionSpec, WhenLate,
//! };
//!
//! # let broker = serving::ServedBroker::start();
//! # let address = broker.address();
//! let mut client = Client::at(&address)?;
//! let heat = client.advertise(&Advertisement::new("plant/1/heat"))?;
//! let hot = InterestSpec { filter: Some("level > 80".to_owned()), ..InterestSpec::new("plant/+/heat") };
//! let late = WhenLate::Drop;
//! client.subscribe(&SubscriptionSpec { interests: vec![hot], late, ..Default::default() })?;
//! for level in [70, 90] {
//!     client.publish(heat, &EventDraft::new(b"").with_fields(FieldSet::new().with("level", level)))?;
//! }
//! let received = client.receive(Some(Duration::from_secs(10)))?;
//! let Some(Reception::Event(event)) = received else { panic!("{received:?}") };
//! assert_eq!(event.fields, FieldSet::new().with("level", 90));
//! # Ok::<(), unisono_events_client::Error>(())
//! ```
//!
//! # Requests
//!
//! A request is an event that names the topic on which its reply is expected.
//!
//! ```
//! # mod serving { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.rs")); }
//! use std::time::Duration;
//! use unisono_events_client::{Advertisement, Client, EventDraft, Reception, SubscriptionSpec};
//!
//! # let broker = serving::ServedBroker::start();
//! # let address = broker.address();
//! let mut server = Client::at(&address)?;
//! server.subscribe(&SubscriptionSpec::new("square"))?;
//! let answering = std::thread::spawn(move || {
//!     let Some(Reception::Event(request)) = server.receive(None)? else { panic!("no request") };
//!     let number: u8 = request.payload.bytes()[0];
//!     server.reply(&request, EventDraft::new(&[number * number]))
//! });
//! let mut client = Client::at(&address)?;
//! let square = client.advertise(&Advertisement::new("square"))?;
//! let reply = client.request(square, EventDraft::new(&[7]), Duration::from_secs(10))?;
//! assert_eq!(&*reply.payload.bytes(), [49]);
//! # assert!(answering.join().expect("it does not panic")?);
//! # Ok::<(), unisono_events_client::Error>(())
//! ```
//!
//! # Outcomes and backpressure
//!
//! [`Client::publish`] waits neither for consumers nor for the broker's answer. After
//! [`Client::publish_with_receipt`] a program can ask how many consumers its event has reached;
//! [`Client::try_publish`] refuses an event that would have to wait.
//!
//! ```
//! # mod serving { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.rs")); }
//! use unisono_events_client::{Advertisement, Client, EventDraft, PublishOutcome};
//!
//! # let broker = serving::ServedBroker::start();
//! # let address = broker.address();
//! let mut client = Client::at(&address)?;
//! let heat = client.advertise(&Advertisement::new("plant/1/heat"))?;
//! let receipt = client.publish_with_receipt(heat, &EventDraft::new(b"81.5"), None)?;
//! assert_eq!(client.outcome(receipt)?.outcome, PublishOutcome::Taken(0), "no consumer subscribes");
//! # Ok::<(), unisono_events_client::Error>(())
//! ```
//!
//! # Connections
//!
//! [`ClientOptions`] chooses the program's name, a lease, the way to wait ([`ChannelWait`]) and whether the
//! client connects again after the broker's restart.
//!
//! ```
//! # mod serving { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.rs")); }
//! use std::time::Duration;
//! use unisono_events_client::ClientOptions;
//!
//! # let broker = serving::ServedBroker::start();
//! # let address = broker.address();
//! let options = ClientOptions::new().named("camera 1").reconnecting(Duration::from_secs(60));
//! let mut client = options.connect(&address)?;
//! assert_eq!(client.statistics()?.clients, 1);
//! # Ok::<(), unisono_events_client::Error>(())
//! ```
//!
//! # Tasks
//!
//! [`AsyncClient`] lets other tasks run while it waits, on any runtime, and is a stream of receptions.
//!
//! # Paths
//!
//! A *path* forwards a program's messages to a network address, no faster than the broker's policy allows.
//!
//! ```
//! # mod serving { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.rs")); }
//! use std::net::UdpSocket;
//! use unisono_events_client::{Client, Destination, NO_DEADLINE};
//!
//! # let broker = serving::ServedBroker::with_paths("80mbit");
//! # let address = broker.address();
//! let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
//! let destination = Destination::udp(socket.local_addr().expect("bound"));
//! let mut client = Client::at(&address)?;
//! let path = client.open("rest", destination)?; // a class of the policy
//! client.send(path, b"a frame", NO_DEADLINE)?;
//! let mut frame = [0; 16];
//! assert_eq!(socket.recv(&mut frame).expect("it arrives"), 7);
//! # Ok::<(), unisono_events_client::Error>(())
//! ```
//!
//! # Reading the crate
//!
//! `client/mod.rs` (the exchange of frames), `client/events.rs` (publishing, subscribing),
//! `client/requests.rs`, `client/paths.rs`; then `client/direct.rs` with `supply.rs` and `reading.rs` (rings
//! between programs), `client/reconnect.rs` and `client/tasks.rs`.
#![forbid(unsafe_code)]

mod client;

pub use client::{
    AsyncClient, Client, ClientOptions, Error, EventDraft, EventLoan, PathHandle, Predecessor,
    PublishProgress, PublishReceipt, PublishedEvent, ReceivedEvent, Reception, SubscriptionHandle,
    TopicHandle,
};
pub use unisono_events_wire::frame::MAX_KEY;
pub use unisono_events_wire::interrupt;
pub use unisono_events_wire::{
    AddressError, Advertisement, AgainSpec, BrokerAddress, CONTENT_TYPE, CertifiedFiles, ChannelWait,
    ClassStatistics, ConsumerStatistics, ContentFilter, DelayDistribution, Destination, DirectCounts,
    Durability, Duration, EventBytes, EventOrder, ExceptSpec, FieldSet, FieldValue, Greeting, HOST_SOCKET,
    Instant, InterestSpec, KeptHistory, LogStatistics, NO_DEADLINE, NoticeText, OTHERS, PartRule, PathSpec,
    PathTransport, PayloadForm, PublishOutcome, ReloadReport, RemoteSupplier, ReservedTime, ResumeSpec,
    SCHEMA, Statistics, SubscriptionSpec, SupplierOrder, TlsAddress, TlsError, TogetherSpec, TopicPattern,
    WelcomeTerms, WhenFull, WhenLate, default_socket, now,
};

/// The Rust of the guide, compiled as an example.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/events.md")]
struct EventsGuide;
