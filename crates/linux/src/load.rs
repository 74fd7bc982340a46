//! How many threads want a processor now: the fourth field of `/proc/loadavg`.
//!
//! It counts runnable threads of the whole machine at this moment, in containers, too; what is averaged over
//! a minute says nothing about programs that have just begun. Cost: one small file. Reference:
//! proc_loadavg(5).

use std::fs;
use std::thread;
use std::time::Duration;

/// How many looks there are, and the pause between two: a thread that runs by chance is rarely there each
/// time.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_micros(300);

/// Threads of others that want a processor, each time of a few looks within a millisecond; `None`
/// where the kernel does not say.
pub fn others() -> Option<usize> {
    let look = |number| {
        if number > 0 {
            thread::sleep(PAUSE);
        }
        let running = running(&fs::read_to_string("/proc/loadavg").ok()?)?;
        // the thread that reads is one of them
        Some(running.saturating_sub(1))
    };
    (0..LOOKS).map(look).collect::<Option<Vec<_>>>()?.into_iter().min()
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
