//! Barriers in the switches: every frame of every group passes through the state machines of
//! [`crate::switch`] and [`crate::GroupMember`].

use super::fabric::SimulatedFabric;
use super::outcome::{Course, SimulatedBarrier};
use super::queue::EventQueue;
use super::wiring::{CableDirection, PortPeer};
use super::{Conditions, SimulatedTime};
use crate::{BarrierFrame, End, FrameOutcome, GroupMember, MemberRole, NodeId, Port, Switch, TurnPoint};

const NO_MEMBER: u32 = u32::MAX;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum TreeEvent {
    Arrive { barrier: u16, member: u32 },
    AtSwitch { barrier: u16, end: End, frame: BarrierFrame },
    AtNode { barrier: u16, member: u32, frame: BarrierFrame },
    Timer { barrier: u16, member: u32, episode: u16 },
}

struct TreeBarrier<'a> {
    barrier: &'a SimulatedBarrier<'a>,
    switches: Vec<(Switch, SimulatedTime)>,
    /// By switch: its index in `switches`.
    switch_at: Vec<u32>,
    members: Vec<SimulatedNode>,
    /// By node: its index in `members`.
    member_at: Vec<u32>,
    timeout: SimulatedTime,
    course: Course,
}

struct SimulatedNode {
    id: NodeId,
    machine: GroupMember,
    attempts: u32,
}

struct TreeRun<'a, 'f> {
    conditions: &'a Conditions,
    fabric: &'f mut SimulatedFabric<'a>,
    queue: EventQueue<TreeEvent>,
    running: Vec<TreeBarrier<'a>>,
    /// By node: the time until which its processor is busy with the start-up of messages. Empty if messages
    /// do not wait for each other.
    busy: Vec<SimulatedTime>,
    messages: u64,
    frames: Vec<BarrierFrame>,
    replies: Vec<(Port, BarrierFrame)>,
}

/// Runs the barriers together. Returns their courses, the messages that nodes sent, and the number of events.
pub(super) fn run<'a>(
    barriers: &'a [SimulatedBarrier<'a>],
    sizes: (usize, usize),
    turn: TurnPoint,
    conditions: &'a Conditions,
    fabric: &mut SimulatedFabric<'a>,
) -> (Vec<Course>, u64, u64) {
    let (switches, nodes) = sizes;
    let running =
        barriers.iter().map(|barrier| TreeBarrier::new(barrier, switches, nodes, turn, conditions)).collect();
    let busy = vec![SimulatedTime::ZERO; if fabric.is_free() { 0 } else { nodes }];
    let mut run = TreeRun {
        conditions,
        fabric,
        queue: EventQueue::new(),
        running,
        busy,
        messages: 0,
        frames: Vec::new(),
        replies: Vec::new(),
    };
    for (number, barrier) in (0..).zip(barriers) {
        for (member, _) in (0..).zip(barrier.group.members()) {
            let at = run.fabric.arrival();
            run.queue.push(at, TreeEvent::Arrive { barrier: number, member });
        }
    }
    while let Some((now, event)) = run.queue.pop() {
        run.handle_event(now, event);
    }
    let events = run.queue.events();
    let courses = run.running.into_iter().map(TreeBarrier::end).collect();
    (courses, run.messages, events)
}

impl<'a> TreeBarrier<'a> {
    fn new(
        barrier: &'a SimulatedBarrier<'a>,
        switch_count: usize,
        node_count: usize,
        turn: TurnPoint,
        conditions: &Conditions,
    ) -> Self {
        let operation = barrier.operation;
        let costs = &conditions.costs;
        let in_memory = costs.startup + costs.propagation * 2 + costs.switch * 4;
        let mut switch_at = vec![NO_MEMBER; switch_count];
        let mut switches = Vec::with_capacity(barrier.tree.registers.len());
        for (number, (id, switch)) in (0..).zip(Switch::all(barrier.tree, turn, operation)) {
            let delay = if barrier.in_memory.contains_key(&id) { in_memory } else { costs.switch };
            switch_at[id.0 as usize] = number;
            switches.push((switch, delay));
        }
        let members = barrier.group.members();
        let mut member_at = vec![NO_MEMBER; node_count];
        let mut nodes = Vec::with_capacity(members.len());
        for (number, id) in (0..).zip(members) {
            member_at[id.0 as usize] = number;
            let is_alone = members.len() == 1;
            let is_root = turn == TurnPoint::AtNode && Some(*id) == barrier.tree.root_node;
            let part = if is_root || is_alone { MemberRole::Root } else { MemberRole::Member };
            let mut machine = GroupMember::new(barrier.group.id(), part, operation);
            if is_alone {
                machine = machine.alone();
            }
            nodes.push(SimulatedNode { id: *id, machine, attempts: 0 });
        }
        let analytic = costs.message(u64::from(barrier.height) + 2) * 2;
        let course = Course::new(members.len(), conditions.episodes);
        let timeout = conditions.timeout.unwrap_or(analytic * 4);
        Self { barrier, switches, switch_at, members: nodes, member_at, timeout, course }
    }

    fn end(mut self) -> Course {
        let episodes = self.course.episodes();
        self.course.unreleased = self
            .members
            .iter()
            .filter(|node| node.machine.episode() != episodes)
            .map(|node| node.id)
            .collect();
        if !self.course.unreleased.is_empty() {
            for id in self.barrier.tree.registers.keys() {
                let (switch, _) = &self.switches[self.switch_at[id.0 as usize] as usize];
                if switch.episode() != episodes {
                    let missing =
                        switch.missing().chain(switch.waits_above()).map(|port| End { switch: *id, port });
                    self.course.missing.extend(missing);
                }
            }
        }
        self.course
    }
}

impl TreeRun<'_, '_> {
    fn handle_event(&mut self, now: SimulatedTime, event: TreeEvent) {
        match event {
            TreeEvent::Arrive { barrier, member } => self.arrive(now, barrier, member),
            TreeEvent::AtSwitch { barrier, end, frame } => self.at_switch(now, barrier, end, frame),
            TreeEvent::AtNode { barrier, member, frame } => {
                let running = &mut self.running[usize::from(barrier)];
                let node = &mut running.members[member as usize];
                let released = node.machine.take(frame, &mut self.frames);
                self.send(now, barrier, member);
                self.released(now, barrier, member, released);
            }
            TreeEvent::Timer { barrier, member, episode } => {
                let node = &mut self.running[usize::from(barrier)].members[member as usize];
                let is_over = node.machine.episode() != episode || !node.machine.is_waiting();
                if is_over || node.attempts == self.conditions.attempts {
                    return;
                }
                node.attempts += 1;
                node.machine.retransmit(&mut self.frames);
                self.running[usize::from(barrier)].course.repetitions += self.frames.len() as u64;
                self.send(now, barrier, member);
                self.set_timer(now, barrier, member);
            }
        }
    }

    fn arrive(&mut self, now: SimulatedTime, barrier: u16, member: u32) {
        let running = &mut self.running[usize::from(barrier)];
        let node = &mut running.members[member as usize];
        let episode = node.machine.episode();
        running.course.arrived(episode, now);
        let data = (running.barrier.data)(node.id, episode);
        node.attempts = 0;
        let released = node.machine.arrive(data, &mut self.frames);
        self.send(now, barrier, member);
        if released.is_none() && self.conditions.faults.lose() {
            self.set_timer(now, barrier, member);
        }
        self.released(now, barrier, member, released);
    }

    fn set_timer(&mut self, now: SimulatedTime, barrier: u16, member: u32) {
        let running = &self.running[usize::from(barrier)];
        let episode = running.members[member as usize].machine.episode();
        self.queue.push(now + running.timeout, TreeEvent::Timer { barrier, member, episode });
    }

    fn released(&mut self, now: SimulatedTime, barrier: u16, member: u32, result: Option<u8>) {
        let Some(result) = result else { return };
        let running = &mut self.running[usize::from(barrier)];
        let episode = running.members[member as usize].machine.episode();
        running.course.released(episode.wrapping_sub(1), now, result);
        if episode < running.course.episodes() {
            let again = now + self.fabric.arrival();
            self.queue.push(again, TreeEvent::Arrive { barrier, member });
        }
    }

    /// Sends the frames in `self.frames`: each passes the node's start-up, its interface and its cable.
    fn send(&mut self, now: SimulatedTime, barrier: u16, member: u32) {
        let costs = &self.conditions.costs;
        let id = self.running[usize::from(barrier)].members[member as usize].id;
        let mut frames = std::mem::take(&mut self.frames);
        for frame in frames.drain(..) {
            self.messages += 1;
            let mut ready = now + costs.startup;
            if let Some(busy) = self.busy.get_mut(id.0 as usize) {
                ready = now.max(*busy) + costs.startup;
                *busy = ready;
            }
            let channel = self.fabric.wiring.out_of_node(id);
            self.cross(ready + costs.switch, barrier, channel, frame);
        }
        self.frames = frames;
    }

    fn at_switch(&mut self, now: SimulatedTime, barrier: u16, end: End, frame: BarrierFrame) {
        let running = &mut self.running[usize::from(barrier)];
        let at = running.switch_at[end.switch.0 as usize];
        let Some((switch, delay)) = running.switches.get_mut(at as usize) else {
            running.course.dropped += 1;
            return;
        };
        let leaves = now + *delay;
        if let Some(node) = running.barrier.in_memory.get(&end.switch) {
            self.fabric.count_visit(*node);
        }
        let mut replies = std::mem::take(&mut self.replies);
        if let FrameOutcome::Dropped(_) = switch.take(end.port, frame, &mut replies) {
            running.course.dropped += 1;
        }
        for (port, frame) in replies.drain(..) {
            let channel = self.fabric.wiring.out_of(end.switch, port);
            self.cross(leaves, barrier, channel, frame);
        }
        self.replies = replies;
    }

    fn cross(&mut self, now: SimulatedTime, barrier: u16, channel: CableDirection, frame: BarrierFrame) {
        let far = self.fabric.wiring.far(channel);
        for out in self.fabric.cross(channel, now).into_iter().flatten() {
            match far {
                PortPeer::Switch(end) => self.queue.push(out, TreeEvent::AtSwitch { barrier, end, frame }),
                PortPeer::Node(node) => {
                    let member = self.running[usize::from(barrier)].member_at[node.0 as usize];
                    if member != NO_MEMBER {
                        let at = out + self.conditions.costs.switch;
                        self.queue.push(at, TreeEvent::AtNode { barrier, member, frame });
                    }
                }
                PortPeer::Open => {}
            }
        }
    }
}
