//! The numbers by which packets from other network namespaces carry the control group of their sender.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first number. Smaller ones are left to other users of `tc_index`, which count from 0.
const FIRST: u16 = 0x5501;

/// Control groups by their path, each with its number in a packet's `tc_index`.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SenderNumbers(BTreeMap<String, u16>);

impl SenderNumbers {
    /// Numbers control groups. A group that has a number in `known` keeps it, because programs at other
    /// devices compare packets with that number. When all numbers are taken, a new group gets none.
    pub(crate) fn new<'a>(groups: impl Iterator<Item = &'a str>, known: &Self) -> Self {
        let mut numbers = BTreeMap::new();
        let mut free = (FIRST..=u16::MAX).filter(|number| known.0.values().all(|taken| taken != number));
        for group in groups {
            if !numbers.contains_key(group)
                && let Some(number) = known.0.get(group).copied().or_else(|| free.next())
            {
                numbers.insert(group.to_owned(), number);
            }
        }
        Self(numbers)
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().map(|(group, number)| (group.clone(), *number)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u16)> {
        self.0.iter().map(|(group, number)| (group.as_str(), *number))
    }

    /// Returns the number of a group.
    pub(crate) fn number(&self, group: &str) -> Option<u16> {
        self.0.get(group).copied()
    }

    /// Returns the numbers of a group and of the groups below it.
    pub(crate) fn at_or_below(&self, group: &str) -> Vec<u16> {
        let group = group.trim_end_matches('/');
        let is_below = |path: &str| {
            path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.iter().filter(|(path, _)| is_below(path)).map(|(_, number)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_keeps_its_number_and_matches_the_groups_below_it() {
        let first = SenderNumbers::new(["/a", "/a/b", "/ab"].into_iter(), &SenderNumbers::default());
        let second = SenderNumbers::new(["/new", "/a/b", "/new"].into_iter(), &first);
        assert_eq!(second.number("/a/b"), first.number("/a/b"));
        assert!(first.iter().all(|(_, number)| Some(number) != second.number("/new")));
        assert_eq!(first.at_or_below("/a").len(), 2);
        assert_eq!(first.at_or_below("/ab"), [first.number("/ab").expect("it was given")]);
        assert_eq!(first.number("/new"), None);
    }
}
