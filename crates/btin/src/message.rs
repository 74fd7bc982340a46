//! The synchronization message: 2 bits of type, 8 of group, 6 of data (paper, Figure 5).
//!
//! It carries no destination, because the registers of the switches determine its way. So it takes two bytes,
//! whatever the size of the group.

use crate::GroupId;

/// The type of a message; its two highest bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MessageKind {
    /// On the way up: all members below have arrived.
    Reduction = 0,
    /// On the way down: all members have arrived.
    Distribution = 1,
    /// A request to set up or to release registers.
    Setup = 2,
    /// On the way down: the barrier cannot complete; the data give the reason.
    Failure = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SyncMessage {
    pub kind: MessageKind,
    pub group: GroupId,
    /// Six bits, combined by an allreduce.
    data: u8,
}

impl SyncMessage {
    pub const MAX_DATA: u8 = 63;

    /// Makes a message from its three fields.
    ///
    /// # Panics
    /// If the data need more than six bits.
    pub fn new(kind: MessageKind, group: GroupId, data: u8) -> Self {
        assert!(data <= Self::MAX_DATA, "{data} does not fit into the six bits of data");
        Self { kind, group, data }
    }

    pub fn data(self) -> u8 {
        self.data
    }

    /// Encodes the message for the wire, in network byte order.
    pub fn to_bytes(self) -> [u8; 2] {
        ((self.kind as u16) << 14 | u16::from(self.group.0) << 6 | u16::from(self.data)).to_be_bytes()
    }

    /// Decodes a message. Any two bytes are a message.
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
        Self { kind, group: GroupId(group), data: low & Self::MAX_DATA }
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
