//! The two paths of an operation to its target: memory that both sides can reach, or messages.
//!
//! A window checks a call against its epochs and parts; then its path does the work. The two paths differ in
//! the cost of a call and in the moment when operations are done, but not in their results. [`Path`] lists
//! the calls of both.
//!
//! | path | operations are | synchronization is | folder |
//! |---|---|---|---|
//! | [`mapped`] | loads, stores, atomic instructions, copies by the kernel | flags, lock words and barrier episodes | `mapped/` |
//! | [`message`] | packets to the target, which serves them | packets | `message/` |
//!
//! A window keeps its path as an [`AnyPath`] and not as a pointer to a trait: a call of the mapped path is a
//! few instructions long, and the compiler must be able to inline it. Only the mapped path can do an
//! operation at once; the window reaches it through [`AnyPath::mapped_mut`].

pub(crate) mod hook;
pub(crate) mod mapped;
pub(crate) mod message;

use crate::memory::op::Op;
use crate::model::{Assert, Counts, EpochKind, Error, Lock, Rank, Stats, Traffic, Waits, WindowPart};
use mapped::MappedPath;
use message::{MessageEngine, MessagePath};
use unisono_sync::Waited;

/// A change of the list of attached memory, by address and length.
pub(crate) type AttachmentChange<'a> = &'a mut dyn FnMut(&mut Vec<(usize, usize)>) -> Result<(), Error>;

#[derive(Debug)]
pub(crate) enum AnyPath {
    Mapped(Box<MappedPath>),
    Message(MessagePath),
}

impl AnyPath {
    /// The mapped path, if the window is on it.
    #[inline]
    pub(crate) fn mapped_mut(&mut self) -> Option<&mut MappedPath> {
        match self {
            Self::Mapped(path) => Some(path),
            Self::Message(_) => None,
        }
    }

    pub(crate) const fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }
}

/// A window's way to the other members. The window has checked each call: the epoch allows it, and ranks
/// and ranges are valid.
///
/// A call adds the time that it waits for messages to `stats`. The path keeps the time that it waits for
/// flags ([`waits`](Self::waits)). An error for which [`Error::ends_epoch`] is true is a target's
/// refusal; the call is complete all the same.
pub(crate) trait Path {
    /// Ends a fence epoch if `closes`, and begins the next.
    fn fence(
        &mut self,
        closes: bool,
        assert: Assert,
        parts: &[WindowPart],
        stats: &mut Stats,
    ) -> Result<(), Error>;

    fn post(&mut self, origins: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn start(&mut self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn complete(&mut self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn wait(&mut self, origins: &[Rank], parts: &[WindowPart], stats: &mut Stats) -> Result<(), Error>;

    /// Tests without waiting whether the exposure epoch has ended.
    fn test(&mut self, origins: &[Rank], parts: &[WindowPart]) -> Result<bool, Error>;

    fn lock(&mut self, target: Rank, lock: Lock, assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn unlock(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    fn lock_all(&mut self, assert: Assert, stats: &mut Stats) -> Result<(), Error>;

    /// Releases all locks. After the outer error this rank still holds them. The inner error is a
    /// target's refusal of an operation.
    fn unlock_all(&mut self, stats: &mut Stats) -> Result<Result<(), Error>, Error>;

    /// Waits until the operations of returned unlocks are done at their targets.
    fn settle(&mut self, stats: &mut Stats) -> Result<(), Error>;

    fn flush(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    fn flush_local(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;

    /// Whether every operation to `target` is complete at the origin; makes progress once.
    fn test_local(&mut self, target: Rank, lock: Lock) -> Result<bool, Error>;

    /// Makes other members' operations on this rank's part visible. Called after a memory fence.
    fn sync(&mut self) -> Result<(), Error>;

    fn progress(&mut self) -> Result<(), Error>;

    /// Does an operation, or queues it. [`Error::NotYet`]: nothing was done, and the caller repeats the
    /// call.
    fn issue(&mut self, reach: EpochKind, target: Rank, op: Op) -> Result<(), Error>;

    /// Frees the window, collectively.
    fn free(&mut self) -> Result<(), Error>;

    /// Drops this member's window without the others. Its memory is out of reach from now on.
    fn abandon(&mut self);

    /// Takes the time that this member has waited for gates of accumulates since the last call.
    fn take_gate_waits(&mut self) -> Waited;

    /// Whether every operation to `target` is done.
    fn is_settled(&self, target: Rank) -> bool;

    /// The address of a member's part in this process, if this process maps it.
    fn mapped(&self, rank: Rank) -> Option<*mut u8>;

    /// The time that this member has waited for flags of the window.
    fn waits(&self) -> Waits;

    /// The operations that were issued, divided by carrier.
    fn traffic(&self, issued: &Counts) -> Traffic;

    /// The engine that all windows of the job share.
    fn shared(&self) -> &MessageEngine;

    /// Changes the attached memory of a dynamic window. `None`: the window is not dynamic.
    fn change_attached(&self, change: AttachmentChange<'_>) -> Option<Result<(), Error>>;
}

impl Path for AnyPath {
    #[inline]
    fn fence(
        &mut self,
        closes: bool,
        assert: Assert,
        parts: &[WindowPart],
        stats: &mut Stats,
    ) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::fence(path, closes, assert, parts, stats),
            Self::Message(path) => <MessagePath as Path>::fence(path, closes, assert, parts, stats),
        }
    }

    #[inline]
    fn post(&mut self, origins: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::post(path, origins, assert, stats),
            Self::Message(path) => <MessagePath as Path>::post(path, origins, assert, stats),
        }
    }

    #[inline]
    fn start(&mut self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::start(path, targets, assert, stats),
            Self::Message(path) => <MessagePath as Path>::start(path, targets, assert, stats),
        }
    }

    #[inline]
    fn complete(&mut self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::complete(path, targets, assert, stats),
            Self::Message(path) => <MessagePath as Path>::complete(path, targets, assert, stats),
        }
    }

    #[inline]
    fn wait(&mut self, origins: &[Rank], parts: &[WindowPart], stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::wait(path, origins, parts, stats),
            Self::Message(path) => <MessagePath as Path>::wait(path, origins, parts, stats),
        }
    }

    #[inline]
    fn test(&mut self, origins: &[Rank], parts: &[WindowPart]) -> Result<bool, Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::test(path, origins, parts),
            Self::Message(path) => <MessagePath as Path>::test(path, origins, parts),
        }
    }

    #[inline]
    fn lock(&mut self, target: Rank, lock: Lock, assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::lock(path, target, lock, assert, stats),
            Self::Message(path) => <MessagePath as Path>::lock(path, target, lock, assert, stats),
        }
    }

    #[inline]
    fn unlock(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::unlock(path, target, lock, stats),
            Self::Message(path) => <MessagePath as Path>::unlock(path, target, lock, stats),
        }
    }

    #[inline]
    fn lock_all(&mut self, assert: Assert, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::lock_all(path, assert, stats),
            Self::Message(path) => <MessagePath as Path>::lock_all(path, assert, stats),
        }
    }

    #[inline]
    fn unlock_all(&mut self, stats: &mut Stats) -> Result<Result<(), Error>, Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::unlock_all(path, stats),
            Self::Message(path) => <MessagePath as Path>::unlock_all(path, stats),
        }
    }

    #[inline]
    fn settle(&mut self, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::settle(path, stats),
            Self::Message(path) => <MessagePath as Path>::settle(path, stats),
        }
    }

    #[inline]
    fn flush(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::flush(path, target, lock, stats),
            Self::Message(path) => <MessagePath as Path>::flush(path, target, lock, stats),
        }
    }

    #[inline]
    fn flush_local(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::flush_local(path, target, lock, stats),
            Self::Message(path) => <MessagePath as Path>::flush_local(path, target, lock, stats),
        }
    }

    #[inline]
    fn test_local(&mut self, target: Rank, lock: Lock) -> Result<bool, Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::test_local(path, target, lock),
            Self::Message(path) => <MessagePath as Path>::test_local(path, target, lock),
        }
    }

    #[inline]
    fn sync(&mut self) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::sync(path),
            Self::Message(path) => <MessagePath as Path>::sync(path),
        }
    }

    #[inline]
    fn progress(&mut self) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::progress(path),
            Self::Message(path) => <MessagePath as Path>::progress(path),
        }
    }

    #[inline]
    fn issue(&mut self, reach: EpochKind, target: Rank, op: Op) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::issue(path, reach, target, op),
            Self::Message(path) => <MessagePath as Path>::issue(path, reach, target, op),
        }
    }

    #[inline]
    fn free(&mut self) -> Result<(), Error> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::free(path),
            Self::Message(path) => <MessagePath as Path>::free(path),
        }
    }

    #[inline]
    fn abandon(&mut self) {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::abandon(path),
            Self::Message(path) => <MessagePath as Path>::abandon(path),
        }
    }

    #[inline]
    fn take_gate_waits(&mut self) -> Waited {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::take_gate_waits(path),
            Self::Message(path) => <MessagePath as Path>::take_gate_waits(path),
        }
    }

    #[inline]
    fn is_settled(&self, target: Rank) -> bool {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::is_settled(path, target),
            Self::Message(path) => <MessagePath as Path>::is_settled(path, target),
        }
    }

    #[inline]
    fn mapped(&self, rank: Rank) -> Option<*mut u8> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::mapped(path, rank),
            Self::Message(path) => <MessagePath as Path>::mapped(path, rank),
        }
    }

    #[inline]
    fn waits(&self) -> Waits {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::waits(path),
            Self::Message(path) => <MessagePath as Path>::waits(path),
        }
    }

    #[inline]
    fn traffic(&self, issued: &Counts) -> Traffic {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::traffic(path, issued),
            Self::Message(path) => <MessagePath as Path>::traffic(path, issued),
        }
    }

    #[inline]
    fn shared(&self) -> &MessageEngine {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::shared(path),
            Self::Message(path) => <MessagePath as Path>::shared(path),
        }
    }

    #[inline]
    fn change_attached(&self, change: AttachmentChange<'_>) -> Option<Result<(), Error>> {
        match self {
            Self::Mapped(path) => <MappedPath as Path>::change_attached(path, change),
            Self::Message(path) => <MessagePath as Path>::change_attached(path, change),
        }
    }
}
