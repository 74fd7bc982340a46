//! A program's greeting: its name, and a lease that it has to renew.

use crate::common::{Addresses, event, notice, with_broker};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, BrokerAddress, ChannelWait, Client, ClientOptions, Error, EventDraft, Greeting,
    NoticeText, SubscriptionSpec, WhenFull,
};
use unisono_events_wire::frame::Frame;
use unisono_events_wire::transport::StreamTransport;

/// Long enough that a busy host does not end it by chance.
const LEASE: Duration = Duration::from_secs(1);

fn each(addresses: &Addresses) -> [BrokerAddress; 3] {
    let Addresses { unix, tcp, .. } = addresses.clone();
    [BrokerAddress::Unix(unix.clone()), BrokerAddress::Shared(unix), BrokerAddress::Tcp(tcp)]
}

fn leased(address: &BrokerAddress) -> Client {
    ClientOptions::new().leased(LEASE).connect(address).expect("it listens")
}

fn names(client: &mut Client) -> Vec<String> {
    let statistics = client.statistics().expect("the broker is there");
    statistics.consumers.into_iter().map(|consumer| consumer.name).collect()
}

#[test]
fn a_program_has_the_name_that_it_chose_or_that_of_its_process() {
    with_broker(|addresses| {
        for address in each(addresses) {
            let mut own = Client::at(&address).expect("it listens");
            own.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
            let process = own.name().to_owned();
            assert!(process.ends_with(&format!("[{}]", std::process::id())), "{process}");
            let mut named = ClientOptions::new().named("camera 1").connect(&address).expect("it listens");
            named.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
            assert_eq!(names(&mut named), [process, "camera 1".to_owned()]);
        }
    });
}

#[test]
fn the_one_that_is_full_is_named_to_the_supplier() {
    with_broker(|addresses| {
        let [address, ..] = each(addresses);
        let mut slow = ClientOptions::new().named("slow reader").connect(&address).expect("it listens");
        let (full, queue_events) = (WhenFull::BlockSupplier, 1);
        let spec = SubscriptionSpec { full, queue_events, ..SubscriptionSpec::new("t") };
        slow.subscribe(&spec).expect("it fits");
        let mut supplier = Client::at(&address).expect("it listens");
        let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
        let large = vec![0; 1 << 20]; // the connection takes some before the queue is full
        let refused = (0..1000).find_map(|_| supplier.try_publish(topic, &EventDraft::new(&large)).err());
        let said = refused.expect("it reads nothing").to_string();
        assert!(said.contains("the queue of the consumer `slow reader` is full"), "{said}");
    });
}

#[test]
fn a_name_that_no_table_can_show_is_refused_by_the_library_and_by_the_broker() {
    with_broker(|addresses| {
        let [address, ..] = each(addresses);
        for (name, word) in [("x".repeat(65), "at most 64"), ("a\nb".to_owned(), "control character")] {
            let said =
                ClientOptions::new().named(&name).connect(&address).expect_err("it cannot be").to_string();
            assert!(said.contains(word), "{said}");
            // a client without this library
            let socket = std::os::unix::net::UnixStream::connect(&addresses.unix).expect("it listens");
            let transport = StreamTransport::new(socket.into(), 1 << 20).expect("descriptors are left");
            let greeting = Greeting { name, ..Greeting::default() };
            match Client::over(Box::new(transport), greeting, ChannelWait::Sleep) {
                Err(Error::SentAway(said)) => assert!(said.contains(word), "{said}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            ClientOptions::new().leased(Duration::from_millis(1)).connect(&address),
            Err(Error::Options(_))
        ));
    });
}

#[test]
fn a_program_that_says_no_name_as_those_of_before_is_served() {
    let hello = Frame::Hello(Greeting::default());
    let mut bytes = Vec::new();
    hello.write(&mut bytes);
    assert!(
        !String::from_utf8_lossy(&bytes).contains("lease_ns"),
        "an older broker knows no more than it did"
    );
    with_broker(|addresses| {
        let socket = std::os::unix::net::UnixStream::connect(&addresses.unix).expect("it listens");
        let transport = StreamTransport::new(socket.into(), 1 << 20).expect("descriptors are left");
        let mut old =
            Client::over(Box::new(transport), Greeting::default(), ChannelWait::Sleep).expect("served");
        old.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        assert_eq!(names(&mut old), [""]);
    });
}

#[test]
fn who_waits_keeps_its_lease_and_who_is_silent_is_told_that_it_ran_out() {
    with_broker(|addresses| {
        for address in each(addresses) {
            let mut listener = Client::at(&address).expect("it listens");
            listener.subscribe(&SubscriptionSpec::new("leased")).expect("it fits");
            let mut client = leased(&address);
            let topic = client.advertise(&Advertisement::new("leased")).expect("a topic");
            client.subscribe(&SubscriptionSpec::new("quiet")).expect("it fits");
            assert!(client.receive(Some(2 * LEASE)).expect("it lives").is_none());
            client.publish(topic, &EventDraft::new(b"it lives")).expect("the broker is there");
            assert_eq!(&*event(&mut listener).payload.bytes(), b"it lives");
            // until the listener gets the notice, this thread calls no method of the leased client
            assert!(matches!(notice(&mut listener), NoticeText::Gone { died: true, .. }));
            match client.receive(None) {
                Err(Error::SentAway(said)) => assert!(said.contains("lease of 1s ran out"), "{said}"),
                other => panic!("{other:?}"),
            }
            assert!(client.try_publish(topic, &EventDraft::new(b"")).is_err());
            let refusals = listener.statistics().expect("the broker is there").refusals;
            assert!(refusals.get("lease").is_some_and(|count| *count > 0), "{refusals:?}");
        }
    });
}

#[test]
fn a_program_that_receives_all_the_time_and_says_nothing_keeps_its_lease() {
    with_broker(|addresses| {
        let [address, ..] = each(addresses);
        let mut consumer = leased(&address);
        consumer.subscribe(&SubscriptionSpec::new("feed")).expect("it fits");
        let mut supplier = Client::at(&address).expect("it listens");
        let topic = supplier.advertise(&Advertisement::new("feed")).expect("a topic");
        let start = std::time::Instant::now();
        while start.elapsed() < 2 * LEASE {
            supplier.publish(topic, &EventDraft::new(b"tick")).expect("the broker is there");
            assert_eq!(&*event(&mut consumer).payload.bytes(), b"tick");
        }
    });
}

#[test]
fn a_leased_supplier_that_a_consumer_blocks_is_not_taken_for_dead() {
    with_broker(|addresses| {
        let [address, ..] = each(addresses);
        let mut slow = Client::at(&address).expect("it listens");
        let (full, queue_events) = (WhenFull::BlockSupplier, 4);
        slow.subscribe(&SubscriptionSpec { full, queue_events, ..SubscriptionSpec::new("t") })
            .expect("it fits");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let supplying = scope.spawn(|| {
                let mut supplier = leased(&address);
                let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
                let large = vec![0; 1 << 20];
                for _ in 0..30 {
                    supplier.publish(topic, &EventDraft::new(&large)).expect("it lives");
                }
                while !over.load(Ordering::Relaxed) {
                    assert!(supplier.receive(Some(LEASE / 10)).expect("it lives").is_none());
                }
            });
            std::thread::sleep(2 * LEASE);
            for _ in 0..30 {
                drop(event(&mut slow));
            }
            over.store(true, Ordering::Relaxed);
            supplying.join().expect("it lives");
        });
    });
}
