//! The synchronization calls: fence, post-start-complete-wait, lock-unlock and flush.

use super::{Backend, Request, Window};
use crate::model::{Assert, Completion, Error, Lock, Locks, Rank, Reach, Style, counted};

/// Refuses asserts that mean nothing to a call.
fn meaningful(call: &'static str, assert: Assert, allowed: Assert) -> Result<(), Error> {
    let beyond = assert.beyond(allowed);
    if beyond.is_none() { Ok(()) } else { Err(Error::Assert { call, assert: beyond.to_string() }) }
}

/// An epoch that a target refused an operation in ends; its caller learns why. `Ok(refusal)` or what it goes on with.
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
        let naive = self.spec.style == Style::Naive;
        let refusal = ended(match &mut self.backend {
            Backend::Message { shared, number } => counted(&mut self.stats.fence, || {
                shared.await_unlocks(None)?;
                match closes {
                    _ if naive => shared.naive_fence(*number),
                    true => shared.fence(*number),
                    false => Ok(()),
                }
            }),
            Backend::Direct(direct) => direct.fence(closes, assert, &self.parts),
        })?;
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
        match &mut self.backend {
            Backend::Message { shared, number } => {
                counted(&mut self.stats.pscw, || shared.post(*number, origins, assert))
            }
            Backend::Direct(direct) => {
                direct.post(origins);
                Ok(())
            }
        }
    }

    /// Begins an access epoch to `targets`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Sync`] inside an access epoch; [`Error::Rank`]; [`Error::Assert`].
    pub fn start(&mut self, targets: &[Rank], assert: Assert) -> Result<(), Error> {
        meaningful("start", assert, Assert::NO_CHECK)?;
        self.epochs.start("start", targets, assert)?;
        match &mut self.backend {
            Backend::Message { shared, number } => {
                if self.spec.style == Style::Naive && !assert.has(Assert::NO_CHECK) {
                    counted(&mut self.stats.pscw, || shared.await_posts(*number, targets))?;
                }
                Ok(())
            }
            Backend::Direct(direct) => {
                direct.start(targets, assert);
                Ok(())
            }
        }
    }

    /// Ends the access epoch that [`start`](Self::start) began.
    ///
    /// # Errors
    /// [`Error::Sync`] without one; [`Error::Gone`].
    pub fn complete(&mut self) -> Result<(), Error> {
        let (targets, assert) = self.epochs.complete("complete")?;
        let refusal = ended(match &mut self.backend {
            Backend::Message { shared, number } => counted(&mut self.stats.pscw, || {
                if self.spec.style != Style::Naive && !assert.has(Assert::NO_CHECK) {
                    shared.await_posts(*number, targets)?;
                }
                shared.complete(*number, targets)
            }),
            Backend::Direct(direct) => direct.complete(targets),
        })?;
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
        match &mut self.backend {
            Backend::Message { shared, number } => {
                counted(&mut self.stats.pscw, || shared.wait_exposed(*number))?;
            }
            Backend::Direct(direct) => direct.wait(origins, &self.parts)?,
        }
        self.exposed();
        Ok(())
    }

    /// As [`wait`](Self::wait), without waiting: whether the epoch has ended.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<bool, Error> {
        let origins = self.epochs.wait("test")?;
        let ended = match &mut self.backend {
            Backend::Message { shared, number } => shared.test_exposed(*number)?,
            Backend::Direct(direct) => direct.test(origins, &self.parts)?,
        };
        if ended {
            self.exposed();
        }
        Ok(ended)
    }

    fn exposed(&mut self) {
        self.epochs.waited();
        self.stats.pscw.epochs += 1;
        self.stats.pscw.add(self.backend.take_gate_waits());
    }

    /// Begins a passive access epoch to `target`. Need not wait for the lock.
    ///
    /// # Errors
    /// [`Error::Sync`] when `target` is locked already or an active epoch is open; [`Error::NoLocks`].
    pub fn lock(&mut self, target: Rank, lock: Lock, assert: Assert) -> Result<(), Error> {
        meaningful("lock", assert, Assert::NO_CHECK)?;
        self.lockable("lock")?;
        self.epochs.lock("lock", target, lock)?;
        let now = self.spec.style == Style::Naive || target == self.rank;
        let locked = match &mut self.backend {
            Backend::Message { shared, number } if assert.has(Assert::NO_CHECK) => {
                shared.lock_unchecked(*number, target);
                Ok(())
            }
            Backend::Message { shared, number } if now => {
                counted(&mut self.stats.passive, || shared.lock_now(*number, target, lock))
            }
            Backend::Message { .. } => Ok(()),
            Backend::Direct(direct) if assert.has(Assert::NO_CHECK) => direct.lock_unchecked(target.index()),
            Backend::Direct(direct) => direct.lock(target.index(), lock),
        };
        if matches!(locked, Err(Error::NotYet)) {
            self.epochs.unlocked(target);
        }
        locked
    }

    /// Ends it; all its operations are complete at origin and target (but see
    /// [`Completion::Local`](crate::Completion)).
    ///
    /// Over messages an exclusive one need not wait for its target: whoever locks finds the operations done, and
    /// this rank's next call of this job from which others could learn of it waits. Who tells them by other
    /// means than this job's messages (or by a window in shared memory) calls [`settle`](Self::settle) first.
    ///
    /// # Errors
    /// [`Error::Sync`] when `target` is not locked; [`Error::Gone`].
    pub fn unlock(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.unlock("unlock", target)?;
        let refusal = ended(match &mut self.backend {
            Backend::Message { shared, number } => counted(&mut self.stats.passive, || {
                shared.unlock(*number, target, lock, self.spec.completion)?;
                match self.spec.style == Style::Naive && target != self.rank {
                    true => shared.settle(*number, target),
                    false => Ok(()),
                }
            }),
            Backend::Direct(direct) => direct.unlock(target.index()),
        })?;
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
        let size = self.size();
        let locked = match &mut self.backend {
            Backend::Message { shared, number } => {
                if assert.has(Assert::NO_CHECK) {
                    (0..size).for_each(|target| shared.lock_unchecked(*number, Rank::at(target)));
                    return Ok(());
                }
                counted(&mut self.stats.passive, || shared.lock_now(*number, self.rank, Lock::Shared))
            }
            // Others' locks are taken when they are first accessed.
            Backend::Direct(direct) if !assert.has(Assert::NO_CHECK) => {
                direct.lock(self.rank.index(), Lock::Shared)
            }
            Backend::Direct(direct) => (0..size).try_for_each(|target| direct.lock_unchecked(target)),
        };
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
        let size = self.size();
        let refusal = match &mut self.backend {
            Backend::Message { shared, number } => counted(&mut self.stats.passive, || {
                // all of them, though one refuses: the first refusal is the answer
                let mut refusal = Ok(());
                for target in (0..size).map(Rank::at) {
                    let this = ended(shared.unlock(*number, target, Lock::Shared, self.spec.completion));
                    let this = match this {
                        // the call that repeats this one tells
                        Err(Error::NotYet) if refusal.is_err() => {
                            shared.core().port(*number).refused = refusal.err();
                            return Err(Error::NotYet);
                        }
                        other => other?,
                    };
                    refusal = refusal.and(this);
                }
                Ok::<_, Error>(refusal)
            })?,
            // All are given back, whatever becomes of one.
            Backend::Direct(direct) => {
                (0..size).map(|target| direct.unlock(target)).fold(Ok(()), Result::and)
            }
        };
        self.epochs.unlocked_all();
        self.count_epoch(Reach::Locked);
        refusal
    }

    /// Waits until every operation of passive epochs that have ended is complete at its target. Needs no epoch;
    /// sends nothing unless the window promises completion at the origin only.
    ///
    /// # Errors
    /// [`Error::Freed`]; [`Error::Gone`]; [`Error::Unattached`] for memory that a target had not attached.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.epochs.usable("settle")?;
        let Backend::Message { shared, number } = &self.backend else { return Ok(()) };
        let lazy = self.spec.completion == Completion::Local;
        counted(&mut self.stats.passive, || {
            if lazy {
                shared.complete_everywhere(*number)?;
            }
            shared.await_unlocks(None)
        })?;
        shared.core().port(*number).refused.take().map_or(Ok(()), Err)
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
        match &mut self.backend {
            Backend::Message { shared, number } => {
                counted(&mut self.stats.passive, || shared.flush(*number, target, lock))
            }
            Backend::Direct(direct) => direct.flush(target.index()),
        }
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
        match &mut self.backend {
            Backend::Message { shared, number } => {
                counted(&mut self.stats.passive, || shared.flush_local(*number, target, lock))
            }
            // Every operation was done when it was issued.
            Backend::Direct(_) => Ok(()),
        }
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
        match &mut self.backend {
            Backend::Message { shared, .. } => {
                shared.await_unlocks(None)?;
                shared.core().progress()
            }
            Backend::Direct(_) => Ok(()),
        }
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
        match &mut self.backend {
            Backend::Message { shared, number } => shared.try_flush_local(*number, request.target, lock),
            Backend::Direct(_) => Ok(true),
        }
    }

    /// Makes progress: applies what others have sent, sends what waits. Never waits.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn progress(&mut self) -> Result<(), Error> {
        match &mut self.backend {
            Backend::Message { shared, .. } => {
                let mut core = shared.core();
                core.progress()?;
                core.check_gone()
            }
            Backend::Direct(direct) => direct.progress(),
        }
    }
}
