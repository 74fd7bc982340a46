//! A barrier of members on several hosts along a tree that the caller has chosen.
//!
//! The idea: arrivals go up, releases come down, over any [`Transport`]. A member needs a connection to its
//! parent and to its children and to no other member. The transport retransmits lost bytes and reports a peer
//! that is gone. A member that learns of such a peer informs its other neighbors, so that all members name
//! the same peer.
//!
//! ```text
//!   child:  arrival of episode e --> parent     after the arrivals of its own children
//!   parent: release of episode e --> children   after the release by its own parent
//! ```
//! An arrival of the next episode comes only after this episode's release, so a member never keeps a packet
//! for later, and any other packet is an error of its sender.
//!
//! Cost: 2 (n - 1) packets; the longest chain has two packets a level. When not to use: within a host, where
//! `unisono-barrier` needs no packets. Reference: Mellor-Crummey and Scott, "Algorithms for scalable
//! synchronization on shared-memory multiprocessors" (1991), the combining tree.

use crate::model::{Error, Rank};
use crate::path::hook::{Hook, HookOutcome};
use crate::wire::packet::{Header, PacketKind, WirePacket};
use crate::wire::{Gone, Transport};
use std::fmt;
use std::io::IoSlice;
use std::time::Duration;
use unisono_linux::clock::now;

/// The meaning of a packet, in [`Header::extra`].
const ARRIVAL: u64 = 0;
const RELEASE: u64 = 1;
/// The member of rank [`Header::count`] is gone; the payload is the reason.
const LOST: u64 = 2;

/// One member's part in the barrier.
pub struct TreeBarrierMember {
    transport: Box<dyn Transport>,
    parent: Option<Rank>,
    children: Vec<Rank>,
    /// Whether each child has arrived in this episode.
    arrived: Vec<bool>,
    episode: u32,
    hook: Hook,
    lost: Option<Gone>,
    packet: Vec<u8>,
}

impl fmt::Debug for TreeBarrierMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeBarrierMember")
            .field("transport", &self.transport)
            .field("parent", &self.parent)
            .field("children", &self.children)
            .field("episode", &self.episode)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl TreeBarrierMember {
    /// Creates a member's part. `transport` reaches the member's parent and its children. Without a `parent`
    /// the member is the root.
    pub fn over(transport: impl Transport + 'static, parent: Option<Rank>, children: Vec<Rank>) -> Self {
        let arrived = vec![false; children.len()];
        Self {
            transport: Box::new(transport),
            parent,
            children,
            arrived,
            episode: 0,
            hook: Hook::default(),
            lost: None,
            packet: Vec::new(),
        }
    }

    /// Calls `hook` about once in `every` (1 us to 5 ms) while this member waits, as
    /// [`Job::while_waiting`](crate::Job::while_waiting) does.
    pub fn while_waiting(&mut self, every: Duration, hook: Box<dyn FnMut() -> HookOutcome + Send>) {
        self.hook.set(every.into(), false, hook);
    }

    /// Waits until every member has called this. Fails with [`Error::Gone`], in this and every later call, if
    /// a member cannot be reached any more, and with [`Error::System`].
    pub fn wait(&mut self) -> Result<(), Error> {
        if let Some(Gone { rank, why }) = self.lost.clone() {
            return Err(Error::Gone { rank, why });
        }
        self.wait_until(|barrier| barrier.arrived.iter().all(|arrived| *arrived))?;
        self.arrived.fill(false);
        if let Some(parent) = self.parent {
            self.send(parent, ARRIVAL)?;
            let episode = self.episode;
            self.wait_until(|barrier| barrier.episode != episode)?;
        } else {
            self.episode = self.episode.wrapping_add(1);
        }
        for at in 0..self.children.len() {
            self.send(self.children[at], RELEASE)?;
        }
        self.flush()
    }

    fn send(&mut self, to: Rank, meaning: u64) -> Result<(), Error> {
        // a release belongs to the episode that has just ended
        let tag = if meaning == RELEASE { self.episode.wrapping_sub(1) } else { self.episode };
        let header = Header { tag, extra: meaning, ..Header::new(PacketKind::Collect, 0) };
        self.transport.send(to, &header.encode(0), &[])
    }

    /// Waits until the kernel has accepted all releases: the program may make its next call much later.
    fn flush(&mut self) -> Result<(), Error> {
        while !self.transport.flush()? {
            self.transport.wait(None)?;
        }
        Ok(())
    }

    fn wait_until(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), Error> {
        let mut call_at = None;
        loop {
            // read first: the last packets of a peer that is gone by now are received below
            let gone = self.lost_neighbour();
            while let Some(from) = self.transport.receive(&mut self.packet)? {
                self.take(from)?;
            }
            if is_over(self) {
                return Ok(());
            }
            if let Some(gone) = gone {
                return Err(self.give_up(gone));
            }
            if self.lost_neighbour().is_some() {
                continue;
            }
            let due = *call_at.get_or_insert_with(|| self.hook.first_delay().map(|delay| now() + delay));
            self.transport.wait(due)?;
            if due.is_some_and(|due| now() >= due) {
                call_at = Some(self.hook.call_due().map(|delay| now() + delay));
            }
        }
    }

    /// Returns a neighbor that is gone. Members that are no neighbors are ignored: they may have left in an
    /// orderly way, after their last barrier.
    fn lost_neighbour(&self) -> Option<Gone> {
        let is_near = |rank: Rank| self.parent == Some(rank) || self.children.contains(&rank);
        self.transport.gone().iter().find(|gone| is_near(gone.rank)).cloned()
    }

    fn take(&mut self, from: Rank) -> Result<(), Error> {
        let packet = std::mem::take(&mut self.packet);
        let parsed = WirePacket::parse(&packet);
        let meant = parsed.as_ref().ok().filter(|packet| packet.header.kind == PacketKind::Collect);
        let child = self.children.iter().position(|child| *child == from);
        match meant.map(|packet| (packet.header.extra, packet.header.tag == self.episode)) {
            Some((ARRIVAL, true)) if child.is_some_and(|child| !self.arrived[child]) => {
                self.arrived[child.expect("some because of the guard")] = true;
            }
            Some((RELEASE, true)) if self.parent == Some(from) => {
                self.episode = self.episode.wrapping_add(1);
            }
            Some((LOST, _)) => {
                let packet = meant.expect("some because its meaning was read");
                let rank = Rank(u32::try_from(packet.header.count).unwrap_or(u32::MAX));
                let why = String::from_utf8_lossy(packet.payload).into_owned();
                return Err(self.give_up(Gone { rank, why }));
            }
            _ => self.transport.refuse(from, "it sent what belongs to no barrier"),
        }
        self.packet = packet;
        Ok(())
    }

    /// Informs the neighbors that a member is gone; returns the error.
    fn give_up(&mut self, gone: Gone) -> Error {
        let Gone { rank, why } = gone.clone();
        let header = Header { extra: LOST, count: rank.0.into(), ..Header::new(PacketKind::Collect, 0) }
            .encode(why.len());
        for neighbour in self.parent.iter().chain(&self.children).filter(|neighbour| **neighbour != rank) {
            // this rank's own error follows anyway
            let _ = self.transport.send(*neighbour, &header, &[IoSlice::new(why.as_bytes())]);
        }
        let _ = self.transport.flush();
        self.lost = Some(gone);
        Error::Gone { rank, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JobMembership, Key};
    use crate::wire::loopback::Loopback;
    use crate::wire::tcp::JobListener;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Generates the parents of members: the parent of member `n` is one of the members before it.
    fn parents() -> impl Strategy<Value = Vec<usize>> {
        (1_usize..9).prop_flat_map(|size| (1..size).map(|member| 0..member).collect::<Vec<_>>())
    }

    fn children(parents: &[usize], of: usize) -> Vec<Rank> {
        let with_parents = (1..).zip(parents);
        with_parents.filter(|(_, parent)| **parent == of).map(|(member, _)| Rank::at(member)).collect()
    }

    fn member(transport: impl Transport + 'static, parents: &[usize]) -> TreeBarrierMember {
        let own = transport.rank().index();
        let parent = own.checked_sub(1).map(|before| Rank::at(parents[before]));
        TreeBarrierMember::over(transport, parent, children(parents, own))
    }

    /// Runs episodes; checks that no member leaves one before all have entered it.
    fn run(members: Vec<TreeBarrierMember>, seed: u64) {
        const EPISODES: usize = 20;
        let entered: Vec<AtomicUsize> = members.iter().map(|_| AtomicUsize::new(0)).collect();
        thread::scope(|threads| {
            for (rank, mut member) in members.into_iter().enumerate() {
                let entered = &entered;
                threads.spawn(move || {
                    for episode in 1..=EPISODES {
                        if (seed >> ((rank + episode) % 64)) & 1 == 1 {
                            thread::sleep(Duration::from_micros(seed % 300));
                        }
                        entered[rank].store(episode, Ordering::Relaxed);
                        member.wait().expect("all are there");
                        for other in entered {
                            assert!(other.load(Ordering::Relaxed) >= episode, "left before all had entered");
                        }
                    }
                });
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn no_member_leaves_before_all_have_entered(parents in parents(), seed in any::<u64>()) {
            let ends = Loopback::job(parents.len() + 1);
            run(ends.into_iter().map(|end| member(end, &parents)).collect(), seed);
        }
    }

    #[test]
    fn members_over_tcp_connect_to_their_neighbours_alone() {
        let parents = [0, 0, 1, 1, 2];
        let key = Key::random().expect("random");
        let address = "127.0.0.1:0".parse().expect("an address");
        let listeners: Vec<JobListener> = (0..=parents.len())
            .map(|rank| JobMembership { rank: Rank::at(rank), size: parents.len() + 1, key })
            .map(|place| JobListener::bind(place, address).expect("a free port"))
            .collect();
        let addresses: Vec<_> = listeners.iter().map(JobListener::address).collect();
        let meet = |(rank, listener): (usize, JobListener)| {
            let mut near = children(&parents, rank);
            near.extend(rank.checked_sub(1).map(|before| Rank::at(parents[before])));
            member(listener.connect_neighbours(&addresses, &near, TIMEOUT).expect("all meet"), &parents)
        };
        let members = thread::scope(|threads| {
            let meeting: Vec<_> =
                listeners.into_iter().enumerate().map(|one| threads.spawn(|| meet(one))).collect();
            meeting.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        run(members, 0x5555_aaaa_1234_0000);
    }

    #[test]
    fn all_members_name_the_one_that_is_gone() {
        let parents = [0, 1, 2, 3];
        let mut members: Vec<TreeBarrierMember> =
            Loopback::job(5).into_iter().map(|end| member(end, &parents)).collect();
        drop(members.remove(3));
        let errors: Vec<String> = thread::scope(|threads| {
            let waiting: Vec<_> = members
                .iter_mut()
                .map(|member| threads.spawn(|| member.wait().expect_err("one is gone").to_string()))
                .collect();
            waiting.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for error in errors {
            assert!(error.starts_with("rank 3 is gone (its end was dropped)"), "{error}");
        }
        let again = members[0].wait().expect_err("for ever").to_string();
        assert!(again.starts_with("rank 3 is gone"), "{again}");
    }
}
