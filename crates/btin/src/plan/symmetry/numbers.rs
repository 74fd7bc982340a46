//! For [`symmetry`](super): finds symmetries from the numbers of switches.
//!
//! People number a regular network regularly: the number of a switch consists of digits, such as its column,
//! its row and its level. A symmetric network stays the same when one digit of all numbers is increased by
//! one, modulo its radix (a torus), or when two values of a digit are exchanged (a fat tree). The divisors of
//! the number of switches give guesses of the digits; a few switches are tested; and then
//! [`SymmetricDigits::is_automorphism`] checks every link. A symmetry maps each link onto a link.

use super::super::graph::Graph;

/// A digit of switch numbers. Each digit has its own radix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digit {
    stride: u32,
    radix: u32,
}

/// A symmetry that changes one digit of every switch's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    digit: Digit,
    what: DigitSymmetry,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DigitSymmetry {
    /// Every value becomes the next one; the last becomes 0.
    Turn,
    /// This value and the next one are exchanged.
    Swap(u32),
}

/// The digits that symmetries change, and those symmetries.
pub(super) struct SymmetricDigits {
    count: u32,
    digits: Vec<Digit>,
    pub(super) moves: Vec<Move>,
}

/// A guess is tested on this many switches before the proof checks every link.
const TRIED: u32 = 128;

/// For a digit with more values than this, only the turn is tried, because there are as many swaps as values.
const MAX_SWAPPED: u32 = 64;

impl Digit {
    fn value_of(self, switch: u32) -> u32 {
        switch / self.stride % self.radix
    }
}

impl Move {
    fn value(self, value: u32) -> u32 {
        match self.what {
            DigitSymmetry::Turn => (value + 1) % self.digit.radix,
            DigitSymmetry::Swap(low) if value == low => low + 1,
            DigitSymmetry::Swap(low) if value == low + 1 => low,
            DigitSymmetry::Swap(_) => value,
        }
    }

    fn image(self, switch: u32) -> u32 {
        let value = self.digit.value_of(switch);
        switch - value * self.digit.stride + self.value(value) * self.digit.stride
    }

    /// Returns the images of the switches below `count`.
    pub(super) fn images(self, count: u32) -> Vec<u32> {
        let Digit { stride, radix } = self.digit;
        let mut images = Vec::with_capacity(count as usize);
        for block in (0..count).step_by((stride * radix) as usize) {
            for value in 0..radix {
                let first = block + self.value(value) * stride;
                images.extend(first..first + stride);
            }
        }
        images
    }
}

impl SymmetricDigits {
    /// Guesses symmetries. [`is_automorphism`](Self::is_automorphism) has to prove each move.
    pub(super) fn guess(graph: &Graph) -> Option<Self> {
        let count = u32::try_from(graph.len()).ok()?;
        let divisors: Vec<u32> = divisors(count);
        let (mut digits, mut moves) = (Vec::new(), Vec::new());
        let mut stride = 1;
        while stride < count {
            let radices =
                || divisors.iter().copied().filter(|&radix| radix > 1 && count / stride % radix == 0);
            let all = |radix: u32, what: &dyn Fn(u32) -> Option<DigitSymmetry>| -> Option<Vec<Move>> {
                let digit = Digit { stride, radix };
                let moves: Vec<Move> = (0..radix).map_while(what).map(|what| Move { digit, what }).collect();
                moves.iter().all(|&one| seems_kept(graph, one)).then_some(moves)
            };
            let swapped = |radix| all(radix, &|low| (low + 1 < radix).then_some(DigitSymmetry::Swap(low)));
            let turned = |radix| all(radix, &|times| (times < 1).then_some(DigitSymmetry::Turn));
            let few = divisors
                .iter()
                .rev()
                .copied()
                .filter(|&radix| (2..=MAX_SWAPPED).contains(&radix) && count / stride % radix == 0);
            if let Some(found) = few.filter_map(swapped).next().or_else(|| radices().find_map(turned)) {
                digits.push(found[0].digit);
                stride *= found[0].digit.radix;
                moves.extend(found);
            } else {
                stride = *divisors.iter().find(|&&next| next > stride && next % stride == 0)?;
            }
        }
        (!digits.is_empty()).then_some(Self { count, digits, moves })
    }

    /// Returns whether every link is mapped onto a link.
    pub(super) fn is_automorphism(graph: &Graph, images: &[u32]) -> bool {
        (0..).zip(images).filter(|&(switch, &image)| switch != image).all(|(switch, &image)| {
            let there = graph.near(image);
            let near = graph.near(switch);
            near.len() == there.len() && near.iter().all(|&near| there.contains(&images[near as usize]))
        })
    }

    /// Returns the switches whose digits are all 0: one for each kind.
    pub(super) fn origins(&self) -> impl Iterator<Item = u32> {
        (0..self.count).filter(|&switch| self.origin(switch) == switch)
    }

    pub(super) fn kinds(&self) -> u32 {
        self.count / self.digits.iter().map(|digit| digit.radix).product::<u32>()
    }

    /// Returns the switch of the same kind whose digits are all 0.
    pub(super) fn origin(&self, switch: u32) -> u32 {
        self.digits.iter().fold(switch, |rest, digit| rest - digit.value_of(switch) * digit.stride)
    }

    /// Returns the image of a switch under the turns that map the origin of its kind onto `by`.
    pub(super) fn shifted(&self, switch: u32, by: u32) -> u32 {
        self.digits.iter().fold(switch, |shifted, digit| {
            let before = digit.value_of(switch);
            let after = before + digit.value_of(by);
            let after = if after >= digit.radix { after - digit.radix } else { after };
            shifted - before * digit.stride + after * digit.stride
        })
    }

    /// Returns the image of a switch under the turns that map `from` onto the origin of its kind.
    pub(super) fn relative(&self, switch: u32, from: u32) -> u32 {
        self.digits.iter().fold(switch, |relative, digit| {
            let (before, from) = (digit.value_of(switch), digit.value_of(from));
            let after = if before >= from { before - from } else { before + digit.radix - from };
            relative - before * digit.stride + after * digit.stride
        })
    }
}

fn divisors(count: u32) -> Vec<u32> {
    let small: Vec<u32> = (1..=count.isqrt()).filter(|&divisor| count.is_multiple_of(divisor)).collect();
    let large = small.iter().rev().map(|divisor| count / divisor);
    let mut all: Vec<u32> = small.iter().copied().chain(large).collect();
    all.dedup();
    all
}

/// Returns whether a sample of links is mapped onto links.
fn seems_kept(graph: &Graph, one: Move) -> bool {
    let count = graph.len() as u64;
    let tried = (0..TRIED).map(|at| ((u64::from(at.wrapping_mul(0x9E37_79B1)) * count) >> 32) as u32);
    tried.chain([0, graph.len() as u32 - 1]).all(|switch| {
        let there = graph.near(one.image(switch));
        let near = graph.near(switch);
        near.len() == there.len() && near.iter().all(|&near| there.contains(&one.image(near)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifting_and_taking_relative_to_are_each_others_inverse() {
        let digit = |stride, radix| Digit { stride, radix };
        let numbers =
            SymmetricDigits { count: 60, digits: vec![digit(1, 3), digit(12, 5)], moves: Vec::new() };
        assert_eq!(numbers.origins().collect::<Vec<_>>(), [0, 3, 6, 9]);
        assert_eq!(numbers.kinds(), 4);
        for by in 0..60 {
            assert_eq!(numbers.shifted(numbers.origin(by), by), by);
            for switch in 0..60 {
                assert_eq!(numbers.relative(numbers.shifted(switch, by), by), switch);
            }
        }
    }

    #[test]
    fn divisors_are_all_of_them_ascending() {
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(7), [1, 7]);
    }
}
