//! A member's open epochs, and the calls that they allow: the rules of the standard, the same on every path.
//!
//! ```text
//!   fence ---- may be followed by operations, or (without any) by start, post, lock
//!   start(group) .. complete      access to the group         one at a time
//!   post(group) .. wait           exposure to the group       one at a time, beside an access epoch
//!   lock(t) .. unlock(t)          passive access to t         several targets at a time; lock_all for all
//! ```
//! Nothing here communicates. A violation is an error at the caller before anything else happens.
//! Reference: MPI-4.0 section 12.5.

use crate::model::{Assert, Error, Rank};

/// The kind of a lock, for [`Window::lock`](crate::Window::lock).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Any number of ranks may hold it at the same time.
    Shared,
    /// No other rank holds a lock of this part.
    Exclusive,
}

/// The kind of an operation's access epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpochKind {
    Fence,
    Started,
    Locked,
}

/// A member's open epochs at one window.
#[derive(Debug)]
pub(crate) struct Epochs {
    freed: bool,
    /// The last fence allows operations.
    fence: bool,
    /// The number of operations since the last fence. An operation that is done at once is counted here in
    /// any kind of epoch; the end of an epoch of another kind resets the number.
    pub(crate) fence_operations: u64,
    /// The last fence may have begun an epoch. All members have the same value, because all give the same
    /// asserts.
    fence_began: bool,
    // The groups of start and post. Their memory is kept between epochs, so that no epoch allocates.
    started: Option<Assert>,
    targets: Vec<Rank>,
    posted: bool,
    origins: Vec<Rank>,
    locks: Box<[Option<Lock>]>,
    locked: usize,
    lock_all: bool,
}

fn sync<T>(call: &'static str, problem: &'static str, remedy: &'static str) -> Result<T, Error> {
    Err(Error::Sync { call, problem, remedy })
}

impl Epochs {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            freed: false,
            fence: false,
            fence_operations: 0,
            fence_began: false,
            started: None,
            targets: Vec::new(),
            posted: false,
            origins: Vec::new(),
            locks: vec![None; size].into(),
            locked: 0,
            lock_all: false,
        }
    }

    #[inline]
    pub(crate) fn usable(&self, call: &'static str) -> Result<(), Error> {
        if self.freed { Err(Error::Freed { call }) } else { Ok(()) }
    }

    #[inline]
    fn known(&self, rank: Rank) -> Result<(), Error> {
        if rank.index() < self.locks.len() { Ok(()) } else { Err(self.unknown(rank)) }
    }

    #[cold]
    fn unknown(&self, rank: Rank) -> Error {
        Error::Rank { rank, wanted: format!("below {}, the size of the job", self.locks.len()) }
    }

    /// Returns the kind of epoch in which `target` may be accessed now.
    #[inline]
    pub(crate) fn access(&self, call: &'static str, target: Rank) -> Result<EpochKind, Error> {
        self.usable(call)?;
        self.known(target)?;
        if self.lock_all || self.locks[target.index()].is_some() {
            return Ok(EpochKind::Locked);
        }
        if self.started.is_some() {
            if self.targets.contains(&target) {
                return Ok(EpochKind::Started);
            }
            return sync(
                call,
                "names a target outside the group given to start",
                "start with that rank as well",
            );
        }
        if self.fence && self.locked == 0 {
            return Ok(EpochKind::Fence);
        }
        sync(call, "is outside any access epoch to this target", "call fence, start or lock first")
    }

    /// Counts an accepted operation. A refused operation is not counted, so that it opens no fence epoch.
    #[inline]
    pub(crate) fn issued(&mut self, reach: EpochKind) {
        if reach == EpochKind::Fence {
            self.fence_operations += 1;
        }
    }

    pub(crate) fn fence(&self, call: &'static str, precede: bool) -> Result<(), Error> {
        self.usable(call)?;
        if self.started.is_some() {
            return sync(call, "is inside an access epoch that start began", "call complete first");
        }
        if self.posted {
            return sync(call, "is inside an exposure epoch that post began", "call wait first");
        }
        if self.locked > 0 || self.lock_all {
            return sync(call, "is inside a passive epoch", "call unlock or unlock_all first");
        }
        if !precede && self.fence_operations > 0 {
            return sync(call, "promises NO_PRECEDE after operations", "leave the assert out");
        }
        Ok(())
    }

    /// Records a complete fence. `succeed` says whether operations may follow.
    #[inline]
    pub(crate) fn fenced(&mut self, succeed: bool) {
        self.fence = succeed;
        self.fence_began = succeed;
        self.fence_operations = 0;
    }

    /// Whether a fence with these asserts ends an epoch. It does not if it is the window's first fence, if
    /// the last fence promised that no operation follows, or if this fence promises that none was issued.
    #[inline]
    pub(crate) fn fence_closes(&self, assert: Assert) -> bool {
        self.fence_began && !assert.has(Assert::NO_PRECEDE)
    }

    /// Checks that the last fence has not begun an epoch with operations. A fence without operations after it
    /// is no epoch, and an epoch of another kind may begin.
    fn end_fence(&mut self, call: &'static str) -> Result<(), Error> {
        self.usable(call)?;
        if self.fence && self.fence_operations > 0 {
            return sync(call, "follows operations of a fence epoch", "call fence first");
        }
        Ok(())
    }

    pub(crate) fn start(
        &mut self,
        call: &'static str,
        targets: &[Rank],
        assert: Assert,
    ) -> Result<(), Error> {
        self.end_fence(call)?;
        if self.started.is_some() {
            return sync(call, "is inside an access epoch that start began", "call complete first");
        }
        if self.locked > 0 || self.lock_all {
            return sync(call, "is inside a passive epoch", "call unlock first");
        }
        targets.iter().try_for_each(|rank| self.known(*rank))?;
        self.fence = false;
        self.targets.clear();
        self.targets.extend_from_slice(targets);
        self.started = Some(assert);
        Ok(())
    }

    pub(crate) fn complete(&self, call: &'static str) -> Result<(&[Rank], Assert), Error> {
        self.usable(call)?;
        match &self.started {
            Some(assert) => Ok((&self.targets, *assert)),
            None => sync(call, "has no access epoch to end", "call start first"),
        }
    }

    pub(crate) fn completed(&mut self) {
        self.started = None;
        self.fence_operations = 0;
    }

    pub(crate) fn post(&mut self, call: &'static str, origins: &[Rank]) -> Result<(), Error> {
        self.end_fence(call)?;
        if self.posted {
            return sync(call, "is inside an exposure epoch that post began", "call wait first");
        }
        origins.iter().try_for_each(|rank| self.known(*rank))?;
        self.origins.clear();
        self.origins.extend_from_slice(origins);
        self.posted = true;
        Ok(())
    }

    pub(crate) fn wait(&self, call: &'static str) -> Result<&[Rank], Error> {
        self.usable(call)?;
        if self.posted {
            Ok(&self.origins)
        } else {
            sync(call, "has no exposure epoch to end", "call post first")
        }
    }

    pub(crate) fn waited(&mut self) {
        self.posted = false;
    }

    pub(crate) fn lock(&mut self, call: &'static str, target: Rank, lock: Lock) -> Result<(), Error> {
        self.end_fence(call)?;
        self.known(target)?;
        if self.started.is_some() {
            return sync(call, "is inside an access epoch that start began", "call complete first");
        }
        if self.lock_all {
            return sync(call, "is inside the epoch of lock_all", "call unlock_all first");
        }
        let held = &mut self.locks[target.index()];
        if held.is_some() {
            return sync(call, "names a target that this rank has locked", "call unlock first");
        }
        *held = Some(lock);
        self.locked += 1;
        self.fence = false;
        Ok(())
    }

    #[inline]
    pub(crate) fn unlock(&mut self, call: &'static str, target: Rank) -> Result<Lock, Error> {
        self.usable(call)?;
        self.known(target)?;
        match self.locks[target.index()] {
            Some(lock) => Ok(lock),
            None => sync(call, "names a target that this rank has not locked", "call lock first"),
        }
    }

    #[inline]
    pub(crate) fn unlocked(&mut self, target: Rank) {
        if self.locks[target.index()].take().is_some() {
            self.locked -= 1;
            self.fence_operations = 0;
        }
    }

    pub(crate) fn lock_all(&mut self, call: &'static str) -> Result<(), Error> {
        self.end_fence(call)?;
        if self.started.is_some() || self.locked > 0 || self.lock_all {
            return sync(call, "is inside another access epoch", "end that one first");
        }
        self.lock_all = true;
        self.fence = false;
        Ok(())
    }

    pub(crate) fn unlock_all(&self, call: &'static str) -> Result<(), Error> {
        self.usable(call)?;
        if self.lock_all { Ok(()) } else { sync(call, "has no lock_all to end", "call lock_all first") }
    }

    pub(crate) fn unlocked_all(&mut self) {
        self.lock_all = false;
        self.fence_operations = 0;
    }

    /// Checks that a passive epoch is open to `target`, or to any rank if `target` is `None`; returns the
    /// kind of its lock.
    #[inline]
    pub(crate) fn passive(&self, call: &'static str, target: Option<Rank>) -> Result<Lock, Error> {
        self.usable(call)?;
        let lock = match target {
            _ if self.lock_all => Some(Lock::Shared),
            None => (self.locked > 0).then_some(Lock::Shared),
            Some(rank) => {
                self.known(rank)?;
                self.locks[rank.index()]
            }
        };
        match lock {
            Some(lock) => Ok(lock),
            None => sync(call, "is outside a passive epoch", "call lock or lock_all first"),
        }
    }

    pub(crate) fn free(&self, call: &'static str) -> Result<(), Error> {
        self.usable(call)?;
        if self.started.is_some() || self.posted {
            return sync(call, "is inside an epoch", "call complete and wait first");
        }
        if self.locked > 0 || self.lock_all {
            return sync(call, "is called while a lock is held", "call unlock or unlock_all first");
        }
        if self.fence_operations > 0 {
            return sync(call, "follows operations of a fence epoch", "call fence first");
        }
        Ok(())
    }

    pub(crate) fn freed(&mut self) {
        self.freed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_need_an_epoch_that_reaches_their_target() {
        let mut epochs = Epochs::new(2);
        assert!(matches!(epochs.access("put", Rank(1)), Err(Error::Sync { .. })));
        epochs.fenced(true);
        assert_eq!(epochs.access("put", Rank(1)).expect("after a fence"), EpochKind::Fence);
        assert!(matches!(epochs.access("put", Rank(2)), Err(Error::Rank { .. })));
        epochs.fence("fence", false).expect("nothing was issued yet");
        epochs.issued(EpochKind::Fence);
        assert!(matches!(epochs.fence("fence", false), Err(Error::Sync { .. })));
        assert!(matches!(epochs.start("start", &[Rank(1)], Assert::NONE), Err(Error::Sync { .. })));
        epochs.fenced(true);
        epochs.start("start", &[Rank(1)], Assert::NONE).expect("no operation since the fence");
        assert_eq!(epochs.access("put", Rank(1)).expect("in the group"), EpochKind::Started);
        assert!(matches!(epochs.access("put", Rank(0)), Err(Error::Sync { .. })));
        assert!(matches!(epochs.fence("fence", true), Err(Error::Sync { .. })));
        epochs.completed();
        assert!(matches!(epochs.complete("complete"), Err(Error::Sync { .. })));
    }

    #[test]
    fn a_locked_window_cannot_be_freed_nor_a_freed_one_used() {
        let mut epochs = Epochs::new(2);
        epochs.lock("lock", Rank(1), Lock::Shared).expect("nothing is open");
        assert!(matches!(epochs.lock("lock", Rank(1), Lock::Shared), Err(Error::Sync { .. })));
        assert!(matches!(epochs.free("free"), Err(Error::Sync { .. })));
        assert!(matches!(epochs.unlock("unlock", Rank(0)), Err(Error::Sync { .. })));
        epochs.unlock("unlock", Rank(1)).expect("it is locked");
        epochs.unlocked(Rank(1));
        epochs.free("free").expect("nothing is open");
        epochs.freed();
        assert!(matches!(epochs.free("free"), Err(Error::Freed { .. })));
        assert!(matches!(epochs.access("put", Rank(1)), Err(Error::Freed { .. })));
    }
}
