//! Ends waits of this process from outside. This is for languages that handle signals only between two calls
//! of a library.
//!
//! Python records a signal and acts on it when its next instruction runs, but a thread that waits in a
//! library does not get that far. So the library calls a check while it waits, and returns `Interrupted` if
//! the check returns true.
//!
//! Cost: nothing without a check; with a check, a call of it and a wake-up of each waiting thread every 100
//! ms.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time between two calls of the check while a thread waits. A person notices no delay of 100 ms. Chosen,
/// not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

static CHECK: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the check of this process. A waiting thread calls it ten times a second; the result `true` ends that
/// thread's wait. Only the first check is kept.
pub fn set_check(check: fn() -> bool) {
    // a second check is assumed to be the same one, because a process has one interpreter that handles
    // signals
    let _ = CHECK.set(check);
}

/// Returns the part of a wait of `left` until the check is due. `None`: the wait has no end.
#[must_use]
pub fn slice(left: Option<Duration>) -> Option<Duration> {
    match CHECK.get() {
        None => left,
        Some(_) => Some(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL))),
    }
}

/// The check has ended the wait; the connection stays usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct WaitInterrupted;

/// When the check is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterruptPoll(Option<Instant>);

impl InterruptPoll {
    /// Calls the check if it is due. A waiting thread calls this repeatedly.
    ///
    /// # Errors
    /// The check has returned true.
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
