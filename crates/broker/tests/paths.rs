//! Nothing that programs or destinations of paths do makes the broker forget an event, a byte of credit or
//! its bounds.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use unisono_broker::{Broker, ClientId, Limits, Next, PathId, Sent, Task};
use unisono_events_client::{Destination, Greeting, NO_DEADLINE, PathSpec};
use unisono_events_wire::{Frame, frame::PublishHead, transport::TransportPeer};
use unisono_fairqueue::{ClassSpec, Hierarchy, LinkPace, Order, Rate};
use unisono_linux::clock::{Duration, Instant};

const CLASSES: [&str; 4] = ["live", "stored", "web", "rest"];

/// Makes a hierarchy of three levels, with one leaf ordered by deadline, and weights that are no round
/// numbers.
fn hierarchy() -> Hierarchy {
    let leaf = |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
    let mut live = leaf("live", "1.5");
    live.order = Order::Deadline;
    let video = leaf("video", "3").with([live, leaf("stored", "2")]);
    let all = ClassSpec::new("link").with([video, leaf("web", "1")]);
    Hierarchy::new(all).and_then(|all| all.with_default("rest")).expect("names are unique")
}

/// Returns the link of the paths: one byte per nanosecond.
fn link() -> LinkPace {
    LinkPace::new(Rate::new(8_000_000_000).expect("a positive rate"), Duration::ZERO)
}

fn destination() -> Destination {
    Destination::udp("10.0.0.1:9".parse().expect("an address"))
}

fn hello() -> Vec<u8> {
    bytes(&Frame::Hello(Greeting::default()))
}

fn open(number: u32, class: &str) -> Vec<u8> {
    bytes(&Frame::Open { number, path: PathSpec { class: class.to_owned(), destination: destination() } })
}

fn message(topic: u32, deadline: Instant, length: usize) -> Vec<u8> {
    let head = PublishHead { topic, deadline: deadline.into(), ..PublishHead::default() };
    bytes(&Frame::Publish { head, payload: &vec![0; length] })
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

/// Makes a broker with one program that has an open path in each class.
fn connected(limits: Limits) -> Broker {
    let mut broker = Broker::new(hierarchy(), limits).with_paths(link());
    let client = ClientId(7);
    assert!(broker.connected(Instant::ZERO, client, TransportPeer::User(0)));
    let _ = broker.received(Instant::ZERO, client, &hello(), None);
    for (channel, class) in (0..).zip(CLASSES) {
        let _ = broker.received(Instant::ZERO, client, &open(channel, class), None);
    }
    while let Some(task) = broker.task() {
        if let Task::Open { path: channel, .. } = task {
            broker.opened(channel, false);
        }
    }
    broker
}

/// Anything that can happen to a broker.
#[derive(Clone, Debug)]
enum Event {
    Connect(u32),
    Frame(u32, Vec<u8>),
    Gone(u32),
    Opened(bool),
    RefusedToOpen,
    Next(u8),
    Drained(u32),
    Broken(u32),
    Later(u64),
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let channel = 0_u32..4;
    let class = prop_oneof![Just("live"), Just("web"), Just(""), Just("video"), Just("nobody")];
    prop_oneof![
        2 => Just(hello()),
        4 => (channel.clone(), class).prop_map(|(channel, class)| {
            open(channel, class)
        }),
        12 => (channel.clone(), 0_usize..3000, any::<u64>()).prop_map(|(channel, length, deadline)| {
            message(channel, Instant::from_nanos(deadline), length)
        }),
        1 => channel.clone().prop_map(|channel| bytes(&Frame::Close { number: channel })),
        1 => channel.clone().prop_map(|channel| bytes(&Frame::Flush { number: channel })),
        1 => Just(bytes(&Frame::Ask)),
        1 => channel.prop_map(|channel| bytes(&Frame::Credit { number: channel, bytes: 9 })),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let client = 0_u32..4;
    let event = prop_oneof![
        3 => client.clone().prop_map(Event::Connect),
        20 => (client.clone(), frame()).prop_map(|(client, frame)| Event::Frame(client, frame)),
        1 => client.prop_map(Event::Gone),
        4 => any::<bool>().prop_map(Event::Opened),
        1 => Just(Event::RefusedToOpen),
        10 => any::<u8>().prop_map(Event::Next),
        3 => (0_u32..8).prop_map(Event::Drained),
        1 => (0_u32..8).prop_map(Event::Broken),
        6 => (0_u64..5000).prop_map(Event::Later),
    ];
    proptest::collection::vec(event, 0..200)
}

proptest! {
    #[test]
    fn whatever_happens_channels_end_credit_comes_back_and_memory_has_a_bound(events in events()) {
        let limits = Limits {
            clients: 3, topics: 3, credit: 6000, memory: 40_000, path_largest: 2000, stall_timeout: Duration::from_micros(20), ..Limits::default()
        };
        let mut broker = Broker::new(hierarchy(), limits).with_paths(link());
        let (mut now, mut next_client) = (Instant::ZERO, BTreeMap::new());
        let (mut asked, mut open) = (Vec::new(), BTreeSet::new());
        let mut numbers = 0;
        for event in events {
            // no client reuses a number, as with descriptors that are still open
            let id = |client: u32, next: &BTreeMap<u32, u32>| ClientId(next.get(&client).copied().unwrap_or(99));
            match event {
                Event::Connect(client) => {
                    numbers += 1;
                    if broker.connected(now, ClientId(numbers), TransportPeer::User(numbers % 2))
                        && let Some(before) = next_client.insert(client, numbers)
                    {
                        broker.gone(now, ClientId(before));
                    }
                }
                Event::Frame(client, bytes) => drop(broker.received(now, id(client, &next_client), &bytes, None)),
                Event::Gone(client) => broker.gone(now, id(client, &next_client)),
                Event::Opened(stalled) => if let Some(channel) = asked.pop() {
                    broker.opened(channel, stalled);
                    open.insert(channel);
                },
                Event::RefusedToOpen => if let Some(channel) = asked.pop() { broker.broken(now, channel, "no") },
                Event::Next(how) => if let Next::Transmit { path: channel, body } = broker.next(now) {
                    prop_assert!(open.contains(&channel), "sent on a channel that is not open");
                    prop_assert!(body.payload.bytes().len() <= 2000);
                    broker.transmitted(now, [Sent::Whole, Sent::Kept, Sent::Lost][usize::from(how) % 3]);
                },
                Event::Drained(channel) => broker.drained(now, PathId(channel)),
                Event::Broken(channel) => if open.contains(&PathId(channel)) {
                    broker.broken(now, PathId(channel), "gone");
                },
                Event::Later(by) => now += Duration::from_nanos(by),
            }
            while let Some(task) = broker.task() {
                match task {
                    Task::Open { path: channel, .. } => asked.push(channel),
                    Task::Release { path: channel } => {
                        open.remove(&channel);
                        asked.retain(|other| *other != channel);
                    }
                    Task::Unreliable { .. } | Task::Note { .. } | Task::Reload { .. } => {}
                    Task::TakeOver { .. } => {}
                    Task::Answer { head, .. } => { Frame::read(&head).expect("a broker writes frames"); }
                    Task::SendAway { .. } => {}
                    Task::Order { .. } | Task::Introduce { .. } | Task::Pass { .. } | Task::Forget { .. } => {
                        panic!("no program here takes descriptors")
                    }
                }
            }
            let statistics = broker.statistics(now);
            prop_assert!(statistics.paths * u64::from(limits.credit) <= limits.memory);
            prop_assert!(statistics.clients <= limits.clients as u64);
        }
        // all programs leave, and all paths drain
        for client in 0..=numbers {
            broker.gone(now, ClientId(client));
        }
        for round in 0.. {
            prop_assert!(round < 100_000, "it never ends");
            for channel in 0..400 {
                broker.drained(now, PathId(channel));
            }
            match broker.next(now) {
                Next::Transmit { .. } => broker.transmitted(now, Sent::Whole),
                Next::Wait(until) => now = until,
                Next::Idle => break,
                Next::Delivered => {}
            }
        }
        let left = broker.statistics(now);
        prop_assert_eq!((left.clients, left.paths), (0, 0));
        prop_assert!(broker.is_empty());
    }
}

#[test]
fn who_hands_over_more_than_its_credit_is_sent_away_and_what_it_handed_over_is_sent() {
    let limits = Limits { credit: 4000, path_largest: 1500, ..Limits::default() };
    let mut broker = connected(limits);
    let message = message(2, NO_DEADLINE, 1000);
    for _ in 0..4 {
        let _ = broker.received(Instant::ZERO, ClientId(7), &message, None);
    }
    let said: Vec<Task> = std::iter::from_fn(|| broker.task()).collect();
    let Some(Task::Answer { head, .. }) = said.first() else { panic!("{said:?}") };
    let reason = "more on path 2 than its credit of 4000 bytes";
    assert_eq!(Frame::read(head), Ok(Frame::Bye { reason }));
    let (mut now, mut sent) = (Instant::ZERO, 0);
    loop {
        match broker.next(now) {
            Next::Transmit { .. } => {
                sent += 1;
                broker.transmitted(now, Sent::Whole);
            }
            Next::Wait(until) => now = until,
            Next::Idle => break,
            Next::Delivered => {}
        }
    }
    let statistics = broker.statistics(now);
    assert_eq!((sent, statistics.sent_away, statistics.paths), (3, 1, 0));
}

#[test]
fn a_destination_that_takes_nothing_holds_up_nobody_else() {
    let mut broker = connected(Limits::default());
    let message = |path| message(path, NO_DEADLINE, 1000);
    for _ in 0..20 {
        let _ = broker.received(Instant::ZERO, ClientId(7), &message(1), None);
        let _ = broker.received(Instant::ZERO, ClientId(7), &message(2), None);
    }
    let (mut now, mut sent) = (Instant::ZERO, [0; 4]);
    let mut run = |broker: &mut Broker, now: &mut Instant, stuck: Option<u32>| loop {
        match broker.next(*now) {
            Next::Transmit { path: channel, .. } => {
                sent[channel.0 as usize - 1] += 1;
                let kept = stuck == Some(channel.0);
                broker.transmitted(*now, if kept { Sent::Kept } else { Sent::Whole });
            }
            Next::Wait(until) => *now = until,
            Next::Idle => return sent,
            Next::Delivered => {}
        }
    };
    assert_eq!(run(&mut broker, &mut now, Some(2)), [0, 1, 20, 0], "one is kept at its socket");
    for _ in 0..20 {
        let _ = broker.received(now, ClientId(7), &message(1), None);
        let _ = broker.received(now, ClientId(7), &message(2), None);
    }
    assert_eq!(run(&mut broker, &mut now, None), [0, 1, 40, 0], "the rest waits in its inbox");
    broker.drained(now, PathId(2));
    assert_eq!(run(&mut broker, &mut now, None), [0, 40, 40, 0]);
    assert!(broker.is_empty());
}

/// Makes a broker with a path that holds a message, whose destination takes nothing, and whose program has
/// gone at this time.
fn abandoned(at: Instant) -> Broker {
    let mut broker = connected(Limits::default());
    let message = message(1, NO_DEADLINE, 1000);
    let _ = broker.received(Instant::ZERO, ClientId(7), &message, None);
    let Next::Transmit { path: PathId(2), .. } = broker.next(Instant::ZERO) else {
        panic!("it waits for nothing")
    };
    broker.transmitted(Instant::ZERO, Sent::Kept);
    broker.gone(at, ClientId(7));
    while broker.task().is_some() {}
    assert_eq!(broker.statistics(at).paths, 1, "those with nothing on them are gone");
    broker
}

#[test]
fn a_channel_without_a_program_ends_when_its_destination_takes_nothing_for_a_while() {
    let stall_timeout = Limits::default().stall_timeout;
    let mut broker = abandoned(Instant::from_nanos(5));
    assert!(matches!(broker.next(Instant::from_nanos(4) + stall_timeout), Next::Idle));
    assert_eq!(broker.statistics(Instant::ZERO).paths, 1);
    // the broker checks once a second
    assert!(matches!(
        broker.next(Instant::from_nanos(5) + stall_timeout + Duration::SECOND),
        Next::Idle
    ));
    assert!(matches!(broker.task(), Some(Task::Release { path: PathId(2) })));
    assert!(broker.statistics(Instant::ZERO).paths == 0 && broker.is_empty());
}

#[test]
fn a_destination_that_reads_slowly_is_waited_for() {
    let stall_timeout = Limits::default().stall_timeout;
    let mut broker = abandoned(Instant::ZERO);
    for round in 1..10 {
        let now = Instant::ZERO + (stall_timeout - Duration::SECOND) * round;
        assert!(matches!(broker.next(now), Next::Idle));
        broker.progressed(now, PathId(2));
    }
    assert_eq!(broker.statistics(Instant::ZERO).paths, 1);
    broker.drained(Instant::ZERO + stall_timeout * 10, PathId(2));
    assert_eq!(broker.statistics(Instant::ZERO).paths, 0);
}

#[test]
fn one_user_cannot_take_all_places_nor_all_credit() {
    let limits = Limits {
        clients: 8,
        clients_of_user: 4,
        topics: 64,
        credit: 40_000,
        // for five paths each, and their names
        memory: 420_000,
        memory_of_user: 210_000,
        ..Limits::default()
    };
    let mut broker = Broker::new(hierarchy(), limits).with_paths(link());
    let may: Vec<bool> = (0..6)
        .map(|client| broker.connected(Instant::ZERO, ClientId(client), TransportPeer::User(1000)))
        .collect();
    assert_eq!(may, [true, true, true, true, false, false]);
    assert!(
        broker.connected(Instant::ZERO, ClientId(9), TransportPeer::User(1001)),
        "there is room for others"
    );
    let mut opened = |client: u32| {
        let client = ClientId(client);
        let _ = broker.received(Instant::ZERO, client, &hello(), None);
        for channel in 0..8 {
            let _ = broker.received(Instant::ZERO, client, &open(channel, CLASSES[0]), None);
        }
        let mut count = 0;
        while let Some(task) = broker.task() {
            if let Task::Open { path: channel, .. } = task {
                broker.opened(channel, false);
                count += 1;
            }
        }
        count
    };
    assert_eq!((opened(0), opened(1), opened(9)), (5, 0, 5));
}

#[test]
fn who_connects_and_does_not_greet_has_to_go() {
    let mut broker = Broker::new(hierarchy(), Limits::default()).with_paths(link());
    assert!(broker.connected(Instant::from_nanos(5), ClientId(1), TransportPeer::User(0)));
    assert!(matches!(
        broker.next(Instant::from_nanos(5) + (Limits::default().stall_timeout + Duration::SECOND)),
        Next::Idle
    ));
    let last = std::iter::from_fn(|| broker.task()).last();
    assert!(
        matches!(last, Some(Task::SendAway { client: ClientId(1), .. }))
            && broker.statistics(Instant::ZERO).clients == 0
    );
}
