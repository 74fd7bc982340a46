//! A program that computes is not gone, whatever it leaves unread and however long it makes no call. The end
//! of a host, and of the path to it, is tested in `host-tests`: it needs a cable.

use crate::common::with_server;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use unisono_broker::{Broker, Exposure, Limits};
use unisono_events_client::{Advertisement, Client, EventDraft, Reception, SubscriptionSpec, WhenFull};
use unisono_fairqueue::{ClassSpec, Hierarchy};

/// Short, so that the test is short, but longer than a busy host delays the broker.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

fn broker() -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    Broker::new(
        tree.expect("it is sound"),
        Limits { peer_timeout: PEER_TIMEOUT.into(), ..Limits::default() },
    )
}

#[test]
fn a_program_that_leaves_megabytes_unread_for_longer_than_the_time_limit_gets_them_all() {
    with_server(
        broker(),
        |server| {
            let address = server.listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), Exposure::Loopback);
            vec![address.expect("a free port")]
        },
        |addresses| {
            let mut consumer = Client::connect_tcp(addresses[0]).expect("it serves");
            let spec = SubscriptionSpec {
                full: WhenFull::BlockSupplier,
                queue_events: 4,
                queue_bytes: 8 << 20,
                ..SubscriptionSpec::new("large")
            };
            consumer.subscribe(&spec).expect("it fits");
            // the consumer blocks the supplier, so the broker does not read from the supplier, whose
            // connection is full, too
            let supplier = thread::spawn({
                let address = addresses[0];
                move || {
                    let mut supplier = Client::connect_tcp(address).expect("it serves");
                    let topic = supplier.advertise(&Advertisement::new("large")).expect("a topic");
                    let payload = vec![7; 1 << 20];
                    for _ in 0..32 {
                        supplier.publish(topic, &EventDraft::new(&payload)).expect("the broker is there");
                    }
                    supplier.flush().expect("the broker is there");
                }
            });
            // the test is about this time: the kernel's own limit would end the connection after 2 s
            thread::sleep(4 * PEER_TIMEOUT);
            for number in 0..32 {
                match consumer.receive(Some(Duration::from_secs(30))).expect("the broker is there") {
                    Some(Reception::Event(event)) => assert_eq!(event.payload.bytes().len(), 1 << 20),
                    other => panic!("{number}: {other:?}"),
                }
            }
            supplier.join().expect("it was not interrupted");
        },
    );
}
