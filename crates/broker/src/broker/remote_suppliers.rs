//! Remote suppliers: suppliers of other brokers, for which programs of this broker publish.
//!
//! A remote supplier is identified by the run of its broker, its number there and its topic. Programs of one
//! identity that publish for the same remote supplier are one supplier of the channel. So an event that
//! arrives through two joins of a host is delivered once: the channel recognizes the second copy by its
//! sequence number.
//!
//! When the last of these programs has gone, consumers are notified, and the number of the last event is
//! kept. If a program publishes for the same supplier again, as a restarted join does, consumers get a notice
//! with the numbers that they missed.
//!
//! Cost: a look-up when a program advertises or closes a topic, and a scan of all departed suppliers when one
//! comes back; nothing per event. The records of departed suppliers take at most [`MAX_KEPT`] bytes; beyond
//! that, the oldest records are dropped.

use crate::permissions::ClientIdentity;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use unisono_eventchannel::{NumberMap, SupplierId, TopicId};
use unisono_events_wire::RemoteSupplier;

/// Maximum bytes of the records of departed suppliers: some thousand suppliers with topic names of usual
/// length. Chosen, not measured.
const MAX_KEPT: usize = 1 << 20;
/// Estimated bytes of one record besides the name of its topic.
const ENTRY: usize = 128;

/// A remote supplier on one topic. The identity is part of the key, so that no identity can publish for
/// another one's supplier.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RemoteName {
    pub(super) who: ClientIdentity,
    pub(super) origin: RemoteSupplier,
    pub(super) topic: Arc<str>,
}

impl RemoteName {
    fn bytes(&self) -> usize {
        ENTRY + self.topic.len()
    }
}

#[derive(Clone, Copy, Debug)]
enum RemoteState {
    /// `outlets` outlets publish as this supplier of the channel.
    Here { supplier: SupplierId, topic: TopicId, outlets: usize },
    /// No program publishes for it; `last`: the number of its last event.
    Gone { last: u64 },
}

/// All remote suppliers.
#[derive(Debug, Default)]
pub(super) struct RemoteSuppliers {
    known: HashMap<RemoteName, RemoteState>,
    here: NumberMap<SupplierId, RemoteName>,
    /// Departed suppliers, the earliest first.
    gone: VecDeque<RemoteName>,
    /// Bytes of `gone`.
    kept: usize,
}

impl RemoteSuppliers {
    /// Adds a program to the programs that publish for a remote supplier, and returns the channel's supplier,
    /// if another program already publishes for it.
    pub(super) fn join(&mut self, name: &RemoteName, of: TopicId) -> Option<SupplierId> {
        match self.known.get_mut(name) {
            Some(RemoteState::Here { supplier, topic, outlets }) if *topic == of => {
                *outlets += 1;
                Some(*supplier)
            }
            _ => None,
        }
    }

    /// Records the first program that publishes for a remote supplier, as this supplier of the channel.
    /// Returns the number of the remote supplier's last event; 0: none is known.
    pub(super) fn begin(&mut self, name: RemoteName, supplier: SupplierId, topic: TopicId) -> u64 {
        let state = RemoteState::Here { supplier, topic, outlets: 1 };
        let before = self.known.insert(name.clone(), state);
        let Some(RemoteState::Gone { last }) = before else {
            self.here.insert(supplier, name);
            return 0;
        };
        self.kept -= name.bytes();
        self.gone.retain(|other| *other != name);
        self.here.insert(supplier, name);
        last
    }

    /// Returns whether a supplier of the channel is a remote one.
    pub(super) fn is_remote(&self, supplier: SupplierId) -> bool {
        self.here.contains_key(&supplier)
    }

    /// Records that an outlet of a supplier is closed. Returns whether it was the last one; always true for
    /// local suppliers.
    pub(super) fn leave(&mut self, supplier: SupplierId, last: impl FnOnce() -> u64) -> bool {
        let Some(name) = self.here.get(&supplier) else { return true };
        if let Some(RemoteState::Here { outlets, .. }) = self.known.get_mut(name)
            && *outlets > 1
        {
            *outlets -= 1;
            return false;
        }
        if let Some(name) = self.here.remove(&supplier) {
            self.kept += name.bytes();
            self.known.insert(name.clone(), RemoteState::Gone { last: last() });
            self.gone.push_back(name);
        }
        while self.kept > MAX_KEPT {
            let Some(name) = self.gone.pop_front() else { break };
            self.kept -= name.bytes();
            self.known.remove(&name);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(supplier: u32) -> RemoteName {
        let origin = RemoteSupplier { run: 7, supplier };
        RemoteName { who: ClientIdentity::Unix(0), origin, topic: "t".into() }
    }

    proptest! {
        /// The slow model keeps every record, and shares no supplier.
        #[test]
        fn the_last_number_is_kept_once_all_have_left(steps in proptest::collection::vec((0_u32..4, any::<bool>()), 1..80)) {
            let (mut remote, mut outlets) = (RemoteSuppliers::default(), Vec::<(u32, SupplierId)>::new());
            let (mut last, mut numbers, mut events) = ([0_u64; 4], 0, 0);
            for (which, comes) in steps {
                let at = which as usize;
                if comes {
                    let of = outlets.iter().find(|(of, _)| *of == which).map(|(_, supplier)| *supplier);
                    let joined = remote.join(&name(which), TopicId(which));
                    prop_assert_eq!(joined, of);
                    numbers += 1;
                    let supplier = joined.unwrap_or(SupplierId(numbers));
                    if joined.is_none() {
                        prop_assert_eq!(remote.begin(name(which), supplier, TopicId(which)), last[at]);
                    }
                    outlets.push((which, supplier));
                } else if let Some(place) = outlets.iter().position(|(of, _)| *of == which) {
                    let (_, supplier) = outlets.swap_remove(place);
                    events += 1;
                    let alone = !outlets.iter().any(|(of, _)| *of == which);
                    prop_assert_eq!(remote.leave(supplier, || events), alone);
                    if alone {
                        last[at] = events;
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_kept_of_those_that_have_gone_is_bounded() {
        let mut remote = RemoteSuppliers::default();
        for number in 1..=100_000 {
            remote.begin(name(number), SupplierId(number), TopicId(1));
            assert!(remote.leave(SupplierId(number), || 9));
        }
        let most = MAX_KEPT / (ENTRY + 1);
        assert_eq!((remote.known.len(), remote.gone.len(), remote.here.len()), (most, most, 0));
        assert_eq!(remote.begin(name(100_000), SupplierId(1), TopicId(1)), 9, "the last ones are known");
        assert_eq!(remote.begin(name(1), SupplierId(2), TopicId(1)), 0);
    }
}
