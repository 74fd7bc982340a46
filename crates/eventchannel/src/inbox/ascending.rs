//! A queue with ascending keys that supports removal from any position.
//!
//! Idea: a ring buffer. Removing an item from the middle leaves a hole. Holes at the ends are dropped at
//! once; when half of the ring consists of holes, all are dropped.
//!
//! Cost: a few instructions to add, or to remove at an end; a binary search to remove elsewhere; dropping the
//! holes has a constant amortized cost per item.
//!
//! When not to use: for keys in any other order; use a `BTreeMap` there.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct AscendingQueue<K, V> {
    items: VecDeque<(K, Option<V>)>,
    holes: usize,
}

impl<K, V> Default for AscendingQueue<K, V> {
    fn default() -> Self {
        Self { items: VecDeque::new(), holes: 0 }
    }
}

impl<K: Ord, V> AscendingQueue<K, V> {
    pub(super) fn len(&self) -> usize {
        self.items.len() - self.holes
    }

    pub(super) fn first(&self) -> Option<(&K, &V)> {
        self.items.front().and_then(|(key, item)| Some((key, item.as_ref()?)))
    }

    pub(super) fn last(&self) -> Option<(&K, &V)> {
        self.items.back().and_then(|(key, item)| Some((key, item.as_ref()?)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.items.iter().filter_map(|(key, item)| Some((key, item.as_ref()?)))
    }

    /// Adds an item; its key must be greater than the last item's key.
    pub(super) fn push(&mut self, key: K, item: V) {
        debug_assert!(self.items.back().is_none_or(|(last, _)| *last < key));
        self.items.push_back((key, Some(item)));
    }

    /// Replaces the item of a key, if the queue has the key.
    pub(super) fn replace(&mut self, key: &K, item: V) {
        if let Ok(at) = self.items.binary_search_by(|(other, _)| other.cmp(key))
            && let Some(old) = &mut self.items[at].1
        {
            *old = item;
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let at = match self.items.front() {
            Some((first, _)) if first == key => match self.holes {
                0 => return self.items.pop_front()?.1,
                _ => 0,
            },
            _ => self.items.binary_search_by(|(other, _)| other.cmp(key)).ok()?,
        };
        let item = self.items[at].1.take()?;
        self.holes += 1;
        while self.items.front().is_some_and(|(_, item)| item.is_none()) {
            self.items.pop_front();
            self.holes -= 1;
        }
        while self.items.back().is_some_and(|(_, item)| item.is_none()) {
            self.items.pop_back();
            self.holes -= 1;
        }
        if 2 * self.holes > self.items.len() {
            self.items.retain(|(_, item)| item.is_some());
            self.holes = 0;
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds_and_few_holes(
            steps in prop::collection::vec(prop_oneof![Just(None), any::<u16>().prop_map(Some)], 0..300),
        ) {
            let (mut queue, mut map, mut next) = (AscendingQueue::default(), BTreeMap::new(), 0_u32);
            for step in steps {
                match step {
                    Some(which) if which % 3 > 0 => {
                        // a key that is or was in the queue, or the next key
                        let key = u32::from(which) % (next + 1);
                        prop_assert_eq!(queue.remove(&key), map.remove(&key));
                    }
                    _ => {
                        next += 1;
                        queue.push(next, next * 7);
                        map.insert(next, next * 7);
                    }
                }
                prop_assert!(queue.iter().eq(map.iter()));
                prop_assert_eq!(queue.len(), map.len());
                prop_assert_eq!(queue.first(), map.first_key_value());
                prop_assert_eq!(queue.last(), map.last_key_value());
                prop_assert!(queue.items.len() <= 2 * map.len());
            }
        }
    }
}
