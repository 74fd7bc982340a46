//! For `unisono tree plan --ties exact`: rows of 512 bits, with one bit (*lane*) for each search of a
//! [`walk`](super::walk).
//!
//! A row fills one cache line, and one vector register on processors with vectors of 512 bits.

use unisono_intrinsics::{Wide, vectorized};

/// The number of searches in one walk.
pub(super) const LANES: usize = 512;
pub(super) const WORDS: usize = LANES / 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(64))]
pub(super) struct Bits(pub(super) [u64; WORDS]);

impl Bits {
    pub(super) const NONE: Self = Self([0; WORDS]);

    /// Returns a row in which the first `lanes` bits are set.
    pub(super) fn first(lanes: usize) -> Self {
        Self(std::array::from_fn(|word| {
            let lanes = lanes.saturating_sub(64 * word);
            if lanes >= 64 { u64::MAX } else { (1 << lanes) - 1 }
        }))
    }

    #[inline(always)]
    pub(super) fn zip_words(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|word| op(self.0[word], other.0[word])))
    }

    #[inline(always)]
    pub(super) fn and(self, other: Self) -> Self {
        self.zip_words(other, |a, b| a & b)
    }

    #[inline(always)]
    pub(super) fn and_not(self, other: Self) -> Self {
        self.zip_words(other, |a, b| a & !b)
    }

    #[inline(always)]
    pub(super) fn or(self, other: Self) -> Self {
        self.zip_words(other, |a, b| a | b)
    }

    #[inline(always)]
    pub(super) fn xor(self, other: Self) -> Self {
        self.zip_words(other, |a, b| a ^ b)
    }

    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    pub(super) fn has(&self, lane: usize) -> bool {
        self.0[lane / 64] >> (lane % 64) & 1 == 1
    }

    pub(super) fn put(&mut self, lane: usize) {
        self.0[lane / 64] |= 1 << (lane % 64);
    }
}

/// Counts, for each lane, the rows that have its bit. The counts are bit-sliced: one row for each binary
/// digit of all counts.
#[derive(Default)]
pub(super) struct LaneCounter(Vec<Bits>);

impl LaneCounter {
    #[inline(always)]
    fn add(&mut self, row: Bits) {
        let mut carry = row;
        for digit in &mut self.0 {
            let both = digit.and(carry);
            *digit = digit.xor(carry);
            carry = both;
            if carry.is_none() {
                return;
            }
        }
        if !carry.is_none() {
            self.0.push(carry);
        }
    }

    pub(super) fn sum<'a>(rows: impl Iterator<Item = &'a Bits>) -> Self {
        struct All<R>(R);
        impl<'a, R: Iterator<Item = &'a Bits>> Wide for All<R> {
            type Output = LaneCounter;

            #[inline(always)]
            fn run(self) -> LaneCounter {
                let mut counter = LaneCounter::default();
                for row in self.0 {
                    counter.add(*row);
                }
                counter
            }
        }
        vectorized(All(rows))
    }

    pub(super) fn count(&self, lane: usize) -> u32 {
        (0..).zip(&self.0).map(|(place, digit)| u32::from(digit.has(lane)) << place).sum()
    }
}

/// Transposes eight squares of 64 by 64 bits at once: bit j of word w of row i and bit i of word w of row j
/// are exchanged.
#[inline(always)]
pub(super) fn transpose(square: &mut [Bits; 64]) {
    let mut mask: u64 = 0x0000_0000_FFFF_FFFF;
    let mut width = 32;
    while width > 0 {
        let mut row = 0;
        while row < 64 {
            // pairs each row whose number lacks the bit `width` with the row that has it
            let (low, high) = (square[row], square[row + width]);
            let moved = low.zip_words(high, |low, high| (low >> width ^ high) & mask);
            square[row] = low.zip_words(moved, |low, moved| low ^ moved << width);
            square[row + width] = high.xor(moved);
            row = (row + width + 1) & !width;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_exchanges_rows_and_bits_in_each_word() {
        let scatter = |row: usize, word: usize| {
            (row as u64 * 8 + word as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(row as u32)
        };
        let before: [Bits; 64] =
            std::array::from_fn(|row| Bits(std::array::from_fn(|word| scatter(row, word))));
        let mut square = before;
        transpose(&mut square);
        for (row, turned) in square.iter().enumerate() {
            for lane in 0..LANES {
                let (word, bit) = (lane / 64, lane % 64);
                assert_eq!(turned.has(lane), before[bit].has(word * 64 + row), "{row} {lane}");
            }
        }
    }

    #[test]
    fn a_counter_counts_every_lane_by_itself() {
        let row = |number: usize| {
            let mut row = Bits::NONE;
            (0..LANES).filter(|lane| number.is_multiple_of(lane + 1)).for_each(|lane| row.put(lane));
            row
        };
        let rows: Vec<Bits> = (0..1000).map(row).collect();
        let counter = LaneCounter::sum(rows.iter());
        for lane in 0..LANES {
            assert_eq!(counter.count(lane) as usize, 999 / (lane + 1) + 1);
        }
        assert!(Bits::first(70).has(69) && !Bits::first(70).has(70));
    }
}
