//! Fence: a reduce-scatter at the beginning of the fence that ends an epoch, and no barrier.
//!
//! ```text
//!   fence        put  put  put      fence
//!   nothing      queue              reduce-scatter: how many ranks will access this one?
//!                                   send the queue, the last operation to each target marked
//!                                   wait for that number of marks, and for this rank's answers
//! ```
//! No origin accesses a window too early. The result of the reduce-scatter depends on the contribution of
//! every rank, and a rank contributes when it calls the fence that ends the epoch. No target leaves too
//! early: it counts marks. A mark may arrive before the count is known; the counter is then below zero for a
//! while.
//!
//! Cost for each of n members: at most ceil(log2 n) + 2 messages for the reduce-scatter (recursive halving,
//! Rabenseifner 2004), and the operations. In a job on h hosts the ranks of a host add up their vectors along
//! its tree ([`super::hosts`]), and only the hosts' first ranks halve: each sends at most ceil(log2 h) + 2
//! messages to other hosts, and each other rank costs two messages within its host. In the naive form each
//! fence completes all operations, waits for their acknowledgements, and ends with a barrier. Reference: the
//! paper, section 4.1.

use super::hosts::HostTree;
use super::port::{FOLD, RESULT, TargetState};
use super::{EngineState, MessageEngine};
use crate::memory::op::Op;
use crate::model::{Error, Rank};
use crate::wire::packet::{Header, PacketFlags, PacketKind};
use std::sync::Arc;

impl MessageEngine {
    /// Does a fence that ends an epoch, in the deferred form.
    pub(crate) fn fence(&self, window: u32) -> Result<(), Error> {
        let (epoch, queues, hosts) = {
            let mut core = self.core();
            let hosts = Arc::clone(&core.hosts);
            let port = core.port(window);
            port.epoch = port.epoch.wrapping_add(1);
            let take = |peer: &mut TargetState| std::mem::take(&mut peer.queue);
            let queues: Vec<Vec<Op>> = port.peers.iter_mut().map(take).collect();
            (port.epoch, queues, hosts)
        };
        let accesses: Vec<u32> = queues.iter().map(|queue| u32::from(!queue.is_empty())).collect();
        let expected = self.reduce_scatter(window, epoch, &hosts, accesses)?;
        {
            let mut core = self.core();
            core.port(window).fence_done -= i64::from(expected);
            let marks = PacketFlags::LAST.with(PacketFlags::FENCE);
            for (target, queue) in queues.into_iter().enumerate().filter(|(_, queue)| !queue.is_empty()) {
                core.send_all(window, Rank::at(target), queue, marks, 0)?;
            }
        }
        self.wait_for(|core| {
            let port = core.port(window);
            let answered = port.peers.iter().all(|peer| peer.outstanding == 0);
            if !answered || port.fence_done != 0 {
                return Ok(None);
            }
            port.refused.take().map_or(Ok(Some(())), Err)
        })
    }

    /// Does a fence in the naive form: completes all operations at all targets, and then waits in a barrier.
    pub(crate) fn naive_fence(&self, window: u32) -> Result<(), Error> {
        let refusal = self.complete_everywhere(window);
        match &refusal {
            Err(error) if !error.ends_epoch() => return refusal,
            _ => self.barrier(window)?,
        }
        refusal
    }

    /// Returns the sum of all members' entries for this member.
    pub(super) fn reduce_scatter(
        &self,
        window: u32,
        epoch: u32,
        hosts: &HostTree,
        mut vector: Vec<u32>,
    ) -> Result<u32, Error> {
        for subtree in &hosts.children {
            let theirs = self.receive_counts(window, epoch, FOLD, subtree[0], vector.len())?;
            add(&mut vector, &theirs);
        }
        match hosts.parent {
            Some(parent) => self.fold(window, epoch, hosts, parent, &mut vector)?,
            None => self.reduce_among_hosts(window, epoch, hosts, &mut vector)?,
        }
        for subtree in hosts.children.iter().rev() {
            let sums: Vec<u32> = subtree.iter().map(|rank| vector[rank.index()]).collect();
            self.core().send_counts(window, epoch, RESULT, subtree[0], &sums)?;
        }
        Ok(vector[hosts.subtree[0].index()])
    }

    /// Lends the vector to `partner`, and stores the sums for this rank and for those below it.
    fn fold(
        &self,
        window: u32,
        epoch: u32,
        hosts: &HostTree,
        partner: Rank,
        vector: &mut [u32],
    ) -> Result<(), Error> {
        self.core().send_counts(window, epoch, FOLD, partner, vector)?;
        let sums = self.receive_counts(window, epoch, RESULT, partner, hosts.subtree.len())?;
        for (rank, sum) in hosts.subtree.iter().zip(sums) {
            vector[rank.index()] = sum;
        }
        Ok(())
    }

    /// Turns the sums of this host's ranks into the sums of all, for the ranks of this host. Called by the
    /// first rank of each host.
    fn reduce_among_hosts(
        &self,
        window: u32,
        epoch: u32,
        hosts: &HostTree,
        vector: &mut [u32],
    ) -> Result<(), Error> {
        let (first, host) = (&hosts.first, hosts.host());
        let half = 1_usize << first.len().ilog2();
        if host >= half {
            // The hosts from the largest power of two on lend their vectors to a partner, and receive their
            // results from it.
            return self.fold(window, epoch, hosts, first[host - half], vector);
        }
        let folded = first.get(host + half).copied();
        if let Some(partner) = folded {
            let lent = self.receive_counts(window, epoch, FOLD, partner, vector.len())?;
            add(vector, &lent);
        }
        // Each step halves the set of hosts whose sums are kept here: those whose numbers agree with this
        // host's in the bits seen so far.
        let ranks = 0..vector.len();
        let mut distance = half / 2;
        let mut seen = 0;
        while distance > 0 {
            let partner = host ^ distance;
            let mask = seen | distance;
            let agrees = |rank: usize, with: usize| (hosts.host_of[rank] % half) & mask == with & mask;
            let theirs: Vec<u32> =
                ranks.clone().filter(|rank| agrees(*rank, partner)).map(|rank| vector[rank]).collect();
            self.core().send_counts(window, epoch, distance as i64, first[partner], &theirs)?;
            let ours: Vec<usize> = ranks.clone().filter(|rank| agrees(*rank, host)).collect();
            let came = self.receive_counts(window, epoch, distance as i64, first[partner], ours.len())?;
            for (rank, count) in ours.into_iter().zip(came) {
                vector[rank] += count;
            }
            (seen, distance) = (mask, distance / 2);
        }
        if let Some(partner) = folded {
            let is_theirs = |rank: &usize| hosts.host_of[*rank] == host + half;
            let sums: Vec<u32> = ranks.filter(is_theirs).map(|rank| vector[rank]).collect();
            self.core().send_counts(window, epoch, RESULT, partner, &sums)?;
        }
        Ok(())
    }

    fn receive_counts(
        &self,
        window: u32,
        epoch: u32,
        round: i64,
        from: Rank,
        length: usize,
    ) -> Result<Vec<u32>, Error> {
        let bytes = self.wait_for(|core| Ok(core.port(window).counts.remove(&(epoch, round, from))))?;
        let (words, rest) = bytes.as_chunks::<4>();
        if words.len() != length || !rest.is_empty() {
            let mut core = self.core();
            core.transport.refuse(from, "it broke the protocol: a fence count of another length");
            core.check_gone()?;
        }
        let mut counts: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        counts.resize(length, 0);
        Ok(counts)
    }
}

fn add(vector: &mut [u32], other: &[u32]) {
    for (sum, count) in vector.iter_mut().zip(other) {
        *sum = sum.wrapping_add(*count);
    }
}

impl EngineState {
    fn send_counts(
        &mut self,
        window: u32,
        epoch: u32,
        round: i64,
        to: Rank,
        counts: &[u32],
    ) -> Result<(), Error> {
        let header = Header { tag: epoch, offset: round, ..Header::new(PacketKind::FenceCount, window) };
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        self.send(to, &header, &bytes)
    }
}
