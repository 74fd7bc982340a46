//! The broker's order is that of the scheduler, whatever is handed over when; and nothing that programs or
//! destinations do makes it forget a message, a byte of credit or its bounds.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use unisono_broker::{
    Broker, ChannelId, ClientId, Destination, Frame, Limits, NO_DEADLINE, Next, Pace, Sent, Task,
};
use unisono_fairqueue::{ClassSpec, Discipline, Hierarchy, Order, Packet, Scheduler};

const CLASSES: [&str; 4] = ["live", "stored", "web", "rest"];

/// Three levels, one leaf by deadline, weights that are no round numbers.
fn hierarchy() -> Hierarchy {
    let leaf = |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
    let mut live = leaf("live", "1.5");
    live.order = Order::Deadline;
    let video = leaf("video", "3").with([live, leaf("stored", "2")]);
    let all = ClassSpec::new("link").with([video, leaf("web", "1")]);
    Hierarchy::new(all).and_then(|all| all.with_default("rest")).expect("names are unique")
}

/// A byte a nanosecond.
fn link() -> Pace {
    Pace::new(8_000_000_000).making_up_for(0)
}

fn destination() -> Destination {
    Destination::udp("10.0.0.1:9".parse().expect("an address"))
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

/// One program with a channel a class, all open.
fn connected(limits: Limits) -> Broker {
    let mut broker = Broker::new(hierarchy(), link(), limits);
    let client = ClientId(7);
    assert!(broker.connected(0, client, 0));
    broker.received(0, client, &bytes(&Frame::Hello));
    for (channel, class) in (0..).zip(CLASSES) {
        broker.received(0, client, &bytes(&Frame::Open { channel, destination: destination(), class }));
    }
    while let Some(task) = broker.task() {
        if let Task::Open { channel, .. } = task {
            broker.opened(channel, false);
        }
    }
    broker
}

#[derive(Clone, Debug)]
struct Arrival {
    after: u64,
    class: usize,
    length: usize,
    deadline: u64,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let deadline = prop_oneof![Just(NO_DEADLINE), 0_u64..20_000];
    let arrival = (0_u64..600, 0..CLASSES.len(), 4_usize..1400, deadline)
        .prop_map(|(after, class, length, deadline)| Arrival { after, class, length, deadline });
    proptest::collection::vec(arrival, 1..120)
}

fn of_the_scheduler(arrivals: &[Arrival]) -> Vec<u32> {
    let hierarchy = hierarchy();
    let mut scheduler = Scheduler::new(hierarchy.clone());
    let (mut order, mut end, mut busy, mut now) = (Vec::new(), 0, false, 0);
    let mut waiting: Vec<(u64, u32, &Arrival)> = Vec::new();
    for (number, arrival) in (0..).zip(arrivals) {
        now += arrival.after;
        waiting.push((now, number, arrival));
    }
    let mut waiting = waiting.into_iter().peekable();
    now = 0;
    loop {
        if busy && end <= now {
            scheduler.finish(now);
            busy = false;
        }
        while let Some((_, number, arrival)) = waiting.next_if(|(at, ..)| *at == now) {
            let class = hierarchy.find(CLASSES[arrival.class]).expect("it is there");
            let length = destination().wire_length(arrival.length);
            let flow = arrival.class as u32;
            let packet = Packet { length, flow, deadline: arrival.deadline, item: number };
            scheduler.enqueue(now, class, packet).expect("a leaf");
        }
        if !busy && let Some((_, packet)) = scheduler.dequeue(now) {
            order.push(packet.item);
            (end, busy) = (now + u64::from(packet.length), true);
        }
        now = match (busy, waiting.peek()) {
            (true, Some((at, ..))) => end.min(*at),
            (true, None) => end,
            (false, Some((at, ..))) => *at,
            (false, None) => return order,
        };
    }
}

fn of_the_broker(arrivals: &[Arrival]) -> Vec<u32> {
    let roomy = Limits { credit: 1 << 24, memory_of_user: 64 << 20, ..Limits::default() };
    let mut broker = connected(roomy);
    let (mut order, mut now) = (Vec::new(), 0);
    let mut send = |broker: &mut Broker, now: u64| loop {
        match broker.next(now) {
            Next::Transmit { payload, .. } => {
                let number = payload[..4].try_into().expect("four bytes");
                order.push(u32::from_le_bytes(number));
                broker.transmitted(now, Sent::Whole);
            }
            Next::Wait(until) => return Some(until),
            Next::Idle => return None,
        }
    };
    let mut numbered = (0_u32..).zip(arrivals).peekable();
    while let Some((_, first)) = numbered.peek() {
        let at = now + first.after;
        while let Some(until) = send(&mut broker, now).filter(|until| *until < at) {
            now = until;
        }
        now = at;
        let mut together = true;
        while together && let Some((number, arrival)) = numbered.next() {
            let mut payload = vec![0; arrival.length];
            payload[..4].copy_from_slice(&number.to_le_bytes());
            let channel = arrival.class as u32;
            let message = Frame::Message { channel, deadline: arrival.deadline, payload: &payload };
            broker.received(now, ClientId(7), &bytes(&message));
            together = numbered.peek().is_some_and(|(_, next)| next.after == 0);
        }
    }
    while let Some(until) = send(&mut broker, now) {
        now = until;
    }
    assert!(broker.is_empty());
    order
}

proptest! {
    #[test]
    fn messages_leave_in_the_order_of_the_scheduler(arrivals in arrivals()) {
        prop_assert_eq!(of_the_broker(&arrivals), of_the_scheduler(&arrivals));
    }
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
        2 => Just(bytes(&Frame::Hello)),
        4 => (channel.clone(), class).prop_map(|(channel, class)| {
            bytes(&Frame::Open { channel, destination: destination(), class })
        }),
        12 => (channel.clone(), 0_usize..3000, any::<u64>()).prop_map(|(channel, length, deadline)| {
            bytes(&Frame::Message { channel, deadline, payload: &vec![0; length] })
        }),
        1 => channel.clone().prop_map(|channel| bytes(&Frame::Close { channel })),
        1 => channel.clone().prop_map(|channel| bytes(&Frame::Flush { channel })),
        1 => Just(bytes(&Frame::Ask)),
        1 => channel.prop_map(|channel| bytes(&Frame::Credit { channel, bytes: 9 })),
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
            clients: 3, channels: 3, credit: 6000, memory: 40_000, largest: 2000, patience: 20_000, ..Limits::default()
        };
        let mut broker = Broker::new(hierarchy(), link(), limits);
        let (mut now, mut next_client) = (0, BTreeMap::new());
        let (mut asked, mut open) = (Vec::new(), BTreeSet::new());
        let mut numbers = 0;
        for event in events {
            // a number is used again by nobody, as with descriptors that are still open
            let id = |client: u32, next: &BTreeMap<u32, u32>| ClientId(next.get(&client).copied().unwrap_or(99));
            match event {
                Event::Connect(client) => {
                    numbers += 1;
                    if broker.connected(now, ClientId(numbers), numbers % 2)
                        && let Some(before) = next_client.insert(client, numbers)
                    {
                        broker.gone(now, ClientId(before));
                    }
                }
                Event::Frame(client, bytes) => broker.received(now, id(client, &next_client), &bytes),
                Event::Gone(client) => broker.gone(now, id(client, &next_client)),
                Event::Opened(stalled) => if let Some(channel) = asked.pop() {
                    broker.opened(channel, stalled);
                    open.insert(channel);
                },
                Event::RefusedToOpen => if let Some(channel) = asked.pop() { broker.broken(now, channel, "no") },
                Event::Next(how) => if let Next::Transmit { channel, payload } = broker.next(now) {
                    prop_assert!(open.contains(&channel), "sent on a channel that is not open");
                    prop_assert!(payload.len() <= 2000);
                    broker.transmitted(now, [Sent::Whole, Sent::Kept, Sent::Lost][usize::from(how) % 3]);
                },
                Event::Drained(channel) => broker.drained(now, ChannelId(channel)),
                Event::Broken(channel) => if open.contains(&ChannelId(channel)) {
                    broker.broken(now, ChannelId(channel), "gone");
                },
                Event::Later(by) => now += by,
            }
            while let Some(task) = broker.task() {
                match task {
                    Task::Open { channel, .. } => asked.push(channel),
                    Task::Release { channel } => {
                        open.remove(&channel);
                        asked.retain(|other| *other != channel);
                    }
                    Task::Answer { frame, .. } => { Frame::read(&frame).expect("a broker writes frames"); }
                    Task::SendAway { .. } => {}
                }
            }
            let statistics = broker.statistics(now);
            prop_assert!(statistics.channels * u64::from(limits.credit) <= limits.memory);
            prop_assert!(statistics.clients <= limits.clients as u64);
        }
        // everybody leaves, everything drains
        for client in 0..=numbers {
            broker.gone(now, ClientId(client));
        }
        for round in 0.. {
            prop_assert!(round < 100_000, "it never ends");
            for channel in 0..400 {
                broker.drained(now, ChannelId(channel));
            }
            match broker.next(now) {
                Next::Transmit { .. } => broker.transmitted(now, Sent::Whole),
                Next::Wait(until) => now = until,
                Next::Idle => break,
            }
        }
        let left = broker.statistics(now);
        prop_assert_eq!((left.clients, left.channels), (0, 0));
        prop_assert!(broker.is_empty());
    }
}

#[test]
fn who_hands_over_more_than_its_credit_is_sent_away_and_what_it_handed_over_is_sent() {
    let limits = Limits { credit: 4000, largest: 1500, ..Limits::default() };
    let mut broker = connected(limits);
    let message = bytes(&Frame::Message { channel: 2, deadline: NO_DEADLINE, payload: &[0; 1000] });
    for _ in 0..4 {
        broker.received(0, ClientId(7), &message);
    }
    let said: Vec<Task> = std::iter::from_fn(|| broker.task()).collect();
    let Some(Task::Answer { frame, .. }) = said.first() else { panic!("{said:?}") };
    let reason = "more on channel 2 than its credit of 4000 bytes";
    assert_eq!(Frame::read(frame), Ok(Frame::Bye { reason }));
    let (mut now, mut sent) = (0, 0);
    loop {
        match broker.next(now) {
            Next::Transmit { .. } => {
                sent += 1;
                broker.transmitted(now, Sent::Whole);
            }
            Next::Wait(until) => now = until,
            Next::Idle => break,
        }
    }
    let statistics = broker.statistics(now);
    assert_eq!((sent, statistics.sent_away, statistics.channels), (3, 1, 0));
}

#[test]
fn a_destination_that_takes_nothing_holds_up_nobody_else() {
    let mut broker = connected(Limits::default());
    let message = |channel| bytes(&Frame::Message { channel, deadline: NO_DEADLINE, payload: &[0; 1000] });
    for _ in 0..20 {
        broker.received(0, ClientId(7), &message(1));
        broker.received(0, ClientId(7), &message(2));
    }
    let (mut now, mut sent) = (0, [0; 4]);
    let mut run = |broker: &mut Broker, now: &mut u64, stuck: Option<u32>| loop {
        match broker.next(*now) {
            Next::Transmit { channel, .. } => {
                sent[channel.0 as usize] += 1;
                let kept = stuck == Some(channel.0);
                broker.transmitted(*now, if kept { Sent::Kept } else { Sent::Whole });
            }
            Next::Wait(until) => *now = until,
            Next::Idle => return sent,
        }
    };
    assert_eq!(run(&mut broker, &mut now, Some(1)), [0, 20, 20, 0], "kept at its socket");
    for _ in 0..20 {
        broker.received(now, ClientId(7), &message(1));
        broker.received(now, ClientId(7), &message(2));
    }
    assert_eq!(run(&mut broker, &mut now, None), [0, 20, 40, 0], "held before the scheduler");
    broker.drained(now, ChannelId(1));
    assert_eq!(run(&mut broker, &mut now, None), [0, 40, 40, 0]);
    assert!(broker.is_empty());
}

/// A broker with a channel whose destination takes nothing, a message on it, and its program gone at this
/// time.
fn abandoned(at: u64) -> Broker {
    let mut broker = connected(Limits::default());
    let message = bytes(&Frame::Message { channel: 1, deadline: NO_DEADLINE, payload: &[0; 1000] });
    broker.received(0, ClientId(7), &message);
    let Next::Transmit { channel: ChannelId(1), .. } = broker.next(0) else { panic!("it waits for nothing") };
    broker.transmitted(0, Sent::Kept);
    broker.gone(at, ClientId(7));
    while broker.task().is_some() {}
    assert_eq!(broker.statistics(at).channels, 1, "those with nothing on them are gone");
    broker
}

#[test]
fn a_channel_without_a_program_ends_when_its_destination_takes_nothing_for_a_while() {
    let patience = Limits::default().patience;
    let mut broker = abandoned(5);
    assert_eq!(broker.next(4 + patience), Next::Idle);
    assert_eq!(broker.statistics(0).channels, 1);
    // the look is due once a second
    assert_eq!(broker.next(5 + patience + 1_000_000_000), Next::Idle);
    assert_eq!(broker.task(), Some(Task::Release { channel: ChannelId(1) }));
    assert!(broker.statistics(0).channels == 0 && broker.is_empty());
}

#[test]
fn a_destination_that_reads_slowly_is_waited_for() {
    let patience = Limits::default().patience;
    let mut broker = abandoned(0);
    for round in 1..10 {
        let now = round * (patience - 1_000_000_000);
        assert_eq!(broker.next(now), Next::Idle);
        broker.progressed(now, ChannelId(1));
    }
    assert_eq!(broker.statistics(0).channels, 1);
    broker.drained(10 * patience, ChannelId(1));
    assert_eq!(broker.statistics(0).channels, 0);
}

#[test]
fn one_user_cannot_take_all_places_nor_all_credit() {
    let limits = Limits {
        clients: 8,
        clients_of_user: 4,
        channels: 64,
        credit: 40_000,
        memory: 400_000,
        memory_of_user: 200_000,
        ..Limits::default()
    };
    let mut broker = Broker::new(hierarchy(), link(), limits);
    let may: Vec<bool> = (0..6).map(|client| broker.connected(0, ClientId(client), 1000)).collect();
    assert_eq!(may, [true, true, true, true, false, false]);
    assert!(broker.connected(0, ClientId(9), 1001), "there is room for others");
    let mut opened = |client: u32| {
        let client = ClientId(client);
        broker.received(0, client, &bytes(&Frame::Hello));
        for channel in 0..8 {
            broker.received(
                0,
                client,
                &bytes(&Frame::Open { channel, destination: destination(), class: CLASSES[0] }),
            );
        }
        let mut count = 0;
        while let Some(task) = broker.task() {
            if let Task::Open { channel, .. } = task {
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
    let mut broker = Broker::new(hierarchy(), link(), Limits::default());
    assert!(broker.connected(5, ClientId(1), 0));
    assert_eq!(broker.next(5 + Limits::default().patience + 1_000_000_000), Next::Idle);
    let last = std::iter::from_fn(|| broker.task()).last();
    assert_eq!((last, broker.statistics(0).clients), (Some(Task::SendAway { client: ClientId(1) }), 0));
}
