#![doc = include_str!("../README.md")]
//! # Reading the crate
//!
//! 1. `flag.rs`: a word to wait on, and the handshake that loses no wake-up ([`Flag`]).
//! 2. `wait.rs`, `policies.rs`: the trait of a wait policy ([`WaitPolicy`]) and the four fixed policies.
//! 3. `regime.rs`, `controller.rs`: whether a group of threads should stay awake or sleep now, and how one
//!    member of the group measures that.
//! 4. `adaptive.rs`, `last_cpu.rs`: the fifth policy, which follows the regime and checks on which
//!    processors the awaited threads last ran.
//! 5. `waiter.rs`: all of this in one value, which a barrier or a window holds ([`Waiter`]).
//!
//! `budget.rs` holds the spin budget of the policies ([`SpinBudget`]), and budgets of polling for waits for
//! something other than a flag. `initial_poll.rs` is the fast path of a wait: a few dozen polls before any
//! policy runs. `line.rs` is the memory of flags, private or shared between processes ([`Lines`]);
//! `published.rs` is memory that one process writes and other processes only read ([`PublishedWords`]).

mod adaptive;
pub mod atomics;
mod budget;
mod controller;
mod flag;
mod initial_poll;
mod last_cpu;
mod line;
mod policies;
mod published;
mod regime;
mod strangers;
mod wait;
mod waiter;
mod watch;

pub use adaptive::{Adaptive, AdaptiveWait, WaitHints};
pub use budget::{BadSpinBudget, BriefBudget, PollBudget, SpinBudget, poll_briefly};
#[cfg(not(loom))]
pub use flag::{CountedSleeper, sleep_at_any};
pub use flag::{Flag, Sleep, Wakeups};
pub use initial_poll::{EpisodeBatch, InitialPoll};
pub use last_cpu::{LastCpuQuery, LastCpus};
pub use line::{CacheLine, Lines};
pub use policies::{Block, Spin, SpinBlock, Yield};
#[cfg(not(loom))]
pub use published::LentBytes;
pub use published::{ForeignWords, PublishedWords};
pub use regime::{Regime, RegimeAdvice, RegimeLearner};
pub use unisono_linux::clock::{Duration, Instant};
pub use unisono_linux::futex::Scope;
pub use wait::{Wait, WaitPolicy, Waited};
pub use waiter::{GroupState, Waiter, WaiterPolicy};
pub use watch::{MAX_SLEEP, SparseChecks, Until, Unwatched, Watch, WatchVerdict};
