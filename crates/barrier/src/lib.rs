//! Thread and process barriers behind one trait.
//!
//! A barrier lets nobody go on before everybody has come. [`Barrier`] has the interface of
//! `std::sync::Barrier` and takes its place in a program; it chooses how to wait, and notices when that
//! changes:
//!
//! ```
//! use unisono_barrier::Barrier;
//!
//! let barrier = Barrier::new(2);
//! std::thread::scope(|threads| {
//!     for _ in 0..2 {
//!         threads.spawn(|| {
//!             barrier.wait();
//!         });
//!     }
//! });
//! ```
//!
//! The crate is not on crates.io; in `Cargo.toml` it is, from a clone of the repository,
//!
//! ```toml
//! [dependencies]
//! unisono-barrier = { path = "unisono/crates/barrier" }   # or { git = "URL OF THE REPOSITORY" }
//! ```
//!
//! For more there are *groups*, whose members have places. Here are the algorithms of the literature, one
//! file each, every one with every way to wait (`unisono-sync`), for the threads of one process and for
//! processes that share memory - the same code over lines of cache:
//!
//! ```
//! use unisono_barrier::{Algorithm, Spec, Wait};
//!
//! let group = Spec::new(2)?.algorithm(Algorithm::Dissemination).wait(Wait::SpinBlock).for_threads()?;
//! let mut leaders = 0;
//! std::thread::scope(|threads| {
//!     let running: Vec<_> = group
//!         .participants()
//!         .expect("nobody has taken a place yet")
//!         .into_iter()
//!         .map(|mut me| threads.spawn(move || me.wait().is_ok_and(|episode| episode.is_leader())))
//!         .collect();
//!     leaders = running.into_iter().filter_map(|thread| thread.join().ok()).filter(|leads| *leads).count();
//! });
//! assert_eq!(leaders, 1);
//! # Ok::<(), unisono_barrier::Error>(())
//! ```
//!
//! Groups know, beyond `std::sync::Barrier`: split arrive and wait ([`Participant::arrive`]), deadlines,
//! members that come and go between episodes ([`Group::join`], [`Participant::leave`]), and poisoning: when a
//! member panics, goes away or is killed, the others get an error that names it ([`Error::Gone`]), never a
//! hang.
//!
//! It does *not* start threads, pin them, or choose their CPUs, and it does not restart an episode that
//! lost a member. The protocols and why they are right: `PROTOCOL.md` beside this crate.

mod algorithm;
mod barrier;
mod central;
mod combining_tree;
mod competitive;
mod control;
mod dissemination;
mod error;
mod exchange;
mod group;
mod guard;
mod join;
mod mcs_tree;
mod membership;
#[cfg(loom)]
mod model;
mod participant;
mod per_core;
mod protocols;
mod recommended;
mod roll_call;
#[cfg(not(loom))]
mod shared;
mod spec;
mod static_tree;
mod tournament;

pub use algorithm::{Algorithm, BadAlgorithm};
pub use barrier::{Barrier, BarrierWaitResult};
pub use error::{Cause, Error, GoneMember};
pub use group::Group;
pub use participant::{Arrival, Episode, Participant};
pub use recommended::{Recommendation, RecommendedLoad, recommended};
pub use spec::Spec;
pub use unisono_sync::{BadSpinBudget, BadWait, SpinBudget, Wait, Waited, Wakeups};
