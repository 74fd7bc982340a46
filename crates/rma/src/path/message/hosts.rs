//! The hosts of a job, and the tree along which the ranks of one host meet.
//!
//! A message within a host is a few stores; a message between hosts takes the network. So the barrier and the
//! reduce-scatter of fences are hierarchical: the ranks of a host combine along a binomial tree, the hosts'
//! first ranks run the algorithm of the flat call among themselves, and the result goes down the trees.
//!
//! ```text
//!   places on a host:   0 <-- 1            The parent's place is the own one without its lowest set bit, so
//!                       0 <-- 2 <-- 3      the ranks below a rank have the places that follow.
//!                       0 <-- 4 <-- 5
//! ```
//! A launcher passes to each rank the ranks of its own host only. So the members exchange them once, when
//! they join ([`MessageEngine::learn_hosts`]). Before, and if all ranks share one host, each rank counts as a
//! host of its own: no rank has a parent, and the calls are flat.
//!
//! Cost: n - 1 messages of each of n members, once. When not to use: for transports to which all ranks are
//! equally near. Reference: Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, "Exploiting hierarchy in
//! parallel computer networks to optimize collective operation performance" (IPDPS 2000); MPICH calls such a
//! barrier SMP-aware (`MPIR_Barrier_intra_smp`).

use super::MessageEngine;
use crate::model::{Error, Rank};
use std::sync::Arc;

/// One member's place among the hosts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HostTree {
    /// The first rank of each host, in the order of ranks.
    pub(super) first: Vec<Rank>,
    /// The host of each rank: its place in `first`.
    pub(super) host_of: Vec<usize>,
    /// `None` for the first rank of a host.
    pub(super) parent: Option<Rank>,
    /// This rank, and the ranks below it.
    pub(super) subtree: Vec<Rank>,
    /// The subtrees of the children, smallest first. Each begins with the child.
    pub(super) children: Vec<Vec<Rank>>,
}

impl HostTree {
    /// Makes each rank a host of its own.
    pub(super) fn flat(own: Rank, size: usize) -> Self {
        Self {
            first: (0..size).map(Rank::at).collect(),
            host_of: (0..size).collect(),
            parent: None,
            subtree: vec![own],
            children: Vec::new(),
        }
    }

    /// `first_of` has for each rank the first rank of its host. Returns `None` if that is impossible.
    pub(super) fn new(own: Rank, first_of: &[Rank]) -> Option<Self> {
        let ranks = || (0..first_of.len()).map(Rank::at);
        if ranks().any(|rank| first_of[rank.index()] > rank) {
            return None;
        }
        let first: Vec<Rank> = ranks().filter(|rank| first_of[rank.index()] == *rank).collect();
        let host_of = first_of.iter().map(|rank| first.binary_search(rank).ok());
        let host_of: Vec<usize> = host_of.collect::<Option<_>>()?;
        if first.len() == 1 {
            return Some(Self::flat(own, first_of.len()));
        }
        let is_here = |rank: &Rank| host_of[rank.index()] == host_of[own.index()];
        let here: Vec<Rank> = ranks().filter(is_here).collect();
        let place = here.binary_search(&own).ok()?;
        let limit = if place == 0 { here.len() } else { 1 << place.trailing_zeros() };
        let end = here.len().min(place + limit);
        let mut children = Vec::new();
        let mut distance = 1;
        while place + distance < end {
            children.push(here[place + distance..end.min(place + 2 * distance)].to_vec());
            distance *= 2;
        }
        let parent = (place > 0).then(|| here[place & (place - 1)]);
        Some(Self { first, host_of, parent, subtree: here[place..end].to_vec(), children })
    }

    /// Returns this rank's host, as its place in `first`.
    pub(super) fn host(&self) -> usize {
        self.host_of[self.subtree[0].index()]
    }
}

impl MessageEngine {
    /// Learns which ranks share a host; collective, before any other call. `first` is the first rank of this
    /// member's host.
    pub(crate) fn learn_hosts(&self, first: Rank) -> Result<(), Error> {
        let told = self.gather(&first.0.to_le_bytes())?;
        let first_of: Option<Vec<Rank>> = told
            .iter()
            .map(|bytes| bytes.first_chunk::<4>().map(|bytes| Rank(u32::from_le_bytes(*bytes))))
            .collect();
        let mut core = self.core();
        let hosts = first_of.and_then(|first_of| HostTree::new(core.rank, &first_of));
        let wrong = || {
            let problem = "the ranks disagree about which of them share a host; UNISONO_HERE or SLURM_GTIDS \
                           has a wrong list at one of them";
            Error::Job(problem.to_owned())
        };
        core.hosts = Arc::new(hosts.ok_or_else(wrong)?);
        Ok(())
    }
}
