//! Barriers through one root node: a message from every member to the root, and then a message to every
//! member (unicast) or one message that the switches replicate (multicast).
//!
//! The root receives messages one after the other, at the rate of [`Intake`]. If messages can get lost,
//! members repeat their messages, and the root answers the members that repeat.

use super::fabric::SimulatedFabric;
use super::outcome::{Course, SimulatedBarrier};
use super::queue::EventQueue;
use super::routes::SwitchRoutes;
use super::wiring::{CableDirection, Wiring};
use super::{Conditions, Intake, Scheme, SimulatedTime};
use crate::{NodeId, SwitchId, SwitchNetwork};
use std::collections::HashMap;

/// A message in transit. `hop` is the number of the cable on its way that it enters next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Travelling {
    barrier: u16,
    member: u32,
    way: MessageDirection,
    hop: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MessageDirection {
    ToRoot,
    FromRoot,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CentralEvent {
    Arrive {
        barrier: u16,
        member: u32,
    },
    Hop(Travelling),
    /// The message has reached the root's interface, at the end of the root's cable.
    AtRoot {
        barrier: u16,
        member: u32,
    },
    /// The root node has received the message.
    TakenIn {
        barrier: u16,
        member: u32,
    },
    /// A replicated message enters a cable of the multicast tree.
    Spread {
        barrier: u16,
        branch: u32,
    },
    Released {
        barrier: u16,
        member: u32,
    },
    Timer {
        barrier: u16,
        member: u32,
    },
}

struct CentralBarrier<'a> {
    members: &'a [NodeId],
    places: Vec<SwitchId>,
    /// The index of the root node in `members`.
    root: u32,
    routes: SwitchRoutes,
    branches: Vec<MulticastBranch>,
    has_arrived: Vec<bool>,
    missing: usize,
    is_released: Vec<bool>,
    attempts: Vec<u32>,
    /// When the root's interface is free again.
    intake_busy: SimulatedTime,
    /// When the root's processor is free again.
    root_busy: SimulatedTime,
    has_released: bool,
    timeout: SimulatedTime,
    course: Course,
}

struct MulticastBranch {
    channel: CableDirection,
    next: Vec<u32>,
    /// The member at the end of the branch's cable, if there is one.
    member: Option<u32>,
}

struct CentralRun<'a, 'f> {
    scheme: Scheme,
    conditions: &'a Conditions,
    fabric: &'f mut SimulatedFabric<'a>,
    queue: EventQueue<CentralEvent>,
    running: Vec<CentralBarrier<'a>>,
    /// The time for which one message keeps the root's interface busy.
    intake: SimulatedTime,
    messages: u64,
}

/// Runs the barriers together. Returns their courses, the messages that nodes sent, and the number of events.
pub(super) fn run<'a>(
    barriers: &'a [SimulatedBarrier<'a>],
    network: &SwitchNetwork,
    scheme: Scheme,
    conditions: &'a Conditions,
    fabric: &mut SimulatedFabric<'a>,
) -> (Vec<Course>, u64, u64) {
    let intake = conditions.intake(network);
    let running = barriers
        .iter()
        .map(|barrier| CentralBarrier::new(barrier, network, scheme, conditions, fabric))
        .collect();
    let mut run =
        CentralRun { scheme, conditions, fabric, queue: EventQueue::new(), running, intake, messages: 0 };
    for (number, barrier) in (0..).zip(barriers) {
        for (member, _) in (0..).zip(barrier.group.members()) {
            let at = run.fabric.arrival();
            run.queue.push(at, CentralEvent::Arrive { barrier: number, member });
        }
    }
    while let Some((now, event)) = run.queue.pop() {
        run.handle_event(now, event);
    }
    let events = run.queue.events();
    (run.running.into_iter().map(CentralBarrier::end).collect(), run.messages, events)
}

/// Returns the distance between the root and the farthest member, including the links to the nodes.
pub(super) fn distance(
    network: &SwitchNetwork,
    wiring: &Wiring,
    barrier: &SimulatedBarrier,
    conditions: &Conditions,
) -> u64 {
    let place = |node: &NodeId| network.switch_of(*node);
    let members = barrier.group.members();
    let routes = SwitchRoutes::new(network, wiring, place(&members[root(barrier)]), conditions.routes);
    farthest(&routes, members.iter().map(place))
}

/// Returns the distances between all members, row by row.
pub(super) fn distances(
    network: &SwitchNetwork,
    wiring: &Wiring,
    members: &[NodeId],
    conditions: &Conditions,
) -> Vec<u64> {
    let place = |node: &NodeId| network.switch_of(*node);
    let mut distances = Vec::with_capacity(members.len() * members.len());
    for from in members {
        let routes = SwitchRoutes::new(network, wiring, place(from), conditions.routes);
        distances.extend(members.iter().map(|to| routes.out(place(to)).len() as u64 + 2));
    }
    distances
}

fn farthest(routes: &SwitchRoutes, places: impl Iterator<Item = SwitchId>) -> u64 {
    places.map(|place| routes.out(place).len() as u64 + 2).max().unwrap_or(2)
}

/// Returns the index of the root member: the tree's root node, or the first member if the tree has no root
/// node.
fn root(barrier: &SimulatedBarrier) -> usize {
    let members = barrier.group.members();
    barrier.tree.root_node.and_then(|root| members.binary_search(&root).ok()).unwrap_or(0)
}

impl<'a> CentralBarrier<'a> {
    fn new(
        barrier: &'a SimulatedBarrier<'a>,
        network: &SwitchNetwork,
        scheme: Scheme,
        conditions: &Conditions,
        fabric: &SimulatedFabric,
    ) -> Self {
        let members = barrier.group.members();
        let root = root(barrier);
        let place = |node: &NodeId| network.switch_of(*node);
        let places: Vec<SwitchId> = members.iter().map(place).collect();
        let routes = SwitchRoutes::new(network, fabric.wiring, places[root], conditions.routes);
        let n = members.len();
        let distance = farthest(&routes, places.iter().copied());
        let intake = conditions.intake(network);
        let analytic = super::analytic::latency(scheme, &conditions.costs, distance, n as u64, intake);
        let timeout = conditions.timeout.unwrap_or(analytic * 4);
        let mut running = Self {
            members,
            places,
            root: u32::try_from(root).expect("fits because node numbers are 32 bits"),
            routes,
            branches: Vec::new(),
            has_arrived: vec![false; n],
            missing: n,
            is_released: vec![false; n],
            attempts: vec![0; n],
            intake_busy: SimulatedTime::ZERO,
            root_busy: SimulatedTime::ZERO,
            has_released: false,
            timeout,
            course: Course::new(n, 1),
        };
        if scheme == Scheme::Multicast {
            running.build_multicast_tree(fabric);
        }
        running
    }

    /// Builds the multicast tree as the union of the routes to the members. Branch 0 is the root's own cable.
    fn build_multicast_tree(&mut self, fabric: &SimulatedFabric) {
        let wiring = fabric.wiring;
        let own = wiring.out_of_node(self.members[self.root as usize]);
        self.branches.push(MulticastBranch { channel: own, next: Vec::new(), member: None });
        let mut known: HashMap<CableDirection, u32> = HashMap::new();
        let mut ends: HashMap<SwitchId, u32> = HashMap::new();
        for (member, place) in (0..).zip(&self.places) {
            if member == self.root || !self.routes.reaches(*place) {
                continue;
            }
            let branches = &mut self.branches;
            let mut grow = |from: u32, channel: CableDirection, member: Option<u32>| {
                let new = u32::try_from(branches.len()).expect("fits because channels are 32 bits");
                branches.push(MulticastBranch { channel, next: Vec::new(), member });
                branches[from as usize].next.push(new);
                new
            };
            let end = *ends.entry(*place).or_insert_with(|| {
                self.routes.out(*place).iter().fold(0, |from, channel| {
                    *known.entry(*channel).or_insert_with(|| grow(from, *channel, None))
                })
            });
            grow(end, fabric.wiring.towards_node(self.members[member as usize]), Some(member));
        }
    }

    fn end(mut self) -> Course {
        let unreleased = self.members.iter().zip(&self.is_released).filter(|(_, is_released)| !**is_released);
        self.course.unreleased = unreleased.map(|(node, _)| *node).collect();
        self.course
    }

    /// Returns the cable that a message enters next, or `None` once it has arrived at its node.
    fn channel(&self, travelling: Travelling, fabric: &SimulatedFabric) -> Option<CableDirection> {
        let node = self.members[travelling.member as usize];
        let root = self.members[self.root as usize];
        let place = self.places[travelling.member as usize];
        let (from, to, way) = match travelling.way {
            MessageDirection::ToRoot => (node, root, self.routes.back(place)),
            MessageDirection::FromRoot => (root, node, self.routes.out(place)),
        };
        let hop = travelling.hop as usize;
        match hop.checked_sub(1) {
            None => Some(fabric.wiring.out_of_node(from)),
            Some(at) if at < way.len() => Some(way[at]),
            Some(at) if at == way.len() => Some(fabric.wiring.towards_node(to)),
            Some(_) => None,
        }
    }
}

impl CentralRun<'_, '_> {
    fn handle_event(&mut self, now: SimulatedTime, event: CentralEvent) {
        match event {
            CentralEvent::Arrive { barrier, member } => self.arrive(now, barrier, member),
            CentralEvent::Hop(travelling) => self.start_hop(now, travelling),
            CentralEvent::AtRoot { barrier, member } => {
                let running = &mut self.running[usize::from(barrier)];
                let start = now.max(running.intake_busy);
                running.intake_busy = start + self.intake;
                let own = match self.conditions.intake {
                    Intake::StartupEach => self.conditions.costs.startup,
                    Intake::ParallelLinks | Intake::OnePort => SimulatedTime::ZERO,
                };
                let done = start + own + self.conditions.costs.switch;
                self.queue.push(done, CentralEvent::TakenIn { barrier, member });
            }
            CentralEvent::TakenIn { barrier, member } => self.accept(now, barrier, member),
            CentralEvent::Spread { barrier, branch } => self.forward_multicast(now, barrier, branch),
            CentralEvent::Released { barrier, member } => {
                let running = &mut self.running[usize::from(barrier)];
                let is_released = &mut running.is_released[member as usize];
                if !*is_released {
                    *is_released = true;
                    running.course.released(0, now, 0);
                }
            }
            CentralEvent::Timer { barrier, member } => {
                let running = &mut self.running[usize::from(barrier)];
                let attempts = &mut running.attempts[member as usize];
                if running.is_released[member as usize] || *attempts == self.conditions.attempts {
                    return;
                }
                *attempts += 1;
                running.course.repetitions += 1;
                self.send_to_root(now, barrier, member);
            }
        }
    }

    fn arrive(&mut self, now: SimulatedTime, barrier: u16, member: u32) {
        let running = &mut self.running[usize::from(barrier)];
        running.course.arrived(0, now);
        if member == running.root {
            self.accept(now, barrier, member);
        } else if running.routes.reaches(running.places[member as usize]) {
            self.send_to_root(now, barrier, member);
        }
    }

    fn send_to_root(&mut self, now: SimulatedTime, barrier: u16, member: u32) {
        if self.conditions.faults.lose() {
            let timeout = self.running[usize::from(barrier)].timeout;
            self.queue.push(now + timeout, CentralEvent::Timer { barrier, member });
        }
        let costs = &self.conditions.costs;
        self.messages += 1;
        self.start_hop(
            now + costs.startup + costs.switch,
            Travelling { barrier, member, way: MessageDirection::ToRoot, hop: 0 },
        );
    }

    fn send_from_root(&mut self, now: SimulatedTime, barrier: u16, member: u32) {
        let costs = &self.conditions.costs;
        self.messages += 1;
        let running = &mut self.running[usize::from(barrier)];
        let ready = now.max(running.root_busy) + costs.startup;
        running.root_busy = ready;
        let travelling = Travelling { barrier, member, way: MessageDirection::FromRoot, hop: 0 };
        self.queue.push(ready + costs.switch, CentralEvent::Hop(travelling));
    }

    fn accept(&mut self, now: SimulatedTime, barrier: u16, member: u32) {
        let running = &mut self.running[usize::from(barrier)];
        if !std::mem::replace(&mut running.has_arrived[member as usize], true) {
            running.missing -= 1;
            if running.missing == 0 {
                self.release(now, barrier);
            }
        } else if running.has_released {
            self.send_from_root(now, barrier, member);
        }
    }

    fn release(&mut self, now: SimulatedTime, barrier: u16) {
        let running = &mut self.running[usize::from(barrier)];
        running.has_released = true;
        let root = running.root;
        self.queue.push(now, CentralEvent::Released { barrier, member: root });
        let members = u32::try_from(running.members.len()).expect("fits because node numbers are 32 bits");
        if self.scheme == Scheme::Unicast {
            for member in (0..members).filter(|member| *member != root) {
                self.send_from_root(now, barrier, member);
            }
        } else if members > 1 {
            let costs = &self.conditions.costs;
            let ready = now.max(running.root_busy) + costs.startup;
            running.root_busy = ready;
            self.messages += 1;
            self.queue.push(ready + costs.switch, CentralEvent::Spread { barrier, branch: 0 });
        }
    }

    fn forward_multicast(&mut self, now: SimulatedTime, barrier: u16, branch: u32) {
        let costs = &self.conditions.costs;
        let branch = &self.running[usize::from(barrier)].branches[branch as usize];
        for out in self.fabric.cross(branch.channel, now).into_iter().flatten() {
            let at = out + costs.switch;
            if let Some(member) = branch.member {
                self.queue.push(at, CentralEvent::Released { barrier, member });
            }
            for next in &branch.next {
                self.queue.push(at, CentralEvent::Spread { barrier, branch: *next });
            }
        }
    }

    /// Moves a message on: to its end at once if no other message can delay it, or else over one cable.
    fn start_hop(&mut self, now: SimulatedTime, travelling: Travelling) {
        let Travelling { barrier, member, way, hop } = travelling;
        let running = &self.running[usize::from(barrier)];
        let Some(channel) = running.channel(travelling, self.fabric) else { return };
        let next = Travelling { hop: hop + 1, ..travelling };
        let is_last = running.channel(next, self.fabric).is_none();
        for out in self.fabric.cross(channel, now).into_iter().flatten() {
            let behind = out + self.conditions.costs.switch;
            match (is_last, way) {
                (true, MessageDirection::ToRoot) => {
                    self.queue.push(out, CentralEvent::AtRoot { barrier, member });
                }
                (true, MessageDirection::FromRoot) => {
                    self.queue.push(behind, CentralEvent::Released { barrier, member });
                }
                (false, _) if self.fabric.is_free() => self.start_hop(behind, next),
                (false, _) => self.queue.push(behind, CentralEvent::Hop(next)),
            }
        }
    }
}
