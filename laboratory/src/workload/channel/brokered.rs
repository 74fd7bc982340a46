//! Runs the load of `deadlines.rs` through a broker: a supplier, the broker and a consumer, each in a thread
//! of this process, with connections between them.
//!
//! ```text
//!   arrivals, drawn before --> supplier == socket ==> broker: deadline or arrival, == socket ==> consumer:
//!                                                     shares between classes                    100 us each
//! ```
//! The consumer is almost fully loaded. No event can overtake events already sent to the consumer, and its
//! connection could hold thousands of such small events. So the consumer acknowledges each event, and lets
//! the broker send only `WINDOW` unacknowledged events for each unit of a class's weight.

use super::deadlines::{
    CLASSES, DeadlineCount, EXECUTION_TIME, EventArrival, ServedBy, arrivals, due, shares, streams,
};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration as StdDuration;
use unisono_broker::{Broker, Exposure, Limits, OWNER, Server};
use unisono_events_client::{
    Advertisement, AgainSpec, BrokerAddress, ChannelWait, Client, EventDraft, FieldSet, Reception,
    SubscriptionSpec, WhenFull,
};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::timer;

/// The number of unacknowledged events at the consumer for each unit of a class's weight. With 1, four events
/// are in transit: 400 us of work, which is longer than an acknowledgement takes to arrive. With a larger
/// window, more events with later deadlines would be ahead of an urgent one.
const WINDOW: usize = 1;
/// The length of a queue: more than the events that ever wait in one class (half a second of arrivals).
const QUEUE: usize = 16_384;
/// The interval at which the consumer checks whether all events have been published.
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(10);
/// The time to receive and acknowledge an event is part of its execution time: execution starts at the end of
/// the previous event. If the consumer becomes ready more than this time after that end, execution starts
/// when it becomes ready.
const MAX_BUSY_GAP: Duration = Duration::from_nanos(EXECUTION_TIME.as_nanos() / 2);

/// Publishes events for `length` at a broker that listens at `address`, and consumes until all have arrived.
///
/// # Errors
/// The broker cannot listen at the address, or refuses a request of this program.
pub fn measure(
    address: &BrokerAddress,
    by: ServedBy,
    length: Duration,
    seed: u64,
) -> Result<DeadlineCount, String> {
    let mut server = Server::new(Broker::new(shares()?, Limits::default()), ChannelWait::Sleep)
        .map_err(|error| error.to_string())?;
    let address = server.listen(address, OWNER, Exposure::Loopback).map_err(|error| error.to_string())?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&|| stop.load(Ordering::Relaxed)));
        let outcome = exchange(&address, by, length, seed);
        stop.store(true, Ordering::Relaxed);
        let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served.map_err(|error| error.to_string())?;
        outcome.map_err(|error| error.to_string())
    })
}

/// The supplier's report after it has published all events.
#[derive(Debug, Default)]
struct SupplyState {
    is_over: AtomicBool,
    /// The number of events that the consumer will get.
    taken: AtomicU64,
    /// The number of events whose deadline passed before the broker got them, because this process slept.
    late: AtomicU64,
}

fn exchange(
    address: &BrokerAddress,
    by: ServedBy,
    length: Duration,
    seed: u64,
) -> Result<DeadlineCount, unisono_events_client::Error> {
    let coming = arrivals(length, seed);
    let mut consumer = Client::at(address)?;
    for (name, weight) in CLASSES {
        let again = AgainSpec {
            after_ns: (Duration::SECOND * 60).as_nanos(),
            attempts: 2,
            window: WINDOW * weight as usize,
        };
        let spec = SubscriptionSpec {
            class: Some(name.to_owned()),
            execution_ns: EXECUTION_TIME.as_nanos(),
            queue_events: QUEUE,
            full: WhenFull::BlockSupplier,
            again: Some(again),
            direct: false,
            ..SubscriptionSpec::new(&format!("{name}/+"))
        };
        consumer.subscribe(&spec)?;
    }
    let mut supplier = Client::at(address)?;
    let start = clock::now();
    let supplied = SupplyState::default();
    std::thread::scope(|scope| {
        let supplying = scope.spawn(|| {
            let done = supply(&mut supplier, (&coming, by, start), &supplied);
            supplied.is_over.store(true, Ordering::Relaxed);
            done
        });
        let consumed = consume(&mut consumer, start, &supplied);
        drop(consumer); // a supplier that is blocked can continue
        supplying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let late = consumed?;
        let missed = late + supplied.late.load(Ordering::Relaxed);
        Ok(DeadlineCount { events: coming.len() as u64, missed, took: clock::now() - start })
    })
}

fn supply(
    supplier: &mut Client,
    (coming, by, start): (&[EventArrival], ServedBy, Instant),
    supplied: &SupplyState,
) -> Result<(), unisono_events_client::Error> {
    let streams = CLASSES.iter().enumerate();
    let names = streams
        .flat_map(|(class, (name, _))| (0..streams_of(class)).map(move |stream| format!("{name}/{stream}")));
    let topics: Vec<_> =
        names.map(|name| supplier.advertise(&Advertisement::new(&name))).collect::<Result<_, _>>()?;
    let mut skipped = 0;
    for arrived in coming {
        let at = start + arrived.at;
        if clock::now() < at {
            supplier.flush()?;
            timer::sleep_until(at);
        }
        let due = start + arrived.due;
        if due <= clock::now() {
            skipped += 1;
            continue;
        }
        let fields = FieldSet::new().with("due", arrived.due.as_nanos() as i64);
        let event = EventDraft::new(&[0; 64]).with_fields(fields);
        let event = if by == ServedBy::Deadline { event.due_at(due) } else { event };
        supplier.publish_buffered(topics[arrived.topic], &event)?;
    }
    // the broker answers only after it has taken all published events
    supplier.statistics()?;
    let late = skipped + supplier.rejected();
    supplied.late.store(late, Ordering::Relaxed);
    supplied.taken.store(coming.len() as u64 - late, Ordering::Relaxed);
    Ok(())
}

fn streams_of(class: usize) -> usize {
    streams(class).len()
}

/// Receives events and returns how many of them were late at the end of their execution.
fn consume(
    consumer: &mut Client,
    start: Instant,
    supplied: &SupplyState,
) -> Result<u64, unisono_events_client::Error> {
    let (mut came, mut late, mut end) = (0, 0, Instant::ZERO);
    loop {
        let Some(reception) = consumer.receive(Some(POLL_INTERVAL))? else {
            // the supplier stores its counts before `is_over`
            let is_over = supplied.is_over.load(Ordering::Relaxed);
            if is_over && came >= supplied.taken.load(Ordering::Relaxed) {
                return Ok(late);
            }
            continue;
        };
        let Reception::Event(event) = reception else { continue };
        let ready = clock::now();
        let begun = if ready - end < MAX_BUSY_GAP { end } else { ready };
        end = begun + EXECUTION_TIME;
        while clock::now() < end {
            spin_loop();
        }
        consumer.acknowledge(&event)?;
        came += 1;
        let ended = clock::now() - start;
        late += u64::from(due(&event.fields).is_none_or(|due| ended > due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_consumed_once_whatever_carries_it() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let length = Duration::from_millis(20);
        for address in [
            BrokerAddress::Unix(directory.path().join("events")),
            BrokerAddress::Tcp("127.0.0.1:0".parse().expect("an address")),
        ] {
            for by in [ServedBy::Deadline, ServedBy::Arrival] {
                let done = measure(&address, by, length, 3).expect("measured");
                assert_eq!(done.events, arrivals(length, 3).len() as u64);
                assert!(done.took >= EXECUTION_TIME * (done.events - done.missed), "{done:?}");
            }
        }
    }
}
