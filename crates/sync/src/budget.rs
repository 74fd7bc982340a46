//! Budgets of spinning before a sleep: the spin budget of wait policies, and polling in waits for something
//! other than a [`Flag`](crate::Flag).
//!
//! The spin budget of barriers and of all other waits for flags is [`SpinBudget`]; its default is set here.
//! [`SpinBlock`](crate::SpinBlock) and [`Adaptive`](crate::Adaptive) spend it.
//!
//! A [`WaitPolicy`](crate::WaitPolicy) waits for a flag and sleeps on it. Some callers wait for something
//! else: a lock word with a protocol of its own, a socket, frames of a device. They sleep by their own system
//! call, and only ask here whether one more poll is worth it before they sleep. Three forms, by the length of
//! a poll:
//!
//! | form | each poll | the clock is read |
//! |---|---|---|
//! | [`poll_briefly`] | loads a word; the caller gives up after microseconds | never |
//! | [`BriefBudget`] | does a little work, some microseconds | every eighth poll |
//! | [`PollBudget`] | makes a system call | at each poll |
//!
//! When not to use: where the awaited thread may need this core. The caller has to know that; a
//! [`Waiter`](crate::Waiter) finds it out by itself.

use crate::atomics::{pause, ticks};
use unisono_linux::clock::{Duration, Instant, Ticks};

/// The longest time that the policies spin-block and adaptive spin before they sleep.
///
/// A waiter that spins as long as a sleep costs, and then sleeps, pays at most twice the cheaper of the two
/// (Karlin, Li, Manasse, Owicki 1991). Peter et al. tuned to 50 us, about the price of a wake-up across
/// halted CPUs (28 to 60 us measured on two virtual CPUs of an AMD EPYC, Linux 6.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpinBudget(Duration);

impl SpinBudget {
    pub const DEFAULT: Self = Self(Duration::from_micros(50));
    /// One second. A longer spin needs no budget: the policy `spin` never sleeps.
    pub const MAX: Self = Self(Duration::SECOND);

    /// Creates a budget of at most [`SpinBudget::MAX`]; zero means to sleep at once. A longer budget is an
    /// error.
    pub fn new(budget: Duration) -> Result<Self, BadSpinBudget> {
        if budget > Self::MAX.0 { Err(BadSpinBudget { budget }) } else { Ok(Self(budget)) }
    }

    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl Default for SpinBudget {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A spin budget beyond [`SpinBudget::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a spin budget of {budget} is too long: at most 1s, or wait by 'spin', which never sleeps")]
pub struct BadSpinBudget {
    budget: Duration,
}

/// Calls `ready` up to `polls` times, with a pause before each call; returns whether it answered true. In a
/// model, where each poll is a branch to explore, it calls `ready` once.
#[inline]
pub fn poll_briefly(polls: u32, mut ready: impl FnMut() -> bool) -> bool {
    let polls = if cfg!(loom) { 1 } else { polls };
    (0..polls).any(|_| {
        pause();
        ready()
    })
}

/// The number of polls between two readings of the clock. Eight pauses take 50 to 400 ns, depending on the
/// processor; a budget of some microseconds may be exceeded by that much. A reading takes 8 to 20 ns; a
/// reading at each poll would take as long as the poll.
const POLLS_PER_CLOCK: u32 = 8;

/// The budget of a wait whose polls do some work, such as serving other threads.
#[derive(Debug)]
pub struct BriefBudget {
    start: Ticks,
    budget: Ticks,
    polls: u32,
}

impl BriefBudget {
    #[inline]
    pub fn new(budget: Duration) -> Self {
        Self { start: ticks(), budget: Ticks::from_duration(budget), polls: 0 }
    }

    /// Pauses before the next poll, and returns whether the budget is left. Once it is spent, a sleep is
    /// cheaper. A caller that polls on after its sleep gets false again after every eight polls.
    #[inline]
    pub fn is_left(&mut self) -> bool {
        pause();
        self.polls = self.polls.wrapping_add(1);
        !self.polls.is_multiple_of(POLLS_PER_CLOCK) || ticks().since(self.start) < self.budget
    }
}

/// The time for which a serving thread polls for more work before it sleeps.
///
/// ```
/// use unisono_sync::{Duration, Instant, PollBudget};
///
/// let mut budget = PollBudget::lasting(Duration::from_micros(50));
/// assert!(!budget.is_left(|| Instant::from_millis(1)), "no work has come");
/// budget.renew(|| Instant::from_millis(1));
/// assert!(budget.is_left(|| Instant::from_micros(1020)));
/// assert!(!budget.is_left(|| Instant::from_micros(1060)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollBudget {
    /// Sleep as soon as there is no work.
    Nothing,
    Endless,
    /// Poll for `budget` after the last work, which came at `until - budget`.
    Lasting {
        budget: Duration,
        until: Instant,
    },
}

impl PollBudget {
    /// Creates a budget that is spent until some work [renews](Self::renew) it.
    pub const fn lasting(budget: Duration) -> Self {
        Self::Lasting { budget, until: Instant::ZERO }
    }

    /// Restarts the budget after some work. Reads the clock only for a lasting budget.
    #[inline]
    pub fn renew(&mut self, now: impl FnOnce() -> Instant) {
        if let Self::Lasting { budget, until } = self {
            *until = now() + *budget;
        }
    }

    /// Returns whether to poll once more. Reads the clock only for a lasting budget.
    #[inline]
    pub fn is_left(&self, now: impl FnOnce() -> Instant) -> bool {
        match self {
            Self::Nothing => false,
            Self::Endless => true,
            Self::Lasting { until, .. } => now() < *until,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_spin_budget_beyond_a_second_is_refused() {
        assert_eq!(SpinBudget::new(Duration::from_micros(50)), Ok(SpinBudget::DEFAULT));
        assert!(SpinBudget::new(SpinBudget::MAX.duration()).is_ok());
        assert!(SpinBudget::new(Duration::from_nanos(1_000_000_001)).is_err());
    }

    #[test]
    fn polls_end_with_the_first_success_or_when_all_are_made() {
        for (polls, ready_at, made) in [(8, 3, 3), (8, 8, 8), (8, 9, 8), (0, 1, 0)] {
            let mut count = 0;
            let found = poll_briefly(polls, || {
                count += 1;
                count == ready_at
            });
            assert_eq!((found, count), (ready_at <= polls, made));
        }
    }

    #[test]
    fn a_spent_brief_budget_says_so_after_every_eight_polls() {
        let mut spent = BriefBudget::new(Duration::ZERO);
        let answers: Vec<bool> = (0..24).map(|_| spent.is_left()).collect();
        assert_eq!(answers, (1..=24).map(|poll| poll % 8 != 0).collect::<Vec<_>>());
        let mut hour = BriefBudget::new(Duration::from_secs(3600));
        assert!((0..100).all(|_| hour.is_left()));
    }

    #[test]
    fn a_budget_lasts_from_the_last_work_on() {
        let mut budget = PollBudget::lasting(Duration::from_nanos(50));
        assert!(!budget.is_left(|| Instant::ZERO), "there was no work yet");
        budget.renew(|| Instant::from_nanos(100));
        assert!(budget.is_left(|| Instant::from_nanos(149)) && !budget.is_left(|| Instant::from_nanos(150)));
        budget.renew(|| Instant::from_nanos(160));
        assert!(budget.is_left(|| Instant::from_nanos(209)));
    }

    #[test]
    fn without_a_budget_in_time_nobody_reads_the_clock() {
        let clock = || unreachable!("the clock was read");
        for (mut budget, left) in [(PollBudget::Nothing, false), (PollBudget::Endless, true)] {
            budget.renew(clock);
            assert_eq!(budget.is_left(clock), left);
        }
    }
}
