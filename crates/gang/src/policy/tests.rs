use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const START: Instant = Instant::ZERO;
const SLICE: Duration = Duration::from_millis(20);

fn rotation(cores: usize, weights: &[u32]) -> Rotation {
    let mut rotation = Rotation::new(cores, SLICE, Backfill::Offer);
    for (i, weight) in weights.iter().enumerate() {
        rotation.join(GangId(i), GangWeight::new(*weight).expect("a weight"));
    }
    rotation
}

fn ids(turn: &Turn) -> Vec<usize> {
    turn.run.iter().map(|place| place.gang.0).collect()
}

#[test]
fn whole_machine_gangs_take_turns_as_long_as_they_weigh() {
    let mut rotation = rotation(2, &[1, 2]);
    let first = rotation.next_turn(START).expect("a turn");
    assert_eq!((ids(&first), first.until), (vec![0], START + SLICE));
    let second = rotation.next_turn(first.until).expect("a turn");
    assert_eq!((ids(&second), second.until), (vec![1], START + SLICE * 3));
    assert_eq!(ids(&rotation.next_turn(second.until).expect("a turn")), [0]);
}

#[test]
fn a_gang_that_fills_its_cores_but_for_interruptions_is_not_backfilled_upon() {
    let mut rotation = rotation(2, &[1, 1]);
    for _ in 0..10 {
        rotation.observe(GangId(0), Duration::from_millis(32), SLICE);
    }
    let first = rotation.next_turn(START).expect("a turn");
    assert_eq!((ids(&first), first.backfill), (vec![0], vec![]), "1.6 of 2 cores are busy");
}

#[test]
fn one_turn_of_a_gang_that_is_still_starting_lends_nothing_and_asks_for_another_look() {
    let mut rotation = rotation(2, &[1, 1]);
    rotation.observe(GangId(0), SLICE, SLICE);
    let first = rotation.next_turn(START).expect("a turn");
    assert_eq!((ids(&first), first.backfill), (vec![0], vec![]), "one of 2 cores was busy, once");
    assert!(rotation.is_unsure(GangId(0)) && !rotation.is_unsure(GangId(1)));
    rotation.observe(GangId(0), SLICE * 2, SLICE);
    assert!(!rotation.is_unsure(GangId(0)), "both cores are busy after all");
}

#[test]
fn a_gang_that_leaves_a_core_idle_twice_lends_it() {
    let mut rotation = rotation(2, &[1, 1]);
    rotation.observe(GangId(0), SLICE, SLICE);
    rotation.observe(GangId(0), SLICE, SLICE);
    assert!(!rotation.is_unsure(GangId(0)));
    assert_eq!(rotation.next_turn(START).expect("a turn").backfill, [GangId(1)]);
}

#[test]
fn a_late_wake_up_does_not_shift_the_grid_but_a_long_pause_does() {
    let mut rotation = rotation(2, &[1, 1]);
    let first = rotation.next_turn(START).expect("a turn");
    let late = rotation.next_turn(first.until + Duration::from_millis(3)).expect("a turn");
    assert_eq!(late.until, START + SLICE * 2);
    let slept = Instant::from_secs(5);
    assert_eq!(rotation.next_turn(slept).expect("a turn").until, slept + SLICE);
}

#[test]
fn idle_cores_are_offered_to_the_gang_that_waits_longest() {
    let mut rotation = rotation(4, &[1, 1, 1]);
    rotation.observe(GangId(0), SLICE, SLICE);
    assert_eq!(rotation.next_turn(START).expect("a turn").backfill, [GangId(1)]);
    let busy = rotation.next_turn(START + SLICE).expect("a turn");
    assert_eq!((ids(&busy), busy.backfill), (vec![1], vec![]));
}

#[test]
fn a_gang_that_leaves_in_its_turn_gives_way_at_once() {
    let mut rotation = rotation(2, &[5, 1]);
    rotation.next_turn(START);
    rotation.remove(GangId(0));
    let next = rotation.next_turn(Instant::from_nanos(7)).expect("a turn");
    assert_eq!((ids(&next), next.from), (vec![1], Instant::from_nanos(7)));
    rotation.remove(GangId(1));
    assert_eq!(rotation.next_turn(Instant::from_nanos(9)), None);
}

#[test]
fn a_turn_that_was_taken_back_is_given_again() {
    let mut rotation = rotation(2, &[1, 1, 1]);
    let first = rotation.next_turn(START).expect("a turn");
    let ahead = rotation.next_turn(first.until).expect("a turn");
    assert_eq!(ids(&ahead), [1]);
    rotation.undo_turn();
    rotation.remove(GangId(2));
    assert_eq!(rotation.next_turn(first.until), Some(ahead));
}

#[test]
fn hosts_that_follow_a_clock_give_a_gang_its_turn_at_the_same_moment() {
    let ahead = [Duration::from_nanos(1_000_000_007), Duration::from_nanos(5_000_003)];
    // on the second host the gangs came in another order, and its own clock began later
    let mut hosts = [rotation(2, &[1, 2]), rotation(4, &[2, 1])];
    hosts[0].name(GangId(0), "b");
    hosts[0].name(GangId(1), "a");
    hosts[1].name(GangId(0), "a");
    hosts[1].name(GangId(1), "b");
    let mut turns: [Vec<(bool, Instant)>; 2] = Default::default();
    for (host, (rotation, ahead)) in hosts.iter_mut().zip(ahead).enumerate() {
        let mut now = Instant::from_millis(1500) - ahead;
        while now + ahead < Instant::from_millis(2500) {
            rotation.follow_clock(ahead);
            let turn = rotation.next_turn(now).expect("a turn");
            let is_a = turn.run[0].gang.0 != host;
            turns[host].push((is_a, turn.until + ahead));
            now = turn.until;
        }
    }
    assert_eq!(turns[0], turns[1]);
    assert!(turns[0].len() > 30 && turns[0].windows(2).all(|turns| turns[0].0 != turns[1].0));
}

#[test]
fn a_gang_that_rests_has_no_turns_and_keeps_its_weight() {
    let mut rotation = rotation(2, &[3, 1]);
    assert!(rotation.is_contended() && rotation.begin_rest(GangId(0)) && !rotation.begin_rest(GangId(0)));
    assert!(rotation.is_resting(GangId(0)) && !rotation.is_contended());
    let lone = rotation.next_turn(START).expect("a turn");
    assert_eq!((ids(&lone), lone.backfill), (vec![1], vec![]), "nothing is lent to one that runs anyway");
    assert!(rotation.begin_rest(GangId(1)));
    assert_eq!(rotation.next_turn(START + SLICE), None, "nobody takes turns");
    assert!(rotation.wake(GangId(0)) && rotation.wake(GangId(1)) && !rotation.wake(GangId(1)));
    let first = rotation.next_turn(START + SLICE).expect("a turn");
    assert_eq!((ids(&first), first.until), (vec![0], START + SLICE * 4));
}

#[test]
fn a_new_weight_and_a_new_slice_count_from_the_next_turn() {
    let mut rotation = rotation(2, &[1, 1]);
    let first = rotation.next_turn(START).expect("a turn");
    rotation.set_weight(GangId(1), GangWeight::new(4).expect("a weight"));
    let second = rotation.next_turn(first.until).expect("a turn");
    assert_eq!((ids(&second), second.until), (vec![1], START + SLICE * 5));
    rotation.set_slice(SLICE / 4);
    let third = rotation.next_turn(second.until).expect("a turn");
    assert_eq!(third.until - third.from, SLICE / 4);
}

#[test]
fn sixteen_gangs_of_one_user_get_as_much_as_one_of_another() {
    let mut rotation = rotation(2, &[1; 17]);
    rotation.belongs_to(GangId(0), GangOwner(7));
    (1..17).for_each(|gang| rotation.belongs_to(GangId(gang), GangOwner(8)));
    let (mut now, mut turns) = (START, Vec::new());
    for _ in 0..64 {
        let turn = rotation.next_turn(now).expect("a turn");
        turns.push(ids(&turn)[0]);
        now = turn.until;
    }
    assert_eq!(turns.iter().filter(|gang| **gang == 0).count(), 32, "{turns:?}");
    assert!((1..17).all(|gang| turns.iter().filter(|turn| **turn == gang).count() == 2), "{turns:?}");
}

#[test]
fn a_user_who_comes_back_has_saved_nothing_up() {
    let mut rotation = rotation(2, &[1, 1]);
    rotation.belongs_to(GangId(1), GangOwner(8));
    rotation.begin_rest(GangId(1));
    let mut now = START;
    for _ in 0..50 {
        now = rotation.next_turn(now).expect("a turn").until;
    }
    rotation.wake(GangId(1));
    let mut next = || {
        let turn = rotation.next_turn(now).expect("a turn");
        now = turn.until;
        ids(&turn)[0]
    };
    let turns: Vec<usize> = (0..6).map(|_| next()).collect();
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "by turns from now on: {turns:?}");
}

#[test]
fn turns_that_are_lengthened_last_so_many_times_as_long() {
    let mut rotation = with_a_quota(&[1, 2]);
    rotation.lengthen(3);
    let turn = rotation.next_turn(START).expect("a turn");
    assert_eq!(
        (ids(&turn), (turn.until - START).as_millis()),
        (vec![0], 47),
        "a quota is not exceeded for it"
    );
    assert_eq!(rotation.next_turn(turn.until).expect("a turn").until - turn.until, SLICE * 6);
}

/// Makes a rotation on two cores with gangs of these weights. Gang 0 has a quota: the time of one core.
fn with_a_quota(weights: &[u32]) -> Rotation {
    let mut rotation = rotation(2, weights);
    let period = Duration::from_millis(100);
    rotation.set_quota(GangId(0), Some(TurnQuota { time: period, period }));
    rotation
}

#[test]
fn a_lone_gang_is_stopped_as_a_whole_before_its_quota_is_used_up() {
    let mut rotation = with_a_quota(&[1]);
    assert!(rotation.is_contended(), "its turns end");
    let (mut now, mut ran) = (START, Duration::ZERO);
    while now < Instant::from_secs(1) {
        let turn = rotation.next_turn(now).expect("a turn");
        ran += (turn.until - turn.from) * turn.run.len() as u64;
        now = turn.until;
    }
    assert!((Duration::from_millis(460)..=Duration::from_millis(495)).contains(&ran), "{ran} of 500ms");
}

#[test]
fn others_have_the_time_that_a_quota_leaves_and_a_turn_taken_back_costs_none_of_it() {
    let mut rotation = with_a_quota(&[3, 1]);
    let first = rotation.next_turn(START).expect("a turn");
    assert_eq!((ids(&first), (first.until - START).as_millis()), (vec![0], 47), "instead of three slices");
    rotation.undo_turn();
    assert_eq!(rotation.next_turn(START).expect("a turn"), first);
    let mut now = first.until;
    for _ in 0..2 {
        let turn = rotation.next_turn(now).expect("a turn");
        assert_eq!(ids(&turn), [1]);
        now = turn.until;
    }
    let third = rotation.next_turn(now).expect("a turn");
    assert_eq!(ids(&third), [1], "the quota allows the first at 100 ms, and it is 87");
    assert_eq!(ids(&rotation.next_turn(third.until).expect("a turn")), [0]);
}

fn slices_in(length: Duration) -> u64 {
    length.as_nanos() / SLICE.as_nanos()
}

/// The slow reference: assigns single slices, always to the gang with the least time for its weight.
fn reference(weights: &[u32], slices: u64) -> Vec<u64> {
    let mut given = vec![0u64; weights.len()];
    for _ in 0..slices {
        let ratio = |i: usize| given[i] as f64 / f64::from(weights[i]);
        let next = (0..weights.len()).min_by(|a, b| ratio(*a).total_cmp(&ratio(*b))).expect("not empty");
        given[next] += 1;
    }
    given
}

proptest! {
    #[test]
    fn time_is_served_as_the_weights_say_within_a_slice(
        weights in proptest::collection::vec(1u32..7, 1..9), rounds in 1u64..9
    ) {
        let mut rotation = rotation(4, &weights);
        let slices: u64 = weights.iter().map(|w| u64::from(*w)).sum::<u64>() * rounds;
        let mut served = vec![Duration::ZERO; weights.len()];
        let mut now = START;
        while now < START + SLICE * slices {
            let turn = rotation.next_turn(now).expect("a turn");
            served[turn.run[0].gang.0] += turn.until - turn.from;
            now = turn.until;
        }
        for (served, expected) in served.iter().zip(reference(&weights, slices)) {
            prop_assert!(served.abs_diff(SLICE * expected) <= SLICE);
        }
    }

    /// The slow reference: hands out single slices, to the user with the least time for the user's weight,
    /// and of that user's gangs to the one with the least time for its own.
    #[test]
    fn users_share_first_and_then_the_gangs_of_each(
        users in proptest::collection::vec(proptest::collection::vec(1u32..4, 1..7), 1..5), rounds in 1u64..40
    ) {
        let mut rotation = Rotation::new(4, SLICE, Backfill::Never);
        let gangs = users.iter().enumerate().flat_map(|(user, gangs)| gangs.iter().map(move |w| (user, *w)));
        let gangs: Vec<(usize, u32)> = gangs.collect();
        for (gang, (user, weight)) in gangs.iter().enumerate() {
            rotation.join(GangId(gang), GangWeight::new(*weight).expect("a weight"));
            rotation.belongs_to(GangId(gang), GangOwner(*user as u32));
        }
        let weights: Vec<u32> = users.iter().map(|gangs| *gangs.iter().max().expect("not empty")).collect();
        let slices = rounds * u64::from(weights.iter().sum::<u32>());
        let (mut now, mut had) = (START, vec![Duration::ZERO; gangs.len()]);
        while now < START + SLICE * slices {
            let turn = rotation.next_turn(now).expect("a turn");
            // a turn decided ahead and taken back changes nothing
            let ahead = rotation.next_turn(turn.until);
            rotation.undo_turn();
            prop_assert!(ahead.is_some_and(|ahead| ahead.from == turn.until));
            had[turn.run[0].gang.0] += turn.until - turn.from;
            now = turn.until;
        }
        let expected = reference(&weights, slices);
        for (user, expected) in expected.iter().enumerate() {
            let own = (0..gangs.len()).filter(|gang| gangs[*gang].0 == user);
            let served: Duration = own.clone().map(|gang| had[gang]).sum();
            let turn = SLICE * u64::from(weights[user]);
            let off = served.abs_diff(SLICE * *expected);
            prop_assert!(off <= turn * 2, "user {} had {} of {} slices", user, slices_in(served), expected);
            // within a user each gang has had as many turns as the others, but for the present round
            let turns = own.map(|gang| slices_in(had[gang]) / u64::from(gangs[gang].1));
            let (min_turns, max_turns) = turns.fold((u64::MAX, 0), |(min_turns, max_turns), n| (min_turns.min(n), max_turns.max(n)));
            prop_assert!(max_turns - min_turns <= 1, "{} and {} turns", min_turns, max_turns);
        }
    }

    #[test]
    fn every_gang_runs_in_each_round_whatever_comes_and_goes(
        cores in 1usize..9,
        steps in proptest::collection::vec((0u8..8, 0usize..12, 0usize..10), 1..60)
    ) {
        let mut rotation = Rotation::new(cores, SLICE, Backfill::Offer);
        let mut waited: BTreeMap<GangId, usize> = BTreeMap::new();
        let mut rests = BTreeSet::new();
        let (mut now, mut next) = (START, 0);
        for (kind, which, width) in steps {
            let chosen = waited.keys().nth(which % waited.len().max(1)).copied();
            match (kind, chosen) {
                (0, _) => {
                    rotation.join(GangId(next), GangWeight::ONE);
                    waited.insert(GangId(next), 0);
                    next += 1;
                }
                (1, Some(gang)) => {
                    rotation.remove(gang);
                    waited.remove(&gang);
                    rests.remove(&gang);
                }
                (2, Some(gang)) => { rotation.set_width(gang, width); }
                (3, Some(gang)) => prop_assert_eq!(rotation.begin_rest(gang), rests.insert(gang)),
                (4, Some(gang)) => {
                    prop_assert_eq!(rotation.wake(gang), rests.remove(&gang));
                    waited.insert(gang, 0);
                }
                (5, Some(gang)) => {
                    rotation.set_weight(gang, GangWeight::new(width as u32 + 1).expect("a weight"));
                    rotation.set_slice(SLICE * (width as u64 + 1));
                }
                _ => {
                    let takers = waited.keys().filter(|gang| !rests.contains(gang)).count();
                    let Some(turn) = rotation.next_turn(now) else {
                        prop_assert_eq!(takers, 0);
                        continue;
                    };
                    prop_assert!(rotation.is_contended() || turn.run.len() == takers);
                    prop_assert!(turn.until > now);
                    now = turn.until;
                    let mut taken = vec![false; cores];
                    for core in turn.run.iter().flat_map(|place| place.cores.clone()) {
                        prop_assert!(!std::mem::replace(&mut taken[core], true));
                    }
                    for (gang, turns) in &mut waited {
                        if rests.contains(gang) {
                            prop_assert!(turn.run.iter().all(|place| place.gang != *gang));
                            prop_assert!(rotation.is_resting(*gang) && !turn.backfill.contains(gang));
                            continue;
                        }
                        let runs = turn.run.iter().any(|place| place.gang == *gang);
                        prop_assert!(!(runs && turn.backfill.contains(gang)));
                        *turns = if runs { 0 } else { *turns + 1 };
                    }
                    // no gang waits for more turns than gangs have ever joined
                    prop_assert!(waited.values().all(|turns| *turns <= next));
                }
            }
        }
    }
}
