//! The subscriptions with the same pattern and the same filter. One subscription of each owner matches on
//! behalf of all the owner's equal ones.
//!
//! An owner is an inbox. Equal subscriptions of one inbox ask for the same events, and the inbox gets each
//! event once. So an event matches the owner's first subscription alone, and a thousand equal subscriptions
//! cost a publisher no more than one.

use crate::member_list::MemberList;
use crate::number_map::NumberMap;
use std::collections::BTreeSet;

/// Whether a change of the subscriptions changes the owners of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AudienceChange {
    Unchanged,
    Changed,
}

#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    /// The subscriptions that match: the first of each owner, and all without an owner.
    first: MemberList,
    /// Each owner with its first subscription.
    of_owner: MemberList<(u32, u32)>,
    /// The further subscriptions of owners.
    equal: NumberMap<u32, BTreeSet<u32>>,
}

impl Subscribers {
    pub(crate) fn as_slice(&self) -> &[u32] {
        self.first.as_slice()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn first_of(&self, owner: u32) -> Option<u32> {
        let owners = self.of_owner.as_slice();
        owners.binary_search_by_key(&owner, |(owner, _)| *owner).ok().map(|at| owners[at].1)
    }

    pub(crate) fn insert(&mut self, owner: Option<u32>, subscription: u32) -> AudienceChange {
        if let Some(owner) = owner {
            if self.first_of(owner).is_some() {
                self.equal.entry(owner).or_default().insert(subscription);
                return AudienceChange::Unchanged;
            }
            self.of_owner.insert((owner, subscription));
        }
        self.first.insert(subscription);
        AudienceChange::Changed
    }

    pub(crate) fn remove(&mut self, owner: Option<u32>, subscription: u32) -> AudienceChange {
        let Some(owner) = owner else {
            self.first.remove(subscription);
            return AudienceChange::Changed;
        };
        let is_first = self.first_of(owner) == Some(subscription);
        let mut next = None;
        if let Some(equal) = self.equal.get_mut(&owner) {
            if is_first {
                next = equal.pop_first();
            } else {
                equal.remove(&subscription);
            }
            if equal.is_empty() {
                self.equal.remove(&owner);
            }
        }
        if !is_first {
            return AudienceChange::Unchanged;
        }
        self.first.remove(subscription);
        self.of_owner.remove((owner, subscription));
        match next {
            Some(next) => {
                self.of_owner.insert((owner, next));
                self.first.insert(next);
                AudienceChange::Unchanged
            }
            None => AudienceChange::Changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_owner_matches_once_while_it_has_a_subscription(
            steps in prop::collection::vec((0..40_u32, any::<bool>()), 0..200),
        ) {
            let owner = |subscription: u32| (subscription % 4 < 3).then_some(subscription % 4);
            let (mut list, mut all) = (Subscribers::default(), BTreeSet::new());
            for (subscription, comes) in steps {
                let owners = |all: &BTreeSet<u32>| all.iter().filter_map(|it| owner(*it)).collect::<BTreeSet<_>>();
                let before = owners(&all);
                let changed = match comes {
                    true if all.insert(subscription) => list.insert(owner(subscription), subscription),
                    false if all.remove(&subscription) => list.remove(owner(subscription), subscription),
                    _ => continue,
                };
                let expected = owner(subscription).is_none() || owners(&all) != before;
                prop_assert_eq!(changed == AudienceChange::Changed, expected);
                let mut matching: Vec<_> = list.as_slice().iter().map(|it| (owner(*it), *it)).collect();
                matching.sort_unstable();
                let alone = all.iter().filter(|it| owner(**it).is_none()).count();
                prop_assert_eq!(matching.len(), owners(&all).len() + alone);
                matching.dedup_by_key(|(owner, it)| owner.map_or(u32::MAX - *it, |owner| owner));
                prop_assert_eq!(matching.len(), owners(&all).len() + alone);
                prop_assert!(list.as_slice().iter().all(|it| all.contains(it)));
                prop_assert_eq!(list.is_empty(), all.is_empty());
            }
        }
    }
}
