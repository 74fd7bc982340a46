//! Any packets of MQTT clients: the broker sends only complete packets and frames, and keeps no state of the
//! clients after they have disconnected. The bytes are packets, each after its length in a byte; the first
//! byte selects the MQTT versions.
#![no_main]

use unisono_events_wire::transport::{PayloadRef, TransportPeer};
use unisono_broker::{Broker, ClientId, Limits, Next, Task};
use unisono_events_wire::{Duration, Greeting, Instant, InterestSpec, SubscriptionSpec};
use unisono_events_wire::Frame;
use unisono_fairqueue::{ClassSpec, Hierarchy};

const PROGRAM: ClientId = ClientId(9);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let mut broker = Broker::new(tree.expect("it is sound"), Limits::default());
    let Some((versions, mut rest)) = bytes.split_first() else { return };
    assert!(broker.connected(Instant::ZERO, PROGRAM, TransportPeer::User(0)));
    let interest = InterestSpec { topics: "#".to_owned(), ..InterestSpec::default() };
    let spec = SubscriptionSpec { interests: vec![interest], ..SubscriptionSpec::default() };
    for frame in [Frame::Hello(Greeting::default()), Frame::Subscribe { number: 1, spec: Box::new(spec) }] {
        let mut head = Vec::new();
        frame.write(&mut head);
        let _ = broker.received(Instant::ZERO, PROGRAM, &head, None);
    }
    let mut now = Instant::ZERO;
    for (number, filter) in [(1, b'#'), (2, b'+')] {
        let five = versions >> number & 1 == 1;
        assert!(broker.connected_by_mqtt(Instant::ZERO, ClientId(number), TransportPeer::User(1)));
        let mut connect = vec![0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 0, 0, 0, 0, 1, b'0' + number as u8];
        let mut subscribe = vec![0x82, 6, 0, 1, 0, 1, filter, number as u8];
        if five {
            (connect[1], connect[8]) = (14, 5);
            connect.insert(12, 0);
            subscribe[1] = 7;
            subscribe.insert(4, 0);
        }
        let _ = broker.received(Instant::ZERO, ClientId(number), &connect, None);
        let _ = broker.received(Instant::ZERO, ClientId(number), &subscribe, None);
    }
    check(&mut broker, &mut now);
    while let Some((length, after)) = rest.split_first() {
        let (packet, after) = after.split_at(usize::from(*length >> 1).min(after.len()));
        rest = after;
        now += Duration::from_millis(50);
        let _ = broker.received(now, ClientId(1 + u32::from(length & 1)), packet, None);
        check(&mut broker, &mut now);
    }
    for number in [1, 2] {
        broker.gone(now, ClientId(number));
    }
    check(&mut broker, &mut now);
    assert_eq!(broker.statistics(now).clients, 1);
});

fn check(broker: &mut Broker, now: &mut Instant) {
    loop {
        while let Some(task) = broker.task() {
            if let Task::Answer { client, head, body } = task {
                let payload = body.as_ref().map_or(PayloadRef::Bytes(&[]), |body| body.as_payload()).length();
                match client == PROGRAM {
                    true => {
                        let whole = [&head[..], &vec![0; payload]].concat();
                        Frame::read(&whole).expect("a program gets frames");
                    }
                    false => assert!(is_packet(&head, payload), "{head:?} and {payload} bytes"),
                }
            }
        }
        match broker.next(*now) {
            Next::Delivered => {}
            _ => return,
        }
    }
}

/// Whether the length field of a packet matches its length.
fn is_packet(head: &[u8], payload: usize) -> bool {
    let (mut length, mut bytes) = (0, 1);
    for byte in &head[1..] {
        length |= usize::from(byte & 0x7F) << (7 * (bytes - 1));
        bytes += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    bytes + length == head.len() + payload
}
