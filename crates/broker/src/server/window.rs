//! Passes statistics to other threads of the server's process, such as those for monitoring programs.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use unisono_events_wire::Statistics;

/// The exchange: another thread asks, and the server answers; it checks ten times a second.
#[derive(Debug, Default)]
pub struct StatisticsWindow {
    state: Mutex<WindowState>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct WindowState {
    wanted: bool,
    latest: Option<Statistics>,
}

impl StatisticsWindow {
    /// Returns the server's statistics, or `None` if there is no answer within the timeout, because the
    /// server has ended.
    pub fn ask(&self, timeout: Duration) -> Option<Statistics> {
        let mut state = self.lock();
        (state.wanted, state.latest) = (true, None);
        let waited = self.answered.wait_timeout_while(state, timeout, |state| state.latest.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.latest.clone()
    }

    /// Answers the waiting threads.
    pub(super) fn answer(&self, statistics: impl FnOnce() -> Statistics) {
        let mut state = self.lock();
        if std::mem::take(&mut state.wanted) {
            state.latest = Some(statistics());
            self.answered.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, WindowState> {
        // no panic can leave the state half changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
