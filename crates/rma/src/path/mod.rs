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

/// Defines [`Path`], and passes each call on to the window's path.
macro_rules! paths {
    ($(#[$about:meta])*
     mut { $($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)* }
     ref { $($(#[$note:meta])* $read:ident($($asked:ident: $of:ty),*) $(-> $said:ty)?;)* }) => {
        $(#[$about])*
        pub(crate) trait Path {
            $($(#[$doc])* fn $name(&mut self, $($argument: $type),*) $(-> $answer)?;)*
            $($(#[$note])* fn $read(&self, $($asked: $of),*) $(-> $said)?;)*
        }

        impl Path for AnyPath {
            $(
                #[inline]
                fn $name(&mut self, $($argument: $type),*) $(-> $answer)? {
                    match self {
                        Self::Mapped(path) => <MappedPath as Path>::$name(path, $($argument),*),
                        Self::Message(path) => <MessagePath as Path>::$name(path, $($argument),*),
                    }
                }
            )*
            $(
                #[inline]
                fn $read(&self, $($asked: $of),*) $(-> $said)? {
                    match self {
                        Self::Mapped(path) => <MappedPath as Path>::$read(path, $($asked),*),
                        Self::Message(path) => <MessagePath as Path>::$read(path, $($asked),*),
                    }
                }
            )*
        }
    };
}

paths! {
    /// A window's way to the other members. The window has checked each call: the epoch allows it, and ranks
    /// and ranges are valid.
    ///
    /// A call adds the time that it waits for messages to `stats`. The path keeps the time that it waits for
    /// flags ([`waits`](Self::waits)). An error for which [`Error::ends_epoch`] is true is a target's
    /// refusal; the call is complete all the same.
    mut {
        /// Ends a fence epoch if `closes`, and begins the next.
        fence(closes: bool, assert: Assert, parts: &[WindowPart], stats: &mut Stats) -> Result<(), Error>;
        post(origins: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
        start(targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
        complete(targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
        wait(origins: &[Rank], parts: &[WindowPart], stats: &mut Stats) -> Result<(), Error>;
        /// Tests without waiting whether the exposure epoch has ended.
        test(origins: &[Rank], parts: &[WindowPart]) -> Result<bool, Error>;
        lock(target: Rank, lock: Lock, assert: Assert, stats: &mut Stats) -> Result<(), Error>;
        unlock(target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
        lock_all(assert: Assert, stats: &mut Stats) -> Result<(), Error>;
        /// Releases all locks. After the outer error this rank still holds them. The inner error is a
        /// target's refusal of an operation.
        unlock_all(stats: &mut Stats) -> Result<Result<(), Error>, Error>;
        /// Waits until the operations of returned unlocks are done at their targets.
        settle(stats: &mut Stats) -> Result<(), Error>;
        flush(target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
        flush_local(target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
        /// Whether every operation to `target` is complete at the origin; makes progress once.
        test_local(target: Rank, lock: Lock) -> Result<bool, Error>;
        /// Makes other members' operations on this rank's part visible. Called after a memory fence.
        sync() -> Result<(), Error>;
        progress() -> Result<(), Error>;
        /// Does an operation, or queues it. [`Error::NotYet`]: nothing was done, and the caller repeats the
        /// call.
        issue(reach: EpochKind, target: Rank, op: Op) -> Result<(), Error>;
        /// Frees the window, collectively.
        free() -> Result<(), Error>;
        /// Drops this member's window without the others. Its memory is out of reach from now on.
        abandon();
        /// Takes the time that this member has waited for gates of accumulates since the last call.
        take_gate_waits() -> Waited;
    }
    ref {
        /// Whether every operation to `target` is done.
        is_settled(target: Rank) -> bool;
        /// The address of a member's part in this process, if this process maps it.
        mapped(rank: Rank) -> Option<*mut u8>;
        /// The time that this member has waited for flags of the window.
        waits() -> Waits;
        /// The operations that were issued, divided by carrier.
        traffic(issued: &Counts) -> Traffic;
        /// The engine that all windows of the job share.
        shared() -> &MessageEngine;
        /// Changes the attached memory of a dynamic window. `None`: the window is not dynamic.
        change_attached(change: AttachmentChange<'_>) -> Option<Result<(), Error>>;
    }
}
