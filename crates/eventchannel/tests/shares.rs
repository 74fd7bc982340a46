//! Tests suppliers that share a consumer's time and queue, one guarantee in each test.

use crate::common::{Bench, Dice, all, event, sized};
use unisono_eventchannel::*;
use unisono_time::{Duration, Instant};

/// Makes a consumer of all topics and, for each share, a supplier with a topic of its own.
fn suppliers(bench: &mut Bench, shares: &[u32], inbox: InboxSpec) -> Vec<(SupplierId, TopicId)> {
    bench.reader("#", inbox);
    let offered = shares.iter().enumerate().map(|(at, share)| {
        let topic = bench.channel.declare(TopicSpec::new(&format!("t/{at}")).expect("a name")).expect("room");
        let supplier = bench.channel.supplier(Instant::ZERO, None).expect("room");
        bench.channel.offer(supplier, Offer { share: *share, ..Offer::new(topic) }).expect("no type");
        (supplier, topic)
    });
    offered.collect()
}

fn sharing() -> InboxSpec {
    InboxSpec { between: BetweenSuppliers::Shares, ..InboxSpec::default() }
}

#[test]
fn suppliers_of_whom_events_wait_are_served_by_their_shares_and_each_by_its_deadlines() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let parties = suppliers(&mut bench, &[3, 1], sharing());
    // the second supplier gives its events the shorter deadlines, without any advantage
    for (at, (supplier, topic)) in parties.iter().enumerate() {
        for number in 0..400_u64 {
            let due = Instant::from_nanos(if at == 0 { 2_000_000 } else { 1_000_000 } - number);
            let key = format!("{number}");
            let late_first = Publication { key: Some(key.into()), ..event() }.due(due);
            bench.channel.try_publish(Instant::ZERO, *supplier, *topic, late_first).expect("room");
        }
    }
    let served: Vec<SupplierId> =
        (0..400).map(|_| bench.next(1).and_then(|it| it.event).expect("it waits").event.supplier).collect();
    let first = served.iter().filter(|supplier| **supplier == parties[0].0).count();
    assert!((299..=301).contains(&first), "{first} of 400");
}

/// A quiet supplier publishes one event while another one publishes ten and the consumer takes two. Returns
/// how many of the quiet supplier's 1000 events arrive.
fn arrived_beside_a_flood(inbox: InboxSpec) -> usize {
    let capacity = InboxCapacity { events: 100, bytes: 1 << 20 };
    let mut bench = Bench::new(&[("rest", 1)]);
    let parties = suppliers(&mut bench, &[1, 1], InboxSpec { capacity, ..inbox });
    let [(flood, flooded), (quiet, its)] = parties[..] else { panic!("two") };
    let (mut arrived, mut dice) = (0, Dice(7));
    for round in 0..1000 {
        let turn = dice.below(11);
        for at in 0..11 {
            let (supplier, topic) = if at == turn { (quiet, its) } else { (flood, flooded) };
            bench
                .channel
                .try_publish(Instant::from_nanos(round), supplier, topic, sized(10))
                .expect("it drops the oldest");
        }
        for _ in 0..2 {
            let event = bench.next(round).and_then(|it| it.event);
            arrived += usize::from(event.is_some_and(|it| it.event.supplier == quiet));
        }
    }
    arrived
}

#[test]
fn who_publishes_the_most_takes_neither_time_nor_queue_from_who_keeps_to_its_share() {
    let (by_deadlines, by_shares) =
        (arrived_beside_a_flood(InboxSpec::default()), arrived_beside_a_flood(sharing()));
    assert!(by_shares >= 999, "{by_shares} of 1000, and {by_deadlines} without shares");
    assert!(by_deadlines < 250, "{by_deadlines}: there is nothing to share out");
}

#[test]
fn in_the_order_of_publication_the_numbers_of_each_supplier_ascend_whatever_the_shares() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let parties =
        suppliers(&mut bench, &[5, 2, 1], InboxSpec { order: DispatchOrder::Publication, ..sharing() });
    let mut dice = Dice(7);
    let mut last = [0; 3];
    for now in 0..3000 {
        let at = dice.below(3) as usize;
        let (supplier, topic) = parties[at];
        let due = Instant::from_nanos(now + 1 + dice.below(50));
        bench.channel.try_publish(Instant::from_nanos(now), supplier, topic, event().due(due)).expect("room");
        if now % 3 > 0 {
            let got = bench.next(now).and_then(|it| it.event).expect("it waits").event;
            let at = parties.iter().position(|(supplier, _)| *supplier == got.supplier).expect("known");
            assert!(got.sequence > last[at]);
            last[at] = got.sequence;
        }
    }
}

#[test]
fn a_consumer_cannot_reserve_time_and_share_it_out() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let reservation = Some(Reservation {
        period: Duration::from_millis(1),
        deadline: Duration::from_millis(1),
        largest: 10,
    });
    let spec = ConsumerSpec::new("both").with(InboxSpec { reservation, ..sharing() });
    let refused = bench.channel.connect(Instant::ZERO, spec).expect_err("one of the two");
    assert!(refused.to_string().contains("leave out one of the two"), "{refused}");
    bench.channel.subscribe(Instant::ZERO, ConsumerId(1), all("t")).expect_err("nobody was let in");
}
