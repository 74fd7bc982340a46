//! The queue of envelopes from the network, in front of the thread that publishes them here.
//!
//! The network's thread never waits. Otherwise the host of an absent or slow broker would hold up the
//! senders, and through them all other hosts. While the queue is full, the oldest event is dropped; consumers
//! then get a gap for its number.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use unisono_linux::clock::Instant;

/// Maximum number of waiting arrivals and departures of hosts. There are usually few; if a peer invents
/// hosts, the oldest changes are dropped. Some 100 bytes each, so that they take less than 1 MiB.
const MAX_CHANGES: usize = 4096;

/// The join of another host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JoinedHost {
    pub name: String,
    /// The run of its broker.
    pub run: u64,
    /// Distinguishes several joins of one host.
    pub session: String,
}

/// The items that the publishing thread takes at a time.
#[derive(Debug, Default)]
pub struct JoinArrivals {
    /// Hosts that have arrived (`true`) or departed (`false`).
    pub hosts: Vec<(JoinedHost, bool)>,
    /// Envelopes with their times of arrival.
    pub envelopes: Vec<(Instant, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct WaitingArrivals {
    hosts: VecDeque<(JoinedHost, bool)>,
    envelopes: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    dropped: u64,
}

/// The queue between the network and the publishing thread, bounded in events and bytes.
#[derive(Debug)]
pub struct ArrivalQueue {
    events: usize,
    bytes: usize,
    waiting: Mutex<WaitingArrivals>,
    came: Condvar,
}

impl ArrivalQueue {
    #[must_use]
    pub fn new(events: usize, bytes: usize) -> Self {
        Self { events, bytes, waiting: Mutex::default(), came: Condvar::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingArrivals> {
        // no panic can leave a change half done
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an envelope. A single envelope is accepted whatever its size.
    pub fn push(&self, now: Instant, envelope: Vec<u8>) {
        let mut waiting = self.waiting();
        waiting.bytes += envelope.len();
        waiting.envelopes.push_back((now, envelope));
        while waiting.envelopes.len() > 1
            && (waiting.envelopes.len() > self.events || waiting.bytes > self.bytes)
        {
            if let Some((_, oldest)) = waiting.envelopes.pop_front() {
                waiting.bytes -= oldest.len();
                waiting.dropped += 1;
            }
        }
        drop(waiting);
        self.came.notify_one();
    }

    /// Records that a host has arrived or departed.
    pub fn push_host(&self, host: JoinedHost, there: bool) {
        let mut waiting = self.waiting();
        if waiting.hosts.len() >= MAX_CHANGES {
            waiting.hosts.pop_front();
        }
        waiting.hosts.push_back((host, there));
        drop(waiting);
        self.came.notify_one();
    }

    /// Takes all changes of hosts and at most `most` envelopes. If the queue is empty, waits up to
    /// `timeout`.
    #[must_use]
    pub fn take(&self, most: usize, timeout: Duration) -> JoinArrivals {
        let is_empty = |of: &mut WaitingArrivals| of.hosts.is_empty() && of.envelopes.is_empty();
        let waited = self.came.wait_timeout_while(self.waiting(), timeout, is_empty);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let count = most.min(waiting.envelopes.len());
        let envelopes: Vec<_> = waiting.envelopes.drain(..count).collect();
        waiting.bytes -= envelopes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        JoinArrivals { hosts: waiting.hosts.drain(..).collect(), envelopes }
    }

    /// Returns the number of envelopes dropped since the beginning.
    pub fn dropped(&self) -> u64 {
        self.waiting().dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_brings_events_never_waits_and_the_newest_stay() {
        let queue = ArrivalQueue::new(3, 100);
        for number in 1..=10_u8 {
            queue.push(Instant::from_nanos(number.into()), vec![number; 10]);
        }
        let times = |most| -> Vec<u64> {
            queue.take(most, Duration::ZERO).envelopes.iter().map(|(at, _)| at.as_nanos()).collect()
        };
        assert_eq!((times(2), queue.dropped()), (vec![8, 9], 7));
        queue.push(Instant::from_nanos(11), vec![0; 95]);
        queue.push(Instant::from_nanos(12), vec![0; 6]);
        assert_eq!((times(9), queue.dropped()), (vec![12], 9));
        queue.push(Instant::from_nanos(13), vec![0; 1000]);
        assert_eq!(queue.take(9, Duration::ZERO).envelopes.len(), 1, "one always fits");
        assert_eq!(queue.waiting().bytes, 0);
    }

    #[test]
    fn hosts_are_not_dropped_for_events_and_wake_the_thread_that_waits() {
        let queue = ArrivalQueue::new(1, 100);
        let host = |run| JoinedHost { name: "far".to_owned(), run, session: "s".to_owned() };
        queue.push_host(host(1), true);
        (0..5).for_each(|_| queue.push(Instant::from_nanos(1), Vec::new()));
        assert_eq!(queue.take(9, Duration::ZERO).hosts, [(host(1), true)]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.take(9, Duration::from_secs(60)));
            queue.push_host(host(2), false);
            assert_eq!(waits.join().expect("it ends").hosts, [(host(2), false)]);
        });
        (0..MAX_CHANGES as u64 + 5).for_each(|run| queue.push_host(host(run), true));
        assert_eq!(queue.take(9, Duration::ZERO).hosts.len(), MAX_CHANGES);
    }
}
