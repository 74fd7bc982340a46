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
//! Rabenseifner 2004), and the operations. In the naive form each fence completes all operations, waits for
//! their acknowledgements, and ends with a barrier. Reference: the paper, section 4.1.

use super::port::{FOLD, RESULT, TargetState};
use super::{EngineState, MessageEngine};
use crate::memory::op::Op;
use crate::model::{Error, Rank};
use crate::wire::packet::{Header, PacketFlags, PacketKind};

impl MessageEngine {
    /// Does a fence that ends an epoch, in the deferred form.
    pub(crate) fn fence(&self, window: u32) -> Result<(), Error> {
        let (epoch, queues, size, rank) = {
            let mut core = self.core();
            let (size, rank) = (core.size, core.rank);
            let port = core.port(window);
            port.epoch = port.epoch.wrapping_add(1);
            let take = |peer: &mut TargetState| std::mem::take(&mut peer.queue);
            let queues: Vec<Vec<Op>> = port.peers.iter_mut().map(take).collect();
            (port.epoch, queues, size, rank)
        };
        let accesses: Vec<u32> = queues.iter().map(|queue| u32::from(!queue.is_empty())).collect();
        let expected = self.reduce_scatter(window, epoch, rank.index(), size, accesses)?;
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
    fn reduce_scatter(
        &self,
        window: u32,
        epoch: u32,
        rank: usize,
        size: usize,
        mut vector: Vec<u32>,
    ) -> Result<u32, Error> {
        if size == 1 {
            return Ok(0);
        }
        let half = 1 << size.ilog2();
        if rank >= half {
            // The ranks from the largest power of two on send their vectors to a partner, and receive their
            // result from it.
            self.core().send_counts(window, epoch, FOLD, rank - half, &vector)?;
            let result = self.receive_counts(window, epoch, RESULT, rank - half, 1)?;
            return Ok(result[0]);
        }
        if rank + half < size {
            let lent = self.receive_counts(window, epoch, FOLD, rank + half, size)?;
            add(&mut vector, &lent);
        }
        // Each step halves the set of members whose sums are kept here: those whose ranks agree with this
        // rank in the bits seen so far.
        let mut distance = half / 2;
        let mut seen = 0;
        while distance > 0 {
            let partner = rank ^ distance;
            let mask = seen | distance;
            let of = |who: usize| move |index: &usize| (index % half) & mask == who & mask;
            let theirs: Vec<u32> = (0..size).filter(of(partner)).map(|index| vector[index]).collect();
            self.core().send_counts(window, epoch, distance as i64, partner, &theirs)?;
            let ours: Vec<usize> = (0..size).filter(of(rank)).collect();
            let came = self.receive_counts(window, epoch, distance as i64, partner, ours.len())?;
            for (index, count) in ours.into_iter().zip(came) {
                vector[index] += count;
            }
            (seen, distance) = (mask, distance / 2);
        }
        if rank + half < size {
            self.core().send_counts(
                window,
                epoch,
                RESULT,
                rank + half,
                &vector[rank + half..=rank + half],
            )?;
        }
        Ok(vector[rank])
    }

    fn receive_counts(
        &self,
        window: u32,
        epoch: u32,
        round: i64,
        from: usize,
        length: usize,
    ) -> Result<Vec<u32>, Error> {
        let from = Rank::at(from);
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
        to: usize,
        counts: &[u32],
    ) -> Result<(), Error> {
        let header = Header { tag: epoch, offset: round, ..Header::new(PacketKind::FenceCount, window) };
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        self.send(Rank::at(to), &header, &bytes)
    }
}
