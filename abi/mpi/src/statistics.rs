//! `UNISONO_MPI_STATS=1`: what each window did, printed when the program ends.

use crate::failure::guarded;
use std::ffi::c_int;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use unisono_rma::{Stats, WindowStats};

static FREED: Mutex<Vec<(String, WindowStats)>> = Mutex::new(Vec::new());

fn wanted() -> bool {
    std::env::var_os("UNISONO_MPI_STATS").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Keeps the counts of a window that was freed.
pub(crate) fn keep(label: String, stats: WindowStats) {
    if wanted() {
        FREED.lock().unwrap_or_else(PoisonError::into_inner).push((label, stats));
    }
}

/// One line a window and synchronization that was used.
fn lines(rank: c_int, windows: &[(String, WindowStats)]) -> String {
    let mut text = String::new();
    for (number, (label, stats)) in (1..).zip(windows) {
        let kinds = [("fence", stats.fence), ("pscw", stats.pscw), ("passive", stats.passive)];
        let used = kinds.into_iter().filter(|(_, stats)| stats.epochs + stats.operations > 0);
        for (kind, Stats { epochs, operations, bytes, spun, blocked, .. }) in used {
            let micros = |time: unisono_linux::clock::Nanos| time.0 as f64 / 1e3;
            // writing to a string cannot fail
            let _ = writeln!(
                text,
                "unisono: rank {rank}: window {number} ({label}), {kind}: {epochs} epochs, {operations} \
                 operations, {bytes} bytes, waited {:.1} us spinning and {:.1} us blocked",
                micros(spun),
                micros(blocked),
            );
        }
    }
    text
}

#[unsafe(no_mangle)]
extern "C" fn core_statistics(rank: c_int) {
    guarded((), || {
        if !wanted() {
            return;
        }
        // taken, so that the next session's end does not print them again
        let windows = std::mem::take(&mut *FREED.lock().unwrap_or_else(PoisonError::into_inner));
        let mut text = lines(rank, &windows);
        if text.is_empty() {
            text = format!("unisono: rank {rank}: no window was used\n");
        }
        // in one piece, so that ranks do not interleave; a closed stderr is nobody's problem
        let _ = std::io::stderr().write_all(text.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_used_is_printed() {
        let mut stats = WindowStats::default();
        stats.fence.epochs = 3;
        stats.fence.operations = 12;
        stats.fence.bytes = 192;
        let text = lines(
            1,
            &[("allocated ghosts".to_owned(), stats), ("created".to_owned(), WindowStats::default())],
        );
        assert_eq!(text.lines().count(), 1);
        assert!(text.starts_with(
            "unisono: rank 1: window 1 (allocated ghosts), fence: 3 epochs, 12 operations, 192 bytes"
        ));
    }
}
