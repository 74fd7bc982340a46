//! Waits for the other process of a run to appear.

use std::time::{Duration, Instant};

/// Time between attempts.
const STEP: Duration = Duration::from_millis(10);

/// Tries until it succeeds or the time has passed; then the last failure is returned.
pub(super) fn patiently<T, E>(time: Duration, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < time => std::thread::sleep(STEP),
            done => return done,
        }
    }
}
