//! Barriers in the switches for the hosts of a tree: agreement on a group, and the barrier beside the tree.
//!
//! All hosts claim the group with the lowest number that none of them has in use. If another group has a
//! register of this number in a switch of the tree, some host is refused; all give the registers back and try
//! the next number. The hosts learn of each other's results by a combination along the tree. If no number is
//! left, the barriers of this communicator follow the tree.

use super::offer::OfferedSwitches;
use unisono_btin::NodeId;
use unisono_fabric::served::{GroupClaim, GroupSet, HelperConnection, SwitchMember};
use unisono_linux::clock::Instant;
use unisono_rma::{Error, FastBarrier, TreeBarrierMember};

/// Results of a claim; the lowest of all hosts counts.
const FAILED: u8 = 0;
const TAKEN: u8 = 1;
const GRANTED: u8 = 2;

/// A host's part in a barrier in the switches.
#[derive(Debug)]
pub(super) struct SwitchBarrier {
    member: SwitchMember,
    helper: HelperConnection,
}

/// The result of an attempt of all hosts to use the switches.
#[derive(Debug)]
pub(super) enum SwitchAttempt {
    Granted(SwitchBarrier),
    /// No register is left in some switch.
    Spilled,
    /// The reason, at the hosts that know it.
    Failed(Option<String>),
}

/// Claims a group for all hosts; collective along the tree.
pub(super) fn claim(
    tree: &mut TreeBarrierMember,
    mut helper: HelperConnection,
    offered: &OfferedSwitches,
    members: &[NodeId],
) -> Result<SwitchAttempt, Error> {
    let mut tried: GroupSet = offered.used;
    while let Some(group) = tried.first_free(offered.registers) {
        let claimed = helper.claim(group, offered.first_episode, members);
        let mut result = match claimed {
            Ok(GroupClaim::Granted(_)) => [GRANTED],
            Ok(GroupClaim::Taken) => [TAKEN],
            Ok(GroupClaim::Failed(_)) | Err(_) => [FAILED],
        };
        tree.combine(&mut result, &mut |lowest, other| lowest[0] = lowest[0].min(other[0]))?;
        match (result[0], claimed) {
            (GRANTED, Ok(GroupClaim::Granted(member))) => {
                return Ok(SwitchAttempt::Granted(SwitchBarrier { member, helper }));
            }
            (TAKEN, _) => {
                tried.insert(group);
                if let Err(error) = helper.give_back() {
                    // the end of the connection returns the registers; the next claim fails at all hosts
                    if tried.first_free(offered.registers).is_some() {
                        tree.combine(&mut [FAILED], &mut |_, _| ())?;
                    }
                    return Ok(SwitchAttempt::Failed(Some(error.to_string())));
                }
            }
            (_, Ok(GroupClaim::Failed(why))) => return Ok(SwitchAttempt::Failed(Some(why))),
            (_, Err(error)) => return Ok(SwitchAttempt::Failed(Some(error.to_string()))),
            _ => return Ok(SwitchAttempt::Failed(None)),
        }
    }
    Ok(SwitchAttempt::Spilled)
}

impl SwitchBarrier {
    /// Leaves the group. The registers are returned when all hosts have left it.
    pub(super) fn leave(self) {
        self.helper.leave(self.member.episode());
    }

    /// Names the nodes and links that hold up a barrier.
    pub(super) fn suspects(&mut self) -> String {
        match self.helper.suspects() {
            Ok(named) if named.is_empty() => "no register waits; frames were lost on their way".to_owned(),
            Ok(named) => named.join("; "),
            Err(error) => error.to_string(),
        }
    }
}

impl FastBarrier for SwitchBarrier {
    fn arrive(&mut self) {
        self.member.arrive();
    }

    fn wait(&mut self, until: Instant) -> bool {
        self.member.wait(until)
    }

    fn skip(&mut self) {
        self.member.skip();
    }
}
