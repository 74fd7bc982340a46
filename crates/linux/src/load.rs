//! The number of threads that want a processor now: the fourth field of `/proc/loadavg`.
//!
//! It counts the runnable threads of the whole machine at this moment, even in containers. The averages in
//! the same file cover a minute or more and do not show programs that have just begun. Cost: one small file.
//! Reference: proc_loadavg(5).

use std::fs;
use std::thread;
use std::time::Duration;

/// The number of readings, and the pause between two: a thread that runs only briefly rarely appears in all
/// of them.
const SAMPLES: usize = 3;
const SAMPLE_INTERVAL: Duration = Duration::from_micros(300);

/// The minimum number of other runnable threads in a few readings within a millisecond; `None` if the kernel
/// does not report it.
pub fn others() -> Option<usize> {
    let sample = |number| {
        if number > 0 {
            thread::sleep(SAMPLE_INTERVAL);
        }
        let running = running(&fs::read_to_string("/proc/loadavg").ok()?)?;
        // the reading thread itself is counted too
        Some(running.saturating_sub(1))
    };
    (0..SAMPLES).map(sample).collect::<Option<Vec<_>>>()?.into_iter().min()
}

fn running(text: &str) -> Option<usize> {
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_want_to_run_are_the_first_number_of_the_fourth_field() {
        assert_eq!(running("4.08 2.92 3.14 5/312 12345\n"), Some(5));
        for text in ["", "4.08 2.92 3.14", "4.08 2.92 3.14 x/3 1", "4.08 2.92 3.14 5 1"] {
            assert_eq!(running(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_says_how_many_there_are() {
        assert!(others().is_some());
    }
}
