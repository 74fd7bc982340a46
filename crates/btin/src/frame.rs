//! The frame on a cable: the paper's message of two bytes, followed by an episode of two bytes (ours).
//!
//! The paper assumes that no message is lost, so that barriers need no numbers. In a network that loses and
//! repeats messages, the episode number identifies repeated frames. It has bytes of its own, so that the six
//! bits of data in the message are free for an allreduce. It wraps around: only a frame that is late by about
//! 65,535 barriers could pass for a new one.

use crate::SyncMessage;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BarrierFrame {
    /// The message (paper, Figure 5).
    pub message: SyncMessage,
    /// The number of the group's barrier, from 0, wrapping around.
    pub episode: u16,
}

impl BarrierFrame {
    /// Encodes the frame for the wire: the message, then the episode, both in network byte order.
    pub fn to_bytes(self) -> [u8; 4] {
        let [kind_and_group, group_and_data] = self.message.to_bytes();
        let [high, low] = self.episode.to_be_bytes();
        [kind_and_group, group_and_data, high, low]
    }

    /// Decodes a frame. Any four bytes are a frame.
    pub fn from_bytes([a, b, high, low]: [u8; 4]) -> Self {
        Self { message: SyncMessage::from_bytes([a, b]), episode: u16::from_be_bytes([high, low]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupId, MessageKind};

    #[test]
    fn a_frame_is_its_message_and_then_its_episode() {
        let message = SyncMessage::new(MessageKind::Reduction, GroupId(3), 5);
        let frame = BarrierFrame { message, episode: 0x1234 };
        assert_eq!(frame.to_bytes()[..2], message.to_bytes());
        assert_eq!(frame.to_bytes()[2..], [0x12, 0x34]);
        assert_eq!(BarrierFrame::from_bytes(frame.to_bytes()), frame);
    }
}
