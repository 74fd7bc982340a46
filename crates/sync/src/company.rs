//! Company: what a few threads that wait for one another learn about waiting, for use outside a barrier.
//!
//! The idea: [`Adaptive`] only does what its watch advises, and a plain wait has nobody to ask. So those who
//! hand words to one another share three facts: whether they outnumber the processors they may use, whether
//! to stay awake at all, and when a yield last took suspiciously long ([`Regime`]). The first of them decides for
//! all.
//!
//! Cost: a wait that is over within some polls pays one load and a countdown; deciding reads a clock, some
//! thousand times a second at most. When not to use: between members of a barrier, which knows more (who was
//! last seen where); where the regime is known and fixed. The advice is a hint: how one waits never
//! changes what is awaited.
//!
//! ```
//! use unisono_sync::{Company, Lines, SpinBudget, Unwatched, WaitPolicy};
//! use unisono_linux::futex::Scope;
//!
//! let (company, lines) = (Company::new(2, 8), Lines::on_heap(1));
//! let (word, wakeups) = (lines.line(0).flag(0), company.wakeups(Scope::Private));
//! std::thread::scope(|threads| {
//!     threads.spawn(|| word.signal(1, wakeups));
//!     company.companion(0, SpinBudget::DEFAULT, wakeups).wait(word, 1, &mut Unwatched);
//! });
//! ```

use crate::adaptive::Adaptive;
use crate::atomics::AtomicU32;
use crate::flag::{Flag, Wakeups};
use crate::regime::{Learner, Regime};
use crate::spin::poll;
use crate::wait::{SpinBudget, WaitPolicy};
use crate::watch::{Advice, Verdict, Watch};
use unisono_linux::clock::{Nanos, now};
use unisono_linux::futex::Scope;

/// The facts shared; a line of its own, read by everybody and rarely written.
#[derive(Debug)]
#[repr(align(128))]
pub struct Company {
    mode: AtomicU32,
    last_long_yield: AtomicU32,
    crowded: bool,
}

impl Company {
    /// For so many threads on so many processors.
    #[must_use]
    pub fn new(members: usize, processors: usize) -> Self {
        Self { mode: AtomicU32::new(0), last_long_yield: AtomicU32::new(0), crowded: members > processors }
    }

    /// How the signals awaited find sleepers: cheap for signallers where sleeping is rare, for both where
    /// processors are shared.
    #[must_use]
    pub fn wakeups(&self, scope: Scope) -> Wakeups {
        if self.crowded { Wakeups::Symmetric(scope) } else { Wakeups::for_rare_sleepers(scope) }
    }

    /// One member's way to wait, for flags that are signalled with the same `wakeups`; number 0 learns for all.
    #[must_use]
    pub fn companion(&self, number: usize, budget: SpinBudget, wakeups: Wakeups) -> Companion<'_> {
        let learner = (number == 0).then(Learner::default);
        Companion { company: self, policy: Adaptive::new(budget, wakeups), learner }
    }

    /// The words in which its members agree how to wait, for a [`Learner`] that is no [`Companion`]'s.
    #[must_use]
    pub fn regime(&self) -> Regime<'_> {
        Regime::new(&self.mode, &self.last_long_yield)
    }

    fn advice(&self) -> Advice {
        self.regime().advice(|| self.crowded)
    }
}

/// The adaptive wait policy of one member of a [`Company`].
#[derive(Debug)]
pub struct Companion<'a> {
    company: &'a Company,
    policy: Adaptive,
    learner: Option<Learner>,
}

impl Companion<'_> {
    #[inline]
    fn learn(&mut self) {
        if let Some(learner) = &mut self.learner {
            learner.learn(self.company.regime(), self.policy.blocks(), now);
        }
    }
}

impl WaitPolicy for Companion<'_> {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        let verdict = if self.company.advice() == Advice::Spin && poll(flag, target) {
            Verdict::Continue
        } else {
            self.policy.wait(flag, target, &mut Advised { company: self.company, watch })
        };
        self.learn();
        verdict
    }

    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<Verdict> {
        match self.company.advice() {
            Advice::Spin => self.policy.wait_briefly(flag, target, watch),
            Advice::GiveWay | Advice::Sleep => flag.reached(target).then_some(Verdict::Continue),
        }
    }

    fn blocks(&self) -> u64 {
        self.policy.blocks()
    }
}

/// The caller's watch, with the company's advice.
struct Advised<'a, W> {
    company: &'a Company,
    watch: &'a mut W,
}

impl<W: Watch> Watch for Advised<'_, W> {
    fn look(&mut self) -> Verdict {
        self.watch.look()
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        self.watch.sleep_until()
    }

    fn advice(&self) -> Advice {
        self.company.advice()
    }

    fn awaited_may_run(&self) -> bool {
        !self.company.crowded
    }

    fn yield_took_long(&mut self) {
        self.company.regime().yield_took_long(now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomics::Ordering;
    use crate::line::Lines;
    use crate::watch::Unwatched;
    use std::thread;

    /// Hands a word to and fro so often.
    fn hand_over(company: &Company, times: u32) {
        let (lines, wakeups) = (Lines::on_heap(2), company.wakeups(Scope::Private));
        let (ping, pong) = (lines.line(0).flag(0), lines.line(1).flag(0));
        thread::scope(|threads| {
            threads.spawn(|| {
                let mut policy = company.companion(1, SpinBudget::DEFAULT, wakeups);
                for k in 1..=times {
                    assert_eq!(policy.wait(ping, k, &mut Unwatched), Verdict::Continue);
                    pong.signal(k, wakeups);
                }
            });
            let mut policy = company.companion(0, SpinBudget::DEFAULT, wakeups);
            for k in 1..=times {
                ping.signal(k, wakeups);
                assert_eq!(policy.wait(pong, k, &mut Unwatched), Verdict::Continue);
            }
        });
    }

    #[test]
    fn words_are_handed_over_with_and_without_processors_enough_and_asleep() {
        for processors in [1, 2] {
            let company = Company::new(2, processors);
            hand_over(&company, 2_000);
            company.mode.store(Regime::ASLEEP, Ordering::Relaxed);
            hand_over(&company, 200);
        }
    }

    #[test]
    fn the_first_brings_all_back_awake_where_that_is_cheaper() {
        let company = Company::new(2, 2);
        company.mode.store(Regime::ASLEEP, Ordering::Relaxed);
        // Who begins awake and is told to sleep tries again after 10 ms, and so many take longer asleep; each
        // round begins anew.
        let start = now();
        while company.regime().is_asleep() {
            hand_over(&company, 5_000);
            assert!(now().since(start) < Nanos(20_000_000_000), "still asleep after 20 s");
        }
    }

    #[test]
    fn a_watch_that_says_stop_ends_the_wait_however_one_waits() {
        struct Stopping;
        impl Watch for Stopping {
            fn look(&mut self) -> Verdict {
                Verdict::Stop
            }
            fn sleep_until(&mut self) -> Option<Nanos> {
                None
            }
        }
        for (processors, mode) in [(1, 0), (2, 0), (1, Regime::ASLEEP), (2, Regime::ASLEEP)] {
            let (company, lines) = (Company::new(2, processors), Lines::on_heap(1));
            company.mode.store(mode, Ordering::Relaxed);
            let wakeups = company.wakeups(Scope::Private);
            let mut policy = company.companion(1, SpinBudget::DEFAULT, wakeups);
            assert_eq!(policy.wait(lines.line(0).flag(0), 1, &mut Stopping), Verdict::Stop);
        }
    }
}
