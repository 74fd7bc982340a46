//! Decides whether a gang takes turns or rests: a gang that blocks rests, and takes turns again when it wants
//! its cores.
//!
//! A gang that leaves its cores idle in its own turns delays the other gangs without any use, and its threads
//! find their turn over when they wake. So it rests: it runs outside the turns, and the other gangs take
//! turns without it. The criterion is the processor time that the gang used while it was allowed to run,
//! relative to the cores that it can use at once. Time in which its threads waited for a processor (pressure
//! of its group) counts as wanted, because other programs used it.
//!
//! A gang rests after three low samples in a row, and takes turns again after two high ones. Between the
//! limits it stays as it is. Where the kernel records context switches, two watched turns are enough, because
//! the records show the processors that the gang wanted, and not only its share of them ([`WatchedWorth`]).
//! Pure: the figures are arguments. Cost: a few divisions per sample.
//!
//! Reference: the paper's assumption that waiting tasks spin (ETH TR 745, sections 2 and 3); Wiseman and
//! Feitelson 2003 for what idle cores cost.

use unisono_linux::clock::Duration;

/// A gang rests if it used less than this part of the cores that it can use.
const REST_BELOW: f64 = 0.5;
/// A resting gang takes turns again if it uses at least this part.
const WAKE_FROM: f64 = 0.8;
/// A gang's threads wait for a processor if at least one waited for this part of the time.
const MIN_PRESSURE: f64 = 0.25;
/// A gang that uses less than this part of its cores does not want them, whatever its pressure: each thaw
/// wakes even threads that only sleep, and each of them waits for a processor before it can go back to sleep
/// (measured: 0.36 of their turns on a machine whose cores were busy). A gang that computes gets more than
/// this beside twenty others.
const MIN_WANTED: f64 = 0.05;
/// Minimum allowed time between two samples: several turns.
const MIN_OBSERVATION: Duration = Duration::from_millis(200);
/// The shortest and the longest rest of an awake gang; after it the gang takes turns again in any case,
/// because beside many others it may never use enough to be noticed. Four gangs need ten turns of 20 ms to
/// find out again that they block: a tenth of the shortest, a hundredth of the longest rest. Each rest is
/// twice as long as the one before.
const MIN_REST: Duration = Duration::from_secs(2);
const MAX_REST: Duration = Duration::from_secs(20);
/// A resting gang that uses less than this part of its cores is asleep: while it rests, no thaw wakes its
/// threads. A gang that computes gets more than this beside two hundred others.
const RESTING_ASLEEP: f64 = 0.005;
const SCANS_TO_REST: u32 = 3;
const SCANS_TO_WAKE: u32 = 2;

/// Accumulated times of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GangTimes {
    /// Time for which the gang was allowed to run: its turns, or the whole time while it rests.
    pub might: Duration,
    /// Processor time that the gang used.
    pub used: Duration,
    /// Time for which at least one of the gang's threads waited for a processor while the gang was allowed to
    /// run.
    pub pressed: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnsVerdict {
    Rest,
    Wake,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct TurnsWorth {
    before: Option<GangTimes>,
    rests: bool,
    /// Number of consecutive samples in favor of a change.
    consecutive: u32,
    /// [`GangTimes::might`] at the first sample of the present rest.
    since: Option<Duration>,
    /// Number of earlier rests.
    rested: u32,
}

impl TurnsWorth {
    /// Makes the state of a gang that rests already; `rested`: the number of its earlier rests.
    pub fn resting(rested: u32) -> Self {
        Self { rests: true, rested, ..Self::default() }
    }

    pub fn rests(&self) -> bool {
        self.rests
    }

    /// Evaluates a sample of a gang that can use `cores` cores at once. Returns the change to make.
    pub fn evaluate(&mut self, now: GangTimes, cores: usize) -> Option<TurnsVerdict> {
        let Some(before) = self.before else {
            self.before = Some(now);
            return None;
        };
        let might = now.might - before.might;
        if might < MIN_OBSERVATION {
            return None;
        }
        self.before = Some(now);
        let part = |time: Duration| time.as_nanos() as f64 / might.as_nanos() as f64;
        let used = part(now.used - before.used) / cores.max(1) as f64;
        let pressed = used >= MIN_WANTED && part(now.pressed - before.pressed) >= MIN_PRESSURE;
        let speaks = if self.rests {
            used >= WAKE_FROM || (used >= REST_BELOW && pressed)
        } else {
            used < REST_BELOW && !pressed
        };
        self.consecutive = if speaks { self.consecutive + 1 } else { 0 };
        let is_over = self.rests && used >= RESTING_ASLEEP && self.has_rested_enough(now.might);
        if !is_over && self.consecutive < if self.rests { SCANS_TO_WAKE } else { SCANS_TO_REST } {
            return None;
        }
        self.consecutive = 0;
        self.rests = !self.rests;
        self.since = None;
        self.rested += u32::from(!self.rests);
        // from here on the allowed time is counted in another way
        self.before = None;
        Some(if self.rests { TurnsVerdict::Rest } else { TurnsVerdict::Wake })
    }
}

/// A gang rests if it wanted less than this part of its cores in a watched turn. A gang of two threads of
/// which one computes wants a half, less the time of the switch; programs that block at each barrier want a
/// tenth (docs/decisions/0008).
const REST_BELOW_WANTED: f64 = 0.4;
const WATCHED_TURNS_TO_REST: u32 = 2;
/// A gang also rests if, in a turn of its own, its threads run for less than this between two sleeps. They
/// sleep although the others run, so running together gains them nothing. Two threads that meet at a barrier
/// that blocks at once run for 8 to 16 us. A program that spins for 50 us first does not sleep while it has
/// its cores.
const BRIEF_RUN: Duration = Duration::from_micros(50);
/// A gang that uses this part of its cores does not rest for brief runs: its other threads use the sleepers'
/// time.
const FILLED: f64 = 0.9;
/// With this many sleeps per core, one turn is enough to judge. A program that only starts sleeps less often.
const SLEEPS_TO_REST: u64 = 100;
/// A gang that wanted less than this part of its cores was asleep. All of its cores are lent then, so resting
/// would give the other gangs no more. A program that waits for its first input is not a blocking program.
const ASLEEP: f64 = 0.02;

impl TurnsWorth {
    /// Returns whether the present rest has lasted long enough. `now` is [`GangTimes::might`], which advances
    /// with the clock while a gang rests.
    fn has_rested_enough(&mut self, now: Duration) -> bool {
        let rest = (MIN_REST * (1 << self.rested.min(10))).min(MAX_REST);
        now - *self.since.get_or_insert(now) >= rest
    }
}

/// A gang's use of one watched turn of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedUse {
    /// Total time for which the gang's threads wanted processors.
    pub wanted: Duration,
    /// Number of times that the gang's threads went to sleep.
    pub sleeps: u64,
    /// The length of the observed interval.
    pub time: Duration,
}

/// The verdict on one watched turn of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedVerdict {
    /// No verdict: the gang was asleep.
    Asleep,
    Computes,
    /// After one more turn like this one the gang should rest.
    Unsure,
    Rest,
}

/// Makes the same decision as [`TurnsWorth`], from the processor time that a gang wanted in its own watched
/// turns. By this decision a gang also rests if its threads fall asleep after each short run.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchedWorth {
    /// Number of consecutive watched turns with little use of the cores.
    little: u32,
}

impl WatchedWorth {
    /// Evaluates the gang's use of a turn with `cores` cores.
    pub fn saw(&mut self, used: WatchedUse, cores: usize) -> WatchedVerdict {
        let cores = cores.max(1);
        let part = used.wanted.as_nanos() as f64 / used.time.as_nanos().max(1) as f64 / cores as f64;
        if part < ASLEEP {
            return WatchedVerdict::Asleep;
        }
        let briefly = part < FILLED && used.wanted < BRIEF_RUN * used.sleeps;
        self.little = match (part < REST_BELOW_WANTED, briefly) {
            (_, true) if used.sleeps >= SLEEPS_TO_REST * cores as u64 => WATCHED_TURNS_TO_REST,
            (false, false) => 0,
            _ => self.little + 1,
        };
        match self.little {
            0 => WatchedVerdict::Computes,
            WATCHED_TURNS_TO_REST.. => WatchedVerdict::Rest,
            _ => WatchedVerdict::Unsure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Evaluates samples, a second apart, of a gang of two cores. Each element of `parts` is the part of the
    /// cores that the gang uses, and the part that it waits for.
    fn evaluate_samples(worth: &mut TurnsWorth, parts: &[(f64, f64)]) -> Vec<Option<TurnsVerdict>> {
        let mut times = GangTimes::default();
        let mut evaluate = |used: f64, pressed: f64| {
            let second = |part: f64| Duration::from_nanos((part * 1e9) as u64);
            times = GangTimes {
                might: times.might + second(1.0),
                used: times.used + second(used * 2.0),
                pressed: times.pressed + second(pressed),
            };
            worth.evaluate(times, 2)
        };
        parts.iter().map(|(used, pressed)| evaluate(*used, *pressed)).collect()
    }

    #[test]
    fn a_gang_that_blocks_rests_after_three_looks_and_a_busy_one_never_does() {
        let mut worth = TurnsWorth::default();
        let rest = Some(TurnsVerdict::Rest);
        assert_eq!(evaluate_samples(&mut worth, &[(0.1, 0.0); 4]), [None, None, None, rest]);
        assert!(worth.rests());
        assert_eq!(evaluate_samples(&mut TurnsWorth::default(), &[(0.95, 0.0); 9]), [None; 9]);
    }

    #[test]
    fn time_that_other_programs_took_is_no_blocking() {
        assert_eq!(evaluate_samples(&mut TurnsWorth::default(), &[(0.3, 0.9); 9]), [None; 9]);
    }

    #[test]
    fn threads_that_only_sleep_rest_however_long_they_wait_to_sleep_again() {
        let rest = Some(TurnsVerdict::Rest);
        assert_eq!(
            evaluate_samples(&mut TurnsWorth::default(), &[(0.004, 0.36); 4]),
            [None, None, None, rest]
        );
    }

    #[test]
    fn one_pause_is_not_enough_and_neither_is_one_burst() {
        let (idle, busy) = ((0.1, 0.0), (1.0, 0.0));
        assert_eq!(
            evaluate_samples(&mut TurnsWorth::default(), &[idle, idle, idle, busy, idle, idle, busy]),
            [None; 7]
        );
        // a gang with a long rest
        let mut worth = TurnsWorth { rested: 9, ..TurnsWorth::default() };
        evaluate_samples(&mut worth, &[idle; 4]);
        assert_eq!(evaluate_samples(&mut worth, &[idle, busy, idle, busy, idle]), [None; 5]);
        let wake = Some(TurnsVerdict::Wake);
        worth.before = None;
        assert_eq!(evaluate_samples(&mut worth, &[busy, busy, busy]), [None, None, wake]);
        assert!(!worth.rests());
    }

    #[test]
    fn a_gang_that_had_no_turn_is_not_judged() {
        let mut worth = TurnsWorth::default();
        for _ in 0..20 {
            assert_eq!(worth.evaluate(GangTimes::default(), 2), None);
        }
    }

    #[test]
    fn two_watched_turns_let_a_gang_rest_that_blocks_and_one_busy_thread_of_two_is_none() {
        let used = |cores: f64| WatchedUse {
            wanted: Duration::from_nanos((cores * 1e6) as u64),
            sleeps: 2,
            time: Duration::from_millis(1),
        };
        let saw = |worth: &mut WatchedWorth, cores: f64| worth.saw(used(cores), 2);
        use WatchedVerdict::{Asleep, Computes, Rest, Unsure};
        let mut worth = WatchedWorth::default();
        let verdicts = [0.2, 1.9, 0.2, 0.01, 0.2].map(|cores| saw(&mut worth, cores));
        assert_eq!(verdicts, [Unsure, Computes, Unsure, Asleep, Rest]);
        let mut worth = WatchedWorth::default();
        assert!((0..20).all(|_| saw(&mut worth, 0.98) == Computes));
        assert_eq!(worth.saw(WatchedUse::default(), 2), Asleep, "nothing was watched");
    }

    #[test]
    fn a_gang_that_sleeps_after_each_moment_of_work_rests_at_once_and_one_that_fills_its_cores_does_not() {
        let saw = |worth: &mut WatchedWorth, cores: f64, sleeps| {
            let time = Duration::from_millis(20);
            worth.saw(WatchedUse { wanted: Duration::from_nanos((cores * 20e6) as u64), sleeps, time }, 2)
        };
        use WatchedVerdict::{Computes, Rest, Unsure};
        let first = |cores, sleeps| saw(&mut WatchedWorth::default(), cores, sleeps);
        assert_eq!(first(1.3, 3000), Rest, "9 us between two sleeps");
        assert_eq!(first(1.3, 300), Computes, "87 us: long enough to spin");
        assert_eq!(first(1.9, 3000), Computes, "others of its threads fill the cores");
        let mut worth = WatchedWorth::default();
        let verdicts = [(0.1, 150), (1.9, 150), (0.1, 150), (0.1, 150)];
        let verdicts = verdicts.map(|(cores, sleeps)| saw(&mut worth, cores, sleeps));
        assert_eq!(verdicts, [Unsure, Computes, Unsure, Rest], "a program that starts sleeps, too");
    }

    #[test]
    fn a_gang_that_rests_and_uses_its_cores_again_is_woken() {
        let wake = Some(TurnsVerdict::Wake);
        assert_eq!(evaluate_samples(&mut TurnsWorth::resting(0), &[(0.9, 0.0); 3]), [None, None, wake]);
    }

    #[test]
    fn a_rest_ends_after_a_while_unless_the_gang_sleeps_and_later_each_time() {
        let wakes = |rested, used| {
            let verdicts = evaluate_samples(&mut TurnsWorth::resting(rested), &[(used, 0.9); 60]);
            verdicts.iter().position(|verdict| *verdict == Some(TurnsVerdict::Wake))
        };
        // the first sample has no predecessor, and the second one begins the rest
        assert_eq!([0, 1, 2, 9, 99].map(|rested| wakes(rested, 0.1)), [3, 5, 9, 21, 21].map(Some));
        assert_eq!(wakes(0, 0.001), None);
    }

    proptest! {
        /// A gang with constant use reaches one state and stays there, except that a rest ends now and then.
        #[test]
        fn a_steady_gang_does_not_swing(used in 0.0f64..1.0, pressed in 0.0f64..1.0, rests: bool) {
            let mut worth = TurnsWorth { rests, ..TurnsWorth::default() };
            let verdicts = evaluate_samples(&mut worth, &vec![(used, pressed); 400]);
            let wakes = verdicts.iter().filter(|verdict| **verdict == Some(TurnsVerdict::Wake)).count();
            prop_assert!(wakes <= 400 / 20 + 4, "{verdicts:?}");
            let steady = |verdicts: &[Option<TurnsVerdict>]| verdicts.iter().all(Option::is_none);
            prop_assert!(!(REST_BELOW..WAKE_FROM).contains(&used) || !rests || wakes <= 1);
            prop_assert!(used < REST_BELOW || steady(&verdicts[30..]), "{verdicts:?}");
        }
    }
}
