//! Ends a test that hangs.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The longest time that any part may take before it counts as hung.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs `test`; if it hangs, prints where its threads are in the kernel and ends the program.
pub(crate) fn watched<T>(name: &str, test: impl FnOnce() -> T) -> T {
    let (done, waits) = channel::<()>();
    thread::scope(|threads| {
        threads.spawn(move || {
            if waits.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{name} hangs; its threads:");
                for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
                    let read =
                        |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
                    eprintln!("{} in {}", read("comm").trim(), read("wchan"));
                }
                std::process::exit(101);
            }
        });
        let answer = test();
        drop(done);
        answer
    })
}
