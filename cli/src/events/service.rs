//! The broker as a service of systemd: it says that it is ready and alive, and takes the sockets that are
//! opened for it. Reference: sd_notify(3), sd_listen_fds(3), systemd.service(5) on `WatchdogSec`.

use sd_notify::NotifyState;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Tells systemd what this service does. Without systemd nobody is told.
pub(super) struct ServiceNotices {
    /// How often the watchdog wants to hear, if it does.
    every: Option<Duration>,
    last: Cell<Instant>,
}

impl ServiceNotices {
    /// Says that the service is ready.
    pub(super) fn ready() -> Self {
        tell(NotifyState::Ready);
        // half of the time, as sd_watchdog_enabled(3) asks
        let every = sd_notify::watchdog_enabled().map(|patience| patience / 2);
        Self { every, last: Cell::new(Instant::now()) }
    }

    /// The service has had a turn.
    pub(super) fn alive(&self) {
        if self.every.is_some_and(|every| self.last.get().elapsed() >= every) {
            self.last.set(Instant::now());
            tell(NotifyState::Watchdog);
        }
    }
}

impl Drop for ServiceNotices {
    fn drop(&mut self) {
        tell(NotifyState::Stopping);
    }
}

fn tell(state: NotifyState<'_>) {
    // a service manager that does not listen ends the service by its own rules
    let _ = sd_notify::notify(&[state]);
}
