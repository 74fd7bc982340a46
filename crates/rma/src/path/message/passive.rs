//! Lock-unlock and flush: an origin requests the lock when it needs it, and the last operation releases it.
//!
//! ```text
//!   one short operation           several                        naive
//!   lock    (nothing)             (nothing)                      request, wait for the grant
//!   put     queue                 queue                          send
//!   unlock  [put|LOCK|UNLOCK]     request, wait for the grant    [unlock|ACK]
//!           wait: done            ops, the last |UNLOCK          wait: done
//!                                 wait: as below
//! ```
//! If there is a get, it is moved to the end, and unlock waits for its answer. Without a get unlock waits for
//! an acknowledgement if the lock is shared. If it is exclusive, unlock waits for nothing: no other rank gets
//! the lock before the operations are complete. But a rank that needs no lock could overtake them. So unlock
//! requests the acknowledgement, and this member waits for it before the next call from which other
//! members could learn of the unlock (`unlocks.rs`). [`Completion::Local`] never requests one.
//!
//! A target grants requests in their order, so that an exclusive request does not starve. There is one
//! exception: a rank that holds other locks and requests one more, shared, goes before waiting requests,
//! because their ranks may wait for a lock that it holds. Otherwise ranks could wait for each other in a
//! circle: two ranks in lock_all that lock two targets in opposite orders, and two others that request these
//! targets exclusively.
//!
//! Cost: 2 messages for a single short operation; for several operations, 2 messages and the messages of the
//! operations, and 1 more without a get. Reference: the paper, sections 4.3 and 6.

use super::issue::SHORT;
use super::port::{Grant, LockRequest, LockRequester};
use super::{EngineState, MessageEngine};
use crate::memory::op::Op;
use crate::model::{Completion, Error, Lock, Rank};
use crate::wire::packet::{Header, PacketFlags, PacketKind};

impl MessageEngine {
    /// Requests the lock of this member's own part, or in the naive form of any part, and waits for it.
    pub(crate) fn lock_now(&self, window: u32, target: Rank, lock: Lock) -> Result<(), Error> {
        self.core().request_lock(window, target, lock)?;
        self.wait_for_with_timeout(|core| {
            let granted = core.port(window).peers[target.index()].grant == Grant::Granted;
            Ok(granted.then_some(()))
        })
    }

    /// Whether this member holds the lock, or needs none.
    pub(crate) fn holds_lock(&self, window: u32, target: Rank) -> bool {
        let grant = self.core().port(window).peers[target.index()].grant;
        matches!(grant, Grant::Granted | Grant::Unchecked)
    }

    /// Records the caller's promise that no lock conflicts.
    pub(crate) fn lock_unchecked(&self, window: u32, target: Rank) {
        self.core().port(window).peers[target.index()].grant = Grant::Unchecked;
    }

    pub(crate) fn unlock(
        &self,
        window: u32,
        target: Rank,
        lock: Lock,
        completion: Completion,
    ) -> Result<(), Error> {
        let (rank, grant, queued) = {
            let mut core = self.core();
            let rank = core.rank;
            let peer = &core.port(window).peers[target.index()];
            (rank, peer.grant, peer.queue.len())
        };
        if target == rank {
            // Once the lock is released, other members may read data that this member has stored in its own
            // part.
            self.await_unlocks(None)?;
            let mut core = self.core();
            core.port(window).peers[target.index()].grant = Grant::Idle;
            if grant == Grant::Granted {
                core.port(window).held -= 1;
                core.release_lock(rank, window).map_err(Error::Type)?;
            }
            return Ok(());
        }
        if grant == Grant::Unchecked {
            self.flush_queue(window, target, lock, completion)?;
            self.core().port(window).peers[target.index()].grant = Grant::Idle;
            return self.settle(window, target);
        }
        if grant == Grant::Idle && queued == 0 {
            return Ok(());
        }
        // A member with a timeout may give up its wait for the lock. It requests the lock alone, because it
        // must not send the operation twice.
        let single = grant == Grant::Idle
            && queued == 1
            && self.wait_timeout().is_none()
            && self.core().fits_lock(window, target);
        if !single {
            self.await_grant(window, target, lock)?;
        }
        self.await_unlocks(Some(target))?;
        let mut core = self.core();
        if single {
            core.send_with_lock(window, target, lock, completion)?;
        } else {
            core.send_and_unlock(window, target, lock, completion)?;
        }
        drop(core);
        if single || lock == Lock::Shared {
            self.settle(window, target)
        } else {
            self.await_answers(window, target)
        }
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

    /// Does a [`flush_local`](Self::flush_local) without waiting; returns whether it is complete. If the lock
    /// is not granted yet, the grant sends the queue, even while the program computes.
    pub(crate) fn try_flush_local(&self, window: u32, target: Rank, lock: Lock) -> Result<bool, Error> {
        let mut core = self.core();
        core.progress()?;
        let early = core.awaits_unlock(Some(target));
        let peer = &core.port(window).peers[target.index()];
        if !peer.queue.is_empty() {
            match peer.grant {
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
        let (rank, empty, grant) = {
            let mut core = self.core();
            let rank = core.rank;
            let peer = &core.port(window).peers[target.index()];
            (rank, peer.queue.is_empty(), peer.grant)
        };
        if target == rank {
            return Ok(());
        }
        if !empty {
            if grant != Grant::Unchecked {
                self.await_grant(window, target, lock)?;
            }
            self.await_unlocks(Some(target))?;
            self.core().send_queue(window, target, PacketFlags(0), 0)?;
        }
        match completion {
            Completion::Remote => self.core().ask_for_acknowledgement(window, target),
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
    /// Requests an acknowledgement of all packets sent to a target so far, if any were sent.
    fn ask_for_acknowledgement(&mut self, window: u32, target: Rank) -> Result<(), Error> {
        if std::mem::take(&mut self.port(window).peers[target.index()].unacknowledged) {
            let tag = self.next_acknowledgement(window, target);
            self.send(target, &Header { tag, ..Header::new(PacketKind::Flush, window) }, &[])?;
        }
        Ok(())
    }

    fn request_lock(&mut self, window: u32, target: Rank, lock: Lock) -> Result<(), Error> {
        let rank = self.rank;
        let peer = &mut self.port(window).peers[target.index()];
        if peer.grant != Grant::Idle {
            return Ok(());
        }
        peer.grant = Grant::Requested;
        let urgency = self.urgency();
        if target == rank {
            self.port(window).enqueue(LockRequest { rank, lock, operation: None }, urgency);
            return self.grant_locks(window).map_err(Error::Type);
        }
        let (extra, flags) = match lock {
            Lock::Shared => (1, urgency.mark()),
            Lock::Exclusive => (2, PacketFlags(0)),
        };
        self.send(target, &Header { extra, flags, ..Header::new(PacketKind::LockRequest, window) }, &[])
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

    /// Whether the first operation can carry its lock request.
    fn fits_lock(&mut self, window: u32, target: Rank) -> bool {
        let first = self.port(window).peers[target.index()].queue.first();
        first.is_some_and(|op| op.total <= SHORT && op.layout.is_contiguous())
    }

    /// Sends a single short operation together with its lock request.
    fn send_with_lock(
        &mut self,
        window: u32,
        target: Rank,
        lock: Lock,
        completion: Completion,
    ) -> Result<(), Error> {
        let answered = self.port(window).peers[target.index()].queue.iter().any(Op::is_answered);
        let request = match lock {
            Lock::Shared => PacketFlags::LOCK_SHARED.with(self.urgency().mark()),
            Lock::Exclusive => PacketFlags::LOCK_EXCLUSIVE,
        };
        let marks = request.with(PacketFlags::LAST).with(PacketFlags::UNLOCK);
        let unasked = !answered && completion == Completion::Local;
        if answered || completion == Completion::Local {
            self.send_queue(window, target, marks, 0)?;
        } else {
            let tag = self.next_acknowledgement(window, target);
            self.send_queue(window, target, marks.with(PacketFlags::ACKNOWLEDGE), tag)?;
        }
        self.port(window).peers[target.index()].unacknowledged = unasked;
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
        let peer = &mut port.peers[target.index()];
        peer.grant = Grant::Idle;
        let unacknowledged = std::mem::take(&mut peer.unacknowledged);
        // A get has no order with other operations, so it is moved to the end. There its answer shows that
        // all operations before it are done.
        if let Some(get) = peer.queue.iter().rposition(Op::is_get) {
            let get = peer.queue.remove(get);
            peer.queue.push(get);
        }
        let answered = peer.queue.last().is_some_and(Op::is_answered);
        let changes = !peer.queue.is_empty() || unacknowledged;
        let empty = peer.queue.is_empty();
        let asks = changes && !answered && completion == Completion::Remote;
        let (marks, tag) = if asks {
            (PacketFlags::ACKNOWLEDGE, self.next_acknowledgement(window, target))
        } else {
            (PacketFlags(0), 0)
        };
        if empty {
            let unlock = Header { flags: marks, tag, ..Header::new(PacketKind::Unlock, window) };
            self.send(target, &unlock, &[])?;
        } else {
            self.send_queue(window, target, marks.with(PacketFlags::LAST).with(PacketFlags::UNLOCK), tag)?;
        }
        self.port(window).peers[target.index()].unacknowledged = changes && !asks && !answered;
        if asks && lock == Lock::Exclusive {
            self.remember_unlock(window, target);
        }
        Ok(())
    }
}
