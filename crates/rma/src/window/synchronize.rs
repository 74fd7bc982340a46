//! The synchronization calls: fence, post-start-complete-wait, lock-unlock and flush.

use super::{Request, Window};
use crate::model::{Assert, EpochKind, Error, Lock, Locks, Rank};
use std::time::Duration;

/// Refuses asserts that have no meaning for a call.
fn meaningful(call: &'static str, assert: Assert, allowed: Assert) -> Result<(), Error> {
    let beyond = assert.beyond(allowed);
    if beyond.is_none() { Ok(()) } else { Err(Error::Assert { call, assert: beyond.to_string() }) }
}

/// Separates two kinds of errors at the end of an epoch. If a target refused an operation, the epoch ends all
/// the same, and the refusal is the inner error. With any other error, the outer one, the epoch does not end.
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
    /// Ends the epoch that the last fence began, and begins the next; collective. Fails with
    /// [`Error::Assert`], [`Error::Sync`] inside an epoch of another kind, and for operations issued since a
    /// fence that promised no operations.
    pub fn fence(&mut self, assert: Assert) -> Result<(), Error> {
        meaningful("fence", assert, FENCE)?;
        self.epochs.fence("fence", !assert.has(Assert::NO_PRECEDE))?;
        let closes = self.epochs.fence_closes(assert);
        let refusal = ended(self.path.fence(closes, assert, &self.parts, &mut self.stats.fence))?;
        self.epochs.fenced(!assert.has(Assert::NO_SUCCEED));
        if closes {
            self.count_epoch(EpochKind::Fence);
        }
        refusal
    }

    /// Exposes this rank's part to `origins`. Does not wait for them. Fails with [`Error::Sync`] when the
    /// part is already exposed, [`Error::Rank`], [`Error::Assert`].
    pub fn post(&mut self, origins: &[Rank], assert: Assert) -> Result<(), Error> {
        meaningful("post", assert, POST)?;
        self.epochs.post("post", origins)?;
        self.path.post(origins, assert, &mut self.stats.pscw)
    }

    /// Begins an access epoch to `targets`. Does not wait. Fails with [`Error::Sync`] inside an access epoch,
    /// [`Error::Rank`], [`Error::Assert`].
    ///
    /// ```
    /// use unisono_rma::{Assert, Error, Job, Rank, Spec};
    ///
    /// fn member(mut job: Job) -> Result<(), Error> {
    ///     let mut window = job.allocate(4, Spec::new())?;
    ///     if job.rank() == Rank(0) {
    ///         window.start(&[Rank(1)], Assert::NONE)?;
    ///         window.put(&[7_u32], Rank(1), 0)?;
    ///         window.complete()?;
    ///     } else {
    ///         window.post(&[Rank(0)], Assert::NONE)?;
    ///         window.wait()?;
    ///         let mut received = [0_u32];
    ///         window.load(0, &mut received)?;
    ///         assert_eq!(received, [7]);
    ///     }
    ///     window.free()?;
    ///     job.finalize()
    /// }
    ///
    /// let members = Job::threads(2).into_iter().map(|job| std::thread::spawn(move || member(job)));
    /// members.collect::<Vec<_>>().into_iter().try_for_each(|member| member.join().expect("no panic"))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start(&mut self, targets: &[Rank], assert: Assert) -> Result<(), Error> {
        meaningful("start", assert, Assert::NO_CHECK)?;
        self.epochs.start("start", targets, assert)?;
        self.path.start(targets, assert, &mut self.stats.pscw)
    }

    /// Ends the access epoch that [`start`](Self::start) began. Fails with [`Error::Sync`] outside such an
    /// epoch.
    pub fn complete(&mut self) -> Result<(), Error> {
        let (targets, assert) = self.epochs.complete("complete")?;
        let refusal = ended(self.path.complete(targets, assert, &mut self.stats.pscw))?;
        self.epochs.completed();
        self.count_epoch(EpochKind::Started);
        refusal
    }

    /// Ends the exposure epoch that [`post`](Self::post) began: waits until every origin has completed. Fails
    /// with [`Error::Sync`] outside such an epoch.
    pub fn wait(&mut self) -> Result<(), Error> {
        let origins = self.epochs.wait("wait")?;
        self.path.wait(origins, &self.parts, &mut self.stats.pscw)?;
        self.exposed();
        Ok(())
    }

    /// Tests without waiting whether the exposure epoch has ended. Fails as [`wait`](Self::wait) does.
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

    /// Begins a passive access epoch to `target`. May return before this rank has the lock; the operations
    /// wait for it. Fails with [`Error::Sync`] when `target` is locked already or an active epoch is open,
    /// [`Error::NoLocks`].
    ///
    /// ```
    /// use unisono_rma::{Assert, Error, Job, Lock, Operation, Rank, Spec};
    ///
    /// /// Adds to a counter in the memory of rank 0, which need not take part.
    /// fn member(mut job: Job) -> Result<(), Error> {
    ///     let mut window = job.allocate(8, Spec::new())?;
    ///     window.lock(Rank(0), Lock::Shared, Assert::NONE)?;
    ///     let before = window.fetch_and_op(1_u64, Rank(0), 0, Operation::Sum)?;
    ///     window.unlock(Rank(0))?;
    ///     assert!(before < 2);
    ///     window.free()?;
    ///     job.finalize()
    /// }
    ///
    /// let members = Job::threads(2).into_iter().map(|job| std::thread::spawn(move || member(job)));
    /// members.collect::<Vec<_>>().into_iter().try_for_each(|member| member.join().expect("no panic"))?;
    /// # Ok::<(), Error>(())
    /// ```
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

    /// Ends the passive epoch to `target`: its operations are complete at origin and target (but see
    /// [`Completion::Local`](crate::Completion)).
    ///
    /// On the message path an exclusive unlock does not wait for its target. A rank that locks the part later
    /// finds the operations done. Before other ranks can learn of the unlock through this job, this rank's
    /// calls wait until the target has done them. Before the program informs another rank in any other
    /// way, such as through a window in shared memory, it calls [`settle`](Self::settle). Fails with
    /// [`Error::Sync`] when `target` is not locked.
    pub fn unlock(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.unlock("unlock", target)?;
        let refusal = ended(self.path.unlock(target, lock, &mut self.stats.passive))?;
        self.epochs.unlocked(target);
        self.count_epoch(EpochKind::Locked);
        refusal
    }

    /// Begins a passive access epoch to all ranks, with a shared lock at each. Fails as [`lock`](Self::lock)
    /// does.
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

    /// Ends the epoch that [`lock_all`](Self::lock_all) began. Fails as [`unlock`](Self::unlock) does.
    pub fn unlock_all(&mut self) -> Result<(), Error> {
        self.epochs.unlock_all("unlock_all")?;
        let refusal = self.path.unlock_all(&mut self.stats.passive)?;
        self.epochs.unlocked_all();
        self.count_epoch(EpochKind::Locked);
        refusal
    }

    /// Waits until this rank has the lock of its passive epoch to `target`, if [`lock`](Self::lock) or
    /// [`lock_all`](Self::lock_all) returned without it. Operations wait for the lock by themselves; the
    /// program's own loads and stores in another member's part ([`mapped`](Self::mapped)) do not. Fails with
    /// [`Error::Sync`] outside a passive epoch to `target`.
    pub fn hold(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.passive("hold", Some(target))?;
        self.path.hold(target, lock, &mut self.stats.passive)
    }

    /// Waits until every operation of passive epochs that have ended is complete at its target. Needs no
    /// epoch. Sends nothing, unless the window was made with [`Completion::Local`](crate::Completion). Fails
    /// with [`Error::Freed`], [`Error::Gone`], [`Error::Unattached`] for memory that a target had not
    /// attached.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.epochs.usable("settle")?;
        self.path.settle(&mut self.stats.passive)
    }

    fn lockable(&self, call: &'static str) -> Result<(), Error> {
        if self.spec.locks == Locks::Never { Err(Error::NoLocks { call }) } else { Ok(()) }
    }

    /// Completes all operations to `target` at origin and target; the epoch goes on. Fails with
    /// [`Error::Sync`] outside a passive epoch to `target`.
    #[inline]
    pub fn flush(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.passive("flush", Some(target))?;
        self.path.flush(target, lock, &mut self.stats.passive)
    }

    /// Calls [`flush`](Self::flush) for every target of a passive epoch.
    pub fn flush_all(&mut self) -> Result<(), Error> {
        self.epochs.passive("flush_all", None)?;
        for target in (0..self.size()).map(Rank::at) {
            if self.epochs.passive("flush_all", Some(target)).is_ok() {
                self.flush(target)?;
            }
        }
        Ok(())
    }

    /// Completes all operations to `target` at the origin: buffers may be used again, results have arrived.
    /// Fails as [`flush`](Self::flush) does.
    #[inline]
    pub fn flush_local(&mut self, target: Rank) -> Result<(), Error> {
        let lock = self.epochs.passive("flush_local", Some(target))?;
        self.path.flush_local(target, lock, &mut self.stats.passive)
    }

    /// Calls [`flush_local`](Self::flush_local) for every target of a passive epoch.
    pub fn flush_local_all(&mut self) -> Result<(), Error> {
        self.epochs.passive("flush_local_all", None)?;
        for target in (0..self.size()).map(Rank::at) {
            if self.epochs.passive("flush_local_all", Some(target)).is_ok() {
                self.flush_local(target)?;
            }
        }
        Ok(())
    }

    /// Orders local loads and stores with other members' operations on this rank's part. Fails with
    /// [`Error::Sync`] outside a passive epoch.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.epochs.passive("sync", None)?;
        // SYNC(window) fence: orders this rank's loads and stores before the fence and after it; other ranks
        // order theirs by their own synchronization calls
        unisono_sync::atomics::fence(unisono_sync::atomics::Ordering::SeqCst);
        self.path.sync()
    }

    /// Returns a request for all operations that this rank issues to `target` in its passive epoch, before
    /// this call and after it. The request is complete when all of them are complete at the origin. Fails
    /// with [`Error::Sync`] outside a passive epoch to `target`.
    #[inline]
    pub fn request(&self, target: Rank) -> Result<Request, Error> {
        self.epochs.passive("a request", Some(target))?;
        Ok(Request { target })
    }

    pub fn wait_request(&mut self, request: Request) -> Result<(), Error> {
        match self.epochs.passive("wait", Some(request.target)) {
            // The end of an epoch completes its operations.
            Err(Error::Sync { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => self.flush_local(request.target),
        }
    }

    /// Makes progress once, and returns whether a request is complete. A complete request may be dropped.
    pub fn test_request(&mut self, request: &Request) -> Result<bool, Error> {
        let lock = match self.epochs.passive("test", Some(request.target)) {
            Err(Error::Sync { .. }) => return Ok(true),
            Err(error) => return Err(error),
            Ok(lock) => lock,
        };
        self.path.test_local(request.target, lock)
    }

    /// Applies operations that have arrived from other ranks, and sends operations that this rank holds back.
    /// Never waits.
    pub fn progress(&mut self) -> Result<(), Error> {
        self.path.progress()
    }

    /// Lets calls of all windows of this job give up with [`Error::NotYet`] after about `timeout`; with
    /// `None`, the default, they wait as long as it takes.
    ///
    /// This is for a binding whose threads take turns at a window. `wait`, `complete`, `lock`, `lock_all`,
    /// `hold`, `unlock`, the flushes and the first operation at a target within `lock_all` wait for a later
    /// call of another member's program, and no other thread can use the window meanwhile. If that member
    /// waits in turn for a call that a second thread here would make at the same window, neither proceeds.
    /// With a timeout such a call gives up without any change, so that its caller can let the other threads
    /// have their turn and repeat the call. Collective calls never give up: no other call may be made at the
    /// window meanwhile.
    pub fn set_wait_timeout(&self, timeout: Option<Duration>) {
        self.path.shared().set_wait_timeout(timeout.map(Into::into));
    }
}
