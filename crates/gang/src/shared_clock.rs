//! Turns by a clock that several hosts share: the slot that has the turn at a moment, and the end of that
//! turn.
//!
//! ```text
//!   clock        0         20        40        60        80 ms         a round is 60 ms
//!   host 1       | solver  | climate | climate | solver  | ...         both hosts have the same gangs:
//!   host 2       | solver  | climate | climate | solver  | ...         no message between hosts is needed
//! ```
//! A round is all slots, one after the other, each with a length in proportion to its weight. The position in
//! the round is the time of the clock modulo the length of a round, so it does not depend on the past. A host
//! whose gangs change is in step again at once. Hosts with different gangs are in step only by chance.
//!
//! Cost: one addition per slot and turn. When not to use: on a single host, where turns in order of waiting
//! are fairer to gangs that come, leave or rest.
//!
//! Reference: Ousterhout 1982 (all columns of the matrix change rows at the same time).

use unisono_linux::clock::Duration;

/// A remainder of less than this part (1/8) of a turn is skipped. Such a remainder appears if the clock was
/// set back a little after the turn was planned, and two switches would use most of it.
const MIN_PART: u64 = 8;

/// A slot's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockTurn {
    pub(crate) slot: usize,
    /// Remaining length from the given moment.
    pub(crate) remaining: Duration,
}

/// Returns the slot that has the turn when the shared clock shows `clock`, a time since the clock's origin.
/// `lengths` are the lengths of the slots, in the order of the round. `None`: no slot has a positive length.
pub(crate) fn turn_at(clock: Duration, lengths: &[Duration]) -> Option<ClockTurn> {
    let round: Duration = lengths.iter().copied().sum();
    let mut place = Duration::from_nanos(clock.as_nanos().checked_rem(round.as_nanos())?);
    let mut skipped = Duration::ZERO;
    // twice around: the last slot may be skipped
    for (slot, length) in lengths.iter().enumerate().cycle().take(2 * lengths.len()) {
        if place >= *length {
            place -= *length;
            continue;
        }
        let remaining = *length - place;
        if remaining * MIN_PART >= *length {
            return Some(ClockTurn { slot, remaining: skipped + remaining });
        }
        (skipped, place) = (remaining, Duration::ZERO);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths(milliseconds: &[u64]) -> Vec<Duration> {
        milliseconds.iter().map(|ms| Duration::from_millis(*ms)).collect()
    }

    #[test]
    fn the_place_in_the_round_is_the_time_of_the_clock() {
        let lengths = lengths(&[20, 40]);
        for (at, slot, remaining) in
            [(0, 0, 20), (10, 0, 10), (20, 1, 40), (50, 1, 10), (60, 0, 20), (6_000_025, 1, 35)]
        {
            let turn = turn_at(Duration::from_millis(at), &lengths);
            assert_eq!(
                turn,
                Some(ClockTurn { slot, remaining: Duration::from_millis(remaining) }),
                "at {at} ms"
            );
        }
    }

    #[test]
    fn what_a_clock_that_was_set_back_leaves_of_a_turn_is_added_to_the_next() {
        let lengths = lengths(&[20, 20]);
        for (at, slot) in [(19_999_000, 1), (39_999_000, 0)] {
            let turn = turn_at(Duration::from_nanos(at), &lengths).expect("a turn");
            assert_eq!((turn.slot, turn.remaining), (slot, Duration::from_micros(20_001)));
        }
        assert_eq!(turn_at(Duration::from_millis(17), &lengths).expect("a turn").slot, 0);
    }

    #[test]
    fn without_slots_nobody_has_the_turn() {
        assert_eq!(
            (turn_at(Duration::from_nanos(5), &[]), turn_at(Duration::from_nanos(5), &[Duration::ZERO])),
            (None, None)
        );
    }

    proptest! {
        #[test]
        fn hosts_agree_whenever_they_ask_and_each_slot_gets_its_length(
            slots in proptest::collection::vec(1u64..9, 1..8), start in 0u64..u64::MAX / 4,
            asked in proptest::collection::vec(0u64..100, 1..40)
        ) {
            let lengths: Vec<Duration> = slots.iter().map(|length| Duration::from_micros(*length)).collect();
            let round: Duration = lengths.iter().copied().sum();
            // one host goes from turn to turn for a round, from the beginning of a slot
            let mut now = Duration::from_nanos(start - start % round.as_nanos());
            let end = now + round;
            let mut given = vec![Duration::ZERO; lengths.len()];
            while now < end {
                let turn = turn_at(now, &lengths).expect("a turn");
                // another host asks at moments in between
                for asked in &asked {
                    let within = now + turn.remaining * *asked / 128;
                    let other = turn_at(within, &lengths).expect("a turn");
                    prop_assert_eq!((other.slot, other.remaining), (turn.slot, now + turn.remaining - within));
                }
                given[turn.slot] += turn.remaining;
                now += turn.remaining;
            }
            prop_assert_eq!(given, lengths);
        }
    }
}
