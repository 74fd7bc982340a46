//! Detection of dead hosts: whether a silent peer can still be reached.
//!
//! A killed process closes its connections, and its peers read their end at once. After a power failure or a
//! cut cable no such end comes. So a waiter sends a heartbeat to each peer from which nothing has arrived
//! since the last check. The heartbeat is for the peer's kernel, which acknowledges it even if the peer's
//! process computes for minutes. A peer that acknowledges nothing for [`SILENCE_TIMEOUT`] cannot be reached.
//!
//! ```text
//!   cut    check: silent, heartbeat       check: unacknowledged for SILENCE_TIMEOUT -> gone
//!    |---------|---------|-- ... --|----------|
//!       POLL_INTERVAL    (the kernel repeats it after ~0.2, 0.6 s)
//! ```
//! Cost: while a rank waits or polls, one system call for each peer every [`POLL_INTERVAL`], and 48 bytes for
//! each idle peer; nothing on the path of packets. Limit: a peer whose receive buffer is full (it computes
//! while others send megabytes) takes no heartbeat, and the kernel's own probes become rare. If its machine
//! dies *then*, [`PROBES`] probes have to stay unanswered first, which may take a minute. `TCP_USER_TIMEOUT`
//! is no alternative: it would end the connection of such a peer while it lives. Reference: RFC 1122 section
//! 4.2.2.17 (probes of a closed window), tcp(7).

use unisono_linux::clock::{Duration, Instant};
use unisono_linux::tcp::Silence;

/// The time between two checks: a dead peer has to be reported within a second, and ten checks a second cost
/// nothing.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The time for which sent bytes may stay unacknowledged. Three transmissions fit into it.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_millis(650);
/// The number of unanswered probes of a closed window that counts as death.
pub(super) const PROBES: u32 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PeerLiveness {
    /// Whether bytes have arrived since the last check.
    received: bool,
    /// The moment since which bytes have been unacknowledged without a sign of life.
    silent_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerFinding {
    Alive,
    /// Alive, with nothing to acknowledge: send a heartbeat.
    Probe,
    Gone,
}

impl PeerLiveness {
    pub(super) fn record_received(&mut self) {
        self.received = true;
    }

    /// Whether this peer needs no check, because bytes have arrived from it.
    pub(super) fn take_received(&mut self) -> bool {
        if std::mem::take(&mut self.received) {
            self.silent_since = None;
            return true;
        }
        false
    }

    /// Judges the kernel's report at `now` about a peer that was not found alive by
    /// [`take_received`](Self::take_received). `kept` says whether this side still keeps bytes that the
    /// kernel does not take.
    pub(super) fn check(&mut self, silence: Silence, kept: bool, now: Instant) -> PeerFinding {
        if silence.unacknowledged == 0 {
            self.silent_since = None;
            return match () {
                () if silence.probes >= PROBES => PeerFinding::Gone,
                () if kept || silence.probes > 0 => PeerFinding::Alive,
                () => PeerFinding::Probe,
            };
        }
        let last_received_at = now - Duration::from(silence.last_received);
        let since = self.silent_since.map_or(now, |since| since.max(last_received_at));
        self.silent_since = Some(since);
        if now - since >= SILENCE_TIMEOUT { PeerFinding::Gone } else { PeerFinding::Alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(unacknowledged: u32, probes: u32, heard_ms: u64) -> Silence {
        let (last_received, last_sent) = (Duration::from_millis(heard_ms).into(), Duration::ZERO.into());
        Silence { unacknowledged, unsent: Some(0), probes, retransmits: 0, last_sent, last_received }
    }

    #[test]
    fn an_idle_peer_is_asked_and_one_that_acknowledges_lives_for_ever() {
        let mut liveness = PeerLiveness::default();
        for look in 0..1000 {
            let now = Instant::from_millis(look * 100);
            assert_eq!(liveness.check(report(0, 0, 100), false, now), PeerFinding::Probe);
        }
    }

    #[test]
    fn a_peer_whose_kernel_never_answers_is_gone_within_a_second_of_its_last_sign() {
        let mut liveness = PeerLiveness::default();
        // last sign of life at 0, heartbeat at 100 ms, no answer
        assert_eq!(liveness.check(report(0, 0, 100), false, Instant::from_millis(100)), PeerFinding::Probe);
        let gone = (2..).find(|look| {
            liveness.check(report(1, 0, look * 100), false, Instant::from_millis(look * 100))
                == PeerFinding::Gone
        });
        assert!(gone.is_some_and(|look| (7..10).contains(&look)), "gone at look {gone:?}");
    }

    #[test]
    fn acknowledgements_of_a_long_transfer_keep_a_peer_alive() {
        let mut liveness = PeerLiveness::default();
        for look in 1..1000 {
            let finding = liveness.check(report(50, 0, 90), true, Instant::from_millis(look * 100));
            assert_eq!(finding, PeerFinding::Alive, "look {look}");
        }
    }

    #[test]
    fn a_peer_that_computes_with_its_window_closed_lives_while_its_kernel_answers_probes() {
        let mut liveness = PeerLiveness::default();
        for look in 1..1000 {
            let finding = liveness.check(report(0, 1, 60_000), true, Instant::from_millis(look * 100));
            assert_eq!(finding, PeerFinding::Alive, "look {look}");
        }
        assert_eq!(
            liveness.check(report(0, PROBES, 60_000), true, Instant::from_secs(100)),
            PeerFinding::Gone
        );
    }

    #[test]
    fn bytes_that_come_spare_the_look_once() {
        let mut liveness = PeerLiveness::default();
        liveness.record_received();
        assert!(liveness.take_received());
        assert!(!liveness.take_received());
    }
}
