//! Tests the ring in shared memory under every relevant interleaving of its threads.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p unisono-events-wire --test loom
//! ```
//! The files under test are those of the crate. An event's bytes are loom's atomics, stored and loaded one by
//! one with relaxed ordering, so that a copy can be torn; a lost wake-up is a deadlock, which loom reports.
//! Each model has been seen to fail when its rule was broken on purpose: an announcement without its fence or
//! its release; a copy without the second check; a hold without its fence, and a slot reused without one; a
//! slot reused before the consumer has passed its event, or without reading the holds after the position; a
//! sleep without a check of the ring after the announcement of the sleep, and a supplier that wakes without a
//! fence; an order announced after the consumer was accepted.

#![cfg(loom)]
#![allow(
    unreachable_pub,
    dead_code,
    reason = "the files are those of the crate, of which a model uses a part"
)]

#[path = "../src/memory/consumer.rs"]
mod consumer;
#[path = "../src/memory/entry.rs"]
mod entry;
#[path = "../src/memory/geometry.rs"]
mod geometry;
#[path = "../src/memory/page.rs"]
mod page;
#[path = "../src/memory/supplier.rs"]
mod supplier;

use consumer::{MemoryConsumer, NextEvent};
use geometry::MemoryGeometry;
use loom::thread;
use page::LINES;
use supplier::{MemorySupplier, PublishRefused, WhenBehind};
use unisono_sync::{Lines, SpinBudget, Unwatched, Wait};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 20_000;
    builder.check(check);
}

const WAY: (Wait, SpinBudget) = (Wait::Block, SpinBudget::DEFAULT);

/// Makes a ring of the minimum depth, whose slots are reused at once, and its consumer.
fn pair(when_behind: WhenBehind) -> (MemorySupplier, MemoryConsumer) {
    let geometry = MemoryGeometry::new(2, 8, 1).expect("small");
    let mut supplier = MemorySupplier::create(geometry, WAY).expect("none fails in a model");
    let page = Lines::on_heap(LINES);
    let (_, turn) = supplier.attach(page.clone(), when_behind, None).expect("the first");
    let words = supplier.memory().reader();
    let consumer = MemoryConsumer::join(words, page, turn, WAY, None).expect("it is a ring");
    (supplier, consumer)
}

/// Makes an event of two equal words, so that a torn copy is recognized.
fn content(turn: u64) -> [u8; 8] {
    let word = (turn as u32).to_ne_bytes();
    std::array::from_fn(|at| word[at % 4])
}

fn publish(supplier: &mut MemorySupplier) -> Result<u64, PublishRefused> {
    let turn = supplier.turn();
    supplier.publish(turn as u32, &content(turn))
}

#[test]
fn a_copy_is_whole_or_counted_as_lost_however_fast_its_slot_is_used_again() {
    model(|| {
        let (mut supplier, mut consumer) = pair(WhenBehind::LosesOldest);
        let first = supplier.turn();
        let writer = thread::spawn(move || {
            for _ in 0..4 {
                publish(&mut supplier).expect("nobody blocks");
            }
        });
        // The fourth event is in the slot of the first.
        let mut copy = Vec::new();
        if let NextEvent::Event(mark) = consumer.receive_copy(&mut copy).expect("honest") {
            assert_eq!((&copy[..], mark.tag), (&content(mark.turn)[..], mark.turn as u32));
        }
        assert!(consumer.turn() >= first + consumer.lost());
        writer.join().expect("it publishes");
    });
}

#[test]
fn an_event_that_is_held_does_not_change_until_it_is_let_go() {
    model(|| {
        let (mut supplier, mut consumer) = pair(WhenBehind::LosesOldest);
        publish(&mut supplier).expect("nobody blocks");
        let writer = thread::spawn(move || {
            for _ in 0..4 {
                publish(&mut supplier).expect("nobody blocks");
            }
        });
        if let NextEvent::Event(held) = consumer.receive().expect("honest") {
            let mut copy = Vec::new();
            held.append_to(&mut copy);
            assert_eq!(copy, content(held.mark().turn));
        }
        writer.join().expect("it publishes");
    });
}

#[test]
fn a_slot_is_used_again_only_after_the_consumer_is_past_its_event_and_holds_it_no_more() {
    model(|| {
        let (mut supplier, mut consumer) = pair(WhenBehind::LosesOldest);
        publish(&mut supplier).expect("nobody blocks");
        let writer = thread::spawn(move || {
            for _ in 0..2 {
                publish(&mut supplier).expect("nobody blocks");
            }
        });
        let first = consumer.receive().expect("honest");
        // the consumer reports that it has passed the first event, and reads the second
        let mut copy = Vec::new();
        if let NextEvent::Event(mark) = consumer.receive_copy(&mut copy).expect("honest") {
            assert_eq!(copy, content(mark.turn));
        }
        if let NextEvent::Event(held) = first {
            copy.clear();
            held.append_to(&mut copy);
            assert_eq!(copy, content(held.mark().turn));
        }
        writer.join().expect("it publishes");
    });
}

#[test]
fn a_consumer_that_goes_to_sleep_is_woken_by_the_next_event_and_by_the_end() {
    model(|| {
        let (mut supplier, mut consumer) = pair(WhenBehind::LosesOldest);
        let writer = thread::spawn(move || {
            publish(&mut supplier).expect("nobody blocks");
            supplier.wake_consumers();
            // closes
        });
        let (mut received, mut copy) = (0, Vec::new());
        loop {
            match consumer.receive_copy(&mut copy).expect("honest") {
                NextEvent::Event(_) => received += 1,
                NextEvent::Lost(count) => panic!("{count} lost"),
                NextEvent::Nothing => drop(consumer.wait(&mut Unwatched)),
                NextEvent::Closed => break,
            }
        }
        assert_eq!(received, 1);
        writer.join().expect("it publishes");
    });
}

#[test]
fn a_supplier_that_waits_for_room_goes_on_when_the_consumer_has_read() {
    model(|| {
        let (mut supplier, mut consumer) = pair(WhenBehind::BlocksSupplier);
        for _ in 0..2 {
            publish(&mut supplier).expect("there is room");
        }
        let reader = thread::spawn(move || {
            let mut copy = Vec::new();
            assert!(matches!(consumer.receive_copy(&mut copy), Ok(NextEvent::Event(_))));
            assert_eq!(consumer.lost(), 0);
        });
        while let Err(PublishRefused::NoRoom(number)) = publish(&mut supplier) {
            let _ = supplier.wait_for(number, &mut Unwatched);
        }
        reader.join().expect("it reads");
    });
}

#[test]
fn whoever_hears_of_what_an_order_came_before_sees_the_order() {
    model(|| {
        // the broker's rings to a supplier (full) and to a consumer
        let (mut to_supplier, mut supplier) = pair(WhenBehind::BlocksSupplier);
        let (mut to_consumer, mut consumer) = pair(WhenBehind::BlocksSupplier);
        for _ in 0..2 {
            publish(&mut to_supplier).expect("there is room");
        }
        let broker = thread::spawn(move || {
            to_supplier.announce_orders(1);
            // the ring has no room for the order itself, and the consumer is accepted
            assert!(publish(&mut to_supplier).is_err());
            publish(&mut to_consumer).expect("there is room");
        });
        // the supplier learns of the acceptance from the consumer: here, because both are the same thread
        let mut copy = Vec::new();
        if let NextEvent::Event(_) = consumer.receive_copy(&mut copy).expect("honest") {
            assert_eq!(supplier.orders(), 1);
        }
        assert!(supplier.orders() <= 1);
        broker.join().expect("it orders");
        // the supplier reads the events before the order, and the order is still to come
        for _ in 0..2 {
            assert!(matches!(supplier.receive_copy(&mut copy), Ok(NextEvent::Event(_))));
        }
        assert!(matches!(supplier.receive_copy(&mut copy), Ok(NextEvent::Nothing | NextEvent::Closed)));
        assert_eq!(supplier.orders(), 1);
    });
}
