//! For `unisono tree plan --threads`: runs pieces of work on several threads. Each thread takes the next
//! piece when it is free. The result is the same with any number of threads.
//!
//! The gain of a second thread is limited: plans with exact ties of a random network of 10,000 switches with
//! 6 links each (both scans, two threads, `valgrind --tool=callgrind --separate-threads=yes` on
//! `benches/plan.rs`) take 2.60 G instructions: 1.21 G in pieces of the first thread, 1.20 G in pieces of the
//! second, and 0.19 G (7 %) in serial work of the first thread, mostly the searches that bound heights. By
//! Amdahl's law two threads are at most 1.87 times as fast. One atomic counter distributes the pieces,
//! without a lock. Whether memory limits the gain further has not been measured.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Reports to the caller how many candidates of how many have been measured, and stops the measurement at the
/// caller's request. The numbers restart when the method of measuring changes.
pub(super) struct PlanWatch<'a> {
    report: &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    /// The caller has returned `Break`; it is not called again.
    pub(super) stopped: bool,
    /// The number of candidates that had not been measured at the last report.
    pub(super) left: usize,
}

impl<'a> PlanWatch<'a> {
    pub(super) fn new(report: &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>) -> Self {
        Self { report, stopped: false, left: 0 }
    }

    pub(super) fn report(&mut self, done: usize, all: usize) -> ControlFlow<()> {
        if !self.stopped {
            self.left = all.saturating_sub(done);
            self.stopped = (self.report)(done, all).is_break();
        }
        if self.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

pub(super) fn unwatched(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Workers(NonZeroUsize);

impl Workers {
    pub(super) fn new(threads: Option<NonZeroUsize>) -> Self {
        let here = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self(threads.unwrap_or_else(here))
    }

    /// Limits the number of threads to as many as pay for this many steps of work. A step is about a
    /// nanosecond.
    pub(super) fn for_steps(self, steps: usize) -> Self {
        const WORTH_A_THREAD: usize = 500_000;
        let max_threads = NonZeroUsize::new(steps / WORTH_A_THREAD).unwrap_or(NonZeroUsize::MIN);
        Self(self.0.min(max_threads))
    }

    /// Runs all pieces of work. Every thread makes its own state, and all states are returned. The calling
    /// thread calls `watch` with the number of pieces taken. After its `Break` no thread begins another
    /// piece.
    pub(super) fn run_pieces<S: Send>(
        self,
        pieces: usize,
        watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, usize) + Sync,
    ) -> Vec<S> {
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let take = |before: &mut dyn FnMut(usize) -> ControlFlow<()>| {
            let mut own = state();
            loop {
                // the counter publishes no other memory
                let piece = next.fetch_add(1, Ordering::Relaxed);
                // one piece too many does no harm, so `Relaxed` is enough
                if piece >= pieces || stop.load(Ordering::Relaxed) {
                    return own;
                }
                if before(piece).is_break() {
                    stop.store(true, Ordering::Relaxed);
                    return own;
                }
                work(&mut own, piece);
            }
        };
        let take = &take;
        std::thread::scope(|scope| {
            let others = 1..self.0.get().min(pieces);
            let others: Vec<_> = others.map(|_| scope.spawn(move || take(&mut unwatched))).collect();
            let mut states = vec![take(watch)];
            states.extend(others.into_iter().map(|one| match one.join() {
                Ok(own) => own,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            states
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once_by_any_number_of_threads() {
        for threads in 1..5 {
            let workers = Workers::new(NonZeroUsize::new(threads));
            let mut reported = 0;
            let mut watch = |_| {
                reported += 1;
                ControlFlow::Continue(())
            };
            let done =
                workers.run_pieces(100, &mut watch, Vec::new, |own: &mut Vec<usize>, piece| own.push(piece));
            let mut done: Vec<usize> = done.into_iter().flatten().collect();
            done.sort_unstable();
            assert_eq!(done, (0..100).collect::<Vec<_>>());
            assert!(reported <= 100);
            assert_eq!(workers.for_steps(10), Workers::new(NonZeroUsize::new(1)));
        }
    }

    #[test]
    fn no_piece_is_begun_after_the_caller_has_said_stop() {
        let workers = Workers::new(NonZeroUsize::new(1));
        let mut watch = |piece| if piece < 7 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let done =
            workers.run_pieces(100, &mut watch, Vec::new, |own: &mut Vec<usize>, piece| own.push(piece));
        assert_eq!(done.concat(), (0..7).collect::<Vec<_>>());
    }
}
