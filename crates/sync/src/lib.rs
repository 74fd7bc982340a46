//! The atomics facade and the wait policies.
//!
//! *Waiting is a scheduling decision*: a waiter that spins holds a core that the one it waits for may
//! need; a waiter that blocks pays microseconds. This crate holds the five ways to wait, each in its file
//! behind one trait ([`WaitPolicy`]), and what they share: a word to wait on with the handshake that
//! keeps wake-ups from being lost or wasted ([`Flag`]), and memory for such words that is either private
//! or shared between processes ([`Lines`]).
//!
//! The crate is not on crates.io; in `Cargo.toml` it is, from a clone of the repository,
//!
//! ```toml
//! [dependencies]
//! unisono-sync = { path = "unisono/crates/sync" }   # or { git = "URL OF THE REPOSITORY" }
//! ```
//!
//! It does *not* know what is awaited (barriers, locks, windows are other crates) nor who is dead: the
//! awaited's liveness and deadlines are questions a waiter asks through [`Watch`].

mod adaptive;
pub mod atomics;
mod block;
mod brief;
#[cfg(not(loom))]
mod company;
mod controller;
mod flag;
mod line;
mod prefetch;
mod regime;
mod spin;
mod spin_block;
mod wait;
mod watch;
mod wide;
mod yielding;

pub use adaptive::{Adaptive, LONG_YIELD};
pub use block::Block;
pub use brief::{Brief, Exchange};
#[cfg(not(loom))]
pub use company::{Companion, Company};
pub use controller::{Controller, Mode, Step};
pub use flag::{Flag, Sleep, Wakeups};
pub use line::{Line, Lines};
pub use prefetch::prefetch;
pub use regime::{Learner, Regime};
pub use spin::Spin;
pub use spin_block::SpinBlock;
pub use wait::{BadSpinBudget, BadWait, SpinBudget, Wait, WaitPolicy, Waited};
pub use watch::{Advice, Until, Unwatched, Verdict, Watch};
pub use wide::{Wide, vectorized};
pub use yielding::Yield;
