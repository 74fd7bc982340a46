//! Ends a daemon whose loop is stuck, so that a signal that requests termination always ends the daemon.
//!
//! The loop calls the kernel, and a call may not return: a process that is exiting on a dead file system can
//! hold a lock that a move between groups needs. A separate thread waits for signals, too, but leaves them to
//! the loop. If the loop completes no turn within [`TURN_TIMEOUT`] after a signal, the thread ends the
//! process; the guardian then puts everything back, as after a kill.
//!
//! Cost: a thread that sleeps.

use crate::error::{Result, system};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unisono_linux::process::{self, SignalFd};

/// Time limit of a turn of the loop: a turn lasts milliseconds or, on a starved machine, seconds.
const TURN_TIMEOUT: Duration = Duration::from_secs(15);
/// The exit status of systemd's convention for a service that failed.
const FAILED: i32 = 1;

/// The number of turns of the loop, by which the watching thread sees that the loop works.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopTurns(Arc<AtomicU64>);

impl LoopTurns {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Watches a loop that receives these signals and counts its turns.
pub(super) fn watch(signals: Arc<SignalFd>, turns: LoopTurns) -> Result<()> {
    let end = || std::process::exit(FAILED);
    let thread = std::thread::Builder::new().name("gang-last-resort".into());
    let watch = move || watch_for(&*signals, &turns, TURN_TIMEOUT, end);
    thread.spawn(watch).map(drop).map_err(system("start the thread that watches the loop"))
}

fn watch_for(signals: &impl AsFd, turns: &LoopTurns, timeout: Duration, end: impl Fn()) {
    loop {
        let waiting = process::readable(&[signals.as_fd()], None);
        let before = turns.read();
        std::thread::sleep(timeout);
        let still = process::readable(&[signals.as_fd()], Some(Duration::ZERO));
        let is_waiting = |found: std::io::Result<Vec<bool>>| found.is_ok_and(|found| found == [true]);
        if is_waiting(waiting) && is_waiting(still) && turns.read() == before {
            return end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::mpsc::channel;

    #[test]
    fn a_loop_that_turns_is_left_alone_and_one_that_is_stuck_is_ended() {
        let (mut sends, signals) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let turns = LoopTurns::default();
        let (ended, is_ended) = channel();
        let watched = turns.clone();
        std::thread::spawn(move || {
            watch_for(&signals, &watched, Duration::from_millis(20), || {
                let _ = ended.send(()); // the test has ended
            });
        });
        // no signal: a loop may sleep as long as it likes
        assert!(is_ended.recv_timeout(Duration::from_millis(100)).is_err());
        sends.write_all(b"a signal that nobody receives").expect("room");
        is_ended.recv().expect("the loop has stopped, and the signal still waits");
    }
}
