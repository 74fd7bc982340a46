//! The synchronization message: 2 bits of type, 8 of group, 6 of data (paper, Figure 5).
//!
//! It carries no destination, because the registers of the switches say where it goes. So it has two bytes
//! however large the group is.

use crate::GroupId;

/// What a message is; its two highest bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MessageKind {
    /// On the way up: everything below has arrived.
    Reduction = 0,
    /// On the way down: everybody has arrived.
    Distribution = 1,
    /// About the registers themselves: requests to set one up, to release one.
    Setup = 2,
    /// About a barrier that cannot complete, down the tree: the data say why.
    Failure = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SyncMessage {
    pub kind: MessageKind,
    pub group: GroupId,
    /// Six bits: what an allreduce combines.
    data: u8,
}

impl SyncMessage {
    pub const MOST_DATA: u8 = 63;

    /// A message.
    ///
    /// # Panics
    /// If the data need more than six bits.
    pub fn new(kind: MessageKind, group: GroupId, data: u8) -> Self {
        assert!(data <= Self::MOST_DATA, "{data} does not fit into the six bits of data");
        Self { kind, group, data }
    }

    pub fn data(self) -> u8 {
        self.data
    }

    /// As on the wire, in network byte order.
    pub fn to_bytes(self) -> [u8; 2] {
        ((self.kind as u16) << 14 | u16::from(self.group.0) << 6 | u16::from(self.data)).to_be_bytes()
    }

    /// From the wire. Every pair of bytes is a message.
    pub fn from_bytes(bytes: [u8; 2]) -> Self {
        let word = u16::from_be_bytes(bytes);
        let kind = match word >> 14 {
            0 => MessageKind::Reduction,
            1 => MessageKind::Distribution,
            2 => MessageKind::Setup,
            _ => MessageKind::Failure,
        };
        let [_, group] = (word >> 6).to_be_bytes();
        let [_, low] = word.to_be_bytes();
        Self { kind, group: GroupId(group), data: low & Self::MOST_DATA }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_bytes_is_a_message_and_back() {
        for word in 0..=u16::MAX {
            assert_eq!(SyncMessage::from_bytes(word.to_be_bytes()).to_bytes(), word.to_be_bytes());
        }
    }

    #[test]
    fn the_fields_lie_as_in_figure_5() {
        let message = SyncMessage::new(MessageKind::Distribution, GroupId(0b1010_0101), 0b11_0011);
        let (kind, group, data) = (0b01, 0b1010_0101, 0b11_0011);
        assert_eq!(u16::from_be_bytes(message.to_bytes()), kind << 14 | group << 6 | data);
    }
}
