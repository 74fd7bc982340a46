//! The regime: how a few who wait for one another wait now, and who decides that.
//!
//! The idea: whether to stay awake is one answer for all who wait together, in a word that all read. The first of
//! them, the [`Learner`], measures what its waits cost and decides ([`Controller`]); one decides for all because a
//! probe beside foreign load costs a foreign slice, whoever makes it. Anybody may send all to sleep at once: two
//! long yields within 50 ms, some time apart, prove that foreign threads want these processors; while staying
//! awake is only tried, one is enough. One alone is an accident, and two in a row are the same one.
//!
//! Cost: reading is one load; a wait counted an addition and a comparison; deciding reads a clock, some thousand
//! times a second at most. When not to use: where the way to wait is known and fixed. The answer is a hint: any
//! mixture is correct, because how one waits never changes what is awaited.

use crate::atomics::{AtomicU32, Ordering};
use crate::controller::{Controller, Mode};
use crate::watch::Advice;
use unisono_linux::clock::Nanos;

/// Values of the mode's word, the first and the last of which are even.
const AWAKE: u32 = 0;
const TRYING_AWAKE: u32 = 2;

/// Milliseconds between two long yields that count as two, and that count together.
const APART: u32 = 2;
const TOGETHER: u32 = 50;

/// Sleeps after which the clock is looked at, however few waits have passed.
const MANY_SLEEPS: u64 = 16;

/// Two words, zero at first, in which those who wait together say how.
#[derive(Clone, Copy, Debug)]
pub struct Regime<'a> {
    mode: &'a AtomicU32,
    /// When a yield last took long, in milliseconds.
    last_long_yield: &'a AtomicU32,
}

impl<'a> Regime<'a> {
    /// The mode's value when everybody sleeps at once: the only odd one, for who asks several words together.
    pub const ASLEEP: u32 = 1;

    /// The regime in these words.
    #[inline]
    #[must_use]
    pub const fn new(mode: &'a AtomicU32, last_long_yield: &'a AtomicU32) -> Self {
        Self { mode, last_long_yield }
    }

    /// Whether everybody sleeps at once.
    #[inline]
    #[must_use]
    pub fn is_asleep(self) -> bool {
        self.mode.load(Ordering::Relaxed) == Self::ASLEEP
    }

    /// How to wait now; who is awake has to know whether those who wait outnumber the processors they may use.
    #[inline]
    #[must_use]
    pub fn advice(self, crowded: impl FnOnce() -> bool) -> Advice {
        if self.is_asleep() {
            Advice::Sleep
        } else if crowded() {
            Advice::GiveWay
        } else {
            Advice::Spin
        }
    }

    /// A yield that ended at `moment` took so long that a foreign thread had the processor.
    pub fn yield_took_long(self, moment: Nanos) {
        let milliseconds = u32::try_from((moment.0 / 1_000_000) & 0xffff_ffff).unwrap_or(0);
        let before = self.last_long_yield.swap(milliseconds, Ordering::Relaxed);
        let apart = milliseconds.wrapping_sub(before);
        if self.mode.load(Ordering::Relaxed) == TRYING_AWAKE || (APART..=TOGETHER).contains(&apart) {
            self.mode.store(Self::ASLEEP, Ordering::Relaxed);
        }
    }
}

/// What the one who decides has counted and learnt.
#[derive(Clone, Debug)]
pub struct Learner {
    controller: Option<Controller>,
    left: u32,
    counted: u32,
    sleeps_seen: u64,
}

impl Default for Learner {
    fn default() -> Self {
        Self { controller: None, left: 1, counted: 0, sleeps_seen: 0 }
    }
}

impl Learner {
    /// Counts a wait that is over, after `sleeps` sleeps in all, and now and then decides; only then it asks for the
    /// moment.
    #[inline]
    pub fn learn(&mut self, regime: Regime<'_>, sleeps: u64, moment: impl FnOnce() -> Nanos) {
        self.counted += 1;
        self.left -= 1;
        if self.left == 0 || sleeps >= self.sleeps_seen + MANY_SLEEPS {
            self.decide(regime, sleeps, moment());
        }
    }

    /// How many waits may pass uncounted before the next has to be learnt from.
    #[inline]
    #[must_use]
    pub fn to_spare(&self) -> u32 {
        self.left - 1
    }

    /// So many waits have passed uncounted.
    #[inline]
    pub fn catch_up(&mut self, waits: u32) {
        self.counted += waits;
        self.left = self.left.saturating_sub(waits).max(1);
    }

    #[cold]
    fn decide(&mut self, regime: Regime<'_>, sleeps: u64, moment: Nanos) {
        let before = regime.mode.load(Ordering::Relaxed);
        let controller = self.controller.get_or_insert_with(|| Controller::new(moment));
        let step = controller.observe(moment, self.counted, before == Regime::ASLEEP);
        let mode = match (step.mode, step.probing) {
            (Mode::Asleep, _) => Regime::ASLEEP,
            (Mode::Awake, true) => TRYING_AWAKE,
            (Mode::Awake, false) => AWAKE,
        };
        if mode != before {
            regime.mode.store(mode, Ordering::Relaxed);
        }
        (self.left, self.counted, self.sleeps_seen) = (step.look_after, 0, sleeps);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn two_long_yields_within_a_while_send_all_to_sleep_and_one_alone_or_at_once_again_does_not() {
        let words = [AtomicU32::new(AWAKE), AtomicU32::new(0)];
        let regime = Regime::new(&words[0], &words[1]);
        for (milliseconds, advice) in [
            (1_000, Advice::GiveWay),
            (1_100, Advice::GiveWay),
            (1_101, Advice::GiveWay),
            (1_105, Advice::Sleep),
        ] {
            regime.yield_took_long(Nanos(milliseconds * MILLISECOND));
            assert_eq!(regime.advice(|| true), advice, "after the one at {milliseconds} ms");
        }
    }

    #[test]
    fn while_staying_awake_is_tried_one_long_yield_ends_it() {
        let words = [AtomicU32::new(TRYING_AWAKE), AtomicU32::new(0)];
        let regime = Regime::new(&words[0], &words[1]);
        assert_eq!(regime.advice(|| false), Advice::Spin);
        regime.yield_took_long(Nanos(1_000 * MILLISECOND));
        assert_eq!(regime.advice(|| false), Advice::Sleep);
    }

    #[test]
    fn who_was_sent_to_sleep_tries_to_stay_awake_after_a_while() {
        let words = [AtomicU32::new(Regime::ASLEEP), AtomicU32::new(0)];
        let regime = Regime::new(&words[0], &words[1]);
        let (mut learner, mut now) = (Learner::default(), Nanos(1));
        let mut waits = 0;
        while regime.is_asleep() {
            now.0 += 30_000;
            waits += 1;
            learner.learn(regime, waits, || now);
            assert!(now.0 < 1_000 * MILLISECOND, "still asleep after a second");
        }
        assert_eq!(words[0].load(Ordering::Relaxed), TRYING_AWAKE);
    }

    #[test]
    fn the_cheaper_way_is_found_and_kept_though_no_yield_takes_long() {
        for (awake, asleep) in [(65_000, 20_000), (20_000, 65_000), (300, 20_000)] {
            let words = [AtomicU32::new(AWAKE), AtomicU32::new(0)];
            let regime = Regime::new(&words[0], &words[1]);
            let (mut learner, mut now, mut sleeps) = (Learner::default(), Nanos(1), 0);
            let mut spent = [0, 0];
            while now.0 < 2_000 * MILLISECOND {
                let sleeping = regime.is_asleep();
                let cost = if sleeping { asleep } else { awake };
                now.0 += cost;
                sleeps += u64::from(sleeping);
                spent[usize::from(sleeping)] += cost;
                learner.learn(regime, sleeps, || now);
            }
            let cheaper = spent[usize::from(asleep < awake)] as f64 / (spent[0] + spent[1]) as f64;
            assert!(
                cheaper > 0.9,
                "{awake} awake and {asleep} asleep: {cheaper} of the time in the cheaper way"
            );
        }
    }

    #[test]
    fn waits_that_pass_uncounted_bring_the_next_decision_no_later() {
        let words = [AtomicU32::new(AWAKE), AtomicU32::new(0)];
        let regime = Regime::new(&words[0], &words[1]);
        let (mut learner, mut now) = (Learner::default(), Nanos(1));
        for _ in 0..100 {
            now.0 += 100_000;
            learner.learn(regime, 0, || now);
        }
        // Both ways lead to a decision: the moment is asked for.
        let spare = learner.to_spare();
        learner.catch_up(spare + 5);
        assert_eq!(learner.to_spare(), 0);
        let mut asked = false;
        learner.learn(regime, 0, || {
            asked = true;
            Nanos(now.0 + 100_000)
        });
        assert!(asked);
    }
}
