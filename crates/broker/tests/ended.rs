//! Events that came before the end of their supplier's connection are delivered, also while a consumer that
//! blocks its suppliers has no room for them when the connection ends.

use crate::common::mqtt::{Raw, V5, V311};
use crate::common::{Addresses, event, notice, with_broker};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, AgainSpec, Client, EventDraft, NoticeText, SubscriptionSpec, WhenFull,
};

/// Events of a supplier: many more than fit into the consumer's inbox.
const EVENTS: u64 = 200;

/// Makes the terms of a consumer that has one event at a time, and room for four.
fn narrow() -> SubscriptionSpec {
    SubscriptionSpec {
        queue_events: 4,
        full: WhenFull::BlockSupplier,
        again: Some(AgainSpec { after_ns: 60_000_000_000, attempts: 9, window: 1 }),
        direct: false,
        ..SubscriptionSpec::new("late")
    }
}

/// Reads all events of a supplier that is gone.
fn read_all(consumer: &mut Client) {
    for number in 0..EVENTS {
        let event = event(consumer);
        assert_eq!(*event.payload.bytes(), number.to_le_bytes());
        consumer.acknowledge(&event).expect("it leaves");
    }
}

/// Lets the broker notice the end while the consumer has no room.
fn let_the_broker_notice() {
    std::thread::sleep(Duration::from_millis(300));
}

fn consumer_for(addresses: &Addresses, over_tcp: bool) -> Client {
    match over_tcp {
        true => Client::connect_tcp(addresses.tcp).expect("it listens"),
        false => addresses.client(),
    }
}

#[test]
fn events_of_a_program_that_has_gone_wait_for_room() {
    with_broker(|addresses| {
        for (at, mut supplier) in addresses.clients().into_iter().enumerate() {
            let mut consumer = consumer_for(addresses, at == 2);
            consumer.subscribe(&narrow()).expect("it fits");
            let advertisement = Advertisement { reliable: true, ..Advertisement::new("late") };
            let topic = supplier.advertise(&advertisement).expect("a topic");
            for number in 0..EVENTS {
                supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).expect("it leaves");
            }
            drop(supplier);
            let_the_broker_notice();
            read_all(&mut consumer);
            let left = notice(&mut consumer);
            assert!(matches!(left, NoticeText::Gone { died: false, .. }), "its goodbye was read: {left:?}");
        }
    });
}

#[test]
fn events_of_a_program_that_ended_with_unread_answers_wait_for_room() {
    with_broker(|addresses| {
        for (at, mut supplier) in addresses.clients().into_iter().enumerate() {
            let mut consumer = consumer_for(addresses, at == 2);
            consumer.subscribe(&narrow()).expect("it fits");
            supplier
                .subscribe(&SubscriptionSpec { direct: false, ..SubscriptionSpec::new("noise") })
                .expect("it fits");
            let advertisement = Advertisement { reliable: true, ..Advertisement::new("late") };
            let topic = supplier.advertise(&advertisement).expect("a topic");
            for number in 0..EVENTS {
                supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).expect("it leaves");
            }
            let noise = consumer.advertise(&Advertisement::new("noise")).expect("a topic");
            consumer.publish(noise, &EventDraft::new(b"unread")).expect("it leaves");
            let_the_broker_notice();
            // the kernel resets a connection of TCP with unread bytes
            drop(supplier);
            // an event for the program makes the broker write to the ended connection
            for _ in 0..3 {
                consumer.publish(noise, &EventDraft::new(b"nobody reads it")).expect("it leaves");
                let_the_broker_notice();
            }
            read_all(&mut consumer);
        }
    });
}

#[test]
fn messages_of_an_mqtt_client_that_has_gone_wait_for_room() {
    // each has a broker of its own, because the end of the first client may be told after its last message
    for version in [V311, V5] {
        with_broker(move |addresses| {
            let mut consumer = consumer_for(addresses, true);
            consumer.subscribe(&narrow()).expect("it fits");
            let mut supplier = Raw::connect(addresses.mqtt, version, "gone");
            for number in 0..EVENTS {
                // the answers to the first of them stay unread
                supplier.send_message("late", &number.to_le_bytes(), 1);
            }
            supplier.wait_until_sent();
            drop(supplier);
            let_the_broker_notice();
            read_all(&mut consumer);
        });
    }
}

#[test]
fn a_client_that_sends_a_packet_too_large_reads_why_and_no_reset_overtakes_that() {
    with_broker(|at| {
        for round in 0..20 {
            let mut large = Raw::connect(at.mqtt, V5, &format!("large-{round}"));
            let packet = [&[0x32, 0xC5, 0x96, 0xB1, 0x02, 0, 1, b'a', 0, 1, 0][..], &[0; 4_999_999]].concat();
            // a library that cannot send does not look for a reason
            large.try_send(&packet).expect("the broker reads it");
            assert!(matches!(large.packet(), (0xE0, body) if body[0] == 0x95));
            assert!(large.ends());
        }
        let told = at.client().statistics().expect("the broker is there");
        assert_eq!((told.refused, told.refusals["size"], told.sent_away), (20, 20, 20));
    });
}
