//! The messages between a helper and the processes of its host: a length of four bytes, then JSON.
//!
//! ```text
//!   process                      helper (root)
//!      | ---- connects ------------> |     checks the user
//!      | <--- Welcome, or Refused --- |
//!      | ---- Claim ---------------> |     sets up registers in the switches
//!      | <--- Claimed, Taken, Failed |     Claimed: with a packet socket (SCM_RIGHTS)
//!      | ---- Leave, Return -------> |     releases the registers
//! ```
//! A connection serves one group. Its end returns the registers, too.

use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use unisono_btin::{GroupId, NetworkFile, SwitchNetwork};

/// The helper's name among the abstract Unix sockets of its network namespace.
pub(super) const HELPER_NAME: &str = "unisono-tree-helper-1";
/// The longest message: a claim of a group of some thousand members.
pub(super) const MAX_MESSAGE: usize = 64 << 10;
/// The bytes of a message's length.
pub(super) const PREFIX: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct GroupSet([u64; 4]);

impl GroupSet {
    pub fn insert(&mut self, group: GroupId) {
        self.0[usize::from(group.0) / 64] |= 1 << (group.0 % 64);
    }

    pub fn contains(&self, group: GroupId) -> bool {
        self.0[usize::from(group.0) / 64] >> (group.0 % 64) & 1 == 1
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    /// The lowest group that is missing, of the first `registers`.
    pub fn first_free(&self, registers: u16) -> Option<GroupId> {
        (0..=u8::MAX).take(registers.into()).map(GroupId).find(|group| !self.contains(*group))
    }
}

/// The part that a helper knows of the network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HelperOffer {
    /// The node that this host is.
    pub node: u32,
    pub network: u64,
    /// The number of registers of each switch.
    pub registers: u16,
    /// The groups of which this host is a member.
    pub used: GroupSet,
}

/// A number that differs between networks of different switches, links or nodes; names do not count. All
/// hosts have to run the same build.
pub fn digest(network: &SwitchNetwork) -> u64 {
    let mut digest = DefaultHasher::new();
    NetworkFile::new(network.clone(), Vec::new()).to_json().hash(&mut digest);
    digest.finish()
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum HelperRequest {
    Claim {
        group: u8,
        /// The first episode.
        first: u16,
        members: Vec<u32>,
    },
    /// Releases the registers at once: the group does not use them.
    Return,
    /// Releases the registers as soon as all members have left the barrier before this episode.
    Leave { episode: u16 },
    /// Asks for the nodes and links that hold up the group's barrier.
    Suspects,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum HelperAnswer {
    Welcome(HelperOffer),
    Refused {
        why: String,
    },
    Claimed,
    /// Another group has one of the registers.
    Taken,
    Failed {
        why: String,
    },
    Returned,
    Suspects {
        named: Vec<String>,
    },
}

pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_vec(message).expect("serializes because it holds numbers and text alone");
    let length = u32::try_from(text.len()).expect("short because groups have at most some thousand members");
    [&length.to_le_bytes()[..], &text].concat()
}

/// The length of the message that follows. Fails if no message is that long.
pub(super) fn length(prefix: [u8; PREFIX]) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length <= MAX_MESSAGE { Ok(length) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Takes a message from the beginning of the bytes. `None`: its end has not arrived.
pub(super) fn cut(bytes: &mut Vec<u8>) -> io::Result<Option<HelperRequest>> {
    let Some(prefix) = bytes.first_chunk() else { return Ok(None) };
    let end = PREFIX + length(*prefix)?;
    let Some(text) = bytes.get(PREFIX..end) else { return Ok(None) };
    let request = serde_json::from_slice(text)?;
    bytes.drain(..end);
    Ok(Some(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_where_they_end_and_long_ones_are_refused() {
        let claim = HelperRequest::Claim { group: 3, first: 9, members: vec![1, 2] };
        let bytes = [encode(&claim), encode(&HelperRequest::Suspects)].concat();
        let mut came = Vec::new();
        let mut cut_out = Vec::new();
        for byte in bytes {
            came.push(byte);
            cut_out.extend(cut(&mut came).expect("both are right"));
        }
        assert_eq!(cut_out, [claim, HelperRequest::Suspects]);
        assert!(cut(&mut vec![0xff; 9]).is_err());
        assert!(cut(&mut vec![1, 0, 0, 0, b'x']).is_err());
    }

    #[test]
    fn the_lowest_group_is_taken_that_no_member_has() {
        let (mut one, mut other) = (GroupSet::default(), GroupSet::default());
        (0..70).for_each(|group| one.insert(GroupId(group)));
        other.insert(GroupId(71));
        one.add(&other);
        assert_eq!(one.first_free(256), Some(GroupId(70)));
        one.insert(GroupId(70));
        assert_eq!((one.first_free(72), one.first_free(73)), (None, Some(GroupId(72))));
    }
}
