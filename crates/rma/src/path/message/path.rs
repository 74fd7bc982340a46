//! A window on the message path: its calls, and the choice between the deferred and the naive form.

use super::{Memory, MessageEngine, WindowPort};
use crate::memory::op::Op;
use crate::model::{
    Assert, Completion, Counts, EpochKind, Error, Lock, Medium, Rank, Spec, Stats, Style, Traffic, Waits,
    WindowPart, counted,
};
use crate::path::AttachmentChange;
use crate::wire::packet::PacketFlags;
use std::sync::Arc;
use unisono_sync::Waited;

/// One member's end of a window on the message path.
#[derive(Debug)]
pub(crate) struct MessagePath {
    shared: Arc<MessageEngine>,
    /// The window's number within its job.
    number: u32,
    rank: Rank,
    size: usize,
    style: Style,
    completion: Completion,
    /// Operations on this rank's own part; they need no message.
    here: Counts,
}

impl MessagePath {
    /// Makes the window known to the job: from now on packets for it are served.
    pub(crate) fn new(shared: &Arc<MessageEngine>, memory: Memory, spec: Spec) -> Self {
        let mut core = shared.core();
        let (number, rank, size) = (core.new_window(), core.rank, core.size);
        core.ports.insert(number, WindowPort::new(memory, size));
        drop(core);
        let (style, completion) = (spec.style, spec.completion);
        Self { shared: Arc::clone(shared), number, rank, size, style, completion, here: Counts::default() }
    }

    fn is_naive(&self) -> bool {
        self.style == Style::Naive
    }

    pub(crate) fn fence(
        &mut self,
        closes: bool,
        _: Assert,
        _: &[WindowPart],
        stats: &mut Stats,
    ) -> Result<(), Error> {
        counted(stats, || {
            self.shared.await_unlocks(None)?;
            match closes {
                _ if self.is_naive() => self.shared.naive_fence(self.number),
                true => self.shared.fence(self.number),
                false => Ok(()),
            }
        })
    }

    pub(crate) fn post(&mut self, origins: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        counted(stats, || self.shared.post(self.number, origins, assert))
    }

    pub(crate) fn start(&mut self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        if self.is_naive() && !assert.has(Assert::NO_CHECK) {
            counted(stats, || self.shared.await_posts(self.number, targets))?;
        }
        Ok(())
    }

    pub(crate) fn complete(
        &mut self,
        targets: &[Rank],
        assert: Assert,
        stats: &mut Stats,
    ) -> Result<(), Error> {
        counted(stats, || {
            if !self.is_naive() && !assert.has(Assert::NO_CHECK) {
                self.shared.await_posts(self.number, targets)?;
            }
            self.shared.complete(self.number, targets)
        })
    }

    pub(crate) fn wait(&mut self, _: &[Rank], _: &[WindowPart], stats: &mut Stats) -> Result<(), Error> {
        counted(stats, || self.shared.wait_exposed(self.number))
    }

    pub(crate) fn test(&mut self, _: &[Rank], _: &[WindowPart]) -> Result<bool, Error> {
        self.shared.test_exposed(self.number)
    }

    pub(crate) fn lock(
        &mut self,
        target: Rank,
        lock: Lock,
        assert: Assert,
        stats: &mut Stats,
    ) -> Result<(), Error> {
        if assert.has(Assert::NO_CHECK) {
            self.shared.lock_unchecked(self.number, target);
        } else if self.is_naive() || target == self.rank {
            counted(stats, || self.shared.lock_now(self.number, target, lock))?;
        }
        Ok(())
    }

    pub(crate) fn unlock(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error> {
        counted(stats, || {
            let wait = self.shared.begin_unlock(self.number, target, lock, self.completion)?;
            self.shared.end_unlock(self.number, target, wait)?;
            match self.is_naive() && target != self.rank {
                true => self.shared.settle(self.number, target),
                false => Ok(()),
            }
        })
    }

    pub(crate) fn lock_all(&mut self, assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        if assert.has(Assert::NO_CHECK) {
            (0..self.size).for_each(|target| self.shared.lock_unchecked(self.number, Rank::at(target)));
            return Ok(());
        }
        counted(stats, || self.shared.lock_now(self.number, self.rank, Lock::Shared))
    }

    pub(crate) fn hold(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error> {
        if self.shared.holds_lock(self.number, target) {
            return Ok(());
        }
        counted(stats, || self.shared.lock_now(self.number, target, lock))
    }

    pub(crate) fn unlock_all(&mut self, stats: &mut Stats) -> Result<Result<(), Error>, Error> {
        counted(stats, || {
            let (shared, number) = (&self.shared, self.number);
            // all targets answer at the same time
            shared.request_locks(number)?;
            let (mut refusal, mut failure, mut begun) = (Ok(()), Ok(()), Vec::new());
            for target in (0..self.size).map(Rank::at) {
                match shared.begin_unlock(number, target, Lock::Shared, self.completion) {
                    Ok(wait) => begun.push((target, wait)),
                    Err(error) => {
                        failure = Err(error);
                        break;
                    }
                }
            }
            for (target, wait) in begun {
                match shared.end_unlock(number, target, wait) {
                    Err(refused) if refused.ends_epoch() => refusal = refusal.and(Err(refused)),
                    ended => failure = failure.and(ended),
                }
            }
            match failure {
                // the caller repeats this call, and then gets the refusal
                Err(Error::NotYet) if refusal.is_err() => {
                    shared.core().port(number).refused = refusal.err();
                    Err(Error::NotYet)
                }
                failure => failure.map(|()| refusal),
            }
        })
    }

    pub(crate) fn settle(&mut self, stats: &mut Stats) -> Result<(), Error> {
        counted(stats, || {
            if self.completion == Completion::Local {
                self.shared.complete_everywhere(self.number)?;
            }
            self.shared.await_unlocks(None)
        })?;
        self.shared.core().port(self.number).refused.take().map_or(Ok(()), Err)
    }

    pub(crate) fn flush(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error> {
        counted(stats, || self.shared.flush(self.number, target, lock))
    }

    pub(crate) fn flush_local(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error> {
        counted(stats, || self.shared.flush_local(self.number, target, lock))
    }

    pub(crate) fn test_local(&mut self, target: Rank, lock: Lock) -> Result<bool, Error> {
        self.shared.try_flush_local(self.number, target, lock)
    }

    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.shared.await_unlocks(None)?;
        self.shared.core().progress()
    }

    pub(crate) fn progress(&mut self) -> Result<(), Error> {
        let mut core = self.shared.core();
        core.progress()?;
        core.check_gone()
    }

    pub(crate) fn issue(&mut self, reach: EpochKind, target: Rank, op: Op) -> Result<(), Error> {
        let (shared, number) = (&self.shared, self.number);
        if target == self.rank {
            // Other members may see the result at once.
            shared.await_unlocks(None)?;
            self.here.count(op.verb, op.total);
            return shared.core().perform_here(number, &op);
        }
        if self.is_naive() {
            if reach == EpochKind::Locked && !shared.holds_lock(number, target) {
                shared.lock_now(number, target, Lock::Shared)?;
            }
            shared.await_unlocks(Some(target))?;
            let mut core = shared.core();
            core.send_all(number, target, vec![op], PacketFlags(0), 0)?;
            return core.progress();
        }
        shared.core().port(number).peers[target.index()].queue.push(op);
        Ok(())
    }

    pub(crate) fn is_settled(&self, target: Rank) -> bool {
        let mut core = self.shared.core();
        let peer = &core.port(self.number).peers[target.index()];
        peer.queue.is_empty() && peer.outstanding == 0
    }

    pub(crate) fn free(&mut self) -> Result<(), Error> {
        self.shared.complete_before_free(self.number)?;
        self.shared.barrier(self.number)?;
        let mut core = self.shared.core();
        core.forget_unlocks(self.number);
        core.forget_window(self.number);
        core.ports.remove(&self.number);
        Ok(())
    }

    pub(crate) fn abandon(&mut self) {
        let mut core = self.shared.core();
        core.forget_unlocks(self.number);
        if let Some(port) = core.ports.get_mut(&self.number) {
            port.memory = Memory::Attached(Vec::new());
            port.forget();
        }
    }

    pub(crate) fn mapped(&self, _: Rank) -> Option<*mut u8> {
        None
    }

    /// Returns no waits: each call counts its waits for messages in the statistics of its own kind.
    pub(crate) fn waits(&self) -> Waits {
        Waits::default()
    }

    pub(crate) fn take_gate_waits(&mut self) -> Waited {
        Waited::default()
    }

    pub(crate) fn traffic(&self, issued: &Counts) -> Traffic {
        Traffic::divided(issued, &self.here, Medium::Stores, Medium::Messages)
    }

    pub(crate) fn shared(&self) -> &MessageEngine {
        &self.shared
    }

    pub(crate) fn change_attached(&self, change: AttachmentChange<'_>) -> Option<Result<(), Error>> {
        match &mut self.shared.core().port(self.number).memory {
            Memory::Attached(pieces) => Some(change(pieces)),
            Memory::Fixed { .. } => None,
        }
    }
}
