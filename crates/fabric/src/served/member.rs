//! A process's part in barriers in the switches, with a packet socket that a helper has opened for it. It
//! repeats its arrival as a deployment's own nodes do.

use crate::layout::BARRIER;
use crate::node::{ETHERNET, RetransmitTimer, header, tolerate};
use std::os::fd::AsFd;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_btin::{BarrierFrame, GroupId, GroupMember, MemberRole, ReductionOperator};
use unisono_linux::clock::{Instant, now};
use unisono_linux::packet::PacketSocket;
use unisono_linux::poll::readable;

/// The pause after an error of the socket, such as a device that is down: the arrival is sent again later.
const ERROR_PAUSE: StdDuration = StdDuration::from_millis(1);

#[derive(Debug)]
pub struct SwitchMember {
    socket: PacketSocket,
    member: GroupMember,
    retransmit: RetransmitTimer,
    repeat_at: StdInstant,
    arrived_at: StdInstant,
    repeated: u64,
    out: Vec<BarrierFrame>,
}

impl SwitchMember {
    pub(super) fn new(socket: PacketSocket, group: GroupId, first: u16, members: usize) -> Self {
        let start = StdInstant::now();
        Self {
            socket,
            member: member(group, first),
            retransmit: RetransmitTimer::for_members(members),
            repeat_at: start,
            arrived_at: start,
            repeated: 0,
            out: Vec::new(),
        }
    }

    pub fn episode(&self) -> u16 {
        self.member.episode()
    }

    /// Arrives at the next barrier. A frame that cannot be sent is as if lost.
    pub fn arrive(&mut self) {
        self.arrived_at = StdInstant::now();
        self.repeated = 0;
        self.member.arrive(0, &mut self.out);
        self.send();
    }

    /// Waits for the release, at most until this moment, and repeats the arrival meanwhile. Returns whether
    /// the release has come.
    pub fn wait(&mut self, until: Instant) -> bool {
        loop {
            if self.receive() {
                self.retransmit.sample(Some(self.arrived_at.elapsed()), self.repeated);
                return true;
            }
            let (left, repeat_in) =
                (until - now(), self.repeat_at.saturating_duration_since(StdInstant::now()));
            if repeat_in.is_zero() {
                self.repeated += 1;
                self.retransmit.back_off(StdDuration::MAX);
                self.member.retransmit(&mut self.out);
                self.send();
            } else if left.as_nanos() == 0 {
                return false;
            } else {
                let timeout = StdDuration::from_nanos(left.as_nanos()).min(repeat_in);
                if readable([self.socket.as_fd()], Some(timeout)).is_err() {
                    std::thread::sleep(ERROR_PAUSE.min(timeout));
                }
            }
        }
    }

    /// The current barrier is complete, as the member has learned in another way.
    pub fn skip(&mut self) {
        self.member = member(self.member.group(), self.member.episode().wrapping_add(1));
    }

    /// Takes received frames until a frame releases the member. Returns whether that happened.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 64];
        loop {
            let length = match self.socket.receive_now(&mut bytes) {
                Ok(Some(length)) => length,
                // a device that has gone down reports that once as an error
                Ok(None) | Err(_) => return false,
            };
            let Some(payload) = bytes.get(ETHERNET..length).and_then(|bytes| bytes.first_chunk()) else {
                continue;
            };
            let frame = BarrierFrame::from_bytes(*payload);
            if frame.message.group == self.member.group() && self.member.take(frame, &mut self.out).is_some()
            {
                return true;
            }
        }
    }

    fn send(&mut self) {
        for frame in self.out.drain(..) {
            let bytes = [&header(BARRIER)[..], &frame.to_bytes()].concat();
            let _ = tolerate(self.socket.send(&bytes), "send a frame"); // it will be sent again
        }
        self.repeat_at = StdInstant::now() + self.retransmit.timeout();
    }
}

fn member(group: GroupId, first: u16) -> GroupMember {
    GroupMember::new(group, MemberRole::Member, ReductionOperator::Or).beginning_with(first)
}
