//! Leaves of sockets: a leaf is a class for the packets of one socket, below a class of the policy. Pure
//! logic.
//!
//! The kernel keeps a [`SocketLeaf`] at the socket ([`unisono_linux::bpf::SocketStorage`]). The classifier
//! reads it there. A scan of all sockets gives the list of leaves, and no other list exists that could differ
//! from it.

use std::fmt;
use unisono_linux::bpf::SocketWords;

/// The lowest number of a leaf. Classes of the policy have lower numbers.
pub(super) const FIRST_LEAF: u16 = 0xf000;
/// The most leaves of sockets at a device.
pub(super) const MAX_LEAVES: usize = (u16::MAX - FIRST_LEAF) as usize + 1;
/// The position of the class's number in the words at a socket. No class has the number 0.
pub(super) const CLASS_WORD: usize = 1;
/// The position of the first word of the program's name.
const NAME_WORD: usize = 5;

/// The bytes of a program's name that the kernel keeps (`TASK_COMM_LEN`).
const NAME_BYTES: usize = 16;

/// The name of the program that asked for a leaf; shorter names end with zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProgramName([u8; NAME_BYTES]);

impl ProgramName {
    /// Takes the first 16 bytes.
    pub(crate) fn new(name: &str) -> Self {
        let (mut bytes, length) = ([0; NAME_BYTES], name.len().min(NAME_BYTES));
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        Self(bytes)
    }
}

impl fmt::Display for ProgramName {
    /// A program chooses its name itself: bytes that a terminal would obey are written as `?`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let name = String::from_utf8_lossy(&self.0[..length]);
        let shown = |letter: char| if letter.is_control() { '?' } else { letter };
        f.write_str(&name.chars().map(shown).collect::<String>())
    }
}

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
    pub(super) program: ProgramName,
}

impl SocketLeaf {
    /// Returns the words to store at the socket. `handle` is the discipline's number and the leaf's number.
    pub(super) fn words(self, handle: u32) -> SocketWords {
        let bits = self.weight.to_bits();
        let mut words = [handle, self.class.into(), bits as u32, (bits >> 32) as u32, self.user, 0, 0, 0, 0];
        for (word, bytes) in words[NAME_WORD..].iter_mut().zip(self.program.0.as_chunks().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
        words
    }

    /// Reads a leaf from the words at a socket. Returns `None` if the words were cleared.
    pub(super) fn from_words(words: SocketWords) -> Option<Self> {
        let [handle, class, low, high, user, name @ ..] = words;
        let leaf = (handle & 0xffff) as u16;
        let class = u16::try_from(class).ok().filter(|class| *class != 0)?;
        let weight = f64::from_bits(u64::from(high) << 32 | u64::from(low));
        let mut program = ProgramName::default();
        for (bytes, word) in program.0.as_chunks_mut().0.iter_mut().zip(name) {
            *bytes = word.to_ne_bytes();
        }
        (leaf >= FIRST_LEAF && weight.is_normal() && weight > 0.0).then_some(Self {
            leaf,
            class,
            weight,
            user,
            program,
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
        let program = ProgramName::new("a-server-of-streams");
        let leaf = SocketLeaf { leaf: 0xf003, class: 7, weight: 0.25, user: 1000, program };
        assert_eq!(SocketLeaf::from_words(leaf.words(0x556e_f003)), Some(leaf));
        assert_eq!(leaf.words(0x556e_f003)[CLASS_WORD], 7);
        assert_eq!(SocketLeaf::from_words([0; 9]), None);
    }

    #[test]
    fn a_name_is_cut_as_the_kernel_cuts_it_and_gives_a_terminal_no_orders() {
        assert_eq!(ProgramName::new("a-server-of-streams").to_string(), "a-server-of-stre");
        assert_eq!(ProgramName::new("\u{1b}[2J").to_string(), "?[2J");
        assert_eq!(ProgramName::new("").to_string(), "");
    }

    #[test]
    fn the_lowest_free_number_is_taken() {
        assert_eq!(free_number(|number| number < 0xf002), Some(0xf002));
        assert_eq!(free_number(|_| true), None);
        assert_eq!((FIRST_LEAF..=u16::MAX).len(), MAX_LEAVES);
    }
}
