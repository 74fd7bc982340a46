//! Suppliers of other brokers, for whom programs of this one publish.
//!
//! Such a supplier is known by the run of its broker, its number there and its topic. Programs of one user
//! that publish for the same one are one supplier of the channel. So an event that two joins of a host bring
//! is delivered once: for the channel the second one is a duplicate, by its number.
//!
//! When the last of these programs has gone, consumers are told, and the number of the last event is kept. If
//! a program publishes for the same supplier again, as a join that was restarted does, consumers are told
//! which numbers they missed.
//!
//! Cost: a look-up when a program advertises a topic or closes it, and a look at all that have gone when one
//! comes back; nothing for an event. What is kept of those
//! that have gone takes [`MOST_KEPT`] bytes at most; beyond, the ones that went first are forgotten.

use crate::permissions::ClientIdentity;
use crate::spec::RemoteSupplier;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use unisono_eventchannel::{NumberMap, SupplierId, TopicId};

/// Bytes of what is kept of suppliers that have gone, at most: some thousand suppliers with topics of usual
/// names. Chosen, not measured.
const MOST_KEPT: usize = 1 << 20;
/// What one takes beside the name of its topic, as an estimate of the maps' entries.
const ENTRY: usize = 128;

/// A supplier of another broker on one topic. One user cannot publish for those of another one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FarName {
    pub(super) who: ClientIdentity,
    pub(super) origin: RemoteSupplier,
    pub(super) topic: Arc<str>,
}

impl FarName {
    fn bytes(&self) -> usize {
        ENTRY + self.topic.len()
    }
}

#[derive(Clone, Copy, Debug)]
enum FarState {
    /// So many outlets publish as this supplier of the channel.
    Here { supplier: SupplierId, topic: TopicId, outlets: usize },
    /// Nobody publishes for it; the number of its last event.
    Gone { last: u64 },
}

/// All suppliers of other brokers.
#[derive(Debug, Default)]
pub(super) struct FarSuppliers {
    known: HashMap<FarName, FarState>,
    here: NumberMap<SupplierId, FarName>,
    /// Those that have gone; the one that went first in front.
    gone: VecDeque<FarName>,
    /// What `gone` takes.
    kept: usize,
}

impl FarSuppliers {
    /// A program wants to publish for one: as which supplier, if another program does.
    pub(super) fn join(&mut self, name: &FarName, of: TopicId) -> Option<SupplierId> {
        match self.known.get_mut(name) {
            Some(FarState::Here { supplier, topic, outlets }) if *topic == of => {
                *outlets += 1;
                Some(*supplier)
            }
            _ => None,
        }
    }

    /// A program publishes for one as this supplier. The number of the last event that came from it before;
    /// 0: none that is known.
    pub(super) fn begin(&mut self, name: FarName, supplier: SupplierId, topic: TopicId) -> u64 {
        let state = FarState::Here { supplier, topic, outlets: 1 };
        let before = self.known.insert(name.clone(), state);
        let Some(FarState::Gone { last }) = before else {
            self.here.insert(supplier, name);
            return 0;
        };
        self.kept -= name.bytes();
        self.gone.retain(|other| *other != name);
        self.here.insert(supplier, name);
        last
    }

    /// An outlet of a supplier is closed; whether it was the last one. True also for suppliers of here.
    pub(super) fn leave(&mut self, supplier: SupplierId, last: impl FnOnce() -> u64) -> bool {
        let Some(name) = self.here.get(&supplier) else { return true };
        if let Some(FarState::Here { outlets, .. }) = self.known.get_mut(name)
            && *outlets > 1
        {
            *outlets -= 1;
            return false;
        }
        if let Some(name) = self.here.remove(&supplier) {
            self.kept += name.bytes();
            self.known.insert(name.clone(), FarState::Gone { last: last() });
            self.gone.push_back(name);
        }
        while self.kept > MOST_KEPT {
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

    fn name(supplier: u32) -> FarName {
        let origin = RemoteSupplier { run: 7, supplier };
        FarName { who: ClientIdentity::Unix(0), origin, topic: "t".into() }
    }

    proptest! {
        /// The slow one keeps everything, and has no supplier in common.
        #[test]
        fn the_last_number_is_kept_once_all_have_left(steps in proptest::collection::vec((0_u32..4, any::<bool>()), 1..80)) {
            let (mut far, mut outlets) = (FarSuppliers::default(), Vec::<(u32, SupplierId)>::new());
            let (mut last, mut numbers, mut events) = ([0_u64; 4], 0, 0);
            for (which, comes) in steps {
                let at = which as usize;
                if comes {
                    let of = outlets.iter().find(|(of, _)| *of == which).map(|(_, supplier)| *supplier);
                    let joined = far.join(&name(which), TopicId(which));
                    prop_assert_eq!(joined, of);
                    numbers += 1;
                    let supplier = joined.unwrap_or(SupplierId(numbers));
                    if joined.is_none() {
                        prop_assert_eq!(far.begin(name(which), supplier, TopicId(which)), last[at]);
                    }
                    outlets.push((which, supplier));
                } else if let Some(place) = outlets.iter().position(|(of, _)| *of == which) {
                    let (_, supplier) = outlets.swap_remove(place);
                    events += 1;
                    let alone = !outlets.iter().any(|(of, _)| *of == which);
                    prop_assert_eq!(far.leave(supplier, || events), alone);
                    if alone {
                        last[at] = events;
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_kept_of_those_that_have_gone_is_bounded() {
        let mut far = FarSuppliers::default();
        for number in 1..=100_000 {
            far.begin(name(number), SupplierId(number), TopicId(1));
            assert!(far.leave(SupplierId(number), || 9));
        }
        let most = MOST_KEPT / (ENTRY + 1);
        assert_eq!((far.known.len(), far.gone.len(), far.here.len()), (most, most, 0));
        assert_eq!(far.begin(name(100_000), SupplierId(1), TopicId(1)), 9, "the last ones are known");
        assert_eq!(far.begin(name(1), SupplierId(2), TopicId(1)), 0);
    }
}
