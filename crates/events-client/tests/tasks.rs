//! Tests the client in tasks on two runtimes that watch descriptors in different ways: tokio makes the kernel
//! report changes, and async-io asks the kernel anew for each wait.

#[allow(unreachable_pub, reason = "the examples of the documentation include it, too")]
#[path = "../docs/serving.rs"]
mod serving;

use futures_core::Stream;
use futures_lite::future::{self, poll_fn, yield_now};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, AsyncClient, BrokerAddress, Client, ClientOptions, Error, EventDraft, Reception,
    SubscriptionSpec, TopicHandle, WhenFull,
};

type Readiness = Box<dyn FnMut(&mut Context<'_>) -> Poll<io::Result<()>>>;
type Watch = fn(OwnedFd) -> io::Result<Readiness>;

#[expect(deprecated, reason = "its replacement is unsafe; an OwnedFd stays the descriptor that it is")]
fn tokio_watch(descriptor: OwnedFd) -> io::Result<Readiness> {
    let watched = tokio::io::unix::AsyncFd::new(descriptor)?;
    Ok(Box::new(move |context| {
        watched.poll_read_ready(context).map_ok(|mut ready| ready.clear_ready())
    }))
}

fn async_io_watch(descriptor: OwnedFd) -> io::Result<Readiness> {
    let watched = async_io::Async::new(descriptor)?;
    Ok(Box::new(move |context| watched.poll_readable(context)))
}

/// Runs a test on each runtime, through shared memory and through a socket.
fn on_each_runtime<F: Future<Output = ()>>(test: impl Fn(BrokerAddress, Watch) -> F) {
    let broker = serving::ServedBroker::start();
    let BrokerAddress::Shared(path) = broker.address() else { panic!("a path") };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    for address in [BrokerAddress::Shared(path.clone()), BrokerAddress::Unix(path)] {
        tokio.block_on(test(address.clone(), tokio_watch));
        async_io::block_on(test(address, async_io_watch));
    }
}

fn connect(address: &BrokerAddress, watch: Watch) -> AsyncClient<Readiness> {
    AsyncClient::new(Client::at(address).expect("a broker"), watch).expect("a descriptor")
}

fn subscribed(address: &BrokerAddress, watch: Watch, spec: &SubscriptionSpec) -> AsyncClient<Readiness> {
    let mut client = connect(address, watch);
    client.client().subscribe(spec).expect("a subscription");
    client
}

fn supplying(address: &BrokerAddress, watch: Watch, topic: &str) -> (AsyncClient<Readiness>, TopicHandle) {
    let mut client = connect(address, watch);
    let topic = client.client().advertise(&Advertisement::new(topic)).expect("a topic");
    (client, topic)
}

async fn next_number(client: &mut AsyncClient<Readiness>) -> u32 {
    match client.receive().await.expect("the broker lives") {
        Reception::Event(event) => {
            u32::from_le_bytes(event.payload.bytes()[..4].try_into().expect("four bytes"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn tasks_receive_what_others_publish_meanwhile() {
    on_each_runtime(|address, watch| async move {
        let mut consumer = subscribed(&address, watch, &SubscriptionSpec::new("tasks"));
        let (mut supplier, topic) = supplying(&address, watch, "tasks");
        let supply = async {
            for number in 0..200_u32 {
                supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).await.expect("it lives");
                if number % 10 == 0 {
                    yield_now().await;
                }
            }
        };
        let consume = async {
            for number in 0..200 {
                assert_eq!(next_number(&mut consumer).await, number);
            }
        };
        future::zip(consume, supply).await;
    });
}

#[test]
fn a_consumer_without_room_has_its_supplier_wait_while_other_tasks_run() {
    on_each_runtime(|address, watch| async move {
        let full = WhenFull::BlockSupplier;
        let spec = SubscriptionSpec { full, queue_events: 64, ..SubscriptionSpec::new("full") };
        let mut consumer = subscribed(&address, watch, &spec);
        let (mut supplier, topic) = supplying(&address, watch, "full");
        let published = Cell::new(0_u32);
        let supply = async {
            for number in 0..3000_u32 {
                let payload = [&number.to_le_bytes()[..], &[0; 1000]].concat();
                supplier.publish(topic, &EventDraft::new(&payload)).await.expect("it lives");
                published.set(number);
            }
        };
        let consume = async {
            for number in 0..3000 {
                assert_eq!(next_number(&mut consumer).await, number);
            }
        };
        future::zip(supply, consume).await;
        assert_eq!(published.get(), 2999);
    });
}

#[test]
fn a_flood_leaves_other_tasks_their_turn() {
    on_each_runtime(|address, watch| async move {
        let spec = SubscriptionSpec { queue_events: 5000, ..SubscriptionSpec::new("flood") };
        let mut consumer = subscribed(&address, watch, &spec);
        let (mut supplier, topic) = supplying(&address, watch, "flood");
        for number in 0..2000_u32 {
            let event = number.to_le_bytes();
            supplier.client().publish_buffered(topic, &EventDraft::new(&event)).expect("it lives");
        }
        supplier.client().flush().expect("it lives");
        let (seen, turns) = (Cell::new(0), Cell::new(0));
        let consume = async {
            while seen.get() < 2000 {
                assert_eq!(next_number(&mut consumer).await, seen.get());
                seen.set(seen.get() + 1);
            }
        };
        let other = async {
            while seen.get() < 2000 {
                turns.set(turns.get() + 1);
                yield_now().await;
            }
        };
        future::zip(consume, other).await;
        assert!(turns.get() >= 2000 / 64, "{} turns", turns.get());
    });
}

#[test]
fn a_wait_that_is_dropped_loses_nothing() {
    on_each_runtime(|address, watch| async move {
        let mut consumer = subscribed(&address, watch, &SubscriptionSpec::new("dropped"));
        let (mut supplier, topic) = supplying(&address, watch, "dropped");
        for number in 0..100_u32 {
            assert!(future::poll_once(consumer.receive()).await.is_none(), "nothing has come");
            supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).await.expect("it lives");
            assert_eq!(next_number(&mut consumer).await, number);
        }
    });
}

#[test]
fn a_task_that_waits_keeps_its_lease() {
    on_each_runtime(|address, watch| async move {
        let options = ClientOptions::new().leased(Duration::from_millis(500));
        let client = options.connect(&address).expect("a broker");
        let mut leased = AsyncClient::new(client, watch).expect("a descriptor");
        leased.client().subscribe(&SubscriptionSpec::new("leased")).expect("a subscription");
        let supply = std::thread::spawn(move || {
            let mut supplier = Client::at(&address).expect("a broker");
            let topic = supplier.advertise(&Advertisement::new("leased")).expect("a topic");
            std::thread::sleep(Duration::from_millis(1500));
            supplier.publish(topic, &EventDraft::new(&7_u32.to_le_bytes())).expect("it lives");
            supplier
        });
        assert_eq!(next_number(&mut leased).await, 7);
        drop(supply.join());
    });
}

#[test]
fn a_client_is_a_stream_that_ends_after_the_error_of_a_broker_that_is_gone() {
    async fn test(broker: serving::ServedBroker, watch: Watch) {
        let address = broker.address();
        let mut consumer = subscribed(&address, watch, &SubscriptionSpec::new("stream"));
        let (mut supplier, topic) = supplying(&address, watch, "stream");
        supplier.publish(topic, &EventDraft::new(b"x")).await.expect("it lives");
        let first = next_of(&mut consumer).await;
        assert!(matches!(first, Some(Ok(Reception::Event(_)))), "{first:?}");
        drop(broker);
        let mut errors = 0;
        while let Some(received) = next_of(&mut consumer).await {
            errors += u32::from(received.is_err());
        }
        assert_eq!(errors, 1);
    }
    let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    tokio.block_on(test(serving::ServedBroker::start(), tokio_watch));
    async_io::block_on(test(serving::ServedBroker::start(), async_io_watch));
}

#[test]
fn a_client_that_connects_again_goes_on_in_its_task() {
    async fn test(mut broker: serving::ServedBroker, watch: Watch) {
        let address = broker.address();
        let options = ClientOptions::new().reconnecting(Duration::from_secs(60));
        let client = options.connect(&address).expect("a broker");
        let mut consumer = AsyncClient::new(client, watch).expect("a descriptor");
        consumer.client().subscribe(&SubscriptionSpec::new("again")).expect("a subscription");
        for number in 0..3_u32 {
            let (mut supplier, topic) = supplying(&address, watch, "again");
            supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).await.expect("it lives");
            assert_eq!(next_number(&mut consumer).await, number);
            drop(supplier);
            let restarting = std::thread::spawn(move || broker.restarted(Duration::from_millis(100)));
            while !matches!(consumer.receive().await.expect("it is back"), Reception::Reconnected { .. }) {}
            broker = restarting.join().expect("it does not panic");
        }
    }
    let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    tokio.block_on(test(serving::ServedBroker::start(), tokio_watch));
    async_io::block_on(test(serving::ServedBroker::start(), async_io_watch));
}

async fn next_of(client: &mut AsyncClient<Readiness>) -> Option<Result<Reception, Error>> {
    let mut client = Pin::new(client);
    poll_fn(|context| client.as_mut().poll_next(context)).await
}
