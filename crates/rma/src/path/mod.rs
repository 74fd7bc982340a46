//! The ways that an operation takes to its target: memory that both sides map, or messages.
//!
//! A window checks a call against its epochs and its parts, and then has its path do the work. The two paths
//! differ in what a call costs and in when operations are done, not in what a program sees; [`Path`] is what
//! they have in common.
//!
//! | path | operations are | synchronization is | folder |
//! |---|---|---|---|
//! | [`mapped`] | loads, stores, atomic instructions, copies by the kernel | flags, lock words and barrier episodes | `mapped/` |
//! | [`message`] | packets to the target, which serves them | packets | `message/` |
//!
//! A window keeps its path as an [`AnyPath`], not as a pointer to a trait: the calls of the mapped path are a
//! few instructions long, and are to be inlined. What the mapped path alone can do, an operation done at
//! once, the window asks of [`AnyPath::mapped_mut`].

pub(crate) mod hook;
pub(crate) mod mapped;
pub(crate) mod message;

use crate::memory::op::Op;
use crate::model::{Assert, Counts, Error, Lock, Part, Rank, Reach, Stats, Traffic, Waits};
use mapped::MappedPath;
use message::{MessageEngine, MessagePath};
use std::time::Duration;
use unisono_sync::Waited;

/// A change of the pieces of memory that are attached, by address and length.
pub(crate) type AttachmentChange<'a> = &'a mut dyn FnMut(&mut Vec<(usize, usize)>) -> Result<(), Error>;

/// A window's way to the other members. Calls come checked: the epoch allows them, ranks and ranges are
/// possible.
///
/// `stats` takes what a call waits for messages; waits for flags are kept by the path
/// ([`waits`](Self::waits)). An error that [`Error::ends_epoch`] is a target's refusal, and the call is
/// complete all the same.
pub(crate) trait Path {
    /// Ends a fence epoch if `closes`, and begins the next.
    fn fence(&mut self, closes: bool, assert: Assert, parts: &[Part], stats: &mut Stats)
    -> Result<(), Error>;
    fn post(&mut self, origins: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn start(&mut self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn complete(&mut self, targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn wait(&mut self, origins: &[Rank], parts: &[Part], stats: &mut Stats) -> Result<(), Error>;
    /// As [`wait`](Self::wait), without waiting: whether the exposure has ended.
    fn test(&mut self, origins: &[Rank], parts: &[Part]) -> Result<bool, Error>;
    fn lock(&mut self, target: Rank, lock: Lock, assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    fn unlock(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    fn lock_all(&mut self, assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    /// Gives back all locks. The inner error is what became of one of them; with the outer one they are still
    /// held.
    fn unlock_all(&mut self, stats: &mut Stats) -> Result<Result<(), Error>, Error>;
    /// Waits for what unlocks left to be done at their targets.
    fn settle(&mut self, stats: &mut Stats) -> Result<(), Error>;
    fn flush(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    fn flush_local(&mut self, target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    /// Whether everything issued to `target` is complete at the origin; makes progress once.
    fn test_local(&mut self, target: Rank, lock: Lock) -> Result<bool, Error>;
    /// After a memory fence: lets others' operations on this rank's part be seen.
    fn sync(&mut self) -> Result<(), Error>;
    fn progress(&mut self) -> Result<(), Error>;
    /// Does an operation, or queues it. [`Error::NotYet`]: nothing was done, and the caller repeats the call.
    fn issue(&mut self, reach: Reach, target: Rank, op: Op) -> Result<(), Error>;
    /// Whether nothing asked of `target` is still to come.
    fn is_settled(&self, target: Rank) -> bool;
    /// Frees the window, collectively.
    fn free(&mut self) -> Result<(), Error>;
    /// The window goes away without the others: its memory is out of reach from now on.
    fn abandon(&mut self);
    /// Where a member's part is mapped, if it is.
    fn mapped(&self, rank: Rank) -> Option<*mut u8>;
    /// How long this member has waited for flags of the window's.
    fn waits(&self) -> Waits;
    /// How long this member has waited to combine elements, since the last time.
    fn take_gate_waits(&mut self) -> Waited;
    /// What carried the operations that were issued.
    fn traffic(&self, issued: &Counts) -> Traffic;
    /// What all windows of the job have in common.
    fn shared(&self) -> &MessageEngine;

    fn set_patience(&self, patience: Option<Duration>) {
        self.shared().set_patience(patience);
    }

    /// Changes what is attached to a dynamic window; `None`: the window is none.
    fn change_attached(&self, change: AttachmentChange<'_>) -> Option<Result<(), Error>>;
}

/// The path of a window.
#[derive(Debug)]
pub(crate) enum AnyPath {
    Mapped(Box<MappedPath>),
    Message(MessagePath),
}

impl AnyPath {
    /// The mapped path, if it is the window's.
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

/// Passes every call of [`Path`] on to the path that there is.
macro_rules! pass_on {
    ($(mut $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*
     $(ref $read:ident($($asked:ident: $of:ty),*) $(-> $said:ty)?;)*) => {
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

pass_on! {
    mut fence(closes: bool, assert: Assert, parts: &[Part], stats: &mut Stats) -> Result<(), Error>;
    mut post(origins: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    mut start(targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    mut complete(targets: &[Rank], assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    mut wait(origins: &[Rank], parts: &[Part], stats: &mut Stats) -> Result<(), Error>;
    mut test(origins: &[Rank], parts: &[Part]) -> Result<bool, Error>;
    mut lock(target: Rank, lock: Lock, assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    mut unlock(target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    mut lock_all(assert: Assert, stats: &mut Stats) -> Result<(), Error>;
    mut unlock_all(stats: &mut Stats) -> Result<Result<(), Error>, Error>;
    mut settle(stats: &mut Stats) -> Result<(), Error>;
    mut flush(target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    mut flush_local(target: Rank, lock: Lock, stats: &mut Stats) -> Result<(), Error>;
    mut test_local(target: Rank, lock: Lock) -> Result<bool, Error>;
    mut sync() -> Result<(), Error>;
    mut progress() -> Result<(), Error>;
    mut issue(reach: Reach, target: Rank, op: Op) -> Result<(), Error>;
    mut free() -> Result<(), Error>;
    mut abandon();
    mut take_gate_waits() -> Waited;
    ref is_settled(target: Rank) -> bool;
    ref mapped(rank: Rank) -> Option<*mut u8>;
    ref waits() -> Waits;
    ref traffic(issued: &Counts) -> Traffic;
    ref shared() -> &MessageEngine;
    ref change_attached(change: AttachmentChange<'_>) -> Option<Result<(), Error>>;
}
