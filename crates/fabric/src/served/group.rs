//! The part of one host in a group whose registers a process of the host has claimed.
//!
//! ```text
//!   claiming --all switches: done--> held --Leave--> leaving --released--> returning --> over
//!      |                              `--Return, end of the process----------^
//!      `--a switch refuses or does not answer--------------------------------^
//! ```
//! A member's last release may be lost after all other processes have left the group. So the helpers keep the
//! registers until all members have left: each takes part in one more barrier for its process. If a helper
//! does not come to it, the others return the registers after [`LEAVE_TIMEOUT`].

use super::message::HelperAnswer;
use crate::diagnose::suspects;
use crate::layout::{RegisterRequest, RegisterRequestKind, RegisterSetup, RequestAnswer};
use crate::program::SwitchProgram;
use std::time::{Duration, Instant};
use unisono_btin::setup::{RegisterOrder, SetupAgent};
use unisono_btin::{
    BarrierFrame, BarrierGroup, GroupId, GroupMember, MemberRole, NodeId, PlanOptions, ReductionOperator,
    SwitchId, SwitchNetwork, Ties, TreePlan, TurnPoint, plan,
};

/// The interval between two requests to the same switch, and between two arrivals at the last barrier.
const RETRANSMIT_AFTER: Duration = Duration::from_millis(100);
/// A switch that has not answered after this time is named.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time that registers are kept for members that have not left.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A register that this host sets up.
#[derive(Debug)]
struct ClaimedRegister {
    switch: SwitchId,
    setup: RegisterSetup,
    /// The number of the last request about it.
    number: u16,
    answer: Option<RequestAnswer>,
}

#[derive(Debug)]
enum ClaimPhase {
    Claiming,
    Held,
    Leaving(GroupMember),
    /// With the answer that the process gets in the end, if it waits for one.
    Returning(Option<HelperAnswer>),
    Over,
}

#[derive(Debug)]
pub(super) struct ClaimedGroup {
    id: GroupId,
    node: NodeId,
    plan: TreePlan,
    registers: Vec<ClaimedRegister>,
    phase: ClaimPhase,
    since: Instant,
    repeat_at: Instant,
}

/// The messages to send after an event.
#[derive(Default, Debug)]
pub(super) struct Outgoing {
    pub(super) requests: Vec<RegisterRequest>,
    pub(super) frames: Vec<BarrierFrame>,
    pub(super) answer: Option<HelperAnswer>,
}

impl ClaimedGroup {
    /// Plans the group's tree, and finds the registers that this node sets up in it.
    pub(super) fn new(
        network: &SwitchNetwork,
        node: NodeId,
        id: GroupId,
        first: u16,
        members: &[u32],
    ) -> Result<Self, String> {
        let members = members.iter().copied().map(NodeId).collect();
        let group = BarrierGroup::new(network, id, members).map_err(|error| error.to_string())?;
        if !group.contains(node) || group.members().len() < 2 {
            return Err(format!("node {} claims a group that it is not in, or alone in", node.0));
        }
        let mut options = PlanOptions::default();
        options.ties = Ties::usual(network);
        let plan = plan(network, &group, &options).map_err(|error| error.to_string())?;
        let register = |request: unisono_btin::setup::SetupRequest| {
            let RegisterOrder::Set { register, .. } = request.order else { return None };
            let is_root = request.switch == plan.tree.root_switch;
            let turn = if is_root { TurnPoint::AtSwitch } else { TurnPoint::AtNode };
            let setup = RegisterSetup::new(&register, turn, ReductionOperator::Or, first);
            Some(ClaimedRegister { switch: request.switch, setup, number: 0, answer: None })
        };
        let requests = SetupAgent::new(network, &group, &plan, node, 1).requests();
        let registers = requests.into_iter().filter_map(register).collect();
        let now = Instant::now();
        Ok(Self { id, node, registers, plan, phase: ClaimPhase::Claiming, since: now, repeat_at: now })
    }

    pub(super) fn id(&self) -> GroupId {
        self.id
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, ClaimPhase::Over)
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.phase, ClaimPhase::Held)
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, ClaimPhase::Leaving(_))
    }

    /// The moment of the next call of [`tick`](Self::tick).
    pub(super) fn due(&self) -> Option<Instant> {
        (!matches!(self.phase, ClaimPhase::Held | ClaimPhase::Over)).then_some(self.repeat_at)
    }

    /// Continues after time has passed. `next` makes numbers of requests.
    pub(super) fn tick(&mut self, next: &mut dyn FnMut() -> u16, out: &mut Outgoing) {
        if self.due().is_none_or(|due| Instant::now() < due) {
            return;
        }
        self.repeat_at = Instant::now() + RETRANSMIT_AFTER;
        let waited = self.since.elapsed();
        match &mut self.phase {
            ClaimPhase::Claiming if waited > ANSWER_TIMEOUT => {
                let silent = self.registers.iter().find(|register| register.answer.is_none());
                let switch = silent.map_or(0, |register| register.switch.0);
                let why = format!(
                    "switch {switch} does not answer node {}: is a link between them down?",
                    self.node.0
                );
                self.give_back(Some(HelperAnswer::Failed { why }), next, out);
            }
            ClaimPhase::Leaving(_) if waited > LEAVE_TIMEOUT => self.give_back(None, next, out),
            ClaimPhase::Leaving(member) => member.retransmit(&mut out.frames),
            // a switch that does not answer has lost its registers with itself
            ClaimPhase::Returning(_) if waited > ANSWER_TIMEOUT => self.finish(out),
            ClaimPhase::Claiming | ClaimPhase::Returning(_) => self.ask(next, out),
            ClaimPhase::Held | ClaimPhase::Over => {}
        }
        self.settle(next, out);
    }

    /// Takes a switch's answer, if it is about this group.
    pub(super) fn take(
        &mut self,
        (number, answer): (u16, RequestAnswer),
        next: &mut dyn FnMut() -> u16,
        out: &mut Outgoing,
    ) {
        let open = self.registers.iter_mut().find(|known| known.number == number && known.answer.is_none());
        if let Some(register) = open {
            register.answer = Some(answer);
            self.settle(next, out);
        }
    }

    /// Takes a frame of the group. Only a group that is being left takes part itself.
    pub(super) fn take_frame(
        &mut self,
        frame: BarrierFrame,
        next: &mut dyn FnMut() -> u16,
        out: &mut Outgoing,
    ) {
        let ClaimPhase::Leaving(member) = &mut self.phase else { return };
        if frame.message.group == self.id && member.take(frame, &mut out.frames).is_some() {
            self.give_back(None, next, out);
        }
    }

    pub(super) fn leave(&mut self, episode: u16, out: &mut Outgoing) {
        let member = GroupMember::new(self.id, MemberRole::Member, ReductionOperator::Or);
        let mut member = member.beginning_with(episode);
        member.arrive(0, &mut out.frames);
        self.enter(ClaimPhase::Leaving(member));
        self.repeat_at = Instant::now() + RETRANSMIT_AFTER;
    }

    /// Begins to return the registers.
    pub(super) fn give_back(
        &mut self,
        answer: Option<HelperAnswer>,
        next: &mut dyn FnMut() -> u16,
        out: &mut Outgoing,
    ) {
        if matches!(self.phase, ClaimPhase::Returning(_) | ClaimPhase::Over) {
            return;
        }
        self.enter(ClaimPhase::Returning(answer));
        self.registers.iter_mut().for_each(|register| register.answer = None);
        self.tick(next, out);
    }

    /// Names the nodes and links for which the group's registers wait.
    pub(super) fn suspects(&self, network: &SwitchNetwork, program: &SwitchProgram) -> Vec<String> {
        let state = |switch| program.state(switch, self.id).ok().flatten();
        suspects(network, &self.plan.tree, TurnPoint::AtSwitch, state)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn enter(&mut self, phase: ClaimPhase) {
        self.phase = phase;
        self.since = Instant::now();
        self.repeat_at = self.since;
    }

    /// Sends the requests that are not answered.
    fn ask(&mut self, next: &mut dyn FnMut() -> u16, out: &mut Outgoing) {
        let is_claim = matches!(self.phase, ClaimPhase::Claiming);
        for register in self.registers.iter_mut().filter(|register| register.answer.is_none()) {
            register.number = next();
            let kind = if is_claim { RegisterRequestKind::Claim } else { RegisterRequestKind::Return };
            out.requests.push(RegisterRequest {
                kind: kind(register.setup),
                group: self.id,
                target: register.switch,
                origin: self.node.0,
                number: register.number,
            });
        }
    }

    /// Enters the next phase when all switches have answered.
    fn settle(&mut self, next: &mut dyn FnMut() -> u16, out: &mut Outgoing) {
        if self.registers.iter().any(|register| register.answer.is_none()) {
            return;
        }
        match self.phase {
            ClaimPhase::Claiming => {
                let is_taken =
                    self.registers.iter().any(|register| register.answer == Some(RequestAnswer::Refused));
                if is_taken {
                    self.give_back(Some(HelperAnswer::Taken), next, out);
                } else {
                    self.enter(ClaimPhase::Held);
                    out.answer = Some(HelperAnswer::Claimed);
                }
            }
            ClaimPhase::Returning(_) => self.finish(out),
            ClaimPhase::Held | ClaimPhase::Leaving(_) | ClaimPhase::Over => {}
        }
    }

    fn finish(&mut self, out: &mut Outgoing) {
        if let ClaimPhase::Returning(Some(answer)) = std::mem::replace(&mut self.phase, ClaimPhase::Over) {
            out.answer = Some(answer);
        }
    }
}
