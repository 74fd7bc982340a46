//! Processes of tests: signals, their ends, and their output.

use std::collections::BTreeSet;
use std::process::{Child, Output};
use std::time::{Duration, Instant};
use unisono_linux::affinity::Tid;
use unisono_linux::process::{PidFd, Signal};
use unisono_linux::process_list::with_descendants;
pub use unisono_linux::process_stat::is_gone;

/// A process that is killed when the test ends.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // fails if the process has ended already
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// # Panics
/// If the process has ended and was waited for.
pub fn send(pid: i32, signal: Signal) {
    PidFd::open(Tid(pid)).and_then(|process| process.send(signal)).expect("it runs");
}

/// Waits until `done` returns true.
///
/// # Panics
/// After a minute; the message contains `what`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the output of a process, standard error first, because it tells more.
#[must_use]
pub fn words(output: &Output) -> String {
    text(&output.stderr) + &text(&output.stdout)
}

/// Returns all descendants of a process.
#[must_use]
pub fn descendants(root: u32) -> BTreeSet<i32> {
    let mut found = with_descendants(|one| one.number == root.cast_signed());
    found.remove(&root.cast_signed());
    found
}
