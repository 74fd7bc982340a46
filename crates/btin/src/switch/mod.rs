//! Handles the frames of one group at a switch: Table 1 of the paper as a state machine, without I/O.
//!
//! ```text
//!                 reduction from every port below: combine, send one up  (at the root: to the root node)
//!   gathering ------------------------------------------------------------------------> complete
//!   episode e                                                                           episode e
//!       ^              distribution from above: one to every port below                     |
//!       +--------------------------- gathering e + 1, e remembered -------------------------+
//! ```
//!
//! The paper's network loses no message; this one may lose, repeat and reorder messages. The switch has no
//! timers: nodes repeat their reduction until they are released, and the switch acts on the repetition as
//! follows.
//!
//! | reduction of ... | while | is |
//! |---|---|---|
//! | the current episode | its port's arrival is missing | an arrival: its data are combined, once |
//! | the current episode | only other ports' arrivals are missing | nothing new |
//! | the current episode | complete | sent up again: the first one may be lost |
//! | the last episode | any time | answered on its port: the release may be lost |
//!
//! It is enough to remember one episode: episode e + 1 cannot complete without the member that still waits
//! for e. Three kinds of frames are dropped, and the outcome gives the reason: a frame of any other episode;
//! a frame from a port that the register does not name; and a distribution while arrivals are missing,
//! because an episode cannot be released without the reduction of this switch.
//!
//! **Turn.** In the paper the root switch sends the last reduction to the root node, whose distribution then
//! comes back. A switch that *turns* counts the root node as a port below and answers by itself, which saves
//! the trip to the node and the start-up there.
//!
//! Cost: for each port and episode one frame up and one down. The state is a bit for each port, the data, and
//! the last result. Reference: paper, section 3.2, Table 1; episodes, answers and turning are ours.

use crate::{
    BarrierFrame, MessageKind, Port, ReductionOperator, Register, SwitchId, SyncMessage, Tree, TurnPoint,
};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dropped {
    /// A frame from a port that the register does not name, or does not name for this kind of frame.
    Port,
    /// A frame of an episode that is neither the current one nor the last.
    Episode,
    /// A distribution of the last episode, which has been replicated already.
    Repeated,
    /// A distribution of the current episode, though arrivals are missing.
    Early,
    /// A frame of a kind that switches do not handle: set-up goes from node to node.
    Kind,
}

/// The effect of a frame on a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameOutcome {
    Arrived,
    /// A repeated arrival; other arrivals are missing.
    Again,
    /// The last arrival: a reduction was sent up.
    Completed,
    /// A repeated arrival after completion: the reduction was sent up again.
    Resent,
    /// The release: it was sent to all ports below. The last arrival has this effect, too, if the switch
    /// turns.
    Released,
    /// An arrival of the last episode: the release was sent to its port once more.
    Answered,
    /// A failure, passed on.
    Passed,
    Dropped(Dropped),
}

/// The state of one group at one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// The port to which completion is sent and from which releases come; `None` if this switch turns.
    above: Option<Port>,
    /// The ports from which an arrival is expected, and to which the release is sent; ascending.
    below: Vec<Port>,
    operation: ReductionOperator,
    episode: u16,
    arrived: Vec<bool>,
    missing: usize,
    data: u8,
    /// The result of the last episode. `None`: this is the first episode.
    last: Option<u8>,
}

impl Switch {
    /// Makes a switch with this register. [`TurnPoint::AtSwitch`] is for the root switch alone; see
    /// [`Switch::all`].
    pub fn new(register: &Register, turn: TurnPoint, operation: ReductionOperator) -> Self {
        let (above, below) = register.sides(turn);
        let missing = below.len();
        let arrived = vec![false; missing];
        Self { above, below, operation, episode: 0, arrived, missing, data: operation.neutral(), last: None }
    }

    pub fn all(tree: &Tree, turn: TurnPoint, operation: ReductionOperator) -> BTreeMap<SwitchId, Self> {
        let one = |(switch, register): (&SwitchId, &Register)| {
            (*switch, Self::new(register, tree.turn_at(*switch, turn), operation))
        };
        tree.registers.iter().map(one).collect()
    }

    /// Sets the first episode, for a register that is set up while its group runs.
    #[must_use]
    pub fn starting_at(self, episode: u16) -> Self {
        Self { episode, ..self }
    }

    pub fn episode(&self) -> u16 {
        self.episode
    }

    /// Returns the ports below from which no arrival has been received, ascending. An unfinished barrier
    /// waits for these arrivals.
    pub fn missing(&self) -> impl Iterator<Item = Port> + '_ {
        self.below.iter().zip(&self.arrived).filter(|(_, arrived)| !**arrived).map(|(port, _)| *port)
    }

    /// Returns the port above once an arrival has been received from every port below. An unfinished barrier
    /// then waits for the release from that port.
    pub fn waits_above(&self) -> Option<Port> {
        self.above.filter(|_| self.missing == 0)
    }

    /// Handles a frame of the group that was received at a port. Adds the frames to send to `out`, ascending
    /// by port.
    pub fn take(
        &mut self,
        port: Port,
        frame: BarrierFrame,
        out: &mut Vec<(Port, BarrierFrame)>,
    ) -> FrameOutcome {
        match frame.message.kind {
            MessageKind::Reduction => self.reduction(port, frame, out),
            MessageKind::Distribution => self.distribution(port, frame, out),
            MessageKind::Failure => self.failure(port, frame, out),
            MessageKind::Setup => FrameOutcome::Dropped(Dropped::Kind),
        }
    }

    fn reduction(
        &mut self,
        port: Port,
        frame: BarrierFrame,
        out: &mut Vec<(Port, BarrierFrame)>,
    ) -> FrameOutcome {
        let Ok(at) = self.below.binary_search(&port) else { return FrameOutcome::Dropped(Dropped::Port) };
        if frame.episode != self.episode {
            let Some(data) = self.last.filter(|_| frame.episode == self.episode.wrapping_sub(1)) else {
                return FrameOutcome::Dropped(Dropped::Episode);
            };
            out.push((port, reply(frame, MessageKind::Distribution, data)));
            return FrameOutcome::Answered;
        }
        let mut outcome = if self.missing == 0 { FrameOutcome::Resent } else { FrameOutcome::Again };
        if !self.arrived[at] {
            self.arrived[at] = true;
            self.missing -= 1;
            self.data = self.operation.combine(self.data, frame.message.data());
            outcome = if self.missing == 0 { FrameOutcome::Completed } else { FrameOutcome::Arrived };
        }
        if self.missing > 0 {
            return outcome;
        }
        match self.above {
            Some(above) => {
                out.push((above, reply(frame, MessageKind::Reduction, self.data)));
                outcome
            }
            None => self.release(reply(frame, MessageKind::Distribution, self.data), out),
        }
    }

    fn distribution(
        &mut self,
        port: Port,
        frame: BarrierFrame,
        out: &mut Vec<(Port, BarrierFrame)>,
    ) -> FrameOutcome {
        if self.above != Some(port) {
            return FrameOutcome::Dropped(Dropped::Port);
        }
        if frame.episode == self.episode.wrapping_sub(1) && self.last.is_some() {
            return FrameOutcome::Dropped(Dropped::Repeated);
        }
        if frame.episode != self.episode {
            return FrameOutcome::Dropped(Dropped::Episode);
        }
        if self.missing > 0 {
            return FrameOutcome::Dropped(Dropped::Early);
        }
        self.release(frame, out)
    }

    fn release(&mut self, frame: BarrierFrame, out: &mut Vec<(Port, BarrierFrame)>) -> FrameOutcome {
        out.extend(self.below.iter().map(|port| (*port, frame)));
        self.last = Some(frame.message.data());
        self.episode = self.episode.wrapping_add(1);
        self.arrived.fill(false);
        self.missing = self.below.len();
        self.data = self.operation.neutral();
        FrameOutcome::Released
    }

    /// Passes on a failure: the current barrier cannot complete. From below it goes up; from above, and at
    /// the switch that turns, it goes to all ports below. It changes no state: if the missing member arrives
    /// after all, the barrier completes.
    fn failure(&self, port: Port, frame: BarrierFrame, out: &mut Vec<(Port, BarrierFrame)>) -> FrameOutcome {
        let from_above = self.above == Some(port);
        if !from_above && self.below.binary_search(&port).is_err() {
            return FrameOutcome::Dropped(Dropped::Port);
        }
        if frame.episode != self.episode {
            return FrameOutcome::Dropped(Dropped::Episode);
        }
        match self.above {
            Some(above) if !from_above => out.push((above, frame)),
            _ => out.extend(self.below.iter().map(|port| (*port, frame))),
        }
        FrameOutcome::Passed
    }
}

/// Makes a frame of the same group and episode as `to`.
fn reply(to: BarrierFrame, kind: MessageKind, data: u8) -> BarrierFrame {
    BarrierFrame { message: SyncMessage::new(kind, to.message.group, data), episode: to.episode }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupId, NodeId};

    #[test]
    fn only_the_root_switch_of_a_tree_turns() {
        let register = |parent, children: &[u16], locals: &[u16]| Register {
            parent: Some(Port(parent)),
            children: children.iter().copied().map(Port).collect(),
            locals: locals.iter().copied().map(Port).collect(),
        };
        let tree = Tree {
            group: GroupId(0),
            root_switch: SwitchId(4),
            root_node: Some(NodeId(0)),
            registers: [(SwitchId(4), register(0, &[1], &[])), (SwitchId(2), register(3, &[], &[0]))].into(),
        };
        let switches = Switch::all(&tree, TurnPoint::AtSwitch, ReductionOperator::Or);
        assert_eq!(switches[&SwitchId(4)].missing().collect::<Vec<_>>(), [Port(0), Port(1)]);
        assert_eq!(switches[&SwitchId(2)].missing().collect::<Vec<_>>(), [Port(0)]);
    }
}
