//! A set of cores as a bit set, to find an idle core among a thousand.

#[derive(Clone, Debug)]
pub(super) struct CoreSet {
    words: Vec<u64>,
}

impl CoreSet {
    pub(super) fn empty(cores: usize) -> Self {
        Self { words: vec![0; cores.div_ceil(64)] }
    }

    pub(super) fn full(cores: usize) -> Self {
        let mut set = Self::empty(cores);
        (0..cores).for_each(|c| set.set(c, true));
        set
    }

    pub(super) fn set(&mut self, c: usize, is_in: bool) {
        let bit = 1u64 << (c % 64);
        if is_in {
            self.words[c / 64] |= bit;
        } else {
            self.words[c / 64] &= !bit;
        }
    }

    pub(super) fn has(&self, c: usize) -> bool {
        self.words[c / 64] >> (c % 64) & 1 == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Returns the first member in `start..end`.
    pub(super) fn first(&self, start: usize, end: usize) -> Option<usize> {
        let mut c = start;
        while c < end {
            let word = self.words[c / 64] >> (c % 64);
            if word != 0 {
                let found = c + word.trailing_zeros() as usize;
                return (found < end).then_some(found);
            }
            c = (c / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_member_of_a_range_is_found_across_words() {
        let mut set = CoreSet::empty(200);
        assert!(set.is_empty());
        for c in [3, 64, 130] {
            set.set(c, true);
        }
        let found = [(0, 200), (4, 200), (65, 200), (65, 130), (131, 200)].map(|(a, b)| set.first(a, b));
        assert_eq!(found, [Some(3), Some(64), Some(130), None, None]);
        assert!(set.has(64) && !set.has(63));
    }
}
