//! The synchronization calls: fence, post-start-complete-wait, lock-unlock and flush.

use super::{Request, Window};
use crate::model::{Assert, Error, Lock, Locks, Rank, Reach};
use crate::path::Path;

/// Refuses asserts that mean nothing to a call.
fn meaningful(call: &'static str, assert: Assert, allowed: Assert) -> Result<(), Error> {
    let beyond = assert.beyond(allowed);
    if beyond.is_none() { Ok(()) } else { Err(Error::Assert { call, assert: beyond.to_string() }) }
}

/// An epoch that a target refused an operation in ends; its caller learns why. `Ok(refusal)` or what it goes
/// on with.
fn ended(result: Result<(), Error>) -> Result<Result<(), Error>, Error> {
    match result {
        Err(refused) if refused.ends_epoch() => Ok(Err(refused)),
        Err(error) => Err(error),
        Ok(()) => Ok(Ok(())),
    }
}

const FENCE: Assert = Assert::ANY_FENCE;
const POST: Assert = Assert::ANY_POST;

impl Window {
    /// Ends the epoch that the last fence began, and begins the next; collective.
    ///
    /// # Errors
    /// [`Error::Assert`]; [`Error::Sync`] inside an epoch of another kind, and for operations issued since a
    /// fence that promised none; [`Error::Gone`].
    pub fn fence(&mut self, assert: Assert) -> Result<(), Error> {
        meaningful("fence", assert, FENCE)?;
        self.epochs.fence("fence", !assert.has(Assert::NO_PRECEDE))?;
        let closes = self.epochs.fence_closes(assert);
        let refusal = ended(self.path.fence(closes, assert, &self.parts, &mut self.stats.fence))?;
        self.epochs.fenced(!assert.has(Assert::NO_SUCCEED));
        if closes {
            self.count_epoch(Reach::Fence);
        }
        refusal
    }

    /// Exposes this rank's part to `origins`. Does not wait for them.
    ///
    /// # Errors
    /// [`Error::Sync`] when it is exposed already; [`Error::Rank`]; [`Error::Assert`]; [`Error::Gone`].
    pub fn post(&mut self, origins: &[Rank], assert: Assert) -> Result<(), Error> {
        meaningful("post", assert, POST)?;
        self.epochs.post("post", origins)?;
        self.path.post(origins, assert, &mut self.stats.pscw)
    }

    /// Begins an access epoch to `targets`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Sync`] inside an access epoch; [`Error::Rank`]; [`Error::Assert`].
    pub fn start(&mut self, targets: &[Rank], assert: Assert) -> Result<(), Error> {
        meaningful("start", assert, Assert::NO_CHECK)?;
        self.epochs.start("start", targets, assert)?;
        self.path.start(targets, assert, &mut self.stats.pscw)
    }

    /// Ends the access epoch that [`start`](Self::start) began.
    ///
    /// # Errors
    /// [`Error::Sync`] without one; [`Error::Gone`].
    pub fn complete(&mut self) -> Result<(), Error> {
        let (targets, assert) = self.epochs.complete("complete")?;
        let refusal = ended(self.path.complete(targets, assert, &mut self.stats.pscw))?;
        self.epochs.completed();
        self.count_epoch(Reach::Started);
        refusal
    }

    /// Ends the exposure epoch that [`post`](Self::post) began: waits until every origin has completed.
    ///
    /// # Errors
    /// [`Error::Sync`] without one; [`Error::Gone`].
    pub fn wait(&mut self) -> Result<(), Error> {
        let origins = self.epochs.wait("wait")?;
        self.path.wait(origins, &self.parts, &mut self.stats.pscw)?;
        self.exposed();
        Ok(())
    }

    /// As [`wait`](Self::wait), without waiting: whether the epoch has ended.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<bool, Error> {
        let origins = self.epochs.wait("test")?;
        let ended = self.path.test(origins, &self.parts)?;
        if ended {
            self.exposed();
        }
        Ok(ended)
    }

    fn exposed(&mut self) {
        self.epochs.waited();
        self.stats.pscw.epochs += 1;
        self.stats.pscw.add(self.path.take_gate_waits());
    }

    /// Begins a passive access epoch to `target`. Need not wait for the lock.
    ///
    /// # Errors
    /// [`Error::Sync`] when `target` is locked already or an active epoch is open; [`Error::NoLocks`].
    pub fn lock(&mut self, target: Rank, lock: Lock, assert: Assert) -> Result<(), Error> {
        meaningful("lock", assert, Assert::NO_CHECK)?;
        self.lockable("lock")?;
        self.epochs.lock("lock", target, lock)?;
        let locked = self.path.lock(target, lock, assert, &mut self.stats.passive);
        if matches!(locked, Err(Error::NotYet)) {
            self.epochs.unlocked(target);
        }
        locked
    }

    /// Ends it; all its operations are complete at origin and target (but see
    /// [`Completion::Local`](crate::Completion)).
    ///
    /// Over messages an exclusive one need not wait for its target: whoever locks finds the operations done,
    /// and this rank's next call of this job from which others could learn of it waits. Who tells them by
    /// other means than this job's messages (or by a window in shared memory) calls [`settle`](Self::settle)
    /// first.
    ///
    /// # Errors
    /// [`Error::Sync`] when `target` is not locked; [`Error::Gone`].
    pub fn unlock(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.unlock("unlock", target)?;
        let refusal = ended(self.path.unlock(target, lock, &mut self.stats.passive))?;
        self.epochs.unlocked(target);
        self.count_epoch(Reach::Locked);
        refusal
    }

    /// Begins a shared passive access epoch to everybody.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn lock_all(&mut self, assert: Assert) -> Result<(), Error> {
        meaningful("lock_all", assert, Assert::NO_CHECK)?;
        self.lockable("lock_all")?;
        self.epochs.lock_all("lock_all")?;
        let locked = self.path.lock_all(assert, &mut self.stats.passive);
        if matches!(locked, Err(Error::NotYet)) {
            self.epochs.unlocked_all();
        }
        locked
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`unlock`](Self::unlock).
    pub fn unlock_all(&mut self) -> Result<(), Error> {
        self.epochs.unlock_all("unlock_all")?;
        let refusal = self.path.unlock_all(&mut self.stats.passive)?;
        self.epochs.unlocked_all();
        self.count_epoch(Reach::Locked);
        refusal
    }

    /// Waits until every operation of passive epochs that have ended is complete at its target. Needs no
    /// epoch; sends nothing unless the window promises completion at the origin only.
    ///
    /// # Errors
    /// [`Error::Freed`]; [`Error::Gone`]; [`Error::Unattached`] for memory that a target had not attached.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.epochs.usable("settle")?;
        self.path.settle(&mut self.stats.passive)
    }

    fn lockable(&self, call: &'static str) -> Result<(), Error> {
        if self.spec.locks == Locks::Never { Err(Error::NoLocks { call }) } else { Ok(()) }
    }

    /// Completes all operations to `target` at origin and target; the epoch goes on.
    ///
    /// # Errors
    /// [`Error::Sync`] outside a passive epoch to `target`; [`Error::Gone`].
    #[inline]
    pub fn flush(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.passive("flush", Some(target))?;
        self.path.flush(target, lock, &mut self.stats.passive)
    }

    /// [`flush`](Self::flush) for every target.
    ///
    /// # Errors
    /// As there.
    pub fn flush_all(&mut self) -> Result<(), Error> {
        self.epochs.passive("flush_all", None)?;
        for target in (0..self.size()).map(Rank::at) {
            if self.epochs.passive("flush_all", Some(target)).is_ok() {
                self.flush(target)?;
            }
        }
        Ok(())
    }

    /// Completes all operations to `target` at the origin: buffers may be used again, what was asked for
    /// has come.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    #[inline]
    pub fn flush_local(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.passive("flush_local", Some(target))?;
        self.path.flush_local(target, lock, &mut self.stats.passive)
    }

    /// [`flush_local`](Self::flush_local) for every target.
    ///
    /// # Errors
    /// As there.
    pub fn flush_local_all(&mut self) -> Result<(), Error> {
        self.epochs.passive("flush_local_all", None)?;
        for target in (0..self.size()).map(Rank::at) {
            if self.epochs.passive("flush_local_all", Some(target)).is_ok() {
                self.flush_local(target)?;
            }
        }
        Ok(())
    }

    /// Makes local loads and stores and other members' operations on this rank's part see each other.
    ///
    /// # Errors
    /// [`Error::Sync`] outside a passive epoch.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.epochs.passive("sync", None)?;
        // SYNC(window) fence: this rank's loads and stores before and after; others' are ordered by their own
        // synchronization calls.
        unisono_sync::atomics::fence(unisono_sync::atomics::Ordering::SeqCst);
        self.path.sync()
    }

    /// Waits until a request-based operation is complete at the origin.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn wait_request(&mut self, request: Request) -> Result<(), Error> {
        match self.epochs.passive("wait", Some(request.target)) {
            // The epoch is over, and with it the operation.
            Err(Error::Sync { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => self.flush_local(request.target),
        }
    }

    /// Whether it is complete, after making progress once. A complete one may be dropped.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn test_request(&mut self, request: &Request) -> Result<bool, Error> {
        let lock = match self.epochs.passive("test", Some(request.target)) {
            Err(Error::Sync { .. }) => return Ok(true),
            Err(error) => return Err(error),
            Ok(lock) => lock,
        };
        self.path.test_local(request.target, lock)
    }

    /// Makes progress: applies what others have sent, sends what waits. Never waits.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn progress(&mut self) -> Result<(), Error> {
        self.path.progress()
    }
}
