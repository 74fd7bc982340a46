//! Detects that the host of a TCP connection's other end, or the path to it, is gone.
//!
//! The other end's *kernel* answers, so a program that computes is not considered dead. A connection has one
//! of three states:
//!
//! | the connection | is noticed by |
//! |---|---|
//! | idle | the kernel's keep-alive probes |
//! | has bytes in flight | [`check`](PeerWatch::check): no answer to the last transmission for the time limit |
//! | has bytes that a closed window holds back | the kernel's probes of the window |
//!
//! The kernel probes a closed window at growing intervals. With a constant `TCP_USER_TIMEOUT` it would send
//! probes in time, but would also end the connection of a program that is alive and merely reads nothing. So
//! a broker extends that limit as long as probes are answered, so that a probe leaves once in each time
//! limit. A program does not do so, because it may compute for longer than the limit without a call.
//!
//! Cost: while bytes are in flight, a system call for each fifth of the time limit; while the connection is
//! idle, a probe of the kernel for each two fifths of it.

use super::TransportError;
use rustix::net::sockopt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use unisono_linux::tcp;

/// The maximum length of a kernel tick, which is the resolution of the kernel's times.
const TICK: Duration = Duration::from_millis(10);

/// The end of the connection that watches the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerWatcher {
    /// Checks at regular times.
    Broker,
    /// Checks while it waits in a call.
    Program,
}

/// The state of a connection whose other end is watched.
#[derive(Debug)]
pub(super) struct PeerWatch {
    within: Duration,
    watcher: PeerWatcher,
    /// Whether bytes may be in flight: some have been sent since the last check that found none in flight.
    has_sent: bool,
    checked: Option<Instant>,
    retransmits: u32,
    /// A time shortly before the last retransmission. The kernel does not report the time of a retransmission
    /// that did not leave this host because its own link is down.
    retransmitted: Option<Instant>,
    /// The time since which bytes in flight have had no answer.
    unanswered: Option<Instant>,
    /// The time since which the window has been closed.
    closed_window: Option<Instant>,
}

impl PeerWatch {
    /// Watches the other end of a TCP connection. Returns `None` if the socket is of another kind.
    pub(super) fn new(socket: BorrowedFd<'_>, within: Duration, watcher: PeerWatcher) -> Option<Self> {
        tcp::keep_alive(socket, within).ok()?;
        Some(Self {
            within,
            watcher,
            has_sent: false,
            checked: None,
            retransmits: 0,
            retransmitted: None,
            unanswered: None,
            closed_window: None,
        })
    }

    pub(super) fn sent(&mut self) {
        self.has_sent = true;
    }

    /// Returns the time between two checks. `None`: no check is needed now.
    pub(super) fn interval(&self) -> Option<Duration> {
        self.has_sent.then_some(self.within / 5)
    }

    /// Checks whether the other end answers.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn check(&mut self, socket: BorrowedFd<'_>) -> Result<(), TransportError> {
        let Some(interval) = self.interval() else { return Ok(()) };
        let now = Instant::now();
        if self.checked.is_some_and(|before| now < before + interval) {
            return Ok(());
        }
        let before = self.checked.replace(now);
        // the next read reports the socket's own error
        let Ok(silence) = tcp::silence(socket) else { return Ok(()) };
        match std::mem::replace(&mut self.retransmits, silence.retransmits) {
            _ if silence.retransmits == 0 => self.retransmitted = None,
            last if last < silence.retransmits => self.retransmitted = before,
            _ => {}
        }
        let is_answered = silence.last_received <= silence.last_sent + TICK
            && self.retransmitted.is_none_or(|sent| silence.last_received <= now - sent + TICK);
        if silence.unacknowledged == 0 {
            self.unanswered = None;
            self.has_sent = silence.unsent.is_some_and(|bytes| bytes > 0);
            // the first check may come after the first probe, also if no probe leaves this host any more
            let is_answered = silence.probes == 0 || self.closed_window.is_none();
            if self.has_sent && self.watcher == PeerWatcher::Broker && is_answered {
                let closed = now - *self.closed_window.get_or_insert(now);
                let _ = sockopt::set_tcp_user_timeout(socket, millis(closed + self.within));
            }
        } else if is_answered {
            // the other end has answered, perhaps with a closed window
            self.unanswered = None;
        } else {
            // after a long pause without checks, it is unknown whether there were answers in between, so the
            // silence counts from now
            if before.is_none_or(|before| now > before + 3 * interval) {
                self.unanswered = None;
            }
            if now - *self.unanswered.get_or_insert(now) >= self.within {
                return Err(TransportError::Closed);
            }
        }
        if (silence.unacknowledged > 0 || !self.has_sent) && self.closed_window.take().is_some() {
            let _ = sockopt::set_tcp_user_timeout(socket, 0);
        }
        Ok(())
    }
}

/// Returns whether the other end's kernel has acknowledged all bytes that were sent to a TCP socket.
pub(super) fn is_acknowledged(socket: BorrowedFd<'_>) -> bool {
    let is_done = |it: tcp::Silence| it.unacknowledged == 0 && it.unsent.unwrap_or_default() == 0;
    tcp::silence(socket).is_ok_and(is_done)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
