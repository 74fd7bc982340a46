//! The two paths of an operation to its target: memory that both sides can reach, or messages.
//!
//! A window checks a call against its epochs and parts; then its path does the work. The two paths differ in
//! the cost of a call and in the moment when operations are done, but not in their results. [`AnyPath`] has
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
    /// Returns the mapped path, if the window is on it.
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

/// Passes each of these calls of an [`AnyPath`] to the method with the same name of the window's path.
macro_rules! dispatched {
    ($(#[$about:meta])* impl $any:ident {
        $($(#[$doc:meta])*
        fn $call:ident($this:ident: $receiver:ty $(, $name:ident: $type:ty)* $(,)?) $(-> $result:ty)?;)*
    }) => {
        $(#[$about])*
        impl $any {
            $($(#[$doc])*
            #[inline]
            pub(crate) fn $call($this: $receiver $(, $name: $type)*) $(-> $result)? {
                match $this {
                    Self::Mapped(path) => path.$call($($name),*),
                    Self::Message(path) => path.$call($($name),*),
                }
            })*
        }
    };
}

dispatched! {
    /// A window's way to the other members. The window has checked each call: the epoch allows it, and ranks
    /// and ranges are valid.
    ///
    /// A call adds the time that it waits for messages to `stats`. The path keeps the time that it waits for
    /// flags ([`waits`](Self::waits)). An error for which [`Error::ends_epoch`] is true is a target's
    /// refusal; the call is complete all the same.
    impl AnyPath {
        /// Ends a fence epoch if `closes`, and begins the next.
        fn fence(
            self: &mut Self,
            closes: bool,
            assert: Assert,
            parts: &[WindowPart],
            stats: &mut Stats,
        ) -> Result<(), Error>;

        fn post(self: &mut Self, origins: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
        fn start(self: &mut Self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
        fn complete(
            self: &mut Self,
            targets: &[Rank],
            assert: Assert,
            stats: &mut Stats,
        ) -> Result<(), Error>;
        fn wait(
            self: &mut Self,
            origins: &[Rank],
            parts: &[WindowPart],
            stats: &mut Stats,
        ) -> Result<(), Error>;

        /// Tests without waiting whether the exposure epoch has ended.
        fn test(self: &mut Self, origins: &[Rank], parts: &[WindowPart]) -> Result<bool, Error>;

        fn lock(
            self: &mut Self,
            target: Rank,
            lock: Lock,
            assert: Assert,
            stats: &mut Stats,
        ) -> Result<(), Error>;
        fn unlock(self: &mut Self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
        /// Waits until this member has the lock of its passive epoch to `target`.
        fn hold(self: &mut Self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
        fn lock_all(self: &mut Self, assert: Assert, stats: &mut Stats) -> Result<(), Error>;

        /// Releases all locks. After the outer error this rank still holds them. The inner error is a
        /// target's refusal of an operation.
        fn unlock_all(self: &mut Self, stats: &mut Stats) -> Result<Result<(), Error>, Error>;

        /// Waits until the operations of unlocks that have returned are done at their targets.
        fn settle(self: &mut Self, stats: &mut Stats) -> Result<(), Error>;

        fn flush(self: &mut Self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
        fn flush_local(self: &mut Self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;

        /// Whether every operation to `target` is complete at the origin; makes progress once.
        fn test_local(self: &mut Self, target: Rank, lock: Lock) -> Result<bool, Error>;

        /// Makes other members' operations on this rank's part visible. Called after a memory fence.
        fn sync(self: &mut Self) -> Result<(), Error>;

        fn progress(self: &mut Self) -> Result<(), Error>;

        /// Does an operation, or queues it. On [`Error::NotYet`] nothing was done, and the caller repeats the
        /// call.
        fn issue(self: &mut Self, reach: EpochKind, target: Rank, op: Op) -> Result<(), Error>;

        /// Frees the window, collectively.
        fn free(self: &mut Self) -> Result<(), Error>;

        /// Drops this member's window without the other members. They can no longer reach its memory.
        fn abandon(self: &mut Self);

        /// Takes the time that this member has waited for gates of accumulates since the last call.
        fn take_gate_waits(self: &mut Self) -> Waited;

        /// Whether every operation to `target` is done.
        fn is_settled(self: &Self, target: Rank) -> bool;

        /// Returns the address of a member's part in this process, if this process maps it.
        fn mapped(self: &Self, rank: Rank) -> Option<*mut u8>;

        /// Returns the time that this member has waited for flags of the window.
        fn waits(self: &Self) -> Waits;

        /// Splits the issued operations by the medium that carried them.
        fn traffic(self: &Self, issued: &Counts) -> Traffic;

        /// Returns the engine that all windows of the job share.
        fn shared(self: &Self) -> &MessageEngine;

        /// Changes the attached memory of a dynamic window. Returns `None` if the window is not dynamic.
        fn change_attached(self: &Self, change: AttachmentChange<'_>) -> Option<Result<(), Error>>;
    }
}
