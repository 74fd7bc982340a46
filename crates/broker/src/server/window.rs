//! Statistics for other threads of the server's process, such as those that answer monitoring programs.

use crate::account::Statistics;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where a server puts its statistics when somebody asks for them. It looks ten times a second.
#[derive(Debug, Default)]
pub struct StatisticsWindow {
    state: Mutex<WindowState>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct WindowState {
    wanted: bool,
    latest: Option<Statistics>,
}

impl StatisticsWindow {
    /// What the server has done. None: it does not answer in that time, because it has ended.
    pub fn ask(&self, patience: Duration) -> Option<Statistics> {
        let mut state = self.lock();
        (state.wanted, state.latest) = (true, None);
        let waited = self.told.wait_timeout_while(state, patience, |state| state.latest.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.latest.clone()
    }

    /// Answers those who have asked.
    pub(super) fn answer(&self, statistics: impl FnOnce() -> Statistics) {
        let mut state = self.lock();
        if std::mem::take(&mut state.wanted) {
            state.latest = Some(statistics());
            self.told.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, WindowState> {
        // no panic can leave it half changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
