//! The regime: whether the members of a group stay awake while they wait, or sleep.
//!
//! All members read the answer from one word. One member, the [`RegimeLearner`], measures the cost of its
//! waits and writes the word ([`Controller`]). Only one member probes the other mode, because a probe beside
//! foreign load costs a foreign slice, whichever member makes it.
//!
//! Any member may send all members to sleep. A yield that takes longer than a millisecond shows that a
//! foreign thread had the processor. One such yield may be an accident: a thread that ran briefly. Two that
//! are less than 2 ms apart are one slice, seen by two members. Two that are 2 to 50 ms apart prove that a
//! foreign thread stays. During a probe of staying awake, one long yield ends the probe. Members with a
//! processor each do not yield; the learner then looks for preemptions in slow episodes (`strangers.rs`).
//!
//! Cost: a load to read the regime; an addition and a comparison to count a wait; a clock reading to decide,
//! a few thousand times a second at most. When not to use: with a fixed wait policy. A wrong regime costs
//! time, never correctness.

use crate::atomics::{AtomicU32, Ordering};
use crate::controller::{Controller, ControllerMode};
use crate::line::CacheLine;
use crate::strangers::{StrangerWatch, waited_in_crowd};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::clock::Instant;
use unisono_linux::current_cpu;

/// The word of the line that holds the mode. Word 0 belongs to the owner of the line (such as a barrier), for
/// another value that every wait reads.
const MODE: usize = 2;
/// The first of two words that hold, as 64 bits, the set of processors (modulo 64) that the members may use.
const PROCESSORS: usize = 4;
/// The word with the end of the last long yield, in milliseconds modulo 2^32.
const LAST_LONG_YIELD: usize = 6;
/// The word that tells both members of an exchange how to poll their line.
const POLL_WORD: usize = 7;

/// Values of the mode besides [`Regime::ASLEEP`]; both are even.
const AWAKE: u32 = 0;
const TRYING_AWAKE: u32 = 2;

/// Two long yields at least this far apart (ms) count separately; closer ones count once.
const APART: u32 = 2;
/// Two long yields further apart than this (ms) are two accidents: a thread that runs briefly takes a slice
/// every second or so; a thread that stays takes every second slice (4 to 20 ms).
const TOGETHER: u32 = 50;

/// A decision is due after this many sleeps, however few waits have passed. So many sleeps take at least half
/// a millisecond (28 to 60 us each), so the clock reading of a decision is negligible.
const MANY_SLEEPS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegimeAdvice {
    /// Each member has a processor.
    Spin,
    /// Members share processors, but no foreign thread needs them.
    Yield,
    /// Foreign threads need the processors, too.
    Sleep,
}

/// The line of words that holds the regime of one group, by reference. The words start at zero.
#[derive(Clone, Copy, Debug)]
pub struct Regime<'a> {
    line: &'a CacheLine,
}

impl<'a> Regime<'a> {
    /// The mode in which all members sleep at once. It is the only odd mode, so that one test of two words
    /// or-ed together finds it.
    const ASLEEP: u32 = 1;

    #[inline]
    pub const fn new(line: &'a CacheLine) -> Self {
        Self { line }
    }

    /// Returns whether all members stay awake and word 0, the owner's, is zero. A wait makes this test before
    /// it takes the fast path.
    #[inline]
    pub fn is_awake_and_undisturbed(self) -> bool {
        self.line.word(0).load(Ordering::Relaxed) | (self.mode().load(Ordering::Relaxed) & Self::ASLEEP) == 0
    }

    #[inline]
    pub fn is_asleep(self) -> bool {
        self.mode().load(Ordering::Relaxed) == Self::ASLEEP
    }

    /// Returns how to wait now. `crowded` says whether the members outnumber the processors that they may
    /// use.
    #[inline]
    pub fn advice(self, crowded: bool) -> RegimeAdvice {
        if self.is_asleep() {
            RegimeAdvice::Sleep
        } else if crowded {
            RegimeAdvice::Yield
        } else {
            RegimeAdvice::Spin
        }
    }

    /// Adds the processors that this thread may use to the group's common set. Sends all `members` to sleep
    /// if they outnumber the host's processors and this thread has met foreign threads before its first wait.
    /// The common set does not tell that yet: it may lack the processors of members that enter later.
    pub fn enter(self, members: usize) {
        self.announce_processors();
        if !cfg!(loom) && members > current_cpu::configured() && waited_in_crowd() {
            self.mode().store(Self::ASLEEP, Ordering::Relaxed);
        }
    }

    /// Adds the processors that this thread may use to the group's common set.
    pub fn announce_processors(self) {
        // Processors beyond the 64th share bits; if this makes the count too low, members only yield too
        // early. A model has enough processors.
        let allowed = if cfg!(loom) { None } else { affinity::allowed(Tid::current()).ok() };
        let bits = |set: affinity::CpuSet| set.iter().fold(0, |bits, cpu| bits | 1_u64 << (cpu % 64));
        let allowed = allowed.map_or(u64::MAX, bits);
        self.processors(0).fetch_or((allowed & 0xffff_ffff) as u32, Ordering::Relaxed);
        self.processors(1).fetch_or((allowed >> 32) as u32, Ordering::Relaxed);
    }

    /// Returns whether `members` outnumber the processors in the common set.
    pub fn is_crowded(self, members: usize) -> bool {
        let processors =
            (0..2).map(|half| self.processors(half).load(Ordering::Relaxed).count_ones()).sum::<u32>();
        processors > 0 && members > processors as usize
    }

    /// Returns the word that tells both members of an exchange how to poll their line; see
    /// [`crate::EpisodeBatch`].
    #[inline]
    pub fn poll_choice(self) -> &'a AtomicU32 {
        self.line.word(POLL_WORD)
    }

    /// Sets the mode for all members, in place of the learner; for models.
    #[cfg(loom)]
    pub fn advise(self, advice: RegimeAdvice) {
        self.mode()
            .store(if advice == RegimeAdvice::Sleep { Self::ASLEEP } else { AWAKE }, Ordering::Relaxed);
        self.processors(0).store(u32::from(advice == RegimeAdvice::Yield), Ordering::Relaxed);
    }

    #[inline]
    fn mode(self) -> &'a AtomicU32 {
        self.line.word(MODE)
    }

    fn processors(self, half: usize) -> &'a AtomicU32 {
        self.line.word(PROCESSORS + half)
    }

    /// Reports that a foreign thread had the processor during a yield that ended at `moment`.
    pub fn yield_took_long(self, moment: Instant) {
        let milliseconds = u32::try_from((moment.as_nanos() / 1_000_000) & 0xffff_ffff).unwrap_or(0);
        let before = self.line.word(LAST_LONG_YIELD).swap(milliseconds, Ordering::Relaxed);
        let apart = milliseconds.wrapping_sub(before);
        let trying = self.mode().load(Ordering::Relaxed) == TRYING_AWAKE;
        if trying || (APART..=TOGETHER).contains(&apart) {
            self.mode().store(Self::ASLEEP, Ordering::Relaxed);
        }
    }
}

/// The counts and the controller of the member that decides for the group.
#[derive(Clone, Debug)]
pub struct RegimeLearner {
    controller: Option<Controller>,
    remaining: u32,
    counted: u32,
    sleeps_seen: u64,
    strangers: StrangerWatch,
}

impl Default for RegimeLearner {
    fn default() -> Self {
        let strangers = StrangerWatch::default();
        Self { controller: None, remaining: 1, counted: 0, sleeps_seen: 0, strangers }
    }
}

impl RegimeLearner {
    /// Counts a finished wait, and now and then decides. `sleeps` is the number of sleeps of all waits so
    /// far. `moment` reads the clock, and `shares` says whether members share processors; both are called
    /// only for a decision.
    #[inline]
    pub fn learn(
        &mut self,
        regime: Regime<'_>,
        sleeps: u64,
        moment: impl FnOnce() -> Instant,
        shares: impl FnOnce() -> bool,
    ) {
        self.counted = self.counted.saturating_add(1);
        self.remaining -= 1;
        if self.remaining == 0 || sleeps >= self.sleeps_seen + MANY_SLEEPS {
            self.decide(regime, sleeps, moment(), shares);
        }
    }

    /// Returns the number of waits that may pass uncounted before the next decision is due.
    #[inline]
    pub fn uncounted_remaining(&self) -> u32 {
        self.remaining - 1
    }

    /// Counts `waits` that passed uncounted. A member that does not decide for its group counts for ever.
    #[inline]
    pub fn add_uncounted(&mut self, waits: u32) {
        self.counted = self.counted.saturating_add(waits);
        self.remaining = self.remaining.saturating_sub(waits).max(1);
    }

    #[cold]
    fn decide(&mut self, regime: Regime<'_>, sleeps: u64, moment: Instant, shares: impl FnOnce() -> bool) {
        let before = regime.mode().load(Ordering::Relaxed);
        let shares = shares();
        let strangers = self.strangers.were_here(moment, shares);
        let controller = self.controller.get_or_insert_with(|| {
            let new = if before == Regime::ASLEEP { Controller::new_asleep } else { Controller::new };
            new(moment)
        });
        controller.set_shares(shares);
        let step = controller.observe(moment, self.counted, strangers || before == Regime::ASLEEP);
        let mode = match (step.mode, step.probing) {
            (ControllerMode::Asleep, _) => Regime::ASLEEP,
            (ControllerMode::Awake, true) => TRYING_AWAKE,
            (ControllerMode::Awake, false) => AWAKE,
        };
        if mode != before {
            regime.mode().store(mode, Ordering::Relaxed);
        }
        (self.remaining, self.counted, self.sleeps_seen) = (step.observe_after, 0, sleeps);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::line::Lines;
    use crate::strangers::SignSource;
    use unisono_linux::clock::Duration;

    /// Creates a learner on a host without foreign threads.
    fn quiet() -> RegimeLearner {
        with_signs(|| 0)
    }

    fn with_signs(preemptions: fn() -> u64) -> RegimeLearner {
        let strangers = StrangerWatch::with_source(SignSource { preemptions, waited_at_start: || false });
        RegimeLearner { strangers, ..RegimeLearner::default() }
    }

    #[test]
    fn the_first_foreign_slice_sends_a_group_with_a_processor_for_each_member_to_sleep() {
        static PREEMPTIONS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let counted = || PREEMPTIONS.load(std::sync::atomic::Ordering::Relaxed);
        let lines = Lines::on_heap(1);
        let regime = Regime::new(lines.line(0));
        regime.mode().store(AWAKE, Ordering::Relaxed);
        let (mut learner, mut now) = (with_signs(counted), Instant::from_nanos(1));
        // so few episodes before the slice that they are cheaper asleep
        for _ in 0..20 {
            now += Duration::from_micros(20);
            learner.learn(regime, 0, || now, || false);
        }
        assert_eq!(regime.advice(false), RegimeAdvice::Spin);
        PREEMPTIONS.store(1, std::sync::atomic::Ordering::Relaxed);
        now += Duration::from_millis(3);
        for _ in 0..1_000 {
            now += Duration::from_nanos(400);
            learner.learn(regime, 0, || now, || false);
        }
        assert_eq!(regime.advice(false), RegimeAdvice::Sleep, "one slice of 3 ms is enough");
    }

    #[test]
    fn two_long_yields_within_a_while_send_all_to_sleep_and_one_alone_or_at_once_again_does_not() {
        let lines = Lines::on_heap(1);
        let regime = Regime::new(lines.line(0));
        regime.mode().store(AWAKE, Ordering::Relaxed);
        for (milliseconds, advice) in [
            (1_000, RegimeAdvice::Yield),
            (1_100, RegimeAdvice::Yield),
            (1_101, RegimeAdvice::Yield),
            (1_105, RegimeAdvice::Sleep),
        ] {
            regime.yield_took_long(Instant::from_millis(milliseconds));
            assert_eq!(regime.advice(true), advice, "after the one at {milliseconds} ms");
        }
    }

    #[test]
    fn while_staying_awake_is_tried_one_long_yield_ends_it() {
        let lines = Lines::on_heap(1);
        let regime = Regime::new(lines.line(0));
        regime.mode().store(TRYING_AWAKE, Ordering::Relaxed);
        assert_eq!(regime.advice(false), RegimeAdvice::Spin);
        regime.yield_took_long(Instant::from_millis(1_000));
        assert_eq!(regime.advice(false), RegimeAdvice::Sleep);
    }

    #[test]
    fn who_was_sent_to_sleep_tries_to_stay_awake_after_a_while() {
        let lines = Lines::on_heap(1);
        let regime = Regime::new(lines.line(0));
        regime.mode().store(Regime::ASLEEP, Ordering::Relaxed);
        let (mut learner, mut now) = (quiet(), Instant::from_nanos(1));
        let mut waits = 0;
        while regime.is_asleep() {
            now += Duration::from_micros(30);
            waits += 1;
            learner.learn(regime, waits, || now, || false);
            assert!(now < Instant::from_secs(1), "still asleep after a second");
        }
        assert_eq!(regime.mode().load(Ordering::Relaxed), TRYING_AWAKE);
    }

    #[test]
    fn the_cheaper_way_is_found_and_kept_though_no_yield_takes_long() {
        for (awake, asleep) in [(65_000, 20_000), (20_000, 65_000), (300, 20_000)] {
            let lines = Lines::on_heap(1);
            let regime = Regime::new(lines.line(0));
            regime.mode().store(AWAKE, Ordering::Relaxed);
            let (mut learner, mut now, mut sleeps) = (quiet(), Instant::from_nanos(1), 0);
            let mut spent = [0, 0];
            while now < Instant::from_secs(2) {
                let sleeping = regime.is_asleep();
                let cost = if sleeping { asleep } else { awake };
                now += Duration::from_nanos(cost);
                sleeps += u64::from(sleeping);
                spent[usize::from(sleeping)] += cost;
                learner.learn(regime, sleeps, || now, || false);
            }
            let cheaper = spent[usize::from(asleep < awake)] as f64 / (spent[0] + spent[1]) as f64;
            assert!(
                cheaper > 0.9,
                "{awake} awake and {asleep} asleep: {cheaper} of the time in the cheaper way"
            );
        }
    }

    #[test]
    fn a_member_that_never_decides_counts_any_number_of_waits() {
        let lines = Lines::on_heap(1);
        let mut learner = quiet();
        for _ in 0..2 {
            learner.add_uncounted(u32::MAX);
        }
        // it decides after the others have left
        learner.learn(Regime::new(lines.line(0)), 0, || Instant::from_nanos(1), || false);
        assert!(learner.uncounted_remaining() < u32::MAX);
    }

    #[test]
    fn waits_that_pass_uncounted_bring_the_next_decision_no_later() {
        let lines = Lines::on_heap(1);
        let regime = Regime::new(lines.line(0));
        let (mut learner, mut now) = (quiet(), Instant::from_nanos(1));
        for _ in 0..100 {
            now += Duration::from_micros(100);
            learner.learn(regime, 0, || now, || false);
        }
        // After catching up, the next wait leads to a decision: it asks for the moment.
        let spare = learner.uncounted_remaining();
        learner.add_uncounted(spare + 5);
        assert_eq!(learner.uncounted_remaining(), 0);
        let mut asked = false;
        let moment = || {
            asked = true;
            now + Duration::from_micros(100)
        };
        learner.learn(regime, 0, moment, || false);
        assert!(asked);
    }
}
