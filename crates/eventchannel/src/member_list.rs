//! A set of numbers that is read far more often than it changes. It consists of a list, and of a table of
//! each number's place in the list.
//!
//! Cost: a read is as cheap as in a list; insertion and removal take constant time. A short list has no table
//! of places, because a search of the list is cheaper.

use crate::number_map::NumberMap;

/// The maximum length of a list without a table of places: a search through 64 numbers takes some 20 ns,
/// about as much as the look-up that it replaces.
const MAX_UNPLACED: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct MemberList {
    members: Vec<u32>,
    /// The place of each member, if there have been more than [`MAX_UNPLACED`] members.
    places: NumberMap<u32, u32>,
}

impl MemberList {
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.members
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds a number that is not in the set.
    pub(crate) fn push(&mut self, member: u32) {
        if !self.places.is_empty() {
            self.places.insert(member, place(self.members.len()));
        }
        self.members.push(member);
        if self.places.is_empty() && self.members.len() > MAX_UNPLACED {
            self.places = self.members.iter().enumerate().map(|(at, member)| (*member, place(at))).collect();
        }
    }

    /// Removes a number, if the set has it. The last number of the list takes its place.
    pub(crate) fn remove(&mut self, member: u32) {
        let at = match self.places.is_empty() {
            true => self.members.iter().position(|other| *other == member),
            false => self.places.remove(&member).map(|at| at as usize),
        };
        let Some(at) = at else { return };
        self.members.swap_remove(at);
        if let (false, Some(moved)) = (self.places.is_empty(), self.members.get(at)) {
            self.places.insert(*moved, place(at));
        }
    }
}

fn place(at: usize) -> u32 {
    u32::try_from(at).expect("fits because the members are different numbers of 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds(steps in prop::collection::vec((0..150_u32, any::<bool>()), 0..600)) {
            let (mut list, mut set) = (MemberList::default(), BTreeSet::new());
            for (member, comes) in steps {
                match comes {
                    true if set.insert(member) => list.push(member),
                    true => {}
                    false => {
                        set.remove(&member);
                        list.remove(member);
                    }
                }
                let mut held = list.as_slice().to_vec();
                held.sort_unstable();
                prop_assert!(held.iter().eq(&set));
                prop_assert_eq!(list.is_empty(), set.is_empty());
            }
        }
    }
}
