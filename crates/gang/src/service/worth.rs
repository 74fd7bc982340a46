//! Whether turns help a gang: one that blocks rests, and takes turns again when it wants its cores.
//!
//! A gang that leaves its cores idle in its own turns makes the others wait for nothing, and its threads find
//! their turn over when they wake. So it rests: it runs whenever it likes, and the others take turns without
//! it. What counts is the processor time that the gang used while it might run, against the cores that it can
//! use at once. Time in which its threads waited for a processor (pressure of its group) counts as wanted,
//! because other programs took it.
//!
//! A gang rests after three looks in a row that say so, and takes turns again after two. Between the limits
//! it stays as it is. Pure: the figures are arguments. Cost: a few divisions a look.
//!
//! Reference: the paper's assumption that waiting tasks spin (ETH TR 745, sections 2 and 3); Wiseman and
//! Feitelson 2003 for what idle cores cost.

use unisono_linux::clock::Nanos;

/// The gang rests if it used less than this part of the cores it can use.
const LITTLE: f64 = 0.5;
/// It takes turns again if it uses this part.
const MUCH: f64 = 0.8;
/// Its threads wait for a processor if one of them did so for this part of the time.
const PRESSED: f64 = 0.25;
/// A gang that uses less than this part of its cores does not want them, whatever its pressure: threads that
/// only sleep are woken by each thaw, and wait for a moment to sleep again (seen: 0.36 of their turns on a
/// machine whose cores were busy). A gang that computes gets more than this beside twenty others.
const NEXT_TO_NOTHING: f64 = 0.05;
/// The least time in which it might run that says something: several turns.
const TELLING: Nanos = Nanos(200_000_000);
const LOOKS_TO_REST: u32 = 3;
const LOOKS_TO_WAKE: u32 = 2;

/// The times of a gang so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GangTimes {
    /// How long it might run: its turns, or all of the time while it rests.
    pub might: Nanos,
    /// Processor time that it used.
    pub used: Nanos,
    /// How long at least one of its threads waited for a processor while it might run.
    pub pressed: Nanos,
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
    /// Looks in a row that spoke for a change.
    looks: u32,
}

impl TurnsWorth {
    pub fn rests(&self) -> bool {
        self.rests
    }

    /// Takes a look at a gang that can use `cores` at once. Answers what to change.
    pub fn look(&mut self, now: GangTimes, cores: usize) -> Option<TurnsVerdict> {
        let Some(before) = self.before else {
            self.before = Some(now);
            return None;
        };
        let might = now.might.since(before.might);
        if might < TELLING {
            return None;
        }
        self.before = Some(now);
        let part = |time: Nanos| time.0 as f64 / might.0 as f64;
        let used = part(now.used.since(before.used)) / cores.max(1) as f64;
        let pressed = used >= NEXT_TO_NOTHING && part(now.pressed.since(before.pressed)) >= PRESSED;
        let speaks =
            if self.rests { used >= MUCH || (used >= LITTLE && pressed) } else { used < LITTLE && !pressed };
        self.looks = if speaks { self.looks + 1 } else { 0 };
        if self.looks < if self.rests { LOOKS_TO_WAKE } else { LOOKS_TO_REST } {
            return None;
        }
        self.looks = 0;
        self.rests = !self.rests;
        // what it might use is counted from here in another way
        self.before = None;
        Some(if self.rests { TurnsVerdict::Rest } else { TurnsVerdict::Wake })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Looks a second apart at a gang of two cores that uses and waits for these parts of them.
    fn looks(worth: &mut TurnsWorth, parts: &[(f64, f64)]) -> Vec<Option<TurnsVerdict>> {
        let mut times = GangTimes::default();
        let mut look = |used: f64, pressed: f64| {
            let second = |part: f64| Nanos((part * 1e9) as u64);
            times = GangTimes {
                might: second(1.0).after(times.might),
                used: second(used * 2.0).after(times.used),
                pressed: second(pressed).after(times.pressed),
            };
            worth.look(times, 2)
        };
        parts.iter().map(|(used, pressed)| look(*used, *pressed)).collect()
    }

    #[test]
    fn a_gang_that_blocks_rests_after_three_looks_and_a_busy_one_never_does() {
        let mut worth = TurnsWorth::default();
        let rest = Some(TurnsVerdict::Rest);
        assert_eq!(looks(&mut worth, &[(0.1, 0.0); 4]), [None, None, None, rest]);
        assert!(worth.rests());
        assert_eq!(looks(&mut TurnsWorth::default(), &[(0.95, 0.0); 9]), [None; 9]);
    }

    #[test]
    fn time_that_other_programs_took_is_no_blocking() {
        assert_eq!(looks(&mut TurnsWorth::default(), &[(0.3, 0.9); 9]), [None; 9]);
    }

    #[test]
    fn threads_that_only_sleep_rest_however_long_they_wait_to_sleep_again() {
        let rest = Some(TurnsVerdict::Rest);
        assert_eq!(looks(&mut TurnsWorth::default(), &[(0.004, 0.36); 4]), [None, None, None, rest]);
    }

    #[test]
    fn one_pause_is_not_enough_and_neither_is_one_burst() {
        let (idle, busy) = ((0.1, 0.0), (1.0, 0.0));
        assert_eq!(looks(&mut TurnsWorth::default(), &[idle, idle, idle, busy, idle, idle, busy]), [None; 7]);
        let mut worth = TurnsWorth::default();
        looks(&mut worth, &[idle; 4]);
        assert_eq!(looks(&mut worth, &[idle, busy, idle, busy, idle]), [None; 5]);
        let wake = Some(TurnsVerdict::Wake);
        worth.before = None;
        assert_eq!(looks(&mut worth, &[busy, busy, busy]), [None, None, wake]);
        assert!(!worth.rests());
    }

    #[test]
    fn a_gang_that_had_no_turn_is_not_judged() {
        let mut worth = TurnsWorth::default();
        for _ in 0..20 {
            assert_eq!(worth.look(GangTimes::default(), 2), None);
        }
    }

    proptest! {
        /// A gang whose use stays the same comes to one state and stays there.
        #[test]
        fn a_steady_gang_does_not_swing(used in 0.0f64..1.0, pressed in 0.0f64..1.0, rests: bool) {
            let mut worth = TurnsWorth { rests, ..TurnsWorth::default() };
            let verdicts = looks(&mut worth, &vec![(used, pressed); 40]);
            prop_assert!(verdicts.iter().flatten().count() <= 1, "{verdicts:?}");
        }
    }
}
