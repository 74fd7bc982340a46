#![doc = include_str!("../README.md")]
//! # Groups
//!
//! A *group* does more. Its members have places, and its algorithm and its wait policy (`unisono-sync`) can
//! be chosen. Each algorithm of the literature has a file of its own and works with each wait policy, for
//! threads of one process and for processes that share memory:
//!
//! ```
//! use unisono_barrier::{Algorithm, GroupSpec, Wait};
//!
//! let group = GroupSpec::new(2)?.algorithm(Algorithm::Dissemination).wait(Wait::SpinBlock).for_threads()?;
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
//! Beyond `std::sync::Barrier` a group has split arrive and wait ([`Participant::arrive`]), deadlines, and
//! members that join and leave between episodes ([`Group::join`], [`Participant::leave`]). When a member
//! panics, is dropped or is killed, the others get an error that names it ([`Error::Gone`]); they never hang.
//!
//! Read `PROTOCOL.md` first, then `participant.rs` (one episode, from the call to the wait), `algorithm.rs`
//! (the trait of an algorithm) and `central.rs` (the simplest algorithm); then `membership.rs` (how members
//! join and leave).

#![forbid(unsafe_code)]

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
mod liveness;
mod mcs_tree;
mod membership;
#[cfg(loom)]
mod model;
mod participant;
mod per_core;
mod protocols;
mod recommended;
#[cfg(not(loom))]
mod shared;
mod spec;
mod static_tree;
mod tournament;

pub use algorithm::Algorithm;
pub use barrier::{Barrier, BarrierWaitResult};
pub use error::{Cause, Error, GoneMember};
pub use group::Group;
pub use participant::{ArrivalToken, Episode, Participant};
pub use recommended::{Recommendation, RecommendedLoad, recommended};
pub use spec::GroupSpec;
pub use unisono_sync::{BadSpinBudget, SpinBudget, Wait, Waited, Wakeups};
