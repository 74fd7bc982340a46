//! Direct links over TCP where one end is a program that speaks in frames: another key, no way, a slow link.

use crate::direct::links;
use crate::direct_peer::RawProgram;
use crate::direct_tcp::{tcp, with_links};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;
use unisono_events_client::{Advertisement, EventDraft, NoticeText, Reception, SubscriptionSpec};
use unisono_events_wire::frame::{DeliverHead, PublishHead};
use unisono_events_wire::{Frame, LinkKeys, RingOrder, RingReport};

#[test]
fn whoever_shows_another_key_is_refused_and_the_supplier_still_gets_in() {
    with_links(|addresses| {
        let (at, is_over) = (addresses.tcp, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let mut consumer = tcp(at);
            consumer.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
            let consumer = scope.spawn(|| {
                let mut consumer = consumer;
                while !is_over.load(Ordering::Relaxed) {
                    let _ = consumer.receive(Some(StdDuration::from_millis(10))).expect("it lives");
                }
            });
            let mut supplier = RawProgram::program(at);
            supplier.say(&Frame::Advertise { number: 7, spec: Advertisement::new("t") });
            let RingOrder::Connect {
                link, address, keys: LinkKeys { supplier: key, consumer: answer }, ..
            } = supplier.order()
            else {
                panic!("another order");
            };
            assert_eq!((key.len(), answer.len(), key == answer), (32, 32, false));
            for (link, key) in [(link, answer.as_str()), (link + 1, key.as_str()), (link, "")] {
                let mut stranger = RawProgram::connect(address);
                stranger.show(link, key);
                assert_eq!(stranger.hear(), None);
            }
            let mut right = RawProgram::connect(address);
            right.show(link, &key);
            assert_eq!(right.hear(), Some([&b"UEL1"[..], &link.to_le_bytes(), answer.as_bytes()].concat()));
            // each key is shown once, and the consumer stops listening
            while TcpStream::connect(address).is_ok() {
                std::thread::sleep(StdDuration::from_millis(1));
            }
            is_over.store(true, Ordering::Relaxed);
            consumer.join().expect("it goes on");
        });
    });
}

/// What a consumer gets of a supplier that has left its link after some events and published one more by
/// the broker, while the others are still on their way, each after a pause.
fn after_a_slow_link(pauses: &'static [u64], arrives: bool) -> Vec<Result<u64, (u64, u64)>> {
    let got = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&got);
    with_links(move |addresses| {
        let mut consumer = tcp(addresses.tcp);
        consumer.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        let mut supplier = RawProgram::program(addresses.tcp);
        supplier.say(&Frame::Advertise { number: 7, spec: Advertisement::new("t") });
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let count = if arrives { pauses.len() + 2 } else { 4 };
                while into.lock().expect("no panic").len() < count {
                    let next = match consumer.receive(Some(StdDuration::from_secs(20))).expect("it lives") {
                        Some(Reception::Event(event)) => Ok(event.sequence),
                        Some(Reception::Notice { notice: NoticeText::Gap { first, lost, .. }, .. }) => {
                            Err((first, lost))
                        }
                        other => panic!("{other:?}"),
                    };
                    into.lock().expect("no panic").push(next);
                }
            });
            let RingOrder::Connect { link, address, keys, .. } = supplier.order() else {
                panic!("another order");
            };
            let mut direct = RawProgram::connect(address);
            direct.show(link, &keys.supplier);
            assert!(direct.hear().is_some());
            let report = RingReport::Supplies { links: vec![link] };
            supplier.say(&Frame::RingReport { number: 7, report });
            assert_eq!(supplier.order(), RingOrder::Numbered { last: 0 });
            let deliver = |direct: &mut RawProgram, sequence| {
                let head = DeliverHead { sequence, ..DeliverHead::default() };
                direct.say(&Frame::Deliver { head, payload: b"x" });
            };
            deliver(&mut direct, 1);
            let events = 1 + pauses.len() as u64;
            let report = RingReport::Left { events, for_good: true, recalled: false };
            supplier.say(&Frame::RingReport { number: 7, report });
            let head = PublishHead { topic: 7, ..PublishHead::default() };
            supplier.say(&Frame::Publish { head, payload: b"x" });
            if arrives {
                for (pause, number) in pauses.iter().zip(2..) {
                    std::thread::sleep(StdDuration::from_millis(*pause));
                    deliver(&mut direct, number);
                }
                drop(direct);
            } else {
                // the supplier's host is silent: the consumer ends the link
                assert_eq!(direct.hear(), None);
            }
        });
    });
    let got = got.lock().expect("no panic");
    got.clone()
}

#[test]
fn the_rest_of_a_link_comes_before_the_brokers_events_or_is_reported_as_lost() {
    assert_eq!(after_a_slow_link(&[200], true), [Ok(1), Ok(2), Ok(3)]);
    // what still comes is waited for
    assert_eq!(after_a_slow_link(&[600, 600], true), [Ok(1), Ok(2), Ok(3), Ok(4)]);
    // the consumer says from which event on it has none, and the broker then how many there were
    assert_eq!(after_a_slow_link(&[0], false), [Ok(1), Err((2, 0)), Ok(3), Err((2, 1))]);
}

#[test]
fn a_consumer_that_cannot_be_reached_or_does_not_know_its_key_gets_events_from_the_broker() {
    with_links(|addresses| {
        for is_there in [false, true] {
            let mut consumer = RawProgram::program(addresses.tcp);
            let spec = Box::new(SubscriptionSpec::new("t"));
            consumer.say(&Frame::Subscribe { number: 8, spec });
            let mut supplier = tcp(addresses.tcp);
            let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
            let RingOrder::Listen { link, keys } = consumer.order() else { panic!("another order") };
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = listener.local_addr().expect("bound").port();
            listener.set_nonblocking(true).expect("a socket");
            let listener = is_there.then_some(listener);
            consumer.say(&Frame::RingReport { number: 8, report: RingReport::Listens { link, port } });
            // the supplier learns of the address by its first calls
            let (mut strangers, mut number) = (Vec::new(), 0);
            let until = std::time::Instant::now() + StdDuration::from_secs(2);
            while std::time::Instant::now() < until {
                supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
                number += 1;
                if let Some(Ok((socket, _))) = listener.as_ref().map(TcpListener::accept) {
                    let mut raw = RawProgram::over(socket);
                    assert!(raw.hear().is_some_and(|shown| shown.ends_with(keys.supplier.as_bytes())));
                    raw.show(link, &keys.supplier);
                    strangers.push(raw);
                }
                std::thread::sleep(StdDuration::from_millis(50));
            }
            for expected in 1..=number {
                loop {
                    let frame = consumer.hear().expect("it is there");
                    match Frame::read(&frame).expect("a frame") {
                        Frame::Deliver { head, .. } => {
                            assert_eq!(head.sequence, expected);
                            break;
                        }
                        Frame::Ring { order, .. } => panic!("tried again: {order:?}"),
                        _ => {}
                    }
                }
            }
            assert_eq!((links(&mut supplier), strangers.len()), (0, usize::from(is_there)));
        }
    });
}
