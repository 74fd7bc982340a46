//! The protocol of a member node: it sends its arrival and repeats it until it is released. If the tree turns
//! at its root node, that node also releases the others. The state machine has no I/O and no clock: the
//! caller calls [`GroupMember::retransmit`] when its timer expires.
//!
//! ```text
//!   member:     arrive -> reduction up .. again, again .. distribution down -> released
//!   root node:  arrive, and the reduction of all others arrives: distribution down -> released
//!               a reduction of the previous episode arrives: the distribution was lost; send it again
//! ```
//!
//! Cost: one frame for each episode when no frame is lost. Reference: paper, section 3.2; repetition is ours.

use crate::{BarrierFrame, GroupId, MessageKind, ReductionOperator, SyncMessage};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemberRole {
    /// Sends a reduction and waits for the distribution. This is the role of every member but the root node;
    /// it is the root node's role, too, if the root switch turns messages around.
    Member,
    /// Receives the last reduction and sends the distribution.
    Root,
}

/// A member of a group, as a state machine without I/O.
///
/// ```
/// use unisono_btin::{GroupId, GroupMember, MemberRole, ReductionOperator};
///
/// let mut member = GroupMember::new(GroupId(0), MemberRole::Member, ReductionOperator::default());
/// let mut frames = Vec::new();
/// member.arrive(0, &mut frames);
/// assert!(member.is_waiting() && frames.len() == 1, "a reduction goes to the switch");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMember {
    group: GroupId,
    part: MemberRole,
    operation: ReductionOperator,
    episode: u16,
    /// This member's own data, from arrival to release.
    arrived: Option<u8>,
    /// At the root node: the data of all others, once their reduction has arrived.
    others: Option<u8>,
    /// The value of `others` at the start of every episode: `None`, unless the group has no other members.
    others_initial: Option<u8>,
    last: Option<u8>,
}

impl GroupMember {
    /// Makes a member that has not arrived, before the first episode. For the only member of a group, see
    /// [`GroupMember::alone`].
    pub fn new(group: GroupId, part: MemberRole, operation: ReductionOperator) -> Self {
        Self {
            group,
            part,
            operation,
            episode: 0,
            arrived: None,
            others: None,
            others_initial: None,
            last: None,
        }
    }

    /// Sets the first episode. It has to be the first episode of the group's registers
    /// ([`Switch::starting_at`](crate::Switch::starting_at)).
    #[must_use]
    pub fn beginning_with(self, episode: u16) -> Self {
        Self { episode, ..self }
    }

    /// Makes this member the only one of its group: a root node that waits for no reduction and sends no
    /// distribution.
    #[must_use]
    pub fn alone(self) -> Self {
        let others_initial = Some(self.operation.neutral());
        Self { others: others_initial, others_initial, ..self }
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the current episode: the first episode plus the number of past releases, modulo 2^16.
    pub fn episode(&self) -> u16 {
        self.episode
    }

    /// Returns whether this member has arrived and has not been released.
    pub fn is_waiting(&self) -> bool {
        self.arrived.is_some()
    }

    /// Arrives with data for the allreduce (zero for a plain barrier). A second arrival changes nothing.
    /// Returns the result if this arrival completes the barrier. It does so at a root node that has the
    /// reduction of all others.
    pub fn arrive(&mut self, data: u8, out: &mut Vec<BarrierFrame>) -> Option<u8> {
        if self.arrived.is_none() {
            self.arrived = Some(data);
            if self.part == MemberRole::Member {
                out.push(self.frame(MessageKind::Reduction, self.episode, data));
            }
        }
        self.try_release(out)
    }

    /// Handles a received frame of its group. Returns the result if the frame releases this member.
    pub fn take(&mut self, frame: BarrierFrame, out: &mut Vec<BarrierFrame>) -> Option<u8> {
        match (self.part, frame.message.kind) {
            (MemberRole::Member, MessageKind::Distribution)
                if frame.episode == self.episode && self.is_waiting() =>
            {
                Some(self.release(frame.message.data()))
            }
            (MemberRole::Root, MessageKind::Reduction) if frame.episode == self.episode => {
                self.others = Some(frame.message.data());
                self.try_release(out)
            }
            (MemberRole::Root, MessageKind::Reduction) if frame.episode == self.episode.wrapping_sub(1) => {
                out.extend(self.last.map(|data| self.frame(MessageKind::Distribution, frame.episode, data)));
                None
            }
            (MemberRole::Root, MessageKind::Failure) if frame.episode == self.episode => {
                out.push(self.frame(MessageKind::Failure, frame.episode, frame.message.data()));
                None
            }
            _ => None,
        }
    }

    /// Returns whether a frame says that another member has given up this member's episode.
    pub fn is_given_up(&self, frame: BarrierFrame) -> bool {
        frame.message.kind == MessageKind::Failure && frame.episode == self.episode && self.is_waiting()
    }

    /// Gives up the episode: sends a failure to the root, and from there to all members that the tree still
    /// connects.
    pub fn abandon_episode(&self, out: &mut Vec<BarrierFrame>) {
        if self.is_waiting() {
            out.push(self.frame(MessageKind::Failure, self.episode, 0));
        }
    }

    /// Repeats the arrival after the caller's timer has expired. The root node repeats nothing by itself: the
    /// waiting members' repetitions make it answer.
    pub fn retransmit(&self, out: &mut Vec<BarrierFrame>) {
        if let (MemberRole::Member, Some(data)) = (self.part, self.arrived) {
            out.push(self.frame(MessageKind::Reduction, self.episode, data));
        }
    }

    fn try_release(&mut self, out: &mut Vec<BarrierFrame>) -> Option<u8> {
        let (MemberRole::Root, Some(own), Some(others)) = (self.part, self.arrived, self.others) else {
            return None;
        };
        let all = self.operation.combine(own, others);
        if self.others_initial.is_none() {
            out.push(self.frame(MessageKind::Distribution, self.episode, all));
        }
        self.others = self.others_initial;
        Some(self.release(all))
    }

    fn release(&mut self, result: u8) -> u8 {
        self.arrived = None;
        self.last = Some(result);
        self.episode = self.episode.wrapping_add(1);
        result
    }

    fn frame(&self, kind: MessageKind, episode: u16, data: u8) -> BarrierFrame {
        BarrierFrame { message: SyncMessage::new(kind, self.group, data), episode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1);

    fn frame(kind: MessageKind, episode: u16, data: u8) -> BarrierFrame {
        BarrierFrame { message: SyncMessage::new(kind, GROUP, data), episode }
    }

    #[test]
    fn a_member_repeats_its_arrival_until_it_is_released() {
        let mut member = GroupMember::new(GROUP, MemberRole::Member, ReductionOperator::Sum);
        let mut out = Vec::new();
        member.retransmit(&mut out);
        assert_eq!(out, [], "it has not arrived");
        assert_eq!(member.arrive(5, &mut out), None);
        member.retransmit(&mut out);
        assert_eq!(out, [frame(MessageKind::Reduction, 0, 5); 2]);
        assert_eq!(member.take(frame(MessageKind::Distribution, 1, 0), &mut out), None, "not its episode");
        assert_eq!(member.take(frame(MessageKind::Distribution, 0, 9), &mut out), Some(9));
        assert_eq!(member.take(frame(MessageKind::Distribution, 0, 9), &mut out), None, "released once");
        member.retransmit(&mut out);
        assert_eq!((out.len(), member.episode(), member.is_waiting()), (2, 1, false));
    }

    #[test]
    fn a_member_that_has_not_arrived_is_released_by_nothing() {
        let mut member = GroupMember::new(GROUP, MemberRole::Member, ReductionOperator::Or);
        assert_eq!(member.take(frame(MessageKind::Distribution, 0, 0), &mut vec![]), None);
        assert_eq!(member.episode(), 0);
    }

    #[test]
    fn the_root_waits_for_itself_and_for_the_others_in_either_order() {
        for is_first in [true, false] {
            let mut root = GroupMember::new(GROUP, MemberRole::Root, ReductionOperator::Max);
            let mut out = Vec::new();
            let released = if is_first {
                assert_eq!(root.arrive(3, &mut out), None);
                root.take(frame(MessageKind::Reduction, 0, 8), &mut out)
            } else {
                assert_eq!(root.take(frame(MessageKind::Reduction, 0, 8), &mut out), None);
                root.arrive(3, &mut out)
            };
            assert_eq!((released, out), (Some(8), vec![frame(MessageKind::Distribution, 0, 8)]));
        }
    }

    #[test]
    fn the_root_answers_for_the_episode_before_and_for_no_other() {
        let mut root = GroupMember::new(GROUP, MemberRole::Root, ReductionOperator::Or);
        let mut out = Vec::new();
        assert_eq!(root.take(frame(MessageKind::Reduction, u16::MAX, 0), &mut out), None);
        assert_eq!(out, [], "there was none before the first");
        root.arrive(1, &mut out);
        root.take(frame(MessageKind::Reduction, 0, 2), &mut out);
        out.clear();
        assert_eq!(root.take(frame(MessageKind::Reduction, 0, 2), &mut out), None);
        assert_eq!(out, [frame(MessageKind::Distribution, 0, 3)]);
        assert_eq!(root.take(frame(MessageKind::Reduction, u16::MAX, 0), &mut out), None);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn a_member_that_gives_up_is_heard_by_those_who_wait_for_the_same_and_passed_on_by_the_root() {
        let mut member = GroupMember::new(GROUP, MemberRole::Member, ReductionOperator::Or).beginning_with(7);
        let mut out = Vec::new();
        member.abandon_episode(&mut out);
        assert_eq!(out, [], "it waits for nothing");
        member.arrive(0, &mut out);
        out.clear();
        member.abandon_episode(&mut out);
        assert_eq!(out, [frame(MessageKind::Failure, 7, 0)]);
        assert!(member.is_given_up(out[0]) && !member.is_given_up(frame(MessageKind::Failure, 6, 0)));
        let mut root = GroupMember::new(GROUP, MemberRole::Root, ReductionOperator::Or).beginning_with(7);
        let mut passed = Vec::new();
        assert_eq!(root.take(out[0], &mut passed), None);
        assert_eq!(passed, out);
        root.take(frame(MessageKind::Failure, 6, 0), &mut passed);
        assert_eq!(passed.len(), 1, "an old one");
    }

    #[test]
    fn a_group_of_one_waits_for_nobody() {
        let mut alone = GroupMember::new(GROUP, MemberRole::Root, ReductionOperator::Min).alone();
        let mut out = Vec::new();
        assert_eq!(alone.arrive(17, &mut out), Some(17));
        assert_eq!(alone.arrive(18, &mut out), Some(18), "nor the next time");
        assert_eq!(out, [], "and has nobody to release");
    }
}
