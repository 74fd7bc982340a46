//! Tests of the calls that combine along the hosts of a job: the packets that they send to other hosts, and
//! that no member gets ahead of the others.

use super::hosts::HostTree;
use super::{Memory, MessageEngine, WindowPort};
use crate::model::{Error, Rank};
use crate::wire::loopback::Loopback;
use crate::wire::packet::{HEADER, PacketKind};
use crate::wire::tests::fault::{FaultPlan, Faulty};
use crate::wire::{Bell, Gone, Transport};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use unisono_linux::clock::{Duration, Instant};

/// The sender and the receiver of each packet.
type SentPackets = Vec<(Rank, Rank)>;

/// A transport that records the packets of barriers and of reduce-scatters.
#[derive(Debug)]
struct LoggedLoopback {
    inner: Faulty<Loopback>,
    log: Arc<Mutex<SentPackets>>,
}

impl Transport for LoggedLoopback {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        // only the gather that announces the hosts has a payload and no count
        if payload.is_empty() || header[0] == PacketKind::FenceCount as u8 {
            self.log.lock().expect("nobody panics with it").push((self.inner.rank(), to));
        }
        self.inner.send(to, header, payload)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        self.inner.receive(packet)
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        self.inner.wait(until)
    }

    fn flush(&mut self) -> Result<bool, Error> {
        self.inner.flush()
    }

    fn gone(&self) -> &[Gone] {
        self.inner.gone()
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        self.inner.refuse(peer, why);
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.inner.bell()
    }
}

/// Returns the first rank of a rank's host; `hosts` has a number for each rank's host.
fn first(hosts: &[usize], rank: usize) -> Rank {
    Rank::at(hosts.iter().position(|host| *host == hosts[rank]).expect("the rank itself is there"))
}

/// Runs `part` in each member of a job on these hosts. Returns the results and the packets. No member ends
/// before all have returned; the others learn of one that panics.
fn run<T: Send>(
    hosts: &[usize],
    plan: FaultPlan,
    part: impl Fn(&MessageEngine, usize) -> T + Sync,
) -> (Vec<T>, SentPackets) {
    let log = Arc::new(Mutex::new(SentPackets::new()));
    let ends = Loopback::job(hosts.len()).into_iter();
    let members: Vec<Arc<MessageEngine>> = ends
        .map(|end| LoggedLoopback { inner: Faulty::new(end, plan), log: Arc::clone(&log) })
        .map(|end| MessageEngine::new(Box::new(end)))
        .collect();
    let meet = Barrier::new(hosts.len());
    let results = thread::scope(|threads| {
        let (part, meet) = (&part, &meet);
        let start = |(rank, member): (usize, Arc<MessageEngine>)| {
            threads.spawn(move || {
                let learned = member.learn_hosts(first(hosts, rank));
                // a fault of `part` must not reach a member that still learns
                meet.wait();
                learned.expect("all are there");
                let result = part(&member, rank);
                (member, result)
            })
        };
        let running: Vec<_> = members.into_iter().enumerate().map(start).collect();
        let ended: Vec<_> = running.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        ended.into_iter().map(|(_, result)| result).collect()
    });
    let sent = log.lock().expect("as above").clone();
    (results, sent)
}

/// Returns the number of hosts, and of the packets between hosts; only first ranks send or receive these.
fn count_between(hosts: &[usize], sent: &[(Rank, Rank)]) -> (usize, usize) {
    let between = |(from, to): &&(Rank, Rank)| hosts[from.index()] != hosts[to.index()];
    for rank in sent.iter().filter(between).flat_map(|(from, to)| [*from, *to]) {
        assert_eq!(first(hosts, rank.index()), rank, "{hosts:?}: {sent:?}");
    }
    (hosts.iter().collect::<BTreeSet<_>>().len(), sent.iter().filter(between).count())
}

const LAYOUTS: [&[usize]; 7] = [
    &[0, 0, 1, 1],
    &[0, 0, 0, 0, 1, 1, 1, 1],
    &[0, 0, 0, 1, 2, 2],
    &[0, 1, 0, 1, 0],
    &[0, 1, 2, 0, 1, 2, 3, 4],
    &[0, 1, 1, 2, 2, 2, 2, 2, 2, 3, 4, 5],
    &[0, 1, 2, 3, 4],
];

#[test]
fn in_a_barrier_the_first_ranks_alone_send_to_other_hosts_and_each_once_a_round() {
    for hosts in LAYOUTS {
        let (_, sent) = run(hosts, FaultPlan::new(1), |member, _| member.barrier(0).expect("all are there"));
        let (count, between) = count_between(hosts, &sent);
        let rounds = count.next_power_of_two().ilog2() as usize;
        assert_eq!(between, count * rounds, "{hosts:?}: {sent:?}");
        assert_eq!(sent.len() - between, 2 * (hosts.len() - count), "{hosts:?}: {sent:?}");
    }
}

/// Returns the entry of rank `from` for rank `to`.
fn entry(seed: u64, from: usize, to: usize) -> u32 {
    (seed % 1000) as u32 + (31 * from + 7 * to) as u32
}

/// Returns each member's sum in a reduce-scatter of the entries, and the packets.
fn reduce(hosts: &[usize], plan: FaultPlan, seed: u64) -> (Vec<u32>, SentPackets) {
    run(hosts, plan, |member, rank| {
        let window = member.core().new_window();
        let port = WindowPort::new(Memory::Attached(Vec::new()), hosts.len());
        member.core().ports.insert(window, port);
        // each member has the window before the first count comes
        member.gather(&[0]).expect("all are there");
        let tree = Arc::clone(&member.core().hosts);
        let entries = (0..hosts.len()).map(|to| entry(seed, rank, to)).collect();
        member.reduce_scatter(window, 1, &tree, entries).expect("all are there")
    })
}

#[test]
fn in_a_fence_the_first_ranks_alone_send_counts_to_other_hosts() {
    for hosts in LAYOUTS {
        let (_, sent) = reduce(hosts, FaultPlan::new(1), 0);
        let (count, between) = count_between(hosts, &sent);
        let half = 1_usize << count.ilog2();
        let halving = half * half.ilog2() as usize;
        assert_eq!(between, halving + 2 * (count - half), "{hosts:?}: {sent:?}");
        assert_eq!(sent.len() - between, 2 * (hosts.len() - count), "{hosts:?}: {sent:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn no_member_leaves_before_all_have_entered(
        hosts in prop::collection::vec(0_usize..4, 1..10), seed in any::<u64>(),
    ) {
        const EPISODES: usize = 10;
        let entered: Vec<AtomicUsize> = hosts.iter().map(|_| AtomicUsize::new(0)).collect();
        let plan = FaultPlan::new(seed).delay(Duration::from_micros(200));
        run(&hosts, plan, |member, rank| {
            for episode in 1..=EPISODES {
                entered[rank].store(episode, Ordering::Relaxed);
                member.barrier(0).expect("all are there");
                for other in &entered {
                    assert!(other.load(Ordering::Relaxed) >= episode, "left before all had entered");
                }
            }
        });
    }

    #[test]
    fn a_reduce_scatter_returns_to_each_member_the_sum_of_its_entries(
        hosts in prop::collection::vec(0_usize..6, 1..14), seed in any::<u64>(),
    ) {
        let plan = FaultPlan::new(seed).delay(Duration::from_micros(200));
        let (sums, _) = reduce(&hosts, plan, seed);
        for (to, sum) in sums.into_iter().enumerate() {
            prop_assert_eq!(sum, (0..hosts.len()).map(|from| entry(seed, from, to)).sum::<u32>());
        }
    }
}

#[test]
fn every_member_on_every_host_learns_which_rank_is_gone() {
    let hosts = [0, 0, 0, 1, 1, 2];
    let announcements = hosts.len() as u64 - 1;
    for (dies, packet) in (0..hosts.len()).flat_map(|rank| (0..5).map(move |packet| (rank, packet))) {
        let plan = FaultPlan::new(packet).death(Rank::at(dies), announcements + packet);
        let (errors, _) = run(&hosts, plan, |member, _| {
            loop {
                if let Err(error) = member.barrier(0) {
                    return error;
                }
            }
        });
        for (rank, error) in errors.into_iter().enumerate().filter(|(rank, _)| *rank != dies) {
            let is_named = matches!(error, Error::Gone { rank, .. } if rank == Rank::at(dies));
            assert!(is_named, "{plan}: rank {rank} got {error}");
        }
    }
}

#[test]
fn a_host_for_each_rank_and_one_host_for_all_are_flat() {
    let ranks = [0, 1, 2, 3, 4].map(Rank);
    for own in ranks {
        let flat = Some(HostTree::flat(own, 5));
        assert_eq!(HostTree::new(own, &ranks), flat);
        assert_eq!(HostTree::new(own, &[Rank(0); 5]), flat);
    }
}

#[test]
fn hosts_that_contradict_each_other_are_refused() {
    for first_of in [[0, 0, 1], [1, 1, 2], [0, 1, 3]] {
        assert_eq!(HostTree::new(Rank(0), &first_of.map(Rank)), None, "{first_of:?}");
    }
}
