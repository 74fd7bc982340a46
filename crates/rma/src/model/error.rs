//! The errors of windows and jobs, and their error classes in the MPI standard.
//!
//! The caller that made the mistake gets the error, before anything is written or sent. The window stays
//! usable unless the variant says otherwise. An MPI binding returns [`Error::class`].

use crate::model::Rank;
use rustix::io::Errno;
use std::io;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call outside the epoch that it needs, or in an epoch that it does not match. `MPI_ERR_RMA_SYNC`.
    #[error("{call} {problem}; {remedy}")]
    Sync {
        call: &'static str,
        problem: &'static str,
        /// What to call instead, or before.
        remedy: &'static str,
    },
    /// Displacement and length reach outside the target's window; nothing was written. `MPI_ERR_RMA_RANGE`.
    #[error(
        "bytes {start} to {end} lie outside the window of rank {target}, which has {bytes} bytes; \
         check displacement, count and displacement unit ({unit})"
    )]
    Range {
        target: Rank,
        /// First byte accessed, from the window's base.
        start: i128,
        end: i128,
        bytes: u64,
        unit: u32,
    },
    /// A rank outside the job, or outside this epoch's group. `MPI_ERR_RANK`.
    #[error("rank {rank} is not {wanted}")]
    Rank {
        rank: Rank,
        /// The expectation, such as "below 4, the size of the job".
        wanted: String,
    },
    /// A negative displacement, or a displacement unit of zero. `MPI_ERR_DISP`.
    #[error("displacement {0} is not possible; give zero or more (units: one or more)")]
    Disp(i64),
    /// A size that no window can have. `MPI_ERR_SIZE`.
    #[error("a window of {0} bytes is not possible on this machine")]
    Size(u64),
    /// Asserts that contradict each other or the call. `MPI_ERR_ASSERT`.
    #[error("assert {assert} has no meaning for {call}; leave it out")]
    Assert {
        call: &'static str,
        /// The invalid asserts, by name.
        assert: String,
    },
    /// The operation is not defined for this element type or this call. `MPI_ERR_OP`.
    #[error("{operation} is not defined for elements of type {element} here; {allowed}")]
    Operation { operation: &'static str, element: &'static str, allowed: &'static str },
    /// Origin and target disagree about the data, or a layout cannot be used here. `MPI_ERR_TYPE`.
    #[error("{0}")]
    Type(String),
    /// A count that is negative or overflows. `MPI_ERR_COUNT`.
    #[error("a transfer of {count} elements of {bytes} bytes is too long; split it")]
    Count { count: u64, bytes: u64 },
    /// The window was freed. `MPI_ERR_WIN`.
    #[error("{call}: the window has been freed; create a new one")]
    Freed { call: &'static str },
    /// The call does not fit the window's flavor. `MPI_ERR_RMA_FLAVOR`.
    #[error("{call} needs a window made by {needs}")]
    Flavor { call: &'static str, needs: &'static str },
    /// Memory cannot be attached: it overlaps attached memory, or the table is full. `MPI_ERR_RMA_ATTACH`.
    #[error("cannot attach {bytes} bytes at {address:#x}: {problem}")]
    Attach { address: usize, bytes: usize, problem: &'static str },
    /// An operation on memory that its target has not attached to the dynamic window; nothing was accessed.
    /// `MPI_ERR_RMA_RANGE`.
    #[error("nothing at {address:#x} of rank {target} is attached, or not all of it; attach it there first")]
    Unattached { target: Rank, address: usize },
    /// A lock is held, or conflicts with the requested lock. `MPI_ERR_RMA_CONFLICT`.
    #[error("{call}: {problem}")]
    Conflict { call: &'static str, problem: String },
    /// Locks were disabled when the window was made (`no_locks`). `MPI_ERR_RMA_SYNC`.
    #[error("{call}: the window was made with no_locks; make it without to use passive target")]
    NoLocks { call: &'static str },
    /// Members made the window with different arguments that have to agree. `MPI_ERR_ARG`.
    #[error("rank {rank} made the window with {theirs}, this rank with {ours}; they have to agree")]
    Mismatch { rank: Rank, theirs: String, ours: String },
    /// A rank is gone. This is final: every call that needs the rank fails with this error, on every path.
    /// The standard has no class for it, so [`Error::class`] returns `MPI_ERR_OTHER`. A binding that can make
    /// classes makes one (`abi/mpi` adds a class, with a code for each rank that is gone).
    #[error("rank {rank} is gone ({why}); end the job and start it anew")]
    Gone {
        rank: Rank,
        /// How this member knows, such as "process 4711 died".
        why: String,
    },
    /// The given time passed. `MPI_ERR_OTHER`.
    #[error("timed out in {call}, waiting for {waiting_for}")]
    TimedOut { call: &'static str, waiting_for: String },
    /// The job's timeout ([`Window::set_wait_timeout`](crate::Window::set_wait_timeout)) passed before the
    /// event that the call waits for. Nothing was changed. `MPI_ERR_OTHER`.
    #[error(
        "what the call waits for has not happened yet; let go of the window for a moment and repeat the call"
    )]
    NotYet,
    /// An invalid description of a job, such as a rank beyond its size. `MPI_ERR_ARG`.
    #[error("{0}")]
    Job(String),
    /// A limit of descriptors, mappings or memory is reached. Nothing was made, and all members of the
    /// collective call get this error. `MPI_ERR_NO_MEM`.
    #[error("{doing}: {source}; {}", remedy(source))]
    Exhausted {
        doing: String,
        #[source]
        source: io::Error,
    },
    /// The kernel or the network refused. `MPI_ERR_OTHER`.
    #[error("{doing}: {source}")]
    System {
        doing: String,
        #[source]
        source: io::Error,
    },
    /// This build, host or transport cannot do it. `MPI_ERR_UNSUPPORTED_OPERATION`.
    #[error("{what} is not possible {why}")]
    Unsupported {
        what: &'static str,
        /// The host, build or transport that lacks it, or the reason.
        why: &'static str,
    },
}

fn remedy(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => "free windows or files, or raise the limit of open files: ulimit -n 65536",
        Some(Errno::NFILE) => "raise the host's limit of open files: sysctl fs.file-max",
        _ => "free windows or memory, or raise the limit of mappings: sysctl vm.max_map_count",
    }
}

/// Error classes of the MPI standard (MPI-4.0, sections 9.4 and 12.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    Arg,
    Assert,
    Count,
    Disp,
    NoMem,
    Op,
    Other,
    Rank,
    RmaAttach,
    RmaConflict,
    RmaFlavor,
    RmaRange,
    RmaSync,
    Size,
    Type,
    UnsupportedOperation,
    Win,
}

impl Error {
    /// Returns the error's class in the MPI standard.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Sync { .. } | Self::NoLocks { .. } => ErrorClass::RmaSync,
            Self::Range { .. } | Self::Unattached { .. } => ErrorClass::RmaRange,
            Self::Rank { .. } => ErrorClass::Rank,
            Self::Disp(_) => ErrorClass::Disp,
            Self::Size(_) => ErrorClass::Size,
            Self::Assert { .. } => ErrorClass::Assert,
            Self::Operation { .. } => ErrorClass::Op,
            Self::Type(_) => ErrorClass::Type,
            Self::Count { .. } => ErrorClass::Count,
            Self::Freed { .. } => ErrorClass::Win,
            Self::Flavor { .. } => ErrorClass::RmaFlavor,
            Self::Attach { .. } => ErrorClass::RmaAttach,
            Self::Conflict { .. } => ErrorClass::RmaConflict,
            Self::Mismatch { .. } | Self::Job(_) => ErrorClass::Arg,
            Self::Unsupported { .. } => ErrorClass::UnsupportedOperation,
            Self::Exhausted { .. } => ErrorClass::NoMem,
            Self::Gone { .. } | Self::TimedOut { .. } | Self::NotYet | Self::System { .. } => {
                ErrorClass::Other
            }
        }
    }

    /// Whether this error is a target's refusal of an operation. Then the other operations of the epoch are
    /// done, and the epoch ends all the same.
    pub(crate) const fn ends_epoch(&self) -> bool {
        matches!(self, Self::Unattached { .. })
    }

    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| {
            let is_limit = matches!(
                Errno::from_io_error(&source),
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC)
            );
            if is_limit { Self::Exhausted { doing, source } } else { Self::System { doing, source } }
        }
    }
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub rank: Rank,
    /// How this member knows, such as "process 4711 died" or "connection reset by peer".
    pub why: String,
}

impl From<Gone> for Error {
    fn from(gone: Gone) -> Self {
        Self::Gone { rank: gone.rank, why: gone.why }
    }
}
