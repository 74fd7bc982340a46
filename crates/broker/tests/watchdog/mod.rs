//! A broker that serves while a test runs, and a watchdog for tests that may hang.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use unisono_broker::Server;

/// Runs `work` on a thread of its own, and fails if it has not ended after a minute.
pub(crate) fn within_a_minute(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = runner.join() {
                resume_unwind(panic);
            }
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
    }
}

/// Runs a test while the broker serves on another thread, which ends even if the test panics.
pub(crate) fn while_serving(server: &mut Server, test: impl FnOnce()) {
    while_pausing(server, &|| {}, test);
}

/// Does the same as [`while_serving`]; the broker's thread calls `pause` between turns.
pub(crate) fn while_pausing(server: &mut Server, pause: &(dyn Fn() + Sync), test: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(&|| {
                pause();
                stop.load(Ordering::Relaxed)
            })
        });
        let outcome = catch_unwind(AssertUnwindSafe(test));
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("it does not panic").expect("it serves");
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    });
}
