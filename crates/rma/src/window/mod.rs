//! A window: memory that the other members of a job access, and the calls of the standard on it.
//!
//! Two layers. The *safe* layer moves slices of [`Plain`](crate::Plain) values; data that cannot be moved at
//! once is copied, and what is read is kept by the window until it is taken. The *raw* layer (functions
//! whose names begin with `raw_`) takes addresses and [`Layout`](crate::Layout)s, never copies what it can
//! leave in place, and leaves to the caller what the standard leaves to it: that origin buffers stay valid
//! and untouched until the operation is complete. Both may be mixed.
//!
//! Promised, whatever the transport and the [`Style`](crate::Style):
//! - Every misuse is an [`Error`] at the caller, with nothing written or sent.
//! - Ranges are checked at the origin against the size and unit that the target announced. (In a dynamic
//!   window the target checks; the error comes with the call that ends the epoch.)
//! - Accumulates, fetch-and-op and compare-and-swap on the same element are atomic among each other.
//! - Operations of one origin to one target on the same element happen in the order issued (for
//!   accumulates; puts and gets are unordered, as the standard has it).
//! - A member that is gone makes every call that needs it fail within a second, naming it.
//!
//! A `Window` is used by one thread at a time (`&mut self`); it may move between threads.

mod issue;
mod patience;
mod raw;
mod safe;
mod synchronize;

pub use safe::Pending;

use crate::model::{Amount, Counts, Epochs, Error, Part, Rank, Spec, WindowStats};
use crate::path::{AnyPath, Path};
use std::collections::HashMap;

/// How a window came by its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Memory of the engine's, mapped by every process of the host ([`Job::allocate`](crate::Job::allocate)).
    Allocated,
    /// Memory of the user's ([`Job::create`](crate::Job::create)).
    Created,
    /// Memory attached later; displacements are addresses ([`Job::dynamic`](crate::Job::dynamic)).
    Dynamic,
}

/// A member's part of a window, directly accessible: what `MPI_Win_shared_query` answers.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// Its first byte in this process's address space.
    pub base: *mut u8,
    pub bytes: u64,
    /// Its displacement unit.
    pub unit: u32,
}

/// An operation whose completion at the origin can be asked for; see [`Window::raw_rput`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request is complete only after wait_request() or test_request()"]
pub struct Request {
    pub(crate) target: Rank,
}

/// A window: memory of each member of a [`Job`](crate::Job) that the others read and write.
///
/// Operations belong into an epoch: between two [`fence`](Self::fence)s; between [`start`](Self::start) and
/// [`complete`](Self::complete), where the target calls [`post`](Self::post) and [`wait`](Self::wait); or
/// between [`lock`](Self::lock) and [`unlock`](Self::unlock), without the target. They are complete when the
/// epoch has ended.
///
/// Two layers. The *safe* one ([`put`](Self::put), [`get`](Self::get), [`accumulate`](Self::accumulate))
/// moves slices of [`Plain`](crate::Plain) values, and copies what cannot be moved at once. The *raw* one
/// (names that begin with `raw_`) takes addresses and [`Layout`](crate::Layout)s, copies nothing that it can
/// leave in place, and leaves to the caller that origin buffers stay valid and untouched until the operation
/// is complete. Both may be mixed.
///
/// Promised over every transport:
/// - Every misuse is an [`Error`] at the caller, with nothing written or sent.
/// - Accumulates, fetch-and-op and compare-and-swap on the same element are atomic among each other, and
///   those of one origin happen in the order issued.
/// - A member that is gone makes every call that needs it fail within a second, naming it ([`Error::Gone`]).
///
/// A window is used by one thread at a time (`&mut self`), and may move between threads.
#[derive(Debug)]
pub struct Window {
    pub(crate) flavor: Flavor,
    pub(crate) spec: Spec,
    pub(crate) stats: WindowStats,
    pub(crate) rank: Rank,
    /// This rank's part in its own address space; null in a dynamic window.
    pub(crate) base: *mut u8,
    pub(crate) parts: Box<[Part]>,
    pub(crate) epochs: Epochs,
    pub(crate) path: AnyPath,
    /// Operations so far.
    pub(crate) issued: Counts,
    /// How many of them are in the counts of a synchronization; those done at once get there when their epoch
    /// ends.
    pub(crate) counted: Amount,
    name: Option<String>,
    /// What was asked for by the safe layer: where from, and the data.
    kept: HashMap<u64, (Rank, Vec<u8>)>,
    next_kept: u64,
}

// SAFETY: the addresses are window memory, which may be accessed from any thread of the process as the
// epochs allow; everything else is owned.
unsafe impl Send for Window {}

impl Window {
    pub(crate) fn new(
        flavor: Flavor,
        spec: Spec,
        rank: Rank,
        base: *mut u8,
        parts: Box<[Part]>,
        path: AnyPath,
    ) -> Self {
        let epochs = Epochs::new(parts.len());
        let stats = WindowStats::default();
        Self {
            flavor,
            spec,
            stats,
            rank,
            base,
            parts,
            epochs,
            path,
            issued: Counts::default(),
            counted: Amount::default(),
            name: None,
            kept: HashMap::new(),
            next_kept: 0,
        }
    }

    /// How it came by its memory.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// What it was made as.
    #[must_use]
    pub fn spec(&self) -> Spec {
        self.spec
    }

    /// The rank of this member.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many members it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.parts.len()
    }

    /// Whether operations are loads and stores in shared memory, not messages.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.path.is_mapped()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WindowStats {
        let (mut stats, waits) = (self.stats, self.path.waits());
        stats.fence.add(waits.fence);
        stats.pscw.add(waits.pscw);
        stats.passive.add(waits.passive);
        stats.traffic = self.path.traffic(&self.issued);
        stats
    }

    /// Names the window, for the table of the job ([`Ledger`](crate::Ledger)). Members may give it different
    /// names, and are added up by name.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.name = Some(name.into());
    }

    /// The name that it was given, or how it came by its memory.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(match self.flavor {
            Flavor::Allocated => "allocated",
            Flavor::Created => "created",
            Flavor::Dynamic => "dynamic",
        })
    }

    /// Enters what this window did into the job's ledger, if the job keeps one.
    fn enter(&self) {
        if let Some(mut ledger) = self.path.shared().ledger() {
            ledger.enter(self.name(), self.stats());
        }
    }

    /// Where a member's part lies in this process's address space; `None` where it is out of reach.
    /// One's own always is there, except in a dynamic window. Loads and stores through it race with
    /// other members unless epochs order them.
    #[must_use]
    pub fn mapped(&self, rank: Rank) -> Option<Mapped> {
        let part = self.parts.get(rank.index())?;
        let base = match rank == self.rank {
            true if self.flavor == Flavor::Dynamic => return None,
            true => self.base,
            false => self.path.mapped(rank)?,
        };
        Some(Mapped { base, bytes: part.bytes, unit: part.unit })
    }

    /// Whether [`free`](Self::free) would be an error now, at this member.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::Sync`] inside an epoch or while a lock is held.
    pub fn freeable(&self) -> Result<(), Error> {
        self.epochs.free("free")
    }

    /// Frees the window; collective, and waits for everybody. Every later call is [`Error::Freed`]. A
    /// window that is dropped without it frees this rank's part only.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::Sync`] inside an epoch or while a lock is held, [`Error::Gone`].
    pub fn free(&mut self) -> Result<(), Error> {
        self.epochs.free("free")?;
        self.path.free()?;
        self.enter();
        self.epochs.freed();
        self.base = std::ptr::null_mut();
        Ok(())
    }

    /// Attaches memory to a dynamic window: others access it by its address.
    ///
    /// # Safety
    /// `bytes` bytes at `address` stay valid, and are accessed only as the epochs allow, until detached.
    ///
    /// # Errors
    /// [`Error::Flavor`], [`Error::Attach`] for memory that overlaps what is attached.
    pub unsafe fn attach(&mut self, address: *mut u8, bytes: usize) -> Result<(), Error> {
        self.attached("attach", |pieces| {
            let (start, end) = (address as usize, (address as usize).saturating_add(bytes));
            if pieces.iter().any(|(other, length)| start < other + length && *other < end) {
                let problem = "it overlaps memory that is attached; detach that first";
                return Err(Error::Attach { address: start, bytes, problem });
            }
            pieces.push((start, bytes));
            Ok(())
        })
    }

    /// Detaches memory, by the address it was attached with.
    ///
    /// # Errors
    /// [`Error::Flavor`], [`Error::Attach`] when nothing is attached there.
    pub fn detach(&mut self, address: *mut u8) -> Result<(), Error> {
        self.attached("detach", |pieces| {
            let start = address as usize;
            let Some(at) = pieces.iter().position(|(other, _)| *other == start) else {
                let problem = "nothing is attached there";
                return Err(Error::Attach { address: start, bytes: 0, problem });
            };
            pieces.swap_remove(at);
            Ok(())
        })
    }

    fn attached(
        &mut self,
        call: &'static str,
        mut change: impl FnMut(&mut Vec<(usize, usize)>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.epochs.usable(call)?;
        let changed = self.path.change_attached(&mut change).filter(|_| self.flavor == Flavor::Dynamic);
        changed.unwrap_or(Err(Error::Flavor { call, needs: "Job::dynamic" }))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.epochs.usable("drop").is_ok() {
            self.enter();
            self.path.abandon();
        }
    }
}
