//! Lock-unlock and flush: an origin requests the lock when it needs it, and the last operation releases it.
//!
//! ```text
//!   short operations              longer ones                    naive
//!   lock    (nothing)             (nothing)                      request, wait for the grant
//!   put     queue                 queue                          send
//!   unlock  [puts|LOCK|UNLOCK]    request, wait for the grant    [unlock|ACK]
//!           wait: done            ops, the last |UNLOCK          wait: done
//!                                 wait: as below
//! ```
//! Operations that fit into one packet travel with their lock request. The target keeps the packet until it
//! can grant the lock, does the operations, and releases the lock. If a flush sent them, the origin keeps the
//! lock, and the grant acknowledges the operations.
//!
//! If there is a get, it is moved to the end, and unlock and flush wait for its answer. Without a get unlock
//! waits for an acknowledgement if the lock is shared. If it is exclusive and was granted before, unlock
//! waits for nothing: no other rank gets the lock before the operations are complete. But a rank that needs
//! no lock could overtake them. So unlock requests the acknowledgement, and this member waits for it before
//! the next call from which other members could learn of the unlock (`unlocks.rs`).
//!
//! [`Completion::Local`] requests no acknowledgement and waits for no lock. So several epochs of one origin
//! may wait at a target; from [`MAX_UNASKED_REQUESTS`] on the origin waits for them.
//!
//! A target grants requests in their order, so that an exclusive request does not starve. There is one
//! exception: a rank that holds other locks and requests one more, shared, goes before waiting requests,
//! because their ranks may wait for a lock that it holds. Otherwise ranks could wait for each other in a
//! circle: two ranks in lock_all that lock two targets in opposite orders, and two others that request these
//! targets exclusively.
//!
//! Cost: 2 messages for operations that travel with the request; for others 2 messages, the messages of
//! the operations, and 1 more without a get. Reference: the paper, sections 4.3 and 6.

use super::issue::{MAX_CARRIED, MIN_CARRIED, room_in_batch};
use super::port::{Grant, LockRequest, LockRequester, WindowPort};
use super::{EngineState, MessageEngine};
use crate::memory::op::Op;
use crate::model::{Completion, Error, Lock, Rank};
use crate::wire::packet::{Header, PacketFlags, PacketKind};

/// The number of lock requests with operations that an origin sends to a target without asking for an
/// acknowledgement; one with long operations counts once for each [`MIN_CARRIED`]. It bounds the memory of a
/// target whose lock is held; one round trip in 32 epochs costs little. Chosen, not measured.
pub(super) const MAX_UNASKED_REQUESTS: usize = 32;
/// The data (bytes) of these requests: a long one may be the last.
pub(super) const MAX_UNASKED_BYTES: usize = MAX_UNASKED_REQUESTS * MIN_CARRIED + MAX_CARRIED;

/// What shows the origin that the operations of a queue are complete at the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompletionProof {
    /// The answer of the last operation.
    Answer,
    /// The acknowledgement with this tag.
    Acknowledgement(u32),
    /// Nothing, before a flush asks.
    Missing,
}

impl CompletionProof {
    /// Returns the mark and the tag of the last operation.
    const fn mark(self) -> (PacketFlags, u32) {
        match self {
            Self::Acknowledgement(tag) => (PacketFlags::ACKNOWLEDGE, tag),
            Self::Answer | Self::Missing => (PacketFlags(0), 0),
        }
    }
}

/// The lock after the operations that travel with its request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockAfter {
    Released,
    Held,
}

/// What an unlock waits for after it has sent the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnlockWait {
    Nothing,
    Answers,
    AnswersAndAcknowledgements,
}

impl MessageEngine {
    /// Requests the lock of this member's own part, or in the naive form of any part, and waits for it.
    pub(crate) fn lock_now(&self, window: u32, target: Rank, lock: Lock) -> Result<(), Error> {
        self.await_other_locks(window, target)?;
        self.core().request_lock(window, target, lock)?;
        self.wait_for_with_timeout(|core| {
            let granted = core.port(window).peers[target.index()].grant == Grant::Granted;
            Ok(granted.then_some(()))
        })
    }

    /// Waits until this member knows that it has the other locks that it has requested, unless it knows to
    /// hold one: its next request then says that it is a holder's. The answer of operations that travelled
    /// with a request may arrive before the grant.
    fn await_other_locks(&self, window: u32, target: Rank) -> Result<(), Error> {
        // a wait polls for packets at least once, which takes time
        if !self.core().may_hold_unknown(window, target) {
            return Ok(());
        }
        self.wait_for_with_timeout(|core| Ok((!core.may_hold_unknown(window, target)).then_some(())))
    }

    /// Whether this member holds the lock, or needs none.
    pub(crate) fn holds_lock(&self, window: u32, target: Rank) -> bool {
        let grant = self.core().port(window).peers[target.index()].grant;
        matches!(grant, Grant::Granted | Grant::Unchecked)
    }

    /// Records the caller's promise that no lock conflicts.
    pub(crate) fn lock_unchecked(&self, window: u32, target: Rank) {
        self.core().port(window).set_grant(target, Grant::Unchecked);
    }

    /// Requests the locks that the operations in the queues need and cannot carry themselves. For the end of
    /// lock_all, where this member holds its own part's lock, so that its requests go first.
    pub(super) fn request_locks(&self, window: u32) -> Result<(), Error> {
        let mut core = self.core();
        for target in (0..core.size).map(Rank::at) {
            if !core.port(window).peers[target.index()].queue.is_empty()
                && !self.carries_request(&mut core, window, target)
            {
                core.request_lock(window, target, Lock::Shared)?;
            }
        }
        Ok(())
    }

    /// Whether the operations in the queue carry the lock request. Those of a member with a timeout do not:
    /// it may give up its wait for the lock, and must not send them twice.
    fn carries_request(&self, core: &mut EngineState, window: u32, target: Rank) -> bool {
        core.port(window).peers[target.index()].grant == Grant::Idle
            && self.wait_timeout().is_none()
            && core.fits_request(window, target)
    }

    /// Sends the operations so that the target releases the lock after them; waits for the lock if that takes
    /// a request of its own. [`end_unlock`](Self::end_unlock) waits for the rest.
    pub(super) fn begin_unlock(
        &self,
        window: u32,
        target: Rank,
        lock: Lock,
        completion: Completion,
    ) -> Result<UnlockWait, Error> {
        let (rank, grant, is_empty, carries) = {
            let mut core = self.core();
            let carries = self.carries_request(&mut core, window, target);
            let rank = core.rank;
            let peer = &core.port(window).peers[target.index()];
            (rank, peer.grant, peer.queue.is_empty(), carries)
        };
        if target == rank {
            // Once the lock is released, other members may read data that this member has stored in its own
            // part.
            self.await_unlocks(None)?;
            let mut core = self.core();
            core.port(window).set_grant(target, Grant::Idle);
            if grant == Grant::Granted {
                core.port(window).held -= 1;
                core.release_lock(rank, window).map_err(Error::Type)?;
            }
            return Ok(UnlockWait::Nothing);
        }
        if grant == Grant::Unchecked {
            self.flush_queue(window, target, lock, completion)?;
            self.core().port(window).set_grant(target, Grant::Idle);
            return Ok(UnlockWait::AnswersAndAcknowledgements);
        }
        if grant == Grant::Idle && is_empty {
            return Ok(UnlockWait::Nothing);
        }
        if carries {
            self.await_other_locks(window, target)?;
            self.await_room(window, target)?;
        } else {
            self.await_grant(window, target, lock)?;
        }
        self.await_unlocks(Some(target))?;
        let mut core = self.core();
        if carries {
            core.send_with_lock(window, target, lock, LockAfter::Released, completion)?;
        } else {
            core.send_and_unlock(window, target, lock, completion)?;
        }
        Ok(match lock {
            Lock::Exclusive if !carries => UnlockWait::Answers,
            _ => UnlockWait::AnswersAndAcknowledgements,
        })
    }

    pub(super) fn end_unlock(&self, window: u32, target: Rank, wait: UnlockWait) -> Result<(), Error> {
        match wait {
            UnlockWait::Nothing => Ok(()),
            UnlockWait::Answers => self.await_answers(window, target),
            UnlockWait::AnswersAndAcknowledgements => self.settle(window, target),
        }
    }

    /// Waits until fewer than [`MAX_UNASKED_REQUESTS`] of this member's requests may wait at the target.
    fn await_room(&self, window: u32, target: Rank) -> Result<(), Error> {
        if self.core().port(window).peers[target.index()].unasked_requests < MAX_UNASKED_REQUESTS {
            return Ok(());
        }
        self.core().ask_for_acknowledgement(window, target)?;
        self.wait_for(|core| Ok(core.port(window).peers[target.index()].is_settled().then_some(())))
    }

    /// Sends the queue, and waits until all operations are complete at the target.
    pub(crate) fn flush(&self, window: u32, target: Rank, lock: Lock) -> Result<(), Error> {
        self.flush_queue(window, target, lock, Completion::Remote)?;
        self.settle(window, target)
    }

    /// Sends the queue and waits for answers only.
    pub(crate) fn flush_local(&self, window: u32, target: Rank, lock: Lock) -> Result<(), Error> {
        self.flush_queue(window, target, lock, Completion::Local)?;
        self.await_answers(window, target)
    }

    /// Does a [`flush_local`](Self::flush_local) without waiting; returns whether it is complete. Operations
    /// that cannot travel with their lock request are sent by the grant, even while the program computes.
    pub(crate) fn try_flush_local(&self, window: u32, target: Rank, lock: Lock) -> Result<bool, Error> {
        let mut core = self.core();
        core.progress()?;
        let early = core.awaits_unlock(Some(target));
        let fits = !early && core.fits_request(window, target);
        let waits = core.may_hold_unknown(window, target);
        let peer = &core.port(window).peers[target.index()];
        if !peer.queue.is_empty() {
            match peer.grant {
                // the next call tries again
                Grant::Idle if waits => {}
                Grant::Idle if fits && peer.unasked_requests < MAX_UNASKED_REQUESTS => {
                    core.send_with_lock(window, target, lock, LockAfter::Held, Completion::Local)?;
                }
                Grant::Idle | Grant::Requested => {
                    core.port(window).peers[target.index()].send_on_grant = true;
                    core.request_lock(window, target, lock)?;
                }
                Grant::Granted | Grant::Unchecked if early => {}
                Grant::Granted | Grant::Unchecked => core.send_queue(window, target, PacketFlags(0), 0)?,
            }
            core.transport.flush()?;
        }
        core.check_gone()?;
        let port = core.port(window);
        let peer = &port.peers[target.index()];
        let is_complete = peer.queue.is_empty() && peer.outstanding == 0;
        match port.refused.take_if(|_| is_complete) {
            Some(refused) => Err(refused),
            None => Ok(is_complete),
        }
    }

    fn flush_queue(
        &self,
        window: u32,
        target: Rank,
        lock: Lock,
        completion: Completion,
    ) -> Result<(), Error> {
        let (rank, carries, needs_grant, sends) = {
            let mut core = self.core();
            let carries = self.carries_request(&mut core, window, target);
            let rank = core.rank;
            let peer = &core.port(window).peers[target.index()];
            let sends = !peer.queue.is_empty();
            let needs_grant = match peer.grant {
                Grant::Unchecked => false,
                // A member with a timeout may give up only this wait, not that for the answers.
                Grant::Requested if self.wait_timeout().is_some() => true,
                _ => sends && !carries,
            };
            (rank, carries, needs_grant, sends)
        };
        if target == rank {
            return Ok(());
        }
        if needs_grant {
            self.await_grant(window, target, lock)?;
        }
        if carries {
            self.await_other_locks(window, target)?;
            self.await_room(window, target)?;
        }
        if sends {
            self.await_unlocks(Some(target))?;
        }
        let mut core = self.core();
        if carries {
            core.send_with_lock(window, target, lock, LockAfter::Held, completion)?;
        } else if !core.port(window).peers[target.index()].queue.is_empty() {
            core.send_queue_with_proof(window, target, PacketFlags(0), completion)?;
        }
        match completion {
            Completion::Remote => core.ask_for_acknowledgement(window, target),
            Completion::Local => Ok(()),
        }
    }

    /// Waits until the requested answers and acknowledgements have arrived.
    pub(crate) fn settle(&self, window: u32, target: Rank) -> Result<(), Error> {
        self.wait_for(|core| {
            let port = core.port(window);
            if !port.peers[target.index()].is_settled() {
                return Ok(None);
            }
            port.refused.take().map_or(Ok(Some(())), Err)
        })
    }

    /// Waits until the answers have arrived.
    fn await_answers(&self, window: u32, target: Rank) -> Result<(), Error> {
        self.wait_for(|core| {
            let port = core.port(window);
            if port.peers[target.index()].outstanding != 0 {
                return Ok(None);
            }
            port.refused.take().map_or(Ok(Some(())), Err)
        })
    }

    fn await_grant(&self, window: u32, target: Rank, lock: Lock) -> Result<(), Error> {
        let granted = self.core().port(window).peers[target.index()].grant == Grant::Granted;
        if granted { Ok(()) } else { self.lock_now(window, target, lock) }
    }

    /// Completes every operation so far at its target, and every unlock: after the last barrier of a window
    /// that is freed, its members know it no more.
    pub(crate) fn complete_before_free(&self, window: u32) -> Result<(), Error> {
        for peer in &mut self.core().port(window).peers {
            peer.unacknowledged |= std::mem::take(&mut peer.unasked_unlock);
        }
        self.complete_everywhere(window)
    }

    /// Completes every operation so far at its target.
    pub(crate) fn complete_everywhere(&self, window: u32) -> Result<(), Error> {
        let (rank, size) = {
            let core = self.core();
            (core.rank, core.size)
        };
        let others = || (0..size).map(Rank::at).filter(move |target| *target != rank);
        for target in others() {
            self.core().ask_for_acknowledgement(window, target)?;
        }
        // waits for all targets, even if one refuses, and returns the first refusal
        let mut refusal = Ok(());
        for target in others() {
            match self.settle(window, target) {
                Err(error) if !error.ends_epoch() => return Err(error),
                settled => refusal = refusal.and(settled),
            }
        }
        refusal
    }
}

impl EngineState {
    /// Requests an acknowledgement of all operations sent to a target so far, if one is missing.
    fn ask_for_acknowledgement(&mut self, window: u32, target: Rank) -> Result<(), Error> {
        let peer = &mut self.port(window).peers[target.index()];
        let unasked = std::mem::take(&mut peer.unasked_requests);
        if std::mem::take(&mut peer.unacknowledged) || unasked > 0 {
            let tag = self.next_acknowledgement(window, target);
            self.send(target, &Header { tag, ..Header::new(PacketKind::Flush, window) }, &[])?;
        }
        Ok(())
    }

    fn request_lock(&mut self, window: u32, target: Rank, lock: Lock) -> Result<(), Error> {
        let (rank, urgency) = (self.rank, self.urgency());
        let port = self.port(window);
        if port.peers[target.index()].grant != Grant::Idle {
            return Ok(());
        }
        port.set_grant(target, Grant::Requested);
        if target == rank {
            self.port(window).enqueue(LockRequest::alone(rank, lock), urgency);
            return self.grant_locks(window).map_err(Error::Type);
        }
        let (extra, flags) = match lock {
            Lock::Shared => (1, urgency.mark()),
            Lock::Exclusive => (2, PacketFlags(0)),
        };
        self.send(target, &Header { extra, flags, ..Header::new(PacketKind::LockRequest, window) }, &[])
    }

    /// Whether this member may hold another lock than that of `target`, and does not know to hold any.
    fn may_hold_unknown(&self, window: u32, target: Rank) -> bool {
        let requested: usize = self.ports.values().map(|port| port.requested_locks).sum();
        let own = |port: &WindowPort| port.peers[target.index()].grant == Grant::Requested;
        let own = self.ports.get(&window).is_some_and(own);
        requested > usize::from(own) && self.urgency() == LockRequester::Fresh
    }

    /// Whether another member may wait for a lock that this one holds.
    fn urgency(&self) -> LockRequester {
        let holds = self.ports.values().any(|port| port.held > 0);
        if holds { LockRequester::Holder } else { LockRequester::Fresh }
    }

    pub(super) fn send_queue(
        &mut self,
        window: u32,
        target: Rank,
        marks: PacketFlags,
        tag: u32,
    ) -> Result<(), Error> {
        let queue = std::mem::take(&mut self.port(window).peers[target.index()].queue);
        self.send_all(window, target, queue, marks, tag)
    }

    fn next_acknowledgement(&mut self, window: u32, target: Rank) -> u32 {
        let peer = &mut self.port(window).peers[target.index()];
        peer.requested = peer.requested.wrapping_add(1);
        peer.requested
    }

    /// Brings a queue that is not empty into the order of sending; returns what shows that it is complete.
    fn arrange(&mut self, window: u32, target: Rank, completion: Completion) -> CompletionProof {
        let queue = &mut self.port(window).peers[target.index()].queue;
        // A get has no order with other operations, so it is moved to the end. There its answer shows that
        // all operations before it are done.
        if let Some(get) = queue.iter().rposition(Op::is_get) {
            let get = queue.remove(get);
            queue.push(get);
        }
        match completion {
            _ if queue.last().is_some_and(Op::is_answered) => CompletionProof::Answer,
            Completion::Remote => CompletionProof::Acknowledgement(self.next_acknowledgement(window, target)),
            Completion::Local => CompletionProof::Missing,
        }
    }

    /// Sends a queue that is not empty; its last operation has `marks` and asks for what shows that all are
    /// complete.
    fn send_queue_with_proof(
        &mut self,
        window: u32,
        target: Rank,
        marks: PacketFlags,
        completion: Completion,
    ) -> Result<CompletionProof, Error> {
        let proof = self.arrange(window, target, completion);
        let (mark, tag) = proof.mark();
        self.send_queue(window, target, marks.with(mark), tag)?;
        self.port(window).peers[target.index()].unacknowledged = proof == CompletionProof::Missing;
        Ok(proof)
    }

    /// Sends the queue together with its lock request.
    fn send_with_lock(
        &mut self,
        window: u32,
        target: Rank,
        lock: Lock,
        after: LockAfter,
        completion: Completion,
    ) -> Result<(), Error> {
        let proof = self.arrange(window, target, completion);
        let (mark, tag) = proof.mark();
        let request = match lock {
            Lock::Shared => PacketFlags::LOCK_SHARED.with(self.urgency().mark()),
            Lock::Exclusive => PacketFlags::LOCK_EXCLUSIVE,
        };
        let peer = &mut self.port(window).peers[target.index()];
        let queue = std::mem::take(&mut peer.queue);
        let end = match after {
            LockAfter::Released => {
                if proof == CompletionProof::Missing {
                    let bytes: usize = queue.iter().map(room_in_batch).sum();
                    peer.unasked_requests += bytes.div_ceil(MIN_CARRIED);
                }
                PacketFlags::LAST.with(PacketFlags::UNLOCK)
            }
            LockAfter::Held => {
                self.port(window).set_grant(target, Grant::Requested);
                PacketFlags(0)
            }
        };
        self.send_together(window, target, queue, request.with(end).with(mark), tag)?;
        self.port(window).peers[target.index()].unacknowledged = proof == CompletionProof::Missing;
        Ok(())
    }

    /// Sends the queue so that its last operation releases the lock.
    fn send_and_unlock(
        &mut self,
        window: u32,
        target: Rank,
        lock: Lock,
        completion: Completion,
    ) -> Result<(), Error> {
        let port = self.port(window);
        port.held -= 1;
        port.set_grant(target, Grant::Idle);
        let peer = &mut port.peers[target.index()];
        let proof = if peer.queue.is_empty() {
            let asks = completion == Completion::Remote && std::mem::take(&mut peer.unacknowledged);
            peer.unasked_unlock |= !asks;
            let proof = if asks {
                CompletionProof::Acknowledgement(self.next_acknowledgement(window, target))
            } else {
                CompletionProof::Missing
            };
            let (flags, tag) = proof.mark();
            self.send(target, &Header { flags, tag, ..Header::new(PacketKind::Unlock, window) }, &[])?;
            proof
        } else {
            let marks = PacketFlags::LAST.with(PacketFlags::UNLOCK);
            self.send_queue_with_proof(window, target, marks, completion)?
        };
        if matches!(proof, CompletionProof::Acknowledgement(_)) && lock == Lock::Exclusive {
            self.remember_unlock(window, target);
        }
        Ok(())
    }
}
