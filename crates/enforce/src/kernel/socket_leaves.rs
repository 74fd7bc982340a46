//! Leaves of sockets: a leaf is a class for the packets of one socket, below a class of the policy. Pure
//! logic.
//!
//! The kernel keeps a [`SocketLeaf`] at the socket ([`unisono_linux::bpf::SocketStorage`]). The classifier
//! reads it there. A scan of all sockets gives the list of leaves, and no other list exists that could differ
//! from it.

use unisono_linux::bpf::SocketWords;

/// The lowest number of a leaf. Classes of the policy have lower numbers.
pub(super) const FIRST_LEAF: u16 = 0xf000;
/// The most leaves of sockets at a device.
pub(super) const MAX_LEAVES: usize = (u16::MAX - FIRST_LEAF) as usize + 1;
/// The position of the class's number in the words at a socket. No class has the number 0.
pub(super) const CLASS_WORD: usize = 1;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct SocketLeaf {
    /// The number of the leaf.
    pub(super) leaf: u16,
    /// The number of the class of the policy.
    pub(super) class: u16,
    /// The weight relative to the other leaves of the class; positive.
    pub(super) weight: f64,
    /// The user who requested the leaf.
    pub(super) user: u32,
}

impl SocketLeaf {
    /// Returns the words to store at the socket. `handle` is the discipline's number and the leaf's number.
    pub(super) fn words(self, handle: u32) -> SocketWords {
        let bits = self.weight.to_bits();
        [handle, self.class.into(), bits as u32, (bits >> 32) as u32, self.user]
    }

    /// Reads a leaf from the words at a socket. Returns `None` if the words were cleared.
    pub(super) fn from_words([handle, class, low, high, user]: SocketWords) -> Option<Self> {
        let leaf = (handle & 0xffff) as u16;
        let class = u16::try_from(class).ok().filter(|class| *class != 0)?;
        let weight = f64::from_bits(u64::from(high) << 32 | u64::from(low));
        (leaf >= FIRST_LEAF && weight.is_normal() && weight > 0.0).then_some(Self {
            leaf,
            class,
            weight,
            user,
        })
    }
}

/// Returns the lowest number that no leaf has, or `None` if there are [`MAX_LEAVES`] leaves.
pub(super) fn free_number(used: impl Fn(u16) -> bool) -> Option<u16> {
    (FIRST_LEAF..=u16::MAX).find(|number| !used(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_the_leaf_and_cleared_ones_hold_none() {
        let leaf = SocketLeaf { leaf: 0xf003, class: 7, weight: 0.25, user: 1000 };
        assert_eq!(SocketLeaf::from_words(leaf.words(0x556e_f003)), Some(leaf));
        assert_eq!(leaf.words(0x556e_f003)[CLASS_WORD], 7);
        assert_eq!(SocketLeaf::from_words([0; 5]), None);
    }

    #[test]
    fn the_lowest_free_number_is_taken() {
        assert_eq!(free_number(|number| number < 0xf002), Some(0xf002));
        assert_eq!(free_number(|_| true), None);
        assert_eq!((FIRST_LEAF..=u16::MAX).len(), MAX_LEAVES);
    }
}
