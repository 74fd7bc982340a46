//! Retries until the other process of a run appears.

use std::time::{Duration, Instant};

/// Time between attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Calls `attempt` until it succeeds or until the time has passed; then returns the last error.
pub fn retry<T, E>(time: Duration, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < time => std::thread::sleep(RETRY_INTERVAL),
            done => return done,
        }
    }
}
