//! Processes that tests start or look at: signals, their ends, what they printed.

use std::collections::BTreeSet;
use std::process::Output;
use std::time::{Duration, Instant};
use unisono_linux::affinity::Tid;
use unisono_linux::process::{PidFd, Signal};
use unisono_linux::process_list::with_descendants;
pub use unisono_linux::process_stat::is_gone;

/// # Panics
/// When the process has ended.
pub fn send(pid: i32, signal: Signal) {
    PidFd::open(Tid(pid)).and_then(|process| process.send(signal)).expect("it runs");
}

/// Waits for `done`.
///
/// # Panics
/// When nothing has come of it after a minute; the message says `what`.
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

/// Both streams of a process: standard error first, which says more.
#[must_use]
pub fn words(output: &Output) -> String {
    text(&output.stderr) + &text(&output.stdout)
}

/// The children of a process, and theirs.
#[must_use]
pub fn descendants(of: u32) -> BTreeSet<i32> {
    let mut found = with_descendants(|one| one.number == of.cast_signed());
    found.remove(&of.cast_signed());
    found
}
