//! The width of a gang: the number of cores that its threads can use at once.
//!
//! Some threads only sleep: a shell that waits for its program, the `timeout` around it, a main thread that
//! waits for its workers. With a core for each of them, a gang would share its slot with no other gang and
//! leave cores idle. So a thread counts only while it runs for at least a fiftieth of the time of the gang's
//! busiest thread. A new thread counts until it can be compared. The width grows at once, and shrinks only
//! after two smaller results in a row.
//!
//! Pure: the threads' processor times are an argument. Cost: the caller reads one file per thread. When not
//! to use: gangs of many threads are wider than the machine in any case; the caller only counts their
//! threads.

use std::collections::BTreeMap;
use unisono_linux::affinity::Tid;
use unisono_linux::clock::Duration;

/// Minimum time that the busiest thread must have gained for a comparison: more than two ticks, because the
/// time of a running thread is as old as its last tick (up to 4 ms).
const MIN_OBSERVATION: Duration = Duration::from_millis(10);
/// A thread wants to run if it gained at least one part in this of the busiest thread's time. Freezing and
/// thawing wakes sleepers for a few microseconds per switch; those do not want to run.
const FRACTION: u64 = 50;

#[derive(Clone, Copy, Debug)]
struct KnownThreadTime {
    /// Processor time at the last comparison.
    ran: Duration,
    wants: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Width {
    known: BTreeMap<Tid, KnownThreadTime>,
    reported: usize,
    /// The result of the last comparison, if it was less than the reported width.
    less: Option<usize>,
}

impl Width {
    /// Updates the gang's threads, each with its processor time since its birth. Returns the width if it
    /// changed.
    pub(crate) fn update(&mut self, threads: &BTreeMap<Tid, Duration>) -> Option<usize> {
        let first = self.known.is_empty();
        self.known.retain(|thread, _| threads.contains_key(thread));
        let gained = |known: &KnownThreadTime, thread: &Tid| threads[thread] - known.ran;
        let max_gained =
            self.known.iter().map(|(thread, known)| gained(known, thread)).max().unwrap_or_default();
        let compared = max_gained >= MIN_OBSERVATION;
        if compared {
            for (thread, known) in &mut self.known {
                let wants = gained(known, thread) * FRACTION >= max_gained;
                *known = KnownThreadTime { wants, ran: threads[thread] };
            }
        }
        for (thread, ran) in threads {
            self.known.entry(*thread).or_insert(KnownThreadTime { ran: *ran, wants: true });
        }
        let now = self.known.values().filter(|known| known.wants).count().max(1);
        if first {
            return self.changed_width(now);
        }
        if now < self.reported && !compared {
            return None;
        }
        let narrower = (now < self.reported).then_some(now);
        let next = match (narrower, std::mem::replace(&mut self.less, narrower)) {
            (Some(_), None) => return None,
            (Some(now), Some(before)) => now.max(before),
            (None, _) => now,
        };
        self.changed_width(next)
    }

    /// Returns whether a thread wants to run; true for an unknown thread.
    pub(crate) fn wants(&self, thread: Tid) -> bool {
        self.known.get(&thread).is_none_or(|known| known.wants)
    }

    /// Sets the width of a gang with too many threads to examine each.
    pub(crate) fn count(&mut self, threads: usize) -> Option<usize> {
        self.known.clear();
        self.less = None;
        self.changed_width(threads.max(1))
    }

    fn changed_width(&mut self, width: usize) -> Option<usize> {
        (std::mem::replace(&mut self.reported, width) != width).then_some(width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(ran_ms: &[u64]) -> BTreeMap<Tid, Duration> {
        ran_ms.iter().enumerate().map(|(i, ms)| (Tid(i as i32 + 1), Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn a_shell_that_waits_for_two_loops_is_two_wide_after_two_comparisons() {
        let mut width = Width::default();
        assert_eq!(width.update(&threads(&[1, 0, 0])), Some(3), "all are new");
        assert_eq!(width.update(&threads(&[1, 50, 50])), None, "once is not enough");
        assert_eq!(width.update(&threads(&[1, 100, 100])), Some(2));
        assert_eq!(width.update(&threads(&[1, 150, 150])), None);
    }

    #[test]
    fn new_threads_make_a_gang_wider_at_once() {
        let mut width = Width::default();
        assert_eq!(width.update(&threads(&[5])), Some(1));
        assert_eq!(width.update(&threads(&[5, 0, 0, 0])), Some(4));
        assert_eq!(width.count(500), Some(500));
        assert_eq!(width.update(&threads(&[5, 0])), Some(2));
    }

    #[test]
    fn a_gang_that_was_not_served_in_between_keeps_its_width() {
        let mut width = Width::default();
        width.update(&threads(&[5, 5]));
        for _ in 0..10 {
            assert_eq!(width.update(&threads(&[5, 5])), None);
        }
    }

    #[test]
    fn a_sleeper_that_begins_to_work_makes_its_gang_wider() {
        let mut width = Width::default();
        width.update(&threads(&[0, 0]));
        width.update(&threads(&[50, 0]));
        assert_eq!(width.update(&threads(&[100, 0])), Some(1));
        assert_eq!(width.update(&threads(&[150, 20])), Some(2));
        assert_eq!(width.update(&threads(&[200, 20])), None, "and not narrower because it rests once");
        assert_eq!(width.update(&threads(&[250, 40])), None);
    }

    #[test]
    fn a_thread_that_ended_does_not_count() {
        let mut width = Width::default();
        width.update(&threads(&[0, 0]));
        assert_eq!(width.update(&threads(&[20])), None);
        assert_eq!(width.update(&threads(&[40])), Some(1));
    }
}
