//! Sets up the registers that are this node's duty (`Setup_Register`, [`unisono_btin::setup`]): sends a
//! request to each switch and repeats it until the switch confirms it. Requests to other switches travel
//! through the network.

use super::{ETHERNET, MemberNode, NodeContext, OrderDone, header, tolerate};
use crate::error::Error;
use crate::job::BarrierJob;
use crate::layout::{REQUEST, RegisterRequest, RegisterRequestKind, RegisterSetup};
use crate::orders::NodeReport;
use std::time::{Duration, Instant};
use unisono_btin::repair::around_links;
use unisono_btin::setup::{RegisterOrder, SetupAgent, SetupAnswer, SetupReply, SetupRequest};
use unisono_btin::{GroupMember, MemberRole, NodeId, SwitchId, SwitchNetwork, TreePlan, TurnPoint};

const RETRANSMIT_AFTER: Duration = Duration::from_millis(100);
/// After this time, set-up fails, and the error names a switch that does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The registers that this node has to set up for one group.
pub(super) struct NodeDuty {
    agent: SetupAgent,
    job: usize,
    root_switch: SwitchId,
    first: u16,
}

impl MemberNode<'_> {
    /// Sets up the registers that are this node's duty in the trees without these links, and releases its
    /// earlier registers that are in no tree any more.
    pub(super) fn set_up(&mut self, without: &[u32], first: u16) -> Result<OrderDone, Error> {
        let NodeContext { network, jobs } = self.known;
        self.life += 1;
        let mut before = std::mem::take(&mut self.duties);
        let mut planned: Option<(&[NodeId], TreePlan)> = None;
        for (number, job) in jobs.iter().enumerate().filter(|(_, job)| job.group.contains(self.id)) {
            let mut member = GroupMember::new(job.group.id(), MemberRole::Member, job.operation);
            if is_representative(network, job, self.id) {
                // every representative computes the tree by itself, and all get the same tree
                let plan = match planned.take() {
                    Some((members, plan)) if members == job.group.members() => plan,
                    _ => around_links(network, &job.group, without)
                        .map_err(|error| Error::Input(error.to_string()))?,
                };
                let is_alone = job.group.members().len() == 1;
                if plan.tree.root_node == Some(self.id) && (job.turn == TurnPoint::AtNode || is_alone) {
                    member = GroupMember::new(job.group.id(), MemberRole::Root, job.operation);
                }
                if is_alone {
                    member = member.alone();
                }
                let agent = SetupAgent::new(network, &job.group, &plan, self.id, self.life);
                before.iter_mut().filter(|duty| duty.job == number).for_each(|duty| {
                    duty.agent.release_unless(|switch| plan.tree.registers.contains_key(&switch));
                });
                let root_switch = plan.tree.root_switch;
                self.duties.push(NodeDuty { agent, job: number, root_switch, first });
                planned = Some((job.group.members(), plan));
            }
            self.members[number] = Some(member.beginning_with(first));
        }
        let mine = self.duties.len();
        self.duties.extend(before);
        let done = self.ask_all(mine);
        self.duties.truncate(mine);
        done
    }

    pub(super) fn release(&mut self) -> Result<OrderDone, Error> {
        self.duties.iter_mut().for_each(|duty| duty.agent.release());
        self.ask_all(self.duties.len())
    }

    /// Sends requests, and repeats them until all are answered. Reports the number of registers that the
    /// first `counted` duties set up.
    fn ask_all(&mut self, counted: usize) -> Result<OrderDone, Error> {
        self.requests.set_timeout(RETRANSMIT_AFTER).map_err(Error::io("set a timer"))?;
        let registers = self.duties[..counted].iter().map(|duty| duty.agent.duties().count()).sum();
        let start = Instant::now();
        loop {
            let mut asked: Vec<(u16, usize, SetupRequest)> = Vec::new();
            for (at, duty) in self.duties.iter().enumerate() {
                for request in duty.agent.requests() {
                    self.next_request = self.next_request.wrapping_add(1);
                    asked.push((self.next_request, at, request));
                }
            }
            let Some((_, _, first)) = asked.first() else { break };
            if start.elapsed() > ANSWER_TIMEOUT {
                return Err(Error::Barrier(format!(
                    "switch {} does not answer a request from node {}: is a link between them down?",
                    first.switch.0, self.id.0
                )));
            }
            for (number, at, request) in &asked {
                let request = encode_request(
                    request,
                    *number,
                    &self.known.jobs[self.duties[*at].job],
                    &self.duties[*at],
                );
                let bytes = [&header(REQUEST)[..], &request.to_bytes()].concat();
                tolerate(self.requests.send(&bytes), "send a request")?;
            }
            while !asked.is_empty() {
                let mut bytes = [0; 64];
                let received = self.requests.receive(&mut bytes).map_err(Error::io("receive an answer"))?;
                let Some(length) = received else { break };
                let answer = bytes.get(ETHERNET..length).and_then(RegisterRequest::answer);
                let Some((answered, _)) = answer else { continue };
                let Some(of) = asked.iter().position(|(number, ..)| *number == answered) else { continue };
                let (_, at, request) = asked.swap_remove(of);
                let answer = match request.order {
                    RegisterOrder::Set { .. } => SetupAnswer::InSwitch,
                    RegisterOrder::Release => SetupAnswer::Released,
                };
                let SetupRequest { group, life, from, switch, .. } = request;
                self.duties[at].agent.take(&SetupReply { group, life, to: from, switch, answer });
            }
        }
        Ok(OrderDone::With(NodeReport::SetUp { registers }))
    }
}

fn encode_request(request: &SetupRequest, number: u16, job: &BarrierJob, duty: &NodeDuty) -> RegisterRequest {
    let kind = match &request.order {
        RegisterOrder::Set { register, .. } => {
            let turn = if request.switch == duty.root_switch { job.turn } else { TurnPoint::AtNode };
            RegisterRequestKind::Install(RegisterSetup::new(register, turn, job.operation, duty.first))
        }
        RegisterOrder::Release => RegisterRequestKind::Release,
    };
    RegisterRequest { kind, group: request.group, target: request.switch, origin: request.from.0, number }
}

/// Returns whether a node is the representative of its switch: the member at the lowest port. Other nodes
/// need no tree.
fn is_representative(network: &SwitchNetwork, job: &BarrierJob, node: NodeId) -> bool {
    let here = network.switch_of(node);
    let mut members = network.locals(here).iter().filter(|(_, local)| job.group.contains(*local));
    members.next().is_some_and(|(_, first)| *first == node)
}
