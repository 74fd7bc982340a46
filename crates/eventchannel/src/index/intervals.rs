//! Which of many ranges a number lies in.
//!
//! Idea: a centred interval tree over the fixed universe of 64-bit keys. A range belongs to the smallest
//! aligned block of keys that holds it whole (the common prefix of its ends), and always contains the block's
//! middle. A key below the middle is therefore in exactly the ranges of that block that begin at or before
//! it, and a key above in those that end at or after it: both are found in sorted order, without looking at a
//! range that does not match.
//!
//! Cost: one look for each size of block in use (at most 65), and the answer itself. Adding and removing take
//! a logarithm. Nothing is rebuilt when subscriptions come and go.
//!
//! Reference: Edelsbrunner, "Dynamic data structures for orthogonal intersection queries" (1980), the
//! interval tree.

use super::content::ClauseId;
use crate::number_map::NumberMap;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct IntervalIndex {
    blocks: NumberMap<(u32, u64), Straddling>,
    /// How many blocks there are of each length of prefix.
    blocks_of: [u32; 65],
    ranges: usize,
}

impl Default for IntervalIndex {
    fn default() -> Self {
        Self { blocks: NumberMap::default(), blocks_of: [0; 65], ranges: 0 }
    }
}

/// The ranges of a block by their ends.
#[derive(Debug, Default)]
struct Straddling {
    lows: BTreeMap<u64, Vec<ClauseId>>,
    highs: BTreeMap<u64, Vec<ClauseId>>,
}

/// The block of a range: how long its prefix is, and the prefix.
fn block(low: u64, high: u64) -> (u32, u64) {
    let length = (low ^ high).leading_zeros();
    (length, prefix(low, length))
}

fn prefix(key: u64, length: u32) -> u64 {
    key.checked_shr(64 - length).unwrap_or(0)
}

impl IntervalIndex {
    pub(crate) fn len(&self) -> usize {
        self.ranges
    }

    /// Adds the keys from `low` to `high`, both within; the caller sees to `low <= high`.
    pub(crate) fn insert(&mut self, (low, high): (u64, u64), clause: ClauseId) {
        let key = block(low, high);
        let straddling = self.blocks.entry(key).or_insert_with(|| {
            self.blocks_of[key.0 as usize] += 1;
            Straddling::default()
        });
        straddling.lows.entry(low).or_default().push(clause);
        straddling.highs.entry(high).or_default().push(clause);
        self.ranges += 1;
    }

    pub(crate) fn remove(&mut self, (low, high): (u64, u64), clause: ClauseId) {
        let key = block(low, high);
        let Some(straddling) = self.blocks.get_mut(&key) else { return };
        for (ends, end) in [(&mut straddling.lows, low), (&mut straddling.highs, high)] {
            if let Some(clauses) = ends.get_mut(&end) {
                if let Some(at) = clauses.iter().position(|other| *other == clause) {
                    clauses.swap_remove(at);
                }
                if clauses.is_empty() {
                    ends.remove(&end);
                }
            }
        }
        if straddling.lows.is_empty() {
            self.blocks.remove(&key);
            self.blocks_of[key.0 as usize] -= 1;
        }
        self.ranges -= 1;
    }

    /// Hands over each range that holds the key.
    pub(crate) fn containing(&self, key: u64, mut found: impl FnMut(ClauseId)) {
        for (length, blocks) in (0_u32..).zip(self.blocks_of) {
            if blocks == 0 {
                continue;
            }
            let Some(straddling) = self.blocks.get(&(length, prefix(key, length))) else { continue };
            let above_middle = length == 64 || key >> (63 - length) & 1 == 1;
            if above_middle {
                straddling
                    .highs
                    .range(key..)
                    .for_each(|(_, clauses)| clauses.iter().for_each(|clause| found(*clause)));
            } else {
                straddling
                    .lows
                    .range(..=key)
                    .for_each(|(_, clauses)| clauses.iter().for_each(|clause| found(*clause)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = u64> {
        prop_oneof![0..20_u64, any::<u64>(), Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1)]
    }

    proptest! {
        #[test]
        fn a_key_is_found_in_the_ranges_that_hold_it_and_no_others(
            ranges in prop::collection::vec((key(), key(), any::<bool>()), 0..40), keys in prop::collection::vec(key(), 1..20),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(one, other, stays)| (one.min(other), one.max(other), stays)).collect();
            let mut index = IntervalIndex::default();
            for (clause, (low, high, _)) in (0..).zip(&ranges) {
                index.insert((*low, *high), ClauseId(clause));
            }
            for (clause, (low, high, stays)) in (0..).zip(&ranges) {
                if !stays {
                    index.remove((*low, *high), ClauseId(clause));
                }
            }
            for key in keys {
                let mut found = Vec::new();
                index.containing(key, |clause| found.push(clause.0));
                found.sort_unstable();
                let holding = (0_u32..).zip(&ranges).filter(|(_, (low, high, stays))| *stays && (*low..=*high).contains(&key));
                let expected: Vec<u32> = holding.map(|(clause, _)| clause).collect();
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(index.len(), ranges.iter().filter(|(_, _, stays)| *stays).count());
        }
    }
}
