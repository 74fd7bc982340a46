//! The synchronization calls: fence, post-start-complete-wait, lock-unlock and flush.

use super::{Lock, NOT_YET, Request, Window};
use crate::assert::Assert;
use crate::error::Error;
use crate::rank::Rank;

impl Window {
    /// Ends the epoch that the last fence began, and begins the next; collective.
    ///
    /// # Errors
    /// [`Error::Assert`]; [`Error::Sync`] inside an epoch of another kind, and for operations issued since a
    /// fence that promised none; [`Error::Gone`].
    pub fn fence(&mut self, assert: Assert) -> Result<(), Error> {
        let _ = assert;
        Err(NOT_YET)
    }

    /// Exposes this rank's part to `origins`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Sync`] when it is exposed already; [`Error::Rank`]; [`Error::Assert`].
    pub fn post(&mut self, origins: &[Rank], assert: Assert) -> Result<(), Error> {
        let _ = (origins, assert);
        Err(NOT_YET)
    }

    /// Begins an access epoch to `targets`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Sync`] inside an access epoch; [`Error::Rank`]; [`Error::Assert`].
    pub fn start(&mut self, targets: &[Rank], assert: Assert) -> Result<(), Error> {
        let _ = (targets, assert);
        Err(NOT_YET)
    }

    /// Ends the access epoch that [`start`](Self::start) began.
    ///
    /// # Errors
    /// [`Error::Sync`] without one; [`Error::Gone`].
    pub fn complete(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }

    /// Ends the exposure epoch that [`post`](Self::post) began: waits until every origin has completed.
    ///
    /// # Errors
    /// [`Error::Sync`] without one; [`Error::Gone`].
    pub fn wait(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }

    /// As [`wait`](Self::wait), without waiting: whether the epoch has ended.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<bool, Error> {
        Err(NOT_YET)
    }

    /// Begins a passive access epoch to `target`. Need not wait for the lock.
    ///
    /// # Errors
    /// [`Error::Sync`] when `target` is locked already or an active epoch is open; [`Error::NoLocks`].
    pub fn lock(&mut self, target: Rank, lock: Lock, assert: Assert) -> Result<(), Error> {
        let _ = (target, lock, assert);
        Err(NOT_YET)
    }

    /// Ends it; all its operations are complete at origin and target (but see
    /// [`Completion::Local`](crate::Completion)).
    ///
    /// # Errors
    /// [`Error::Sync`] when `target` is not locked; [`Error::Gone`].
    pub fn unlock(&mut self, target: Rank) -> Result<(), Error> {
        let _ = target;
        Err(NOT_YET)
    }

    /// Begins a shared passive access epoch to everybody.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn lock_all(&mut self, assert: Assert) -> Result<(), Error> {
        let _ = assert;
        Err(NOT_YET)
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`unlock`](Self::unlock).
    pub fn unlock_all(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }

    /// Completes all operations to `target` at origin and target; the epoch goes on.
    ///
    /// # Errors
    /// [`Error::Sync`] outside a passive epoch to `target`; [`Error::Gone`].
    pub fn flush(&mut self, target: Rank) -> Result<(), Error> {
        let _ = target;
        Err(NOT_YET)
    }

    /// [`flush`](Self::flush) for every target.
    ///
    /// # Errors
    /// As there.
    pub fn flush_all(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }

    /// Completes all operations to `target` at the origin: buffers may be used again, what was asked for
    /// has come.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_local(&mut self, target: Rank) -> Result<(), Error> {
        let _ = target;
        Err(NOT_YET)
    }

    /// [`flush_local`](Self::flush_local) for every target.
    ///
    /// # Errors
    /// As there.
    pub fn flush_local_all(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }

    /// Makes local loads and stores and other members' operations on this rank's part see each other.
    ///
    /// # Errors
    /// [`Error::Sync`] outside a passive epoch.
    pub fn sync(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }

    /// Waits until a request-based operation is complete at the origin.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn wait_request(&mut self, request: Request) -> Result<(), Error> {
        let _ = request;
        Err(NOT_YET)
    }

    /// Whether it is complete, after making progress once. A complete one may be dropped.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn test_request(&mut self, request: &Request) -> Result<bool, Error> {
        let _ = request;
        Err(NOT_YET)
    }

    /// Makes progress: applies what others have sent, sends what waits. Never waits.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn progress(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }
}
