//! Ends a test that hangs, and prints where its threads wait.

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Generous: a few seconds on two idle cores, minutes where spinning tests share them with other programs.
const TIMEOUT: Duration = Duration::from_secs(480);

/// Runs `test`; if it does not end in time, prints where every thread waits, and aborts.
pub(crate) fn guarded(name: &'static str, test: impl FnOnce()) {
    let (ended, still_running) = mpsc::channel::<()>();
    thread::spawn(move || {
        if still_running.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs:\n{}", threads());
            std::process::abort();
        }
    });
    test();
    drop(ended);
}

fn threads() -> String {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let describe = |task: fs::DirEntry| {
        let path = task.path();
        let (name, call) = (read(path.join("comm")), read(path.join("syscall")));
        format!("  {} {name}: in {}, call {call}\n", path.display(), read(path.join("wchan")))
    };
    tasks.map(describe).collect()
}
