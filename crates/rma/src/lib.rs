//! One-sided communication whose synchronization costs next to nothing.
//!
//! Members of a [`Job`] make a [`Window`] together: memory of each that the others read and write. What
//! makes that correct is synchronization, and what makes it slow is synchronization; this crate follows
//! Thakur, Gropp and Toonen, "Minimizing Synchronization Overhead in the Implementation of MPI One-Sided
//! Communication": almost nothing happens in the call that begins an epoch, operations are queued, and
//! everything happens in the call that ends it. Where memory is shared it goes further: an operation whose
//! target is known to be in its epoch is a store, a fence is one barrier episode, and a lock is one word.
//!
//! ```text
//!   Job (rank, size) --- allocate, create, dynamic ---> Window
//!    |                                                   | fence | post start complete wait | lock unlock flush
//!    |                                                   | put get accumulate fetch_and_op compare_and_swap
//!    v                                                   v
//!   Transport: loopback, shared memory, TCP, ...     two paths: messages (the paper's), direct (shared memory)
//! ```
//!
//! ```toml
//! [dependencies]
//! unisono-rma = { path = "unisono/crates/rma" }   # in a checkout of the repository
//! ```
//!
//! Each of four members puts its rank into the window of the next, and reads what has come from the one
//! before:
//!
//! ```
//! use unisono_rma::{Assert, Error, Job, Rank, Spec};
//!
//! fn passes_on(mut job: Job) -> Result<u32, Error> {
//!     let next = Rank((job.rank().0 + 1) % job.size() as u32);
//!     let mut window = job.allocate(4, Spec::new())?;
//!     window.fence(Assert::NO_PRECEDE)?;
//!     window.put(&[job.rank().0], next, 0)?;
//!     window.fence(Assert::NO_SUCCEED)?;
//!     let mut came = [0];
//!     window.load(0, &mut came)?;
//!     window.free()?;
//!     job.finalize()?;
//!     Ok(came[0])
//! }
//!
//! // Threads, so that the example runs by itself; processes begin with `Job::join`.
//! let members: Vec<_> =
//!     Job::threads(4).into_iter().map(|job| std::thread::spawn(move || passes_on(job))).collect();
//! let came: Result<Vec<u32>, Error> =
//!     members.into_iter().map(|member| member.join().expect("no member panics")).collect();
//! assert_eq!(came?, [3, 0, 1, 2]);
//! # Ok::<(), Error>(())
//! ```
//!
//! Where to read on: [`Job`] says how members come together and make windows, [`Window`] has the operations
//! and the synchronizations and says what they promise, [`Layout`] is data that does not lie in a row.
//!
//! The windows have the meaning of MPI-4.0 chapter 12, in its words; [`Error::class`] names the standard's
//! error class. The crate does *not* know MPI (bindings are `abi/mpi` and `abi/c`), does not start processes
//! (`unisono run` does), and offers no point-to-point messages.

// The models take the files they check one by one (tests/loom.rs).
#![cfg(not(loom))]

mod host;
mod job;
mod memory;
mod model;
mod path;
mod window;
pub mod wire;

pub use job::Job;
pub use model::{
    Amount, Assert, Completion, Element, Error, ErrorClass, Key, Layout, Ledger, Lock, Locks, MOST_RANKS,
    Medium, Meeting, Operation, Place, Placement, Plain, Rank, Run, STATS, Sink, Source, Spec, Stats, Style,
    Target, Traffic, Verb, WindowStats, environment,
};
pub use path::hook::Found;
pub use window::{Flavor, Mapped, Pending, Request, Window};
