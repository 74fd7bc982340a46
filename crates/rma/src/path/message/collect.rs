//! Barrier and gather over messages: for making windows, and for the naive fence.
//!
//! The barrier is hierarchical ([`super::hosts`]): the ranks of a host arrive at its first rank along a tree,
//! the first ranks run dissemination (Hensgen, Finkel, Manber 1988), and the tree releases the ranks. In
//! round k of dissemination each first rank signals that of the host 2^k further on, so that after ceil(log2
//! h) rounds each of the h hosts has a signal from all others, directly or through others. A gather sends to
//! all. Cost of a barrier: ceil(log2 h) messages to other hosts for each host, and two messages within a host
//! for each rank but its first. Cost of a gather for each of n members: n - 1 messages.

use super::{EngineState, MessageEngine};
use crate::model::{Error, Rank};
use crate::wire::packet::{Header, PacketKind};
use std::sync::Arc;

/// Whether a member has to serve packets while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketServing {
    Needed,
    Unneeded,
}

impl EngineState {
    /// Returns the number of the next collective call of the job (0) or of a window that
    /// [`new_window`](Self::new_window) numbered.
    fn next_collection(&mut self, window: u32) -> u32 {
        let number = self.collections.entry(window).or_insert(0);
        *number = number.wrapping_add(1);
        *number
    }

    /// Keeps a contribution until this member reaches the contribution's round.
    ///
    /// No member is further ahead than the next collective call: a member that leaves a call knows that this
    /// member is in it. So a peer breaks the protocol if it contributes to any other call, or to a round or a
    /// window that does not exist, or if it contributes data to a barrier. This bounds the contributions kept
    /// for each peer.
    pub(super) fn take_contribution(
        &mut self,
        from: Rank,
        header: &Header,
        data: &[u8],
    ) -> Result<(), String> {
        let Header { window, tag, extra: round, .. } = *header;
        let number = *self.collections.get(&window).ok_or("a contribution to a window that is none")?;
        let last_round = u64::from(self.size.next_power_of_two().ilog2()).saturating_sub(1);
        if tag.wrapping_sub(number) > 1 || round > last_round {
            return Err("a contribution that no call asks for".to_owned());
        }
        if !data.is_empty() && (window != 0 || round > 0) {
            return Err("data at a barrier".to_owned());
        }
        self.collected.insert((window, tag, round, from), data.to_vec());
        Ok(())
    }

    /// Forgets a window that all members have freed. A peer that names it afterwards breaks the protocol.
    pub(crate) fn forget_window(&mut self, window: u32) {
        self.collections.remove(&window);
        self.collected.retain(|(other, ..), _| *other != window);
    }

    fn contribute(&mut self, to: Rank, window: u32, tag: u32, round: u64, data: &[u8]) -> Result<(), Error> {
        let header = Header { tag, extra: round, ..Header::new(PacketKind::Collect, window) };
        self.send(to, &header, data)
    }
}

impl MessageEngine {
    /// Completes exclusive unlocks before a barrier in shared memory. Returns whether this member has to
    /// serve packets while it waits there: others may wait for its windows, or for packets that it keeps.
    pub(crate) fn prepare_barrier(&self) -> Result<PacketServing, Error> {
        let mut core = self.core();
        if core.ports.is_empty() && core.transport.flush()? {
            return Ok(PacketServing::Unneeded);
        }
        drop(core);
        self.await_unlocks(None)?;
        Ok(PacketServing::Needed)
    }

    /// Returns once every member has called this for `window` (0 stands for the job), and all earlier
    /// exclusive unlocks are complete.
    pub(crate) fn barrier(&self, window: u32) -> Result<(), Error> {
        self.await_unlocks(None)?;
        let (tag, hosts) = {
            let mut core = self.core();
            (core.next_collection(window), Arc::clone(&core.hosts))
        };
        // No two signals of one rank to another in this call have the same round.
        let signal = |to: Rank, round: u64| self.core().contribute(to, window, tag, round, &[]);
        let await_signal = |from: Rank, round: u64| {
            self.wait_for(|core| Ok(core.collected.remove(&(window, tag, round, from)))).map(drop)
        };
        hosts.children.iter().try_for_each(|subtree| await_signal(subtree[0], 0))?;
        if let Some(parent) = hosts.parent {
            signal(parent, 0)?;
            await_signal(parent, 0)?;
        } else {
            let (first, host) = (&hosts.first, hosts.host());
            let (mut distance, mut round) = (1, 0);
            while distance < first.len() {
                signal(first[(host + distance) % first.len()], round)?;
                await_signal(first[(host + first.len() - distance) % first.len()], round)?;
                (distance, round) = (2 * distance, round + 1);
            }
        }
        // The largest subtree has the longest way to its last rank.
        hosts.children.iter().rev().try_for_each(|subtree| signal(subtree[0], 0))
    }

    /// Returns the `data` of all members, in the order of ranks.
    pub(crate) fn gather(&self, data: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.await_unlocks(None)?;
        let (tag, rank, size) = {
            let mut core = self.core();
            if data.len() > core.transport.max_payload() {
                return Err(Error::Count { count: data.len() as u64, bytes: 1 });
            }
            let (tag, rank, size) = (core.next_collection(0), core.rank, core.size);
            for peer in (0..size).map(Rank::at).filter(|peer| *peer != rank) {
                core.contribute(peer, 0, tag, 0, data)?;
            }
            (tag, rank, size)
        };
        let mut all = vec![None; size];
        all[rank.index()] = Some(data.to_vec());
        self.wait_for(|core| {
            for (index, place) in all.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
                *place = core.collected.remove(&(0, tag, 0, Rank::at(index)));
            }
            Ok(all.iter().all(Option::is_some).then_some(()))
        })?;
        Ok(all.into_iter().flatten().collect())
    }
}
