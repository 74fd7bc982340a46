//! A window: memory that the other members of a job access, and the calls of the standard on it.
//!
//! A call checks its arguments against the epochs and the parts; then the window's path does the work.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | making, naming, freeing, attached memory |
//! | `safe.rs` | put, get and related calls on slices of plain values |
//! | `raw.rs` | the same calls on addresses and layouts |
//! | `issue.rs` | from a call to an operation: the checks, and operations that are done at once |
//! | `synchronize.rs` | the calls that begin and end epochs |

mod issue;
mod raw;
mod safe;
mod synchronize;

pub use safe::Pending;

use crate::model::{Amount, Counts, Epochs, Error, Rank, Spec, WindowPart, WindowStats};
use crate::path::AnyPath;
use std::collections::HashMap;

/// Where a window's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Memory of the engine, mapped by every process of the host ([`Job::allocate`](crate::Job::allocate)).
    Allocated,
    /// Memory of the user ([`Job::create`](crate::Job::create)).
    Created,
    /// Memory attached later; displacements are addresses ([`Job::dynamic`](crate::Job::dynamic)).
    Dynamic,
}

/// A member's part of a window, mapped into this process: the result of `MPI_Win_shared_query`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Mapped {
    pub base: *mut u8,
    pub bytes: u64,
    /// Bytes of the member's displacement unit.
    pub unit: u32,
}

/// A handle to wait or test for the completion of operations at the origin; see
/// [`Window::request`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request is complete only after wait_request() or test_request()"]
pub struct Request {
    pub(crate) target: Rank,
}

/// A window: memory of each member of a [`Job`](crate::Job) that the others read and write.
///
/// Every operation belongs to an epoch: between two [`fence`](Self::fence)s; between [`start`](Self::start)
/// and [`complete`](Self::complete), where the target calls [`post`](Self::post) and [`wait`](Self::wait); or
/// between [`lock`](Self::lock) and [`unlock`](Self::unlock), without the target. Operations are complete
/// when their epoch has ended.
///
/// There are two layers, and a program may use both. The *safe* layer ([`put`](Self::put),
/// [`get`](Self::get), [`accumulate`](Self::accumulate)) moves slices of [`Plain`](crate::Plain) values. It
/// copies data that cannot be moved at once, and keeps the results of gets until the program takes them. The
/// *raw* layer (names that begin with `raw_`) takes addresses and [`Layout`](crate::Layout)s and leaves data
/// in place where it can. Its caller keeps origin buffers valid and unchanged until the operation is
/// complete.
///
/// Guarantees over every transport and in every [`Style`](crate::Style):
/// - Every misuse is an [`Error`] at the caller, with nothing written or sent.
/// - The origin checks ranges against the size and unit that the target announced. In a dynamic window the
///   target checks, and the call that ends the epoch returns the error.
/// - Accumulates, fetch-and-op and compare-and-swap on the same element are atomic among each other, and
///   operations of one origin happen in the order issued. Puts and gets have no order, as in the standard.
/// - A member that is gone makes every call that needs it fail within a second; the error names the member
///   ([`Error::Gone`]).
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
    pub(crate) parts: Box<[WindowPart]>,
    pub(crate) epochs: Epochs,
    pub(crate) path: AnyPath,
    pub(crate) issued: Counts,
    /// The operations that are already counted for a kind of synchronization. Operations done at once are
    /// added when their epoch ends.
    pub(crate) counted: Amount,
    name: Option<String>,
    /// Results of the safe layer that the program has not taken, with their targets, by the number of
    /// [`Pending`].
    kept: HashMap<u64, (Rank, Vec<u8>)>,
    next_kept: u64,
}

// SAFETY: the addresses are those of window memory, which any thread of the process may access as the epochs
// allow; everything else is owned.
unsafe impl Send for Window {}

impl Window {
    pub(crate) fn new(
        flavor: Flavor,
        spec: Spec,
        rank: Rank,
        base: *mut u8,
        parts: Box<[WindowPart]>,
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

    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    pub fn spec(&self) -> Spec {
        self.spec
    }

    pub fn rank(&self) -> Rank {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.parts.len()
    }

    /// Whether operations are loads and stores in shared memory, not messages.
    pub fn is_direct(&self) -> bool {
        self.path.is_mapped()
    }

    pub fn stats(&self) -> WindowStats {
        let (mut stats, waits) = (self.stats, self.path.waits());
        stats.fence.add(waits.fence);
        stats.pscw.add(waits.pscw);
        stats.passive.add(waits.passive);
        stats.traffic = self.path.traffic(&self.issued);
        stats
    }

    /// Names the window for the job's table ([`StatsTable`](crate::StatsTable)), which adds up windows with
    /// the same name. Members may give one window different names.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.name = Some(name.into());
    }

    /// Returns the name set by [`set_name`](Self::set_name), or by default the window's flavor.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(match self.flavor {
            Flavor::Allocated => "allocated",
            Flavor::Created => "created",
            Flavor::Dynamic => "dynamic",
        })
    }

    /// Enters this window's statistics into the job's statistics, if the job keeps them.
    fn enter(&self) {
        if let Some(mut stats_table) = self.path.shared().stats_table() {
            stats_table.add_window(self.name(), self.rank, self.stats());
        }
    }

    /// Returns a member's part in this process's address space, or `None` if this process does not map the
    /// part. A process always maps its own part, except in a dynamic window. Loads and stores there race with
    /// the operations of other members unless epochs order them.
    pub fn mapped(&self, rank: Rank) -> Option<Mapped> {
        let part = self.parts.get(rank.index())?;
        let base = match rank == self.rank {
            true if self.flavor == Flavor::Dynamic => return None,
            true => self.base,
            false => self.path.mapped(rank)?,
        };
        Some(Mapped { base, bytes: part.bytes, unit: part.unit })
    }

    /// Checks that this member may call [`free`](Self::free) now. Fails with [`Error::Freed`],
    /// [`Error::Sync`] inside an epoch or while a lock is held.
    pub fn freeable(&self) -> Result<(), Error> {
        self.epochs.free("free")
    }

    /// Frees the window; collective, and waits for all members. Every later call fails with [`Error::Freed`].
    /// If a window is dropped without being freed, only this rank's part is freed. Fails with
    /// [`Error::Freed`], [`Error::Sync`] inside an epoch or while a lock is held.
    pub fn free(&mut self) -> Result<(), Error> {
        self.epochs.free("free")?;
        self.path.free()?;
        self.enter();
        self.epochs.freed();
        self.base = std::ptr::null_mut();
        Ok(())
    }

    /// Attaches memory to a dynamic window: other members access it by its address. Fails with
    /// [`Error::Flavor`], [`Error::Attach`] for memory that overlaps attached memory.
    ///
    /// # Safety
    /// `bytes` bytes at `address` stay valid, and are accessed only as the epochs allow, until detached.
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

    /// Detaches memory, which is named by the address at which it was attached. Fails with [`Error::Flavor`],
    /// [`Error::Attach`] when no attached memory begins there.
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
