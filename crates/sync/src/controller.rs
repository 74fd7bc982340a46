//! Awake or asleep: decides which of the two is the cheaper way to wait now.
//!
//! The controller does no I/O: the caller passes the number of completed episodes, the time, and whether a
//! yield took suspiciously long; the controller answers how to wait. For each of the two modes it keeps the
//! time and the number of episodes of the recent past. Both sums decay, so a rare long wait counts with its
//! length, not as one episode among many. Now and then it probes the other mode for a few episodes:
//! ```text
//!             dearer than it was, or the pause is over
//!      [settled] ----------------------------------> [probing the other way]
//!          ^                                            |            |
//!          | not 10 % cheaper: back, pause doubles      |            | 10 % cheaper: stay,
//!          +--------------------------------------------+            | pause starts again at 50 ms
//!          +---------------------------------------------------------+
//! ```
//! Cost: a few arithmetic operations an observation, and at most a few thousand observations a second,
//! because each answer says after how many episodes the next observation is due
//! ([`ControllerStep::observe_after`]). A probe lasts 16 to 64 episodes, or a few milliseconds when the
//! probed mode is the dearer one. The pause between two probes grows to a second, so probing costs about 1 %
//! at most, and 5 % at first.
//!
//! The constants below follow from two measured prices: a sleep and its wake-up cost 5 us on one processor
//! and 28 to 60 us across processors, and a foreign thread that gets a slice keeps a processor for 2 to 20 ms
//! (two virtual processors, AMD EPYC, Linux 6.18).

use unisono_linux::clock::{Duration, Instant};

/// The controller's two modes of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerMode {
    /// Spin, or yield where there are more waiters than cores.
    Awake,
    /// Sleep at once.
    Asleep,
}

impl ControllerMode {
    const fn other(self) -> Self {
        match self {
            Self::Awake => Self::Asleep,
            Self::Asleep => Self::Awake,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControllerStep {
    pub mode: ControllerMode,
    /// Whether the mode is only probed. In a probe the first long yield should end the probe.
    pub probing: bool,
    /// Episodes until the next observation is due.
    pub observe_after: u32,
}

/// A probe has at least this many episodes, because the mean of fewer is not reliable.
const PROBE: u32 = 16;
/// A probe that is over in less than [`PROBE_LIMIT`] has this many episodes. Its first episodes still wake
/// the sleepers of the old mode; with only 16 episodes those would decide.
const LONG_PROBE: u32 = 64;
/// A probe ends when it has taken longer than this and longer than [`PROBE`] episodes take in the other mode.
/// A foreign slice is at least this long, so a bad probe costs one slice at most.
const PROBE_LIMIT: Duration = Duration::from_millis(2);
/// The pause before the next probe after a waiter gave up: about one foreign slice. Most foreign threads run
/// only briefly; if a thread stays, each probe doubles the pause.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// The pause after a waiter gave up, in multiples of the time for which foreign threads kept the processor:
/// beside eight busy loops a waiter gets its next slice after 10 to 24 ms, and the next probe costs as much
/// again.
const GIVE_UP_PAUSE: u64 = 5;
/// The longest pause after a waiter gave up: the observation may have been long for another reason.
const MAX_GIVE_UP_PAUSE: Duration = Duration::from_millis(200);
/// The pause after a probe that failed, in multiples of the probe's time, so that failed probes take at most
/// 5 % of the time.
const BAD_PROBE_PAUSE: u64 = 20;
/// The first pause between probes. A bad probe costs about 2 ms, so the first one may take 4 % of the time;
/// then the pauses double.
const FIRST_PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// The longest pause: the group notices a changed machine within a second, and a bad probe costs 0.2 %.
const MAX_PROBE_INTERVAL: Duration = Duration::SECOND;
/// About this much time passes between two observations. An observation reads the clock (20 to 40 ns), so the
/// controller costs 0.02 %.
const SCAN_INTERVAL: Duration = Duration::from_micros(250);
/// The mean cost of an episode below which sleeping is not probed: a wake-up alone costs more (5 us).
const TOO_CHEAP_TO_SLEEP: Duration = Duration::from_micros(2);
/// The cost of an episode asleep before one was measured: a sleep and its wake-up on one processor, where
/// members share processors, and across processors, where each has its own.
const SHARED_SLEEP: Duration = Duration::from_micros(5);
const DISTANT_SLEEP: Duration = Duration::from_micros(28);
/// The sums are halved when their time exceeds twice this: ten foreign slices of 2 ms, so that one slice does
/// not decide.
const MEMORY: Duration = Duration::from_millis(20);

/// The time and the number of episodes of one mode; older episodes count less.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    time: Duration,
    episodes: u64,
}

impl Cost {
    fn add(&mut self, time: Duration, episodes: u32) {
        self.time += time;
        self.episodes = self.episodes.saturating_add(episodes.into());
        while self.time > MEMORY * 2 && self.episodes > 1 {
            self.time = self.time / 2;
            self.episodes = self.episodes.div_ceil(2);
        }
    }

    /// Returns the mean cost of an episode, or `None` before the first.
    fn mean(self) -> Option<Duration> {
        (self.episodes > 0).then(|| self.time / self.episodes)
    }
}

/// Decides between the two modes; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    mode: ControllerMode,
    awake: Cost,
    asleep: Cost,
    last: Instant,
    probe_interval: Duration,
    next_probe: Instant,
    /// The assumed cost of an episode asleep before one was measured.
    unmeasured_sleep: Duration,
    /// Time and episodes of the running probe.
    probe: Option<Cost>,
    /// The number of successive observations that were more than twice as dear as the mean.
    dear: u32,
}

impl Controller {
    /// Starts awake: a wrong start awake is noticed sooner than a wrong start asleep.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            mode: ControllerMode::Awake,
            awake: Cost::default(),
            asleep: Cost::default(),
            last: now,
            probe_interval: FIRST_PROBE_INTERVAL,
            next_probe: now + FIRST_PROBE_INTERVAL,
            unmeasured_sleep: SHARED_SLEEP,
            probe: None,
            dear: 0,
        }
    }

    /// Starts asleep, for a group that started among foreign threads. A probe costs such a group a slice of
    /// each of them, so the first one comes late.
    pub(crate) fn new_asleep(now: Instant) -> Self {
        let mut controller = Self::new(now);
        controller.set_mode(now, ControllerMode::Asleep, MAX_GIVE_UP_PAUSE);
        controller
    }

    /// Sets whether members share processors, so that a sleeper is woken on its own.
    pub(crate) fn set_shares(&mut self, shares: bool) {
        self.unmeasured_sleep = if shares { SHARED_SLEEP } else { DISTANT_SLEEP };
    }

    /// Returns the mean cost of an episode in a mode, or `None` while it is unknown.
    pub(crate) fn cost(&self, mode: ControllerMode) -> Option<Duration> {
        match mode {
            ControllerMode::Awake => self.awake.mean(),
            ControllerMode::Asleep => self.asleep.mean(),
        }
    }

    /// Records that `episodes` have completed since the last observation. `gave_up` says whether a waiter
    /// sent all members to sleep because a yield took too long.
    pub(crate) fn observe(&mut self, now: Instant, episodes: u32, gave_up: bool) -> ControllerStep {
        let elapsed = now - self.last;
        self.last = now;
        let before = self.cost(self.mode);
        // When the mode is asleep, the group sleeps anyway, which is no sign that a waiter gave up.
        let gave_up = gave_up && self.mode == ControllerMode::Awake;
        if elapsed > Duration::ZERO {
            // The first observation only starts the clock: otherwise its episodes would look free.
            self.cost_mut(self.mode).add(elapsed, episodes);
        }
        if let Some(probe) = &mut self.probe {
            probe.add(elapsed, episodes);
            let probe = *probe;
            self.judge(now, probe, gave_up);
        } else if gave_up && !self.awake_pays_all_the_same() {
            let pause = (elapsed * GIVE_UP_PAUSE).clamp(MIN_PROBE_INTERVAL, MAX_GIVE_UP_PAUSE);
            self.set_mode(now, ControllerMode::Asleep, pause);
        } else {
            self.note_change(now, elapsed, episodes, before);
            if now >= self.next_probe && self.is_worth_a_probe() {
                self.start_probe();
            }
        }
        ControllerStep { mode: self.mode, probing: self.probe.is_some(), observe_after: self.observe_after() }
    }

    fn cost_mut(&mut self, mode: ControllerMode) -> &mut Cost {
        match mode {
            ControllerMode::Awake => &mut self.awake,
            ControllerMode::Asleep => &mut self.asleep,
        }
    }

    /// Ends the probe if it has enough episodes to decide by, if it took too long, or if a waiter gave up.
    fn judge(&mut self, now: Instant, probe: Cost, gave_up: bool) {
        let old = self.cost(self.mode.other()).unwrap_or(Duration::MAX);
        let too_long = probe.time > PROBE_LIMIT.max(old * u64::from(PROBE));
        let quick = probe.time < PROBE_LIMIT;
        let enough = if quick { LONG_PROBE } else { PROBE };
        if !gave_up && !too_long && probe.episodes < u64::from(enough) {
            return;
        }
        let new = probe.mean().unwrap_or(Duration::MAX);
        // Ten per cent: less is within the scatter of 16 episodes, and each change costs a round of wake-ups.
        if !gave_up && new + new / 10 < old {
            self.set_mode(now, self.mode, FIRST_PROBE_INTERVAL);
        } else {
            let pause = (self.probe_interval * 2).max(probe.time * BAD_PROBE_PAUSE);
            self.set_mode(now, self.mode.other(), pause.min(MAX_PROBE_INTERVAL));
        }
    }

    fn set_mode(&mut self, now: Instant, mode: ControllerMode, probe_interval: Duration) {
        self.mode = mode;
        self.probe = None;
        self.dear = 0;
        self.probe_interval = probe_interval;
        self.next_probe = now + probe_interval;
    }

    /// Brings the next probe forward when episodes have cost twice as much as before in four observations in
    /// a row (a millisecond): one or two may be a foreign slice, four mean that the machine has changed.
    fn note_change(&mut self, now: Instant, elapsed: Duration, episodes: u32, before: Option<Duration>) {
        let episode_cost = elapsed / u64::from(episodes.max(1));
        let dear = before.is_some_and(|before| episode_cost > before * 2);
        self.dear = if dear { self.dear + 1 } else { 0 };
        if self.dear == 4 && self.probe_interval > FIRST_PROBE_INTERVAL {
            self.probe_interval = FIRST_PROBE_INTERVAL;
            self.next_probe = now;
        }
    }

    /// Returns whether episodes cost less than half as much awake as asleep, foreign slices included. Two
    /// threads beside a loop each complete so many episodes while both run that they need not sleep.
    fn awake_pays_all_the_same(&self) -> bool {
        let asleep = self.asleep.mean().unwrap_or(self.unmeasured_sleep);
        self.awake.mean().is_some_and(|awake| awake * 2 < asleep)
    }

    fn is_worth_a_probe(&self) -> bool {
        self.mode == ControllerMode::Asleep
            || self.cost(self.mode).is_some_and(|episode_cost| episode_cost > TOO_CHEAP_TO_SLEEP)
    }

    fn start_probe(&mut self) {
        self.mode = self.mode.other();
        // The last cost of this mode is out of date; it would only distort the probe.
        *self.cost_mut(self.mode) = Cost::default();
        self.probe = Some(Cost::default());
    }

    fn observe_after(&self) -> u32 {
        if self.probe.is_some() {
            return PROBE / 4;
        }
        let episode_cost = self.cost(self.mode).unwrap_or(SCAN_INTERVAL).as_nanos().max(1);
        u32::try_from(SCAN_INTERVAL.as_nanos() / episode_cost).unwrap_or(u32::MAX).clamp(1, 1 << 16)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The costs of an episode, awake and asleep, and whether yields take long.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        awake: Duration,
        asleep: Duration,
        yields_take_long: bool,
    }

    const IDLE: Machine = Machine {
        awake: Duration::from_micros(5),
        asleep: Duration::from_micros(28),
        yields_take_long: false,
    };
    const LOADED: Machine = Machine {
        awake: Duration::from_millis(2),
        asleep: Duration::from_micros(40),
        yields_take_long: true,
    };

    /// Lets `time` pass; returns the episodes completed, as a fraction of the episodes that the cheaper mode
    /// alone would have completed.
    fn live(
        controller: &mut Controller,
        now: &mut Instant,
        step: &mut ControllerStep,
        machine: Machine,
        time: Duration,
    ) -> f64 {
        let (start, mut episodes_done) = (*now, 0.0);
        while *now < start + time {
            let episode_cost =
                if step.mode == ControllerMode::Awake { machine.awake } else { machine.asleep };
            let gives_up = step.mode == ControllerMode::Awake && machine.yields_take_long;
            let episodes = if gives_up { 1 } else { step.observe_after };
            *now += episode_cost * u64::from(episodes);
            episodes_done += f64::from(episodes);
            *step = controller.observe(*now, episodes, gives_up);
        }
        let ideal = (*now - start).as_secs_f64() / machine.awake.min(machine.asleep).as_secs_f64();
        episodes_done / ideal
    }

    fn begin() -> (Controller, Instant, ControllerStep) {
        let (mut controller, now) = (Controller::new(Instant::from_nanos(1)), Instant::from_nanos(1));
        let step = controller.observe(now, 0, false);
        (controller, now, step)
    }

    #[test]
    fn each_regime_is_matched_within_a_tenth_and_every_change_noticed() {
        let (mut controller, mut now, mut step) = begin();
        for machine in [IDLE, LOADED, IDLE, LOADED, IDLE] {
            live(&mut controller, &mut now, &mut step, machine, Duration::from_secs(3));
            let share = live(&mut controller, &mut now, &mut step, machine, Duration::from_secs(3));
            assert!(share > 0.9, "{share} of the best possible under {machine:?}");
        }
    }

    #[test]
    fn what_is_too_cheap_to_sleep_is_never_probed() {
        let machine = Machine { awake: Duration::from_nanos(40), ..IDLE };
        let (mut controller, mut now, mut step) = begin();
        live(&mut controller, &mut now, &mut step, machine, Duration::from_secs(5));
        assert_eq!(controller.cost(ControllerMode::Asleep), None);
        assert!(
            step.observe_after > 1_000,
            "the clock is read rarely: every {} episodes",
            step.observe_after
        );
    }

    #[test]
    fn one_that_gives_up_sleeps_at_once() {
        let (mut controller, mut now, mut step) = begin();
        live(&mut controller, &mut now, &mut step, IDLE, Duration::from_millis(10));
        let step = controller.observe(now + Duration::from_millis(4), 1, true);
        assert_eq!((step.mode, step.probing), (ControllerMode::Asleep, false));
    }

    #[test]
    fn one_that_gives_up_stays_awake_where_episodes_are_cheaper_with_the_foreign_slices() {
        // 30,000 episodes in a slice; then 300, so that the foreign slice counts until sleeping is known
        for (awake_ns, first) in [(100, ControllerMode::Awake), (10_000, ControllerMode::Asleep)] {
            let machine = Machine { awake: Duration::from_nanos(awake_ns), ..IDLE };
            let (mut controller, mut now, mut step) = begin();
            let mut modes = Vec::new();
            for _ in 0..20 {
                live(&mut controller, &mut now, &mut step, machine, Duration::from_millis(3));
                now += Duration::from_millis(3);
                step = controller.observe(now, 1, step.mode == ControllerMode::Awake);
                modes.push(step.mode);
            }
            assert_eq!(modes[0], first, "{modes:?}");
            let awake = modes[10..].iter().filter(|mode| **mode == ControllerMode::Awake).count();
            assert_eq!(awake, if awake_ns == 100 { 10 } else { 0 }, "{modes:?}");
        }
    }

    #[test]
    fn a_group_that_started_in_a_crowd_is_probed_late() {
        let begin = Instant::from_nanos(1);
        let mut controller = Controller::new_asleep(begin);
        let mut step = controller.observe(begin, 0, true);
        let mut now = begin;
        while !step.probing {
            assert_eq!(step.mode, ControllerMode::Asleep);
            now += Duration::from_micros(40);
            step = controller.observe(now, 1, true);
        }
        assert!(now - begin >= MAX_GIVE_UP_PAUSE);
    }

    proptest! {
        #[test]
        fn whatever_the_costs_the_cheaper_way_is_found(
            awake in 50_u64..5_000_000, asleep in 2_500_u64..500_000,
        ) {
            let ratio = awake.max(asleep) / awake.min(asleep);
            prop_assume!(ratio >= 2);
            let [awake, asleep] = [awake, asleep].map(Duration::from_nanos);
            let machine = Machine { awake, asleep, yields_take_long: false };
            let (mut controller, mut now, mut step) = begin();
            live(&mut controller, &mut now, &mut step, machine, Duration::from_secs(5));
            let share = live(&mut controller, &mut now, &mut step, machine, Duration::from_secs(5));
            prop_assert!(share > 0.85, "{} of the best possible", share);
        }

        #[test]
        fn any_sequence_of_observations_yields_a_sane_step(
            observations in prop::collection::vec((0_u64..10_000_000_000, 0_u32..1_000_000, any::<bool>()), 1..200)
        ) {
            let mut controller = Controller::new(Instant::ZERO);
            let (mut now, mut mode) = (Instant::ZERO, ControllerMode::Awake);
            for (elapsed, episodes, gave_up) in observations {
                now += Duration::from_nanos(elapsed);
                let step = controller.observe(now, episodes, gave_up);
                prop_assert!(step.observe_after >= 1 && step.observe_after <= 1 << 16);
                // After a waiter gave up while the group was awake, the controller tells the group to stay
                // awake only if this is known to be cheaper.
                let cheaper = controller.awake_pays_all_the_same();
                let stays = mode == ControllerMode::Awake && step.mode == ControllerMode::Awake;
                prop_assert!(!(gave_up && stays) || cheaper);
                mode = step.mode;
            }
        }
    }
}
