//! Hash maps with numeric keys: topics, parties, subscriptions, blocks of ranges.
//!
//! The channel looks up about thirty such keys per event. With the standard library's hash (SipHash) that was
//! a third of all instructions (3,500 of 11,000 per event, counted by callgrind in the broker's bench). This
//! hash takes one multiplication per number. Its key is random for each map. So a subscriber who chooses the
//! bounds of ranges cannot make their hashes collide without knowledge of the key.
//!
//! When not to use: for texts and other long keys.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// A map with numeric keys.
pub type NumberMap<K, V> = HashMap<K, V, NumberHashing>;

/// A set of numbers.
pub type NumberSet<K> = HashSet<K, NumberHashing>;

/// The capacity below which a map keeps its memory.
const MIN_SHRUNK: usize = 64;

/// Gives back memory after entries have been removed, once a quarter of the map's capacity suffices. Called
/// after each removal, it takes constant time on average.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > MIN_SHRUNK && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

/// The random hash key of one map.
#[derive(Clone, Copy, Debug)]
pub struct NumberHashing(u64);

impl Default for NumberHashing {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for NumberHashing {
    type Hasher = NumberHasher;

    #[inline]
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(self.0)
    }
}

/// The state of one hash computation.
#[derive(Clone, Copy, Debug)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    /// Combines both halves of the product, because its high bits depend on all bits of the input, but its
    /// low bits depend only on the low bits of the input.
    #[inline]
    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio, an odd number: Knuth, TAOCP 3, section 6.4
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_and_far_apart_spread_over_the_low_and_the_high_bits() {
        let hashing = NumberHashing::default();
        for step in [1, 1 << 8, 1 << 16, 1 << 24] {
            let hashes: Vec<u64> = (0..256_u32).map(|at| hashing.hash_one(at * step)).collect();
            let different =
                |part: fn(u64) -> u64| hashes.iter().map(|hash| part(*hash)).collect::<HashSet<_>>();
            // 256 balls in 256 bins: 162 bins are expected to be occupied
            assert!(different(|hash| hash & 255).len() > 100 && different(|hash| hash >> 56).len() > 100);
        }
    }
}
