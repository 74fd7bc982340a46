//! A map in a sorted vector, for a bounded number of small entries.
//!
//! The code of a B-tree is compiled for each pair of types: 49 of them were 28 % of this crate's code. This
//! map is a binary search. An insertion moves the entries behind it, so an insertion with the greatest key
//! moves none.

/// A map in a sorted vector.
#[derive(Clone, Debug)]
pub(crate) struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(key))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(key).ok().map(|place| &self.0[place].1)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (key, value));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (_, value) = self.find(key).ok().map(|place| self.0.remove(place))?;
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(2 * self.0.len());
        }
        Some(value)
    }

    /// Returns the value of a key, which `new` makes if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let place = self.find(&key).unwrap_or_else(|place| {
            self.0.insert(place, (key, new()));
            place
        });
        &mut self.0[place].1
    }

    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| stays(key, value));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_sorted_map_is_a_map(steps in prop::collection::vec((0..4_u8, 0..12_u32, 0..5_u8), 0..200)) {
            let (mut map, mut model) = (SortedMap::default(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    1 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    2 => prop_assert_eq!(*map.get_or_insert_with(key, || value), *model.entry(key).or_insert(value)),
                    _ => {
                        map.retain(|known, it| *known != key && *it != value);
                        model.retain(|known, it| *known != key && *it != value);
                    }
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(map.iter().eq(model.iter()) && map.values().eq(model.values()));
            }
        }
    }
}
