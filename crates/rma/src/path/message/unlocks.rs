//! Exclusive unlocks that did not wait for their target, and the calls that wait in their place.
//!
//! ```text
//!   origin                        target                         third rank
//!   unlock: [ops|UNLOCK|ACK] ...... (on its way)
//!   barrier: wait for done          ops, owes "done"
//!                     <--"done"---- end of its round of serving
//!   barrier goes on ------------------------------------------>  may put at the target, without a lock
//! ```
//! The idea: an exclusive unlock returns at once, because a rank that reads with a lock gets the lock after
//! the operations. A rank without a lock can access the part too early only if it has learned, directly or
//! through other ranks, that unlock has returned. So each call of the origin from which another rank could
//! learn this waits here until the target has acknowledged: fence, post, complete, barrier and gather, the
//! end of a lock on its own part, and each call that sends operations to another target. Packets to the same
//! target stay behind the unlock anyway. The target owes the acknowledgement until it has served all packets
//! that have arrived; if it grants a lock to the same origin meanwhile, the grant carries the
//! acknowledgement.
//!
//! Cost: one message for each unlock, or none if the next grant carries the acknowledgement; a wait only if
//! the acknowledgement has not arrived yet. When not to use: for a shared lock, where unlock waits, because
//! other ranks may read at the same time.

use super::{EngineState, MessageEngine};
use crate::model::{Error, Rank};
use crate::wire::packet::{Header, PacketFlags, PacketKind};

/// Unacknowledged unlocks, by window and peer: unlocks by this member, and unlocks by other members that this
/// member has to acknowledge.
#[derive(Debug, Default)]
pub(super) struct Unlocks {
    awaited: Vec<(u32, Rank)>,
    owed: Vec<(u32, Rank)>,
}

impl MessageEngine {
    /// Waits until every exclusive unlock in any window of the job is complete at its target, except for
    /// unlocks at `same`: packets there stay in order.
    pub(crate) fn await_unlocks(&self, same: Option<Rank>) -> Result<(), Error> {
        if !self.core().awaits_unlock(same) {
            return Ok(());
        }
        self.wait_for(|core| Ok((!core.awaits_unlock(same)).then_some(())))
    }
}

impl EngineState {
    /// Whether any target other than `same` has not acknowledged an unlock.
    pub(crate) fn awaits_unlock(&self, same: Option<Rank>) -> bool {
        self.unlocks.awaited.iter().any(|(_, target)| Some(*target) != same)
    }

    /// Records, at the origin, an unlock that requested an acknowledgement and does not wait for it.
    pub(super) fn remember_unlock(&mut self, window: u32, target: Rank) {
        if !self.unlocks.awaited.contains(&(window, target)) {
            self.unlocks.awaited.push((window, target));
        }
    }

    /// Records, at the origin, an acknowledgement that has arrived.
    pub(super) fn acknowledged(&mut self, from: Rank, header: &Header) {
        let peer = &mut self.port(header.window).peers[from.index()];
        peer.acknowledged = header.tag;
        if peer.acknowledged == peer.requested {
            self.unlocks.awaited.retain(|unlock| *unlock != (header.window, from));
        }
    }

    /// Forgets the unlocks of a window that is dropped.
    pub(crate) fn forget_unlocks(&mut self, window: u32) {
        self.unlocks.awaited.retain(|(of, _)| *of != window);
    }

    /// Records, at the target, that an acknowledgement is owed. It is sent when this round of serving ends,
    /// or earlier with another packet.
    pub(super) fn owe(&mut self, to: Rank, header: &Header) {
        self.port(header.window).peers[to.index()].owed = Some(header.tag);
        self.unlocks.owed.push((header.window, to));
    }

    /// Returns `header` with the acknowledgement that this member owes, if any.
    pub(super) fn with_owed(&mut self, to: Rank, header: Header) -> Header {
        match self.port(header.window).peers[to.index()].owed.take() {
            Some(tag) => Header { flags: header.flags.with(PacketFlags::ACKNOWLEDGE), tag, ..header },
            None => header,
        }
    }

    pub(super) fn acknowledge_owed(&mut self) -> Result<(), Error> {
        while let Some((window, to)) = self.unlocks.owed.pop() {
            let port = self.ports.get_mut(&window);
            if let Some(tag) = port.and_then(|port| port.peers[to.index()].owed.take()) {
                self.send(to, &Header { tag, ..Header::new(PacketKind::Complete, window) }, &[])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Lock;
    use crate::path::message::port::{Grant, LockRequest};
    use crate::path::message::{Memory, WindowPort};
    use crate::wire::packet::WirePacket;
    use crate::wire::{Transport, loopback::Loopback};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    const WINDOW: u32 = 1;
    const ASKS: Header =
        Header { flags: PacketFlags::ACKNOWLEDGE, tag: 7, ..Header::new(PacketKind::Unlock, WINDOW) };
    const EXCLUSIVE: Header = Header { extra: 2, ..Header::new(PacketKind::LockRequest, WINDOW) };

    /// Creates rank 0 as a bare transport, and rank 1 as a member with a window.
    fn pair() -> (Loopback, Arc<MessageEngine>) {
        let mut ends = Loopback::job(2).into_iter();
        let (bare, member) = (ends.next().expect("two ends"), ends.next().expect("two ends"));
        let member = MessageEngine::new(Box::new(member));
        member.core().ports.insert(WINDOW, WindowPort::new(Memory::Attached(Vec::new()), 2));
        (bare, member)
    }

    /// Sends `packets`, lets the member serve them in one round, and returns its answers.
    fn answers(
        bare: &mut Loopback,
        member: &MessageEngine,
        packets: &[Header],
    ) -> Vec<(PacketKind, bool, u32)> {
        for packet in packets {
            bare.send(Rank(1), &packet.encode(0), &[]).expect("loopback takes it");
        }
        member.core().progress().expect("no fault here");
        let (mut bytes, mut came) = (Vec::new(), Vec::new());
        while bare.receive(&mut bytes).expect("no fault here").is_some() {
            let header = WirePacket::parse(&bytes).expect("the engine's own").header;
            came.push((header.kind, header.flags.has(PacketFlags::ACKNOWLEDGE), header.tag));
        }
        came
    }

    #[test]
    fn the_next_grant_acknowledges_an_exclusive_unlock_and_else_a_message_does() {
        let (mut bare, member) = pair();
        let granted = (PacketKind::LockGranted, false, 0);
        assert_eq!(answers(&mut bare, &member, &[EXCLUSIVE]), [granted]);
        assert_eq!(answers(&mut bare, &member, &[ASKS, EXCLUSIVE]), [(PacketKind::LockGranted, true, 7)]);
        assert_eq!(answers(&mut bare, &member, &[ASKS]), [(PacketKind::Complete, false, 7)]);
        assert_eq!(answers(&mut bare, &member, &[EXCLUSIVE]), [granted]);
    }

    #[test]
    fn a_later_acknowledgement_replaces_one_that_is_owed() {
        let (mut bare, member) = pair();
        let flush = Header { tag: 8, ..Header::new(PacketKind::Flush, WINDOW) };
        let came = answers(&mut bare, &member, &[EXCLUSIVE, ASKS, flush]);
        assert_eq!(came, [(PacketKind::LockGranted, false, 0), (PacketKind::Complete, false, 8)]);
    }

    #[test]
    fn an_unlock_is_awaited_until_its_last_acknowledgement_except_for_its_own_target() {
        let (mut bare, member) = pair();
        {
            let mut core = member.core();
            core.port(WINDOW).peers[0].requested = 8;
            core.port(WINDOW).set_grant(Rank(0), Grant::Requested);
            core.remember_unlock(WINDOW, Rank(0));
        }
        let early = Header {
            flags: PacketFlags::ACKNOWLEDGE,
            tag: 7,
            ..Header::new(PacketKind::LockGranted, WINDOW)
        };
        answers(&mut bare, &member, &[early]);
        assert!(member.core().awaits_unlock(None));
        assert!(!member.core().awaits_unlock(Some(Rank(0))));
        assert!(member.core().awaits_unlock(Some(Rank(1))));
        answers(&mut bare, &member, &[Header { tag: 8, ..Header::new(PacketKind::Complete, WINDOW) }]);
        assert!(!member.core().awaits_unlock(None));
    }

    /// The answer to operations that travelled with a lock request comes before the grant. A rank that has
    /// read the answer holds the lock, so its next shared request goes before an exclusive one that waits:
    /// that one's rank may wait for a rank that waits for the lock that is held.
    #[test]
    fn a_lock_whose_grant_has_not_been_read_counts_as_held_by_the_next_request() {
        let (mut bare, member) = pair();
        {
            let mut core = member.core();
            let port = core.port(WINDOW);
            port.set_grant(Rank(0), Grant::Requested);
            port.holders.push(Rank(0));
            port.lock_queue.push_back(LockRequest::alone(Rank(0), Lock::Exclusive));
        }
        let granted = Header::new(PacketKind::LockGranted, WINDOW);
        bare.send(Rank(1), &granted.encode(0), &[]).expect("loopback takes it");
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || answer.send(member.lock_now(WINDOW, Rank(1), Lock::Shared)));
        answered.recv_timeout(Duration::from_secs(60)).expect("it waits behind nobody").expect("no fault");
    }
}
