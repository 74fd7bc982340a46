//! A fault injector: wraps any transport and injects faults that are rare or absent in a test network.
//!
//! The idea: the injector keeps the promises of the contract of [`crate::wire`], and varies everything that
//! the contract leaves open. It delays packets, although packets of a pair stay in order and whole. It lets
//! packets of different senders overtake each other. It ends a rank at a chosen moment, in the middle of its
//! work. A packet's fault depends on the seed, its sender, its receiver and its number among the packets of
//! that pair, and not on the clock or the order of calls. So a [`FaultPlan`], which prints itself, repeats
//! the same faults.
//!
//! Cost: a copy and the delays. When not to use: for violations of the contract (lost, changed or repeated
//! packets): TCP would have to fail for that. Malformed packets are the fuzzers' subject.
//! Reference: the fault injector of smoltcp; SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

use crate::model::{Error, Rank};
use crate::wire::packet::HEADER;
use crate::wire::{Bell, Gone, Transport};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use unisono_linux::clock::{Duration, Instant, now};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    seed: u64,
    delay: Duration,
    death: Option<(Rank, u64)>,
}

impl FaultPlan {
    /// Creates a plan without faults, except that packets of different senders overtake each other.
    pub const fn new(seed: u64) -> Self {
        Self { seed, delay: Duration::ZERO, death: None }
    }

    /// Delays about half of the packets, mostly for much less than `max_delay`.
    #[must_use]
    pub const fn delay(self, max_delay: Duration) -> Self {
        Self { delay: max_delay, ..self }
    }

    /// Makes `rank` die when it is about to send its packet number `packet`, counted from 0.
    #[must_use]
    pub const fn death(self, rank: Rank, packet: u64) -> Self {
        Self { death: Some((rank, packet)), ..self }
    }

    /// Returns the delay of the packet `number` from `from` to `to`.
    fn holds(&self, from: Rank, to: Rank, number: u64) -> Duration {
        let draw = mix(mix(mix(self.seed, u64::from(from.0)), u64::from(to.0)), number);
        if draw & 1 == 0 {
            return Duration::ZERO;
        }
        // the square of a fraction: most delays are short, some long
        let fraction = u128::from(draw >> 32);
        let squared = (fraction * fraction) >> 32;
        Duration::from_nanos(((u128::from(self.delay.as_nanos()) * squared) >> 32) as u64)
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, delays of up to {} us", self.seed, self.delay.as_micros())?;
        match self.death {
            Some((rank, packet)) => write!(f, ", rank {rank} dies before its packet {packet}"),
            None => Ok(()),
        }
    }
}

/// Mixes `value` into `state` (the finalizer of SplitMix64).
const fn mix(state: u64, value: u64) -> u64 {
    let mut bits = state ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The packets of one peer that have arrived and have not been passed on yet.
#[derive(Debug, Default)]
struct HeldPacket {
    packets: VecDeque<(Instant, Vec<u8>)>,
    /// The number of packets that have arrived so far.
    count: u64,
    /// When the last packet is due: no later packet is due earlier.
    due: Instant,
}

impl HeldPacket {
    fn next(&self) -> Option<Instant> {
        self.packets.front().map(|(due, _)| *due)
    }
}

/// A transport with faults; see the module.
#[derive(Debug)]
pub struct Faulty<T> {
    /// `None` once this rank has died.
    inner: Option<T>,
    plan: FaultPlan,
    rank: Rank,
    max_payload: usize,
    sent: u64,
    passed_on: u64,
    held: Vec<HeldPacket>,
    gone: Vec<Gone>,
    /// The number of peers that the inner transport reports gone and whose packets have all been taken over.
    drained: usize,
    scratch: Vec<u8>,
    alarm: Arc<FaultAlarm>,
}

impl<T: Transport> Faulty<T> {
    /// Wraps `inner`, and injects the faults of `plan`.
    pub fn new(inner: T, plan: FaultPlan) -> Self {
        let held = std::iter::repeat_with(HeldPacket::default).take(inner.size()).collect();
        Self {
            plan,
            rank: inner.rank(),
            max_payload: inner.max_payload(),
            sent: 0,
            passed_on: 0,
            held,
            gone: Vec::new(),
            drained: 0,
            scratch: Vec::new(),
            alarm: Arc::new(FaultAlarm { inner: inner.bell(), due: AtomicU64::new(u64::MAX) }),
            inner: Some(inner),
        }
    }

    fn dead(&self) -> Error {
        let why = format!("the fault injector ended rank {} ({})", self.rank, self.plan);
        Error::System { doing: "cannot communicate".to_owned(), source: io::Error::other(why) }
    }

    fn inner(&mut self) -> Result<&mut T, Error> {
        // not ok_or_else: the error borrows `self`, which the transport borrows mutably
        if self.inner.is_none() {
            return Err(self.dead());
        }
        Ok(self.inner.as_mut().expect("there because none was refused above"))
    }

    /// Takes over arrived packets, and rings the bell if some are delayed.
    fn take_over(&mut self) -> Result<(), Error> {
        let (plan, me, mut holds) = (self.plan, self.rank, false);
        let mut scratch = std::mem::take(&mut self.scratch);
        // The packets of a peer that is gone by now are taken over below. A peer that is lost meanwhile is
        // counted next time.
        self.drained = self.inner()?.gone().len();
        while let Some(from) = self.inner()?.receive(&mut scratch)? {
            let held = &mut self.held[from.index()];
            let delay = plan.holds(from, me, held.count);
            held.count += 1;
            held.due = held.due.max(now() + delay);
            held.packets.push_back((held.due, std::mem::take(&mut scratch)));
            holds |= delay > Duration::ZERO;
        }
        self.scratch = scratch;
        self.note();
        if holds && let Some(bell) = &self.alarm.inner {
            // a listener has to learn when the next packet is due now
            bell.ring();
        }
        Ok(())
    }

    /// Reports the peers that are gone and have no packet left, and sets the alarm.
    fn note(&mut self) {
        let reported = |gone: &[Gone], rank| gone.iter().any(|gone| gone.rank == rank);
        for news in self.inner.iter().flat_map(|inner| &inner.gone()[..self.drained]) {
            if self.held[news.rank.index()].packets.is_empty() && !reported(&self.gone, news.rank) {
                self.gone.push(news.clone());
            }
        }
        let due = self.held.iter().filter_map(HeldPacket::next).min().unwrap_or(Instant::NEVER);
        // SYNC(alarm) release: a listener that sees the moment finds its packet held
        self.alarm.due.store(due.as_nanos(), Ordering::Release);
    }

    fn pass_on(&mut self, packet: &mut Vec<u8>) -> Option<Rank> {
        let now = now();
        let due = |held: &HeldPacket| held.next().is_some_and(|due| due <= now);
        let count = self.held.iter().filter(|held| due(held)).count() as u64;
        if count == 0 {
            return None;
        }
        self.passed_on += 1;
        let choice = mix(self.plan.seed, self.passed_on) % count;
        let index = (0..self.held.len()).filter(|index| due(&self.held[*index])).nth(choice as usize)?;
        let (_, bytes) = self.held[index].packets.pop_front()?;
        *packet = bytes;
        self.note();
        if let Some(bell) = &self.alarm.inner {
            // a listener knows when the packet was due, but not that another thread has received it
            bell.ring();
        }
        Some(Rank::at(index))
    }
}

impl<T: Transport> Transport for Faulty<T> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.held.len()
    }

    fn max_payload(&self) -> usize {
        self.max_payload
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        if self.plan.death == Some((self.rank, self.sent)) {
            self.inner = None;
        }
        self.sent += 1;
        self.inner()?.send(to, header, payload)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        self.take_over()?;
        Ok(self.pass_on(packet))
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let due = self.held.iter().filter_map(HeldPacket::next).min();
        let until = until.into_iter().chain(due).min();
        if due.is_none_or(|due| due > now()) {
            self.inner()?.wait(until)?;
            self.take_over()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        self.inner()?.flush()
    }

    fn gone(&self) -> &[Gone] {
        &self.gone
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        self.held[peer.index()].packets.clear();
        if let Some(inner) = &mut self.inner {
            inner.refuse(peer, why);
            self.drained = inner.gone().len();
        }
        self.note();
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.alarm.inner.is_some().then(|| Arc::clone(&self.alarm) as Arc<dyn Bell>)
    }
}

/// A bell that also ends a listener's wait when a delayed packet is due.
#[derive(Debug)]
struct FaultAlarm {
    inner: Option<Arc<dyn Bell>>,
    due: AtomicU64,
}

impl Bell for FaultAlarm {
    fn ring(&self) {
        if let Some(bell) = &self.inner {
            bell.ring();
        }
    }

    fn events(&self) -> u32 {
        self.inner.as_ref().map_or(0, |bell| bell.events())
    }

    fn listen(&self, last_events: u32, until: Option<Instant>) -> Duration {
        // SYNC(alarm) acquire: a listener that returns at this moment finds the packet
        let due = Instant::from_nanos(self.due.load(Ordering::Acquire));
        let until = until.map_or(due, |until| until.min(due));
        self.inner.as_ref().map_or(Duration::ZERO, |bell| bell.listen(last_events, Some(until)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::loopback::Loopback;
    use crate::wire::packet::{Header, PacketKind, WirePacket};
    use crate::wire::tests::conformance;

    const DELAY: Duration = Duration::from_millis(3);

    fn job(size: usize, plan: FaultPlan) -> Vec<Faulty<Loopback>> {
        Loopback::job(size).into_iter().map(|end| Faulty::new(end, plan)).collect()
    }

    #[test]
    fn a_transport_with_faults_keeps_the_contract() {
        for seed in 0..5 {
            let plan = FaultPlan::new(seed).delay(DELAY);
            conformance::check(|size| {
                job(size, plan).into_iter().map(|end| Box::new(end) as Box<dyn Transport>).collect()
            });
        }
    }

    fn send(end: &mut impl Transport, to: Rank, tag: u32) -> Result<(), Error> {
        end.send(to, &Header { tag, ..Header::new(PacketKind::Done, 1) }.encode(0), &[])
    }

    fn receive(end: &mut impl Transport) -> Option<(Rank, u32)> {
        let mut bytes = Vec::new();
        let from = end.receive(&mut bytes).expect("receives")?;
        Some((from, WirePacket::parse(&bytes).expect("whole").header.tag))
    }

    #[test]
    fn packets_of_different_senders_overtake_each_other_the_same_way_for_the_same_seed() {
        let order = |seed| {
            let mut ends = job(3, FaultPlan::new(seed));
            let mut last = ends.pop().expect("three");
            for tag in 0..20 {
                for end in &mut ends {
                    send(end, Rank(2), tag).expect("sends");
                }
            }
            std::iter::from_fn(|| receive(&mut last)).collect::<Vec<_>>()
        };
        let (first, again, other) = (order(1), order(1), order(2));
        assert_eq!((first.len(), &first), (40, &again));
        assert_ne!(first, other);
        let from = |rank| first.iter().filter(move |(from, _)| *from == rank).map(|(_, tag)| *tag);
        assert!(from(Rank(0)).eq(0..20) && from(Rank(1)).eq(0..20), "in order within a pair");
        assert!(!first.is_sorted_by_key(|(_, tag)| *tag), "and overtaken between pairs");
    }

    #[test]
    fn delays_are_drawn_anew_for_each_packet_and_stay_below_the_most() {
        let max = Duration::from_millis(1);
        let plan = FaultPlan::new(7).delay(max);
        let delays: Vec<_> = (0..1000).map(|number| plan.holds(Rank(0), Rank(1), number)).collect();
        assert!(delays.iter().all(|delay| *delay <= max));
        let held = delays.iter().filter(|delay| !delay.is_zero()).count();
        assert!((400..600).contains(&held), "{held} of 1000 held back");
        assert!(
            delays.iter().any(|delay| *delay > Duration::from_micros(800)),
            "some nearly as long as may be"
        );
    }

    #[test]
    fn a_rank_dies_at_its_moment_and_the_others_get_what_it_sent_before() {
        for packet in [0, 1, 17] {
            let plan = FaultPlan::new(3).delay(DELAY).death(Rank(1), packet);
            let mut ends = job(2, plan);
            let mut dies = ends.pop().expect("two");
            for tag in 0..packet as u32 {
                send(&mut dies, Rank(0), tag).expect("still alive");
            }
            let error = send(&mut dies, Rank(0), 99).expect_err("dead").to_string();
            assert!(dies.wait(None).is_err() && dies.receive(&mut Vec::new()).is_err(), "{error}");
            let mut lives = ends.pop().expect("one");
            let mut came = 0;
            while lives.gone().is_empty() {
                lives.wait(None).expect("waits");
                while let Some((_, tag)) = receive(&mut lives) {
                    assert_eq!(u64::from(tag), came);
                    came += 1;
                }
            }
            assert_eq!((came, lives.gone()[0].rank), (packet, Rank(1)), "{plan}");
        }
    }

    #[test]
    fn a_listener_wakes_for_a_packet_that_was_held_back() {
        let plan = (0..).map(|seed| FaultPlan::new(seed).delay(Duration::from_millis(50)));
        let holds = |plan: &FaultPlan| plan.holds(Rank(1), Rank(0), 0) > Duration::from_millis(10);
        let plan = plan.into_iter().find(holds).expect("half of all do");
        let mut ends = job(2, plan);
        let bell = ends[0].bell().expect("loopback has one");
        send(&mut ends[1], Rank(0), 5).expect("sends");
        let mut last_events = bell.events();
        while receive(&mut ends[0]).is_none() {
            bell.listen(last_events, None);
            last_events = bell.events();
        }
    }
}
