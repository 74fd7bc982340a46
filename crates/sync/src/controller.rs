//! Awake or asleep: which way of waiting costs less here, as far as one can tell.
//!
//! Pure code: observations in (how many episodes have completed, what time it is, whether a yield took
//! suspiciously long), a decision out. It keeps, for either way, what an episode has cost lately - sums of
//! time and of episodes that fade, so that rare long waits count with their length - and now and then tries
//! the other way for a few episodes:
//! ```text
//!             dearer than it was, or the pause is over
//!      [settled] ----------------------------------> [probing the other way]
//!          ^                                            |            |
//!          | not 10 % cheaper: back, pause doubles      |            | 10 % cheaper: stay,
//!          +--------------------------------------------+            | pause starts again at 50 ms
//!          +---------------------------------------------------------+
//! ```
//! Cost: a few arithmetic operations an observation; observations come a few thousand times a second at most,
//! whatever the rate of episodes ([`ControllerStep::look_after`]). A probe lasts 16 to 64 episodes, or a few
//! milliseconds when it goes badly, and pauses grow to a second: at most about 1 % is lost to probing.

use unisono_linux::clock::Nanos;

/// The two ways to wait that are tried against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerMode {
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
pub struct ControllerStep {
    /// How to wait from now on.
    pub mode: ControllerMode,
    /// Whether that is only tried: the first yield that takes long should end it.
    pub probing: bool,
    /// Episodes until the next observation is due.
    pub look_after: u32,
}

/// Episodes of a probe at least.
const PROBE: u32 = 16;
/// Episodes of a probe that is quick: the first few still pay for the change itself, and must not decide.
const LONG_PROBE: u32 = 64;
/// A probe that takes longer than this, and longer than the other way would, is over.
const PROBE_LIMIT: Nanos = Nanos(2_000_000);
/// The pause after somebody gave up: most foreign threads only pass by.
const PAUSE_AFTER_GIVING_UP: Nanos = Nanos(10_000_000);
/// The pause between probes, at first and at most.
const PAUSE: Nanos = Nanos(50_000_000);
const LONGEST_PAUSE: Nanos = Nanos(1_000_000_000);
/// How much time passes between observations, about.
const BETWEEN_LOOKS: u64 = 250_000;
/// Who waits for less than this in all cannot gain by sleeping.
const TOO_CHEAP_TO_SLEEP: u64 = 2_000;
/// Sums fade to half after this much time in a mode.
const MEMORY: u64 = 20_000_000;

/// Time and episodes, fading.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    nanos: u64,
    episodes: u64,
}

impl Cost {
    fn add(&mut self, nanos: u64, episodes: u64) {
        self.nanos = self.nanos.saturating_add(nanos);
        self.episodes = self.episodes.saturating_add(episodes);
        while self.nanos > 2 * MEMORY && self.episodes > 1 {
            self.nanos /= 2;
            self.episodes = self.episodes.div_ceil(2);
        }
    }

    /// Nanoseconds an episode; `None` before the first.
    fn each(self) -> Option<u64> {
        self.nanos.checked_div(self.episodes)
    }
}

/// Decides between the two modes; see the module.
#[derive(Clone, Debug)]
pub struct Controller {
    mode: ControllerMode,
    awake: Cost,
    asleep: Cost,
    last: Nanos,
    pause: Nanos,
    next_probe: Nanos,
    /// Time and episodes of the probe under way.
    probe: Option<Cost>,
    /// Observations in a row that were much dearer than before.
    dear: u32,
}

impl Controller {
    /// Starts awake: it finds out sooner that this is wrong than the other way round.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self {
            mode: ControllerMode::Awake,
            awake: Cost::default(),
            asleep: Cost::default(),
            last: now,
            pause: PAUSE,
            next_probe: PAUSE.after(now),
            probe: None,
            dear: 0,
        }
    }

    /// What an episode costs in a mode, in nanoseconds, as far as is known.
    #[must_use]
    pub fn cost(&self, mode: ControllerMode) -> Option<u64> {
        match mode {
            ControllerMode::Awake => self.awake.each(),
            ControllerMode::Asleep => self.asleep.each(),
        }
    }

    /// `episodes` have completed since the last observation; `gave_up` says that a waiter went to sleep for
    /// good because giving way took too long.
    pub fn observe(&mut self, now: Nanos, episodes: u32, gave_up: bool) -> ControllerStep {
        let elapsed = now.since(self.last).0;
        self.last = now;
        let before = self.cost(self.mode);
        // Who is told to sleep does not give up by sleeping.
        let gave_up = gave_up && self.mode == ControllerMode::Awake;
        if elapsed > 0 {
            // The first observation only starts the clock: it must not make episodes look free.
            self.of(self.mode).add(elapsed, u64::from(episodes));
        }
        if let Some(probe) = &mut self.probe {
            probe.add(elapsed, u64::from(episodes));
            let probe = *probe;
            self.judge(now, probe, gave_up);
        } else if gave_up {
            self.settle(now, ControllerMode::Asleep, PAUSE_AFTER_GIVING_UP);
        } else {
            self.note_change(now, elapsed, episodes, before);
            if now >= self.next_probe && self.is_worth_a_probe() {
                self.start_probe();
            }
        }
        ControllerStep { mode: self.mode, probing: self.probe.is_some(), look_after: self.look_after() }
    }

    fn of(&mut self, mode: ControllerMode) -> &mut Cost {
        match mode {
            ControllerMode::Awake => &mut self.awake,
            ControllerMode::Asleep => &mut self.asleep,
        }
    }

    /// Ends the probe if there is enough to judge by.
    fn judge(&mut self, now: Nanos, probe: Cost, gave_up: bool) {
        let old = self.cost(self.mode.other()).unwrap_or(u64::MAX);
        let expected = old.saturating_mul(u64::from(PROBE));
        let too_long = probe.nanos > PROBE_LIMIT.0.max(expected);
        let quick = probe.nanos < PROBE_LIMIT.0;
        let enough = if quick { LONG_PROBE } else { PROBE };
        if !gave_up && !too_long && probe.episodes < u64::from(enough) {
            return;
        }
        let new = probe.each().unwrap_or(u64::MAX);
        if !gave_up && new.saturating_add(new / 10) < old {
            self.settle(now, self.mode, PAUSE);
        } else {
            let longer = Nanos(self.pause.0.saturating_mul(2).min(LONGEST_PAUSE.0));
            self.settle(now, self.mode.other(), longer);
        }
    }

    fn settle(&mut self, now: Nanos, mode: ControllerMode, pause: Nanos) {
        self.mode = mode;
        self.probe = None;
        self.dear = 0;
        self.pause = pause;
        self.next_probe = pause.after(now);
    }

    /// What costs twice as much as before for four observations running may have changed for good.
    fn note_change(&mut self, now: Nanos, elapsed: u64, episodes: u32, before: Option<u64>) {
        let each = elapsed / u64::from(episodes.max(1));
        let dear = before.is_some_and(|before| each > before.saturating_mul(2));
        self.dear = if dear { self.dear + 1 } else { 0 };
        if self.dear == 4 && self.pause > PAUSE {
            self.pause = PAUSE;
            self.next_probe = now;
        }
    }

    fn is_worth_a_probe(&self) -> bool {
        self.mode == ControllerMode::Asleep
            || self.cost(self.mode).is_some_and(|each| each > TOO_CHEAP_TO_SLEEP)
    }

    fn start_probe(&mut self) {
        self.mode = self.mode.other();
        // What it cost in another time would only blur what it costs now.
        *self.of(self.mode) = Cost::default();
        self.probe = Some(Cost::default());
    }

    fn look_after(&self) -> u32 {
        if self.probe.is_some() {
            return PROBE / 4;
        }
        let each = self.cost(self.mode).unwrap_or(BETWEEN_LOOKS).max(1);
        u32::try_from(BETWEEN_LOOKS / each).unwrap_or(u32::MAX).clamp(1, 1 << 16)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine on which an episode costs this much, awake and asleep, and on which yields take long.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        awake: u64,
        asleep: u64,
        yields_take_long: bool,
    }

    /// Lets `time` pass; says how much of it was spent in episodes that cost the dearer mode's price.
    fn live(
        controller: &mut Controller,
        now: &mut Nanos,
        step: &mut ControllerStep,
        machine: Machine,
        time: u64,
    ) -> f64 {
        let (end, mut episodes_done) = (now.0 + time, 0.0);
        let start = now.0;
        while now.0 < end {
            let each = if step.mode == ControllerMode::Awake { machine.awake } else { machine.asleep };
            let gives_up = step.mode == ControllerMode::Awake && machine.yields_take_long;
            let episodes = if gives_up { 1 } else { step.look_after };
            now.0 += each * u64::from(episodes);
            episodes_done += f64::from(episodes);
            *step = controller.observe(*now, episodes, gives_up);
        }
        #[expect(clippy::cast_precision_loss, reason = "test arithmetic on small numbers")]
        let ideal = (now.0 - start) as f64 / machine.awake.min(machine.asleep) as f64;
        episodes_done / ideal
    }

    fn begin() -> (Controller, Nanos, ControllerStep) {
        let (mut controller, now) = (Controller::new(Nanos(1)), Nanos(1));
        let step = controller.observe(now, 0, false);
        (controller, now, step)
    }

    #[test]
    fn each_regime_is_matched_within_a_tenth_and_every_change_noticed() {
        let idle = Machine { awake: 5_000, asleep: 28_000, yields_take_long: false };
        let loaded = Machine { awake: 2_000_000, asleep: 40_000, yields_take_long: true };
        let (mut controller, mut now, mut step) = begin();
        for machine in [idle, loaded, idle, loaded, idle] {
            live(&mut controller, &mut now, &mut step, machine, 3_000_000_000);
            let share = live(&mut controller, &mut now, &mut step, machine, 3_000_000_000);
            assert!(share > 0.9, "{share} of the best possible under {machine:?}");
        }
    }

    #[test]
    fn what_is_too_cheap_to_sleep_is_never_probed() {
        let machine = Machine { awake: 40, asleep: 30_000, yields_take_long: false };
        let (mut controller, mut now, mut step) = begin();
        live(&mut controller, &mut now, &mut step, machine, 5_000_000_000);
        assert_eq!(controller.cost(ControllerMode::Asleep), None);
        assert!(step.look_after > 1_000, "the clock is read rarely: every {} episodes", step.look_after);
    }

    #[test]
    fn one_that_gives_up_sleeps_at_once() {
        let (mut controller, mut now, mut step) = begin();
        let idle = Machine { awake: 5_000, asleep: 28_000, yields_take_long: false };
        live(&mut controller, &mut now, &mut step, idle, 10_000_000);
        let step = controller.observe(Nanos(now.0 + 4_000_000), 1, true);
        assert_eq!((step.mode, step.probing), (ControllerMode::Asleep, false));
    }

    proptest! {
        #[test]
        fn whatever_the_costs_the_cheaper_way_is_found(
            awake in 50_u64..5_000_000, asleep in 2_500_u64..500_000,
        ) {
            let ratio = awake.max(asleep) / awake.min(asleep);
            prop_assume!(ratio >= 2);
            let machine = Machine { awake, asleep, yields_take_long: false };
            let (mut controller, mut now, mut step) = begin();
            live(&mut controller, &mut now, &mut step, machine, 5_000_000_000);
            let share = live(&mut controller, &mut now, &mut step, machine, 5_000_000_000);
            prop_assert!(share > 0.85, "{} of the best possible", share);
        }

        #[test]
        fn any_sequence_of_observations_yields_a_sane_step(
            observations in prop::collection::vec((0_u64..10_000_000_000, 0_u32..1_000_000, any::<bool>()), 1..200)
        ) {
            let mut controller = Controller::new(Nanos(0));
            let (mut now, mut mode) = (0_u64, ControllerMode::Awake);
            for (elapsed, episodes, gave_up) in observations {
                now += elapsed;
                let step = controller.observe(Nanos(now), episodes, gave_up);
                prop_assert!(step.look_after >= 1 && step.look_after <= 1 << 16);
                // Who gave up while awake is never told to stay awake.
                prop_assert!(!(gave_up && mode == ControllerMode::Awake && step.mode == ControllerMode::Awake));
                mode = step.mode;
            }
        }
    }
}
