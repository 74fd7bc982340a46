//! Measures the cost of an event through a broker on this host: a broker, a supplier and a consumer, each in
//! a thread of this process, over real sockets.
//!
//! The first half of the time measures one-way times: the supplier sends an event after the previous one has
//! arrived. The second half measures throughput: the supplier sends without a pause, its events leave in
//! batches, and it waits when the consumer's queue is full. The batch size is given, or the library's buffer
//! determines it. The payload begins with the time of sending.

use crate::broker::Broker;
use crate::limits::Limits;
use crate::server::{Exposure, OWNER, ServeError, Server};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as StdInstant};
use unisono_events_client::{Client, Error, EventDraft, Reception};
use unisono_events_wire::ChannelWait;
use unisono_events_wire::tls::TlsService;
use unisono_events_wire::{Advertisement, SubscriptionSpec, WhenFull};
use unisono_events_wire::{BrokerAddress, now, spin_once};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::clock::Instant;
use unisono_measure::histogram::Histogram;
use unisono_measure::record::Distribution;

/// The parameters of a trial.
#[derive(Clone, Debug)]
pub struct TrialSpec {
    pub address: BrokerAddress,
    /// The broker's certificate, for an address with TLS.
    pub tls: Option<TlsService>,
    /// Whether events may go through shared memory without the broker.
    pub direct: bool,
    /// Bytes of a payload; at least 8.
    pub size: usize,
    pub wait: ChannelWait,
    pub time: Duration,
    /// Relative deadline of an event, in the first half.
    pub deadline: Duration,
    /// Number of events per batch in the second half. `None`: as many as the library's buffer holds.
    pub batch: Option<usize>,
}

/// The results of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Microseconds from publishing to receiving.
    pub one_way_us: Distribution,
    pub events_per_s: f64,
    /// Events of the first half that arrived after their deadline.
    pub deadline_misses: u64,
}

/// The reason why a trial failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Client(#[from] Error),
    #[error("no event came within {0:?}; let it run longer")]
    Nothing(Duration),
    #[error("a payload of {0} bytes; a trial takes at least 8, for the time of sending")]
    TooSmall(usize),
    #[error("a payload of {0} bytes; a trial takes at most {MAX_TRIAL_BYTES}, because 64 of them may wait")]
    TooLarge(usize),
}

const TOPIC: &str = "trial";

/// Maximum bytes of a payload: 64 of them take all of a user's memory ([`Limits::memory_of_user`]).
const MAX_TRIAL_BYTES: usize = 8 << 20;

/// Number of events of a batch between two readings of the clock.
const POLL_EVERY: usize = 1024;

/// Runs a trial.
///
/// # Errors
/// The broker cannot listen at the address, or no event came.
pub fn trial(spec: &TrialSpec) -> Result<TrialResult, TrialError> {
    if spec.size < size_of::<u64>() {
        return Err(TrialError::TooSmall(spec.size));
    }
    if spec.size > MAX_TRIAL_BYTES {
        return Err(TrialError::TooLarge(spec.size));
    }
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let tree = tree.expect("two different names are unique");
    let largest = u32::try_from(spec.size).unwrap_or(u32::MAX).max(Limits::default().largest);
    let mut server = Server::new(Broker::new(tree, Limits { largest, ..Limits::default() }), spec.wait)?;
    if let Some(tls) = &spec.tls {
        server.use_tls(tls)?;
    }
    let address = server.listen(&spec.address, OWNER, Exposure::Loopback)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&|| stop.load(Ordering::Relaxed)));
        let outcome = run(spec, &address);
        stop.store(true, Ordering::Relaxed);
        let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served?;
        outcome
    })
}

fn run(spec: &TrialSpec, address: &BrokerAddress) -> Result<TrialResult, TrialError> {
    let mut consumer = Client::at(address)?;
    consumer.set_wait(spec.wait);
    let queue = SubscriptionSpec {
        full: WhenFull::BlockSupplier,
        direct: spec.direct,
        queue_bytes: (64 * spec.size).max(SubscriptionSpec::default().queue_bytes),
        ..SubscriptionSpec::new(TOPIC)
    };
    consumer.subscribe(&queue)?;
    let mut supplier = Client::at(address)?;
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let supplying = scope.spawn(|| {
            let supplied = supply(spec, &mut supplier, (&received, &over));
            over.store(true, Ordering::Relaxed);
            supplied
        });
        let consumed = consume(spec, &mut consumer, (&received, &over));
        over.store(true, Ordering::Relaxed);
        drop(consumer); // a blocked supplier continues
        supplying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        consumed
    })
}

/// Sends one event at a time in the first half, and without a pause in the second.
fn supply(
    spec: &TrialSpec,
    supplier: &mut Client,
    (received, over): (&AtomicU64, &AtomicBool),
) -> Result<(), TrialError> {
    let topic = supplier.advertise(&Advertisement::new(TOPIC))?;
    let mut payload = vec![0; spec.size];
    let (start, mut sent) = (StdInstant::now(), 0);
    let stamp = |payload: &mut [u8]| payload[..8].copy_from_slice(&now().as_nanos().to_le_bytes());
    while start.elapsed() < spec.time / 2 && !over.load(Ordering::Relaxed) {
        stamp(&mut payload);
        supplier.publish(topic, &EventDraft::new(&payload).due_in(spec.deadline))?;
        sent += 1;
        let mut polls = 0;
        // an event that is past its deadline before the broker reads it is rejected and never arrives
        let waits = || received.load(Ordering::Relaxed) < sent && !over.load(Ordering::Relaxed);
        while waits() && start.elapsed() < spec.time / 2 {
            match spec.wait {
                ChannelWait::Spin | ChannelWait::Adaptive => spin_once(&mut polls),
                // the time between two events is not part of the measurement
                ChannelWait::Sleep => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
    while start.elapsed() < spec.time && !over.load(Ordering::Relaxed) {
        // a batch may be larger than the number of events that leave in the whole time
        for number in 0..spec.batch.unwrap_or(64) {
            if number % POLL_EVERY == POLL_EVERY - 1 && start.elapsed() >= spec.time {
                break;
            }
            supplier.publish_buffered(topic, &EventDraft::new(&payload))?;
        }
        if spec.batch.is_some() {
            supplier.flush()?;
        }
    }
    supplier.flush()?;
    Ok(())
}

fn consume(
    spec: &TrialSpec,
    consumer: &mut Client,
    (received, over): (&AtomicU64, &AtomicBool),
) -> Result<TrialResult, TrialError> {
    let mut times = Histogram::new();
    let mut deadline_misses = 0;
    let (mut bulk, mut first, mut last) = (0_u64, None, Instant::ZERO);
    loop {
        let event = match consumer.receive(Some(Duration::from_millis(500)))? {
            Some(Reception::Event(event)) => event,
            // the supplier may not have begun
            None if !over.load(Ordering::Relaxed) => continue,
            None => break,
            Some(_) => continue,
        };
        let came = now();
        if event.deadline.is_some() {
            let bytes = event.payload.bytes();
            let stamp =
                bytes.first_chunk().map_or(came, |stamp| Instant::from_nanos(u64::from_le_bytes(*stamp)));
            times.record_nanos((came - stamp).as_nanos());
            deadline_misses += u64::from(event.deadline.is_some_and(|deadline| deadline < came));
            received.fetch_add(1, Ordering::Relaxed);
        } else {
            first.get_or_insert(came);
            (bulk, last) = (bulk + 1, came);
        }
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    let time = (last - first.unwrap_or(last)).as_nanos().max(1);
    let one_way_us = times.distribution(1e3).ok_or(TrialError::Nothing(spec.time))?;
    Ok(TrialResult {
        one_way_us,
        events_per_s: bulk.saturating_sub(1) as f64 * 1e9 / time as f64,
        deadline_misses,
    })
}
