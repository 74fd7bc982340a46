//! Waiting: the ways to wait, who chooses among them, and the words that are waited for.
//!
//! *Waiting is a scheduling decision*: a waiter that spins holds a core that the awaited may need; a waiter
//! that blocks pays microseconds. Everything about that decision is here. Read first `flag.rs`: a word to
//! wait on, and the handshake that keeps wake-ups from being lost ([`Flag`]); then `wait.rs` and
//! `policies.rs`: the fixed ways behind one trait ([`WaitPolicy`]); then `adaptive.rs` and `regime.rs`: which
//! of them to use now, and `controller.rs`: how that is learnt. `waiter.rs` is what a barrier or a window
//! holds ([`Waiter`]). [`Lines`] is the memory of the words, private or shared between processes.
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
mod controller;
mod flag;
mod glance;
mod line;
mod policies;
mod prefetch;
mod regime;
mod wait;
mod waiter;
mod watch;
mod whereabouts;
mod wide;

pub use adaptive::{Adaptive, Among, Company, LONG_YIELD};
pub use controller::{Controller, ControllerMode, ControllerStep};
pub use flag::{Flag, Sleep, Wakeups};
pub use glance::{Glance, Stretch};
pub use line::{Line, Lines};
pub use policies::{Block, Spin, SpinBlock, Yield};
pub use prefetch::prefetch;
pub use regime::{Learner, Regime, RegimeAdvice};
pub use wait::{BadSpinBudget, BadWait, SpinBudget, Wait, WaitPolicy, Waited};
pub use waiter::{Fellows, Waiter, WaiterAmong};
pub use watch::{Until, Unwatched, Watch, WatchVerdict};
pub use whereabouts::{Notes, Whereabouts};
pub use wide::{Wide, vectorized};
