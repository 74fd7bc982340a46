//! The receiving side of a join: takes events from the network and publishes them at this host's broker.

use super::envelope::{JoinBody, JoinEnvelope, StreamOrigin};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use unisono_eventchannel::FieldSet;
use unisono_linux::clock::{Duration, Instant};

/// Maximum number of pairs of supplier and topic that a receiver remembers: a broker lets one program publish
/// on 1024 topics. Beyond that, the pair that was silent longest is dropped.
pub const MAX_STREAMS: usize = 1000;

/// The streams of a departed host are remembered for this long. If the host comes back in time, its streams
/// continue, and consumers get notices of the missed events; zenoh notices a pulled cable within 10 s.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of remembered streams whose supplier has left; also limited by [`RECONNECT_TIMEOUT`]. They
/// identify copies that come by a slower route. As many as a sender remembers.
const MAX_LEFT: usize = 4096;

/// The number of consecutive numbers of a stream, up to the last one, that a receiver tracks: the bits of one
/// word. Chosen, not measured.
const REMEMBERED: u64 = 64;

/// A supplier of another host on one topic, as this receiver numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JoinStream(pub u32);

/// Totals of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ReceiverCounters {
    /// Events to publish here.
    pub received: u64,
    /// Bytes of their payloads.
    pub received_bytes: u64,
    /// Events whose number came before, or is too low to be tracked.
    pub duplicates: u64,
    /// Events that came after a higher number of the same supplier; they are not published here.
    pub overtaken: u64,
    /// Numbers skipped when a higher one came.
    pub missing: u64,
    /// Events of this host's own broker that came back.
    pub own: u64,
    /// Messages that are not valid envelopes.
    pub garbage: u64,
    /// Streams dropped because there were too many.
    pub displaced: u64,
}

/// An event to publish here, under its original number.
#[derive(Clone, PartialEq, Debug)]
pub struct JoinedEvent<'a> {
    pub criticality: u8,
    pub sequence: u64,
    /// On this host's clock.
    pub deadline: Option<Instant>,
    pub key: &'a str,
    pub fields: FieldSet,
    pub payload: &'a [u8],
}

/// An action to take at this host's broker.
#[derive(Clone, PartialEq, Debug)]
pub enum JoinStep<'a> {
    /// Publish as the supplier for this stream; create the supplier if necessary.
    Publish { stream: JoinStream, origin: StreamOrigin<'a>, event: JoinedEvent<'a> },
    /// Withdraw the supplier for this stream, if there is one.
    Withdraw(JoinStream),
}

type StreamKey = (u64, u32, Arc<str>);

#[derive(Debug)]
struct StreamState {
    number: JoinStream,
    last: u64,
    /// Bit set of the numbers that came: the lowest bit stands for `last`, the next one for the number below.
    came: u64,
    /// The count of arrivals at its last event.
    last_arrival: u64,
}

impl StreamState {
    /// Marks a number that is not above the last one; returns whether it came before.
    fn came_before(&mut self, sequence: u64) -> bool {
        let back = self.last - sequence;
        let bit = if back < REMEMBERED { 1 << back } else { 0 };
        let before = self.came & bit == bit;
        self.came |= bit;
        before
    }
}

/// The receiver of one class.
#[derive(Debug)]
pub struct JoinReceiver {
    own_run: u64,
    streams: HashMap<StreamKey, StreamState>,
    /// Streams whose supplier has left. A supplier's number is used once in a run, so later events of it are
    /// old.
    left: HashMap<StreamKey, StreamState>,
    /// The times at which the streams in `left` departed, the earliest first.
    left_at: VecDeque<(Instant, StreamKey)>,
    most: usize,
    /// The last number assigned to a stream.
    numbers: u32,
    arrivals: u64,
    /// Runs of the brokers with a connected join.
    present: BTreeSet<u64>,
    /// Runs of brokers that have streams but no connected join, with the time of the join's departure or, if
    /// it is later, of their last event.
    absent: BTreeMap<u64, Instant>,
    pub counters: ReceiverCounters,
}

impl Default for JoinReceiver {
    fn default() -> Self {
        Self::remembering(MAX_STREAMS)
    }
}

impl JoinReceiver {
    fn remembering(most: usize) -> Self {
        Self {
            own_run: 0,
            streams: HashMap::new(),
            left: HashMap::new(),
            left_at: VecDeque::new(),
            most,
            numbers: 0,
            arrivals: 0,
            present: BTreeSet::new(),
            absent: BTreeMap::new(),
            counters: ReceiverCounters::default(),
        }
    }

    /// Records that the join is connected to a broker with this run.
    pub fn connected(&mut self, run: u64) {
        self.own_run = run;
    }

    /// Returns whether this is the run of the broker of this host.
    pub fn is_own(&self, run: u64) -> bool {
        self.own_run == run
    }

    /// Returns the number of known suppliers of other hosts.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Handles bytes from the network; returns the actions to take, in order.
    pub fn arrived<'a>(&mut self, now: Instant, bytes: &'a [u8]) -> Vec<JoinStep<'a>> {
        let Ok(JoinEnvelope { origin, body }) = JoinEnvelope::read(bytes) else {
            self.counters.garbage += 1;
            return Vec::new();
        };
        if self.is_own(origin.run) {
            self.counters.own += 1;
            return Vec::new();
        }
        self.arrivals += 1;
        let key = (origin.run, origin.supplier, Arc::from(origin.topic));
        match body {
            JoinBody::Left => {
                let Some(state) = self.streams.remove(&key) else { return Vec::new() };
                let number = state.number;
                self.left_at.push_back((now, key.clone()));
                self.left.insert(key, state);
                self.forget_left(now);
                vec![JoinStep::Withdraw(number)]
            }
            JoinBody::Event { criticality, sequence, remaining, key: of, fields, payload } => {
                // events of a departed host may still be in transit
                if !self.present.contains(&origin.run) {
                    self.absent.insert(origin.run, now);
                }
                let (displaced, stream) = self.admit(key, sequence);
                if self.absent.len() > 2 * self.most {
                    let runs: BTreeSet<u64> = self.streams.keys().map(|(run, _, _)| *run).collect();
                    self.absent.retain(|run, _| runs.contains(run));
                }
                let publish = stream.map(|stream| {
                    self.counters.received += 1;
                    self.counters.received_bytes += payload.len() as u64;
                    let deadline = remaining.map(|remaining| now + remaining);
                    let event = JoinedEvent { criticality, sequence, deadline, key: of, fields, payload };
                    JoinStep::Publish { stream, origin, event }
                });
                displaced.map(JoinStep::Withdraw).into_iter().chain(publish).collect()
            }
        }
    }

    /// Admits a number: returns the stream displaced by it, and the stream to publish it in.
    fn admit(&mut self, key: StreamKey, sequence: u64) -> (Option<JoinStream>, Option<JoinStream>) {
        let last_arrival = self.arrivals;
        if let Some(state) = self.left.get_mut(&key) {
            match sequence <= state.last && state.came_before(sequence) {
                true => self.counters.duplicates += 1,
                false => self.counters.overtaken += 1,
            }
            return (None, None);
        }
        if let Some(state) = self.streams.get_mut(&key) {
            state.last_arrival = last_arrival;
            if sequence <= state.last {
                match state.came_before(sequence) {
                    true => self.counters.duplicates += 1,
                    false => self.counters.overtaken += 1,
                }
                return (None, None);
            }
            let ahead = sequence - state.last;
            self.counters.missing = self.counters.missing.saturating_add(ahead - 1);
            state.came = if ahead < REMEMBERED { state.came << ahead } else { 0 } | 1;
            state.last = sequence;
            return (None, Some(state.number));
        }
        let displaced = if self.streams.len() >= self.most { self.displace() } else { None };
        self.numbers = self.numbers.wrapping_add(1);
        let number = JoinStream(self.numbers);
        // numbers below the first number that comes are not expected, and count as seen
        self.streams.insert(key, StreamState { number, last: sequence, came: u64::MAX, last_arrival });
        (displaced, Some(number))
    }

    /// Drops the stream that was silent longest.
    fn displace(&mut self) -> Option<JoinStream> {
        let oldest =
            self.streams.iter().min_by_key(|(_, state)| state.last_arrival).map(|(key, _)| key.clone())?;
        self.counters.displaced += 1;
        self.streams.remove(&oldest).map(|state| state.number)
    }

    /// Drops suppliers that left long ago, and the earliest ones beyond the maximum.
    fn forget_left(&mut self, now: Instant) {
        let too_many = |this: &Self| this.left_at.len() > MAX_LEFT;
        while self.left_at.front().is_some_and(|(at, _)| now - *at >= RECONNECT_TIMEOUT) || too_many(self) {
            if let Some((_, key)) = self.left_at.pop_front() {
                self.left.remove(&key);
            }
        }
    }

    /// Records that the join of another broker has connected.
    pub fn peer_came(&mut self, run: u64) {
        self.present.insert(run);
        self.absent.remove(&run);
    }

    /// Records that the join of another broker has departed, or cannot be reached.
    pub fn peer_went(&mut self, now: Instant, run: u64) {
        self.present.remove(&run);
        // a host without streams needs no entry
        if self.streams.keys().any(|(of, _, _)| *of == run) {
            self.absent.entry(run).or_insert(now);
        }
    }

    /// Drops the streams of hosts that have been absent for long; returns the streams to withdraw.
    pub fn forget(&mut self, now: Instant) -> Vec<JoinStream> {
        self.forget_left(now);
        let (mut left, absent) = (Vec::new(), &mut self.absent);
        absent.retain(|run, since| {
            let stays = now - *since < RECONNECT_TIMEOUT;
            if !stays {
                self.streams.retain(|(of, _, _), state| {
                    let goes = of == run;
                    left.extend(goes.then_some(state.number));
                    !goes
                });
            }
            stays
        });
        left.sort_unstable();
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envelope(run: u64, supplier: u32, body: JoinBody<'_>) -> Vec<u8> {
        JoinEnvelope { origin: StreamOrigin { run, supplier, topic: "t" }, body }.to_bytes().expect("short")
    }

    fn event(run: u64, supplier: u32, sequence: u64) -> Vec<u8> {
        let (remaining, fields) = (Some(Duration::from_nanos(50)), FieldSet::new());
        let body = JoinBody::Event { criticality: 3, sequence, remaining, key: "k", fields, payload: b"p" };
        envelope(run, supplier, body)
    }

    /// Returns the stream and the number of the published event.
    fn published(steps: &[JoinStep<'_>]) -> Option<(JoinStream, u64)> {
        steps.iter().find_map(|step| match step {
            JoinStep::Publish { stream, event, .. } => Some((*stream, event.sequence)),
            JoinStep::Withdraw(_) => None,
        })
    }

    /// All arrivals of one stream.
    #[derive(Default)]
    struct SlowStream {
        came: Vec<u64>,
        last_arrival: usize,
    }

    /// A model of the receiver, with unlimited memory per stream.
    #[derive(Default)]
    struct SlowReceiver {
        streams: BTreeMap<u32, SlowStream>,
        counters: ReceiverCounters,
    }

    impl SlowReceiver {
        /// Returns whether the event is published.
        fn arrived(&mut self, turn: usize, supplier: u32, sequence: u64, most: usize) -> bool {
            if !self.streams.contains_key(&supplier) && self.streams.len() == most {
                let oldest =
                    *self.streams.iter().min_by_key(|(_, it)| it.last_arrival).expect("it is full").0;
                self.streams.remove(&oldest);
                self.counters.displaced += 1;
            }
            let stream = self.streams.entry(supplier).or_default();
            stream.last_arrival = turn;
            let (first, last) = (stream.came.first().copied(), stream.came.iter().max().copied());
            let duplicate = stream.came.contains(&sequence) || first.is_some_and(|first| sequence < first);
            match last {
                Some(last) if sequence <= last && duplicate => self.counters.duplicates += 1,
                Some(last) if sequence <= last => self.counters.overtaken += 1,
                last => {
                    self.counters.missing += last.map_or(0, |last| sequence - last - 1);
                    self.counters.received += 1;
                    self.counters.received_bytes += 1;
                    stream.came.push(sequence);
                    return true;
                }
            }
            stream.came.push(sequence);
            false
        }
    }

    proptest! {
        /// Copies come by two routes; each route loses some, and one is delayed against the other.
        #[test]
        fn each_event_is_published_once_and_in_order_whatever_way_its_copies_took(
            lost in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..60),
            routes in proptest::collection::vec(any::<bool>(), 0..200), suppliers in 1_u32..5, most in 1_usize..5,
        ) {
            let numbers = |second: bool| {
                let kept = lost.iter().enumerate().filter(move |(_, lost)| !if second { lost.1 } else { lost.0 });
                let each = kept.map(|(at, _)| at as u64 + 1);
                each.flat_map(move |number| (0..suppliers).map(move |supplier| (supplier, number)))
                    .collect::<std::collections::VecDeque<_>>()
            };
            let mut waiting = [numbers(false), numbers(true)];
            let (mut receiver, mut slow) = (JoinReceiver::remembering(most), SlowReceiver::default());
            let mut last: BTreeMap<JoinStream, u64> = BTreeMap::new();
            let mut turns = routes.into_iter().chain(std::iter::repeat([true, false]).flatten()).enumerate();
            while let Some((turn, route)) = turns.next().filter(|_| waiting.iter().any(|it| !it.is_empty())) {
                let Some((supplier, number)) = waiting[usize::from(route)].pop_front() else { continue };
                let bytes = event(9, supplier, number);
                let steps = receiver.arrived(Instant::from_nanos(1), &bytes);
                let published = published(&steps);
                prop_assert_eq!(published.is_some(), slow.arrived(turn, supplier, number, most));
                if let Some((stream, number)) = published {
                    prop_assert!(last.insert(stream, number).is_none_or(|last| last < number));
                }
                prop_assert!(receiver.streams() <= most);
            }
            prop_assert_eq!(receiver.counters, slow.counters);
        }

        #[test]
        fn whatever_comes_is_published_or_counted(
            came in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..40),
                    (0_u64..3, 0_u32..3, prop_oneof![1_u64..200, any::<u64>()]).prop_map(|(run, supplier, number)| {
                        event(run, supplier, number.max(1))
                    }),
                ],
                0..80,
            ),
        ) {
            let mut receiver = JoinReceiver::remembering(4);
            receiver.connected(1);
            let mut published = 0;
            for bytes in &came {
                published += receiver.arrived(Instant::from_nanos(1), bytes).iter().filter(|it| matches!(it, JoinStep::Publish { .. })).count();
            }
            let ReceiverCounters { received, duplicates, overtaken, own, garbage, .. } = receiver.counters;
            prop_assert_eq!(received, published as u64);
            prop_assert_eq!(received + duplicates + overtaken + own + garbage, came.len() as u64);
        }
    }

    #[test]
    fn an_event_has_the_deadline_that_remained_counted_from_its_arrival() {
        let mut receiver = JoinReceiver::default();
        receiver.connected(1);
        let bytes = event(2, 7, 5);
        let steps = receiver.arrived(Instant::from_nanos(1000), &bytes);
        let [JoinStep::Publish { origin, event, .. }] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(*origin, StreamOrigin { run: 2, supplier: 7, topic: "t" });
        let expected = JoinedEvent {
            criticality: 3,
            sequence: 5,
            deadline: Some(Instant::from_nanos(1050)),
            key: "k",
            fields: FieldSet::new(),
            payload: b"p",
        };
        assert_eq!(*event, expected);
        assert!(
            receiver.arrived(Instant::from_nanos(1001), &self::event(1, 7, 6)).is_empty(),
            "of its own broker"
        );
        assert_eq!(receiver.counters.own, 1);
    }

    #[test]
    fn copies_of_a_supplier_that_has_left_are_known_for_a_minute() {
        let mut receiver = JoinReceiver::default();
        let (first, second, third) = (event(2, 7, 1), event(2, 7, 2), event(2, 7, 3));
        let left = envelope(2, 7, JoinBody::Left);
        assert!(published(&receiver.arrived(Instant::ZERO, &first)).is_some());
        assert!(published(&receiver.arrived(Instant::ZERO, &third)).is_some());
        assert_eq!(receiver.arrived(Instant::ZERO, &left).len(), 1);
        // copies by the other route, which lost no event
        for bytes in [&first, &second, &third, &left] {
            assert_eq!(receiver.arrived(Instant::from_nanos(1), bytes), []);
        }
        let ReceiverCounters { duplicates, overtaken, missing, .. } = receiver.counters;
        assert_eq!((duplicates, overtaken, missing, receiver.streams()), (2, 1, 1, 0));
        receiver.forget(Instant::ZERO + RECONNECT_TIMEOUT);
        assert!(receiver.left.is_empty() && receiver.left_at.is_empty());
        for supplier in 0..=u32::try_from(MAX_LEFT).expect("few") {
            receiver.arrived(Instant::from_nanos(1), &event(2, supplier, 1));
            receiver.arrived(Instant::from_nanos(1), &envelope(2, supplier, JoinBody::Left));
        }
        assert_eq!((receiver.left.len(), receiver.left_at.len()), (MAX_LEFT, MAX_LEFT));
    }

    #[test]
    fn a_host_that_comes_back_in_time_is_remembered_and_one_that_does_not_leaves() {
        let mut receiver = JoinReceiver::default();
        let (first, second) = (event(2, 7, 5), event(2, 7, 9));
        let (stream, _) = published(&receiver.arrived(Instant::ZERO, &first)).expect("it is new");
        receiver.peer_came(2);
        receiver.peer_went(Instant::from_nanos(10), 2);
        assert!(receiver.forget(Instant::ZERO + RECONNECT_TIMEOUT).is_empty());
        receiver.peer_came(2);
        assert!(receiver.forget(Instant::ZERO + RECONNECT_TIMEOUT * 2).is_empty(), "it came back");
        assert_eq!(published(&receiver.arrived(Instant::ZERO, &second)), Some((stream, 9)));
        assert_eq!(receiver.counters.missing, 3);
        receiver.peer_went(Instant::from_nanos(10), 2);
        receiver.peer_went(Instant::from_nanos(10), 3);
        assert_eq!(receiver.forget(Instant::from_nanos(10) + RECONNECT_TIMEOUT), [stream]);
        assert_eq!(receiver.streams(), 0);
        let left = envelope(2, 7, JoinBody::Left);
        assert!(receiver.arrived(Instant::ZERO, &left).is_empty(), "nobody knows it any more");
        let (stream, _) = published(&receiver.arrived(Instant::ZERO, &second)).expect("it is new");
        assert_eq!(receiver.arrived(Instant::ZERO, &left), [JoinStep::Withdraw(stream)]);
    }

    #[test]
    fn what_comes_of_a_host_after_it_has_gone_is_forgotten_too() {
        let mut receiver = JoinReceiver::default();
        receiver.peer_came(2);
        receiver.peer_went(Instant::from_nanos(10), 2);
        let bytes = event(2, 7, 5);
        let (stream, _) = published(&receiver.arrived(Instant::from_nanos(20), &bytes)).expect("it is new");
        assert!(receiver.forget(Instant::from_nanos(19) + RECONNECT_TIMEOUT).is_empty());
        assert_eq!(receiver.forget(Instant::from_nanos(20) + RECONNECT_TIMEOUT), [stream]);
        // the stream of a connected host is kept
        receiver.arrived(Instant::from_nanos(20), &event(3, 7, 5));
        receiver.peer_came(3);
        assert!(receiver.forget(Instant::ZERO + RECONNECT_TIMEOUT * 9).is_empty());
        // a network that invents hosts
        for run in 0..10_000 {
            receiver.arrived(Instant::from_nanos(20), &event(run, 7, 5));
        }
        assert!(receiver.absent.len() <= 2 * MAX_STREAMS);
    }
}
