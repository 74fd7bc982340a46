//! Ends waits of this process from outside, for languages that handle signals between two calls of a library.
//!
//! Python notes a signal, and acts on it when its next instruction runs: a thread that waits in a library
//! never gets there. So the library asks while it waits, and returns `Interrupted` if the answer is yes.
//!
//! Cost: nothing without a check; with one, a call of it and a wake-up of each waiting thread
//! every 100 ms.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time between two calls of the check while a thread waits. A person notices no delay of 100 ms. Chosen,
/// not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

static CHECK: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the check of this process: a waiting thread calls it ten times a second, and `true` ends that
/// thread's wait. Only the first check is kept.
pub fn set_check(check: fn() -> bool) {
    // a second one is the same one: a process has one interpreter that handles signals
    let _ = CHECK.set(check);
}

/// The part of a wait of `left` before the check is due; `None`: no end.
#[must_use]
pub fn slice(left: Option<Duration>) -> Option<Duration> {
    match CHECK.get() {
        None => left,
        Some(_) => Some(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL))),
    }
}

/// The check has ended the wait; the connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct WaitInterrupted;

/// When the check is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterruptPoll(Option<Instant>);

impl InterruptPoll {
    /// Calls the check if it is due; called while a thread waits.
    ///
    /// # Errors
    /// The check ends the wait.
    pub fn poll(&mut self) -> Result<(), WaitInterrupted> {
        let Some(check) = CHECK.get() else { return Ok(()) };
        let now = Instant::now();
        if self.0.is_some_and(|due| now < due) {
            return Ok(());
        }
        self.0 = Some(now + POLL_INTERVAL);
        if check() { Err(WaitInterrupted) } else { Ok(()) }
    }
}
