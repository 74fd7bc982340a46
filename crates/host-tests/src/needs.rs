//! The resources that host tests need, and which tests may run at the same time.
//!
//! Many host tests wait: for a process to end, for a timer, for a peer. While one waits, others run. A test
//! that measures, or fills the processors, runs alone. Tests that change the same state of the host (the
//! journals of queues, the deployments of barrier trees) run one after the other, but beside tests of another
//! kind.

use std::collections::VecDeque;

/// The resources that a test needs while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but a share of the processors.
    Nothing,
    /// The journals and the lock of `unisono queue` in `/run/unisono/queue`, and the control groups that it
    /// makes.
    Queues,
    /// The journals and the lock of `unisono queue`, but no control groups of its own: the test gets an empty
    /// `/run/unisono` in a mount namespace, so that it may run beside other tests.
    OwnQueues,
    /// The records of `unisono tree deploy` in `/run/unisono/tree`, because `tree undeploy` ends every
    /// deployment.
    Switches,
    /// The whole machine: the test measures, or its programs fill the processors.
    Machine,
}

impl Needs {
    /// Returns whether a test with these needs may start beside a test with the `other` needs.
    fn may_run_beside(self, other: Self) -> bool {
        let may_run_beside_itself = matches!(self, Self::Nothing | Self::OwnQueues);
        self != Self::Machine && other != Self::Machine && (self != other || may_run_beside_itself)
    }
}

/// The tests that wait, in the order of the list; a test that cannot start yet is overtaken. Tests that run
/// one after the other come first, so that such a chain does not outlast the tests that run beside it. Tests
/// that need the machine come last, so that the others are interrupted only once.
#[derive(Debug)]
pub(crate) struct TestQueue<T> {
    waiting: VecDeque<(Needs, T)>,
    running: Vec<Needs>,
    /// Maximum number of tests at the same time.
    max_running: usize,
}

impl<T> TestQueue<T> {
    pub(crate) fn new(tests: impl IntoIterator<Item = (Needs, T)>, max_running: usize) -> Self {
        let mut waiting: Vec<_> = tests.into_iter().collect();
        waiting.sort_by_key(|(needs, _)| match needs {
            Needs::Queues | Needs::Switches => 0,
            Needs::Nothing | Needs::OwnQueues => 1,
            Needs::Machine => 2,
        });
        Self { waiting: waiting.into(), running: Vec::new(), max_running: max_running.max(1) }
    }

    /// Takes the next test that may start now. The caller starts it and reports its end with
    /// [`ended`](Self::ended).
    pub(crate) fn start(&mut self) -> Option<(Needs, T)> {
        if self.running.len() >= self.max_running {
            return None;
        }
        let running = &self.running;
        let may_start = |(needs, _): &(Needs, T)| running.iter().all(|other| needs.may_run_beside(*other));
        let at = self.waiting.iter().position(may_start)?;
        let next = self.waiting.remove(at)?;
        self.running.push(next.0);
        Some(next)
    }

    /// Records that a test with these needs has ended.
    pub(crate) fn ended(&mut self, needs: Needs) {
        if let Some(at) = self.running.iter().position(|running| *running == needs) {
            self.running.swap_remove(at);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Needs::{Machine, Nothing, OwnQueues, Queues, Switches};
    use super::*;

    /// Starts all tests that may start, then ends the first of the running tests, until all have run.
    fn rounds(needs: &[Needs], max_running: usize) -> Vec<Vec<usize>> {
        let mut queue = TestQueue::new(needs.iter().copied().zip(0..), max_running);
        let (mut running, mut rounds) = (VecDeque::new(), Vec::new());
        while !queue.is_done() {
            running.extend(std::iter::from_fn(|| queue.start()));
            rounds.push(running.iter().map(|(_, test)| *test).collect());
            let (needs, _) = running.pop_front().expect("a test runs because the queue is not done");
            queue.ended(needs);
        }
        rounds
    }

    #[test]
    fn tests_that_need_nothing_run_beside_each_other_up_to_the_bound() {
        assert_eq!(rounds(&[Nothing; 4], 3), [vec![0, 1, 2], vec![1, 2, 3], vec![2, 3], vec![3]]);
    }

    #[test]
    fn tests_of_the_same_state_follow_each_other_and_are_overtaken() {
        let rounds = rounds(&[Queues, Queues, Switches, Nothing], 3);
        assert_eq!(rounds, [vec![0, 2, 3], vec![2, 3, 1], vec![3, 1], vec![1]]);
    }

    #[test]
    fn tests_with_a_state_of_their_own_run_beside_each_other() {
        assert_eq!(rounds(&[OwnQueues, OwnQueues, Queues], 3), [vec![2, 0, 1], vec![0, 1], vec![1]]);
    }

    #[test]
    fn a_chain_of_tests_starts_before_the_tests_that_run_beside_it() {
        assert_eq!(
            rounds(&[Nothing, Nothing, Queues, Queues], 2),
            [vec![2, 0], vec![0, 3], vec![3, 1], vec![1]]
        );
    }

    #[test]
    fn a_test_that_needs_the_machine_runs_alone_after_the_others() {
        assert_eq!(rounds(&[Machine, Nothing, Machine, Nothing], 4), [vec![1, 3], vec![3], vec![0], vec![2]]);
    }
}
