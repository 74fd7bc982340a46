//! State that all threads of a join share: the settings, the stop flag, the counters.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unisono_broker::join::{ArrivalQueue, JoinClass, JoinSettings, ReceiverCounters, SenderCounters};
use unisono_events_client::{BrokerAddress, Client, Error};

/// The counters of a class.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ClassCounters {
    pub(crate) sent: SenderCounters,
    /// Events that were sent while no other host was present.
    pub(crate) unheard: u64,
    /// Events that zenoh did not accept.
    pub(crate) unsent: u64,
    pub(crate) received: ReceiverCounters,
    /// Events that the broker of this host accepted.
    pub(crate) published: u64,
    /// Events that the broker refused, because they were late, too large or not permitted, or because they
    /// would have had to wait for a consumer's full queue.
    pub(crate) refused: u64,
    /// Events that the broker already had from another join of this host.
    pub(crate) known: u64,
    /// Events that arrived and were dropped, because the broker was away, stopped or slow.
    pub(crate) dropped_here: u64,
    /// Suppliers of other hosts, counted once per topic.
    pub(crate) streams: usize,
    /// The hosts that are present.
    pub(crate) hosts: BTreeSet<String>,
}

/// Whether a join may listen where other hosts can join without a certificate or a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinExposure {
    Protected,
    Anybody,
}

#[derive(Debug)]
pub(crate) struct JoinState {
    pub(crate) at: BrokerAddress,
    pub(crate) host: String,
    pub(crate) settings: JoinSettings,
    pub(crate) exposure: JoinExposure,
    /// The queues from the network to the receiving thread of each class.
    pub(crate) arrivals: Vec<Arc<ArrivalQueue>>,
    counters: Vec<Mutex<ClassCounters>>,
    /// Whether the sending thread of a class has subscribed at the broker.
    subscribed: Vec<AtomicBool>,
    stops: AtomicBool,
    /// Whether the broker was reachable at the last check; `None` before the first check.
    broker: Mutex<Option<bool>>,
}

/// The pause between two attempts to reach the broker.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl JoinState {
    pub(crate) fn new(
        at: BrokerAddress,
        host: String,
        settings: JoinSettings,
        exposure: JoinExposure,
    ) -> Self {
        let counters = settings.classes.iter().map(|_| Mutex::default()).collect();
        let queue = |class: &JoinClass| Arc::new(ArrivalQueue::new(class.queue_events, class.queue_bytes));
        let arrivals = settings.classes.iter().map(queue).collect();
        let subscribed = settings.classes.iter().map(|_| AtomicBool::default()).collect();
        let (stops, broker) = (AtomicBool::default(), Mutex::default());
        Self { at, host, settings, exposure, arrivals, counters, subscribed, stops, broker }
    }

    /// Records that the sending thread of a class has subscribed, or that it has lost the broker again.
    pub(crate) fn set_subscribed(&self, class: usize, is: bool) {
        self.subscribed[class].store(is, Ordering::Relaxed);
    }

    pub(crate) fn is_subscribed(&self, class: usize) -> bool {
        self.subscribed[class].load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn counters(&self, class: usize) -> MutexGuard<'_, ClassCounters> {
        // the counters of a thread that panicked are still valid
        self.counters[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all counters, by class.
    pub(crate) fn statistics(&self) -> BTreeMap<&str, ClassCounters> {
        let names = self.settings.classes.iter().map(|class| class.name.as_str());
        let of = |class: usize| {
            // up to date even while the receiving thread waits for the broker
            ClassCounters { dropped_here: self.arrivals[class].dropped(), ..self.counters(class).clone() }
        };
        names.enumerate().map(|(class, name)| (name, of(class))).collect()
    }

    /// Prints a message about a class, on one line.
    pub(crate) fn report(&self, class: usize, what: &str) {
        eprintln!("unisono-join: {}: {what}", self.settings.classes[class].name);
    }

    /// Connects to the broker. If the broker is unreachable or too old, sleeps for [`RECONNECT_DELAY`] and
    /// returns `None`.
    pub(crate) fn connect(&self) -> Option<Client> {
        match Client::at(&self.at) {
            Ok(client) if client.broker_run() != 0 => {
                self.sees_broker(true, || format!("the broker is there, at {}", self.at));
                return Some(client);
            }
            Ok(_) => self.sees_broker(false, || {
                "the broker is older than joins; restart it with this version".to_owned()
            }),
            Err(error) => self.sees_broker(false, || format!("{error}; trying again")),
        }
        self.pause(RECONNECT_DELAY);
        None
    }

    /// Handles a broken connection to the broker.
    pub(crate) fn broke(&self, error: &Error) {
        if !self.stops() {
            self.sees_broker(false, || format!("{error}; trying again"));
        }
    }

    fn sees_broker(&self, there: bool, words: impl FnOnce() -> String) {
        let mut seen = self.broker.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.replace(there) != Some(there) {
            eprintln!("unisono-join: {}", words());
        }
    }

    /// Sleeps, but returns early if the join has to stop.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stops() && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
