//! The contract of every barrier, with any algorithm and in any form.

use crate::Subject;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use unisono_barrier::{Cause, Error, Participant};

/// Group sizes: one member, a pair, an odd number, a power of two, and one for which every tree has at least
/// two levels.
const SIZES: [usize; 5] = [1, 2, 3, 4, 7];

pub(crate) fn nobody_goes_on_before_everybody_has_come_and_one_leads(subject: Subject) {
    for size in SIZES {
        let episodes = subject.episodes(size);
        let came: Vec<AtomicU32> = (0..size).map(|_| AtomicU32::new(0)).collect();
        let leaders = AtomicU32::new(0);
        run(subject.participants(size), |mut me| {
            for episode in 1..=episodes {
                came[me.id()].store(episode, Ordering::Relaxed);
                let completed = me.wait().expect("nobody goes away");
                assert_eq!(completed.number(), episode);
                leaders.fetch_add(u32::from(completed.is_leader()), Ordering::Relaxed);
                for (id, other) in came.iter().enumerate() {
                    let other = other.load(Ordering::Relaxed);
                    assert!(
                        other == episode || other == episode + 1,
                        "{id} of {size} is at {other} when {} completes {episode}",
                        me.id()
                    );
                }
            }
        });
        assert_eq!(leaders.load(Ordering::Relaxed), episodes, "one leader an episode among {size}");
    }
}

pub(crate) fn writes_before_the_barrier_are_seen_after_it(subject: Subject) {
    // Each member adds up the values of all members, and all values are multiplied by five in each episode:
    // any stale read makes the sum wrong.
    let (size, episodes) = (3, subject.episodes(3).min(60));
    let values: Vec<AtomicU32> = (0..size).map(|_| AtomicU32::new(1)).collect();
    run(subject.participants(size), |mut me| {
        let mut expected = 1_u32;
        for _ in 0..episodes {
            let sum =
                values.iter().fold(0, |sum: u32, value| sum.wrapping_add(value.load(Ordering::Relaxed)));
            assert_eq!(sum, expected.wrapping_mul(3));
            me.wait().expect("nobody goes away");
            expected = expected.wrapping_mul(5);
            values[me.id()].store(expected, Ordering::Relaxed);
            me.wait().expect("nobody goes away");
        }
    });
}

pub(crate) fn work_between_arriving_and_waiting_holds_nobody_up(subject: Subject) {
    let others_done = AtomicUsize::new(0);
    run(subject.participants(2), |mut me| {
        for _ in 0..50 {
            let arrival = me.arrive().expect("nobody goes away");
            arrival.wait().expect("nobody goes away");
        }
        if me.id() == 0 {
            // In most algorithms the other member's episode completes as soon as this member has arrived; the
            // root of a tree must check its children once more.
            let arrival = me.arrive().expect("nobody goes away");
            drop(arrival);
            let _ = me.wait().expect("an abandoned arrival is completed by the next wait");
        } else {
            me.wait().expect("nobody goes away");
        }
        others_done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(others_done.load(Ordering::Relaxed), 2);
}

pub(crate) fn a_timed_out_wait_can_be_resumed(subject: Subject) {
    let timed_out = AtomicUsize::new(0);
    run(subject.participants(2), |mut me| {
        if me.id() == 0 {
            for _ in 0..2 {
                match me.wait_timeout(Duration::from_millis(3)) {
                    Err(Error::TimedOut { episode: 1 }) => timed_out.fetch_add(1, Ordering::SeqCst),
                    other => panic!("nobody else has come, yet {other:?}"),
                };
            }
        } else {
            while timed_out.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
        }
        for episode in 1..=3 {
            assert_eq!(me.wait().expect("nobody goes away").number(), episode);
        }
    });
}

pub(crate) fn a_panic_is_reported_to_everybody_by_name(subject: Subject) {
    let told = AtomicUsize::new(0);
    run(subject.participants(3), |mut me| {
        for _ in 0..3 {
            me.wait().expect("nobody is gone yet");
        }
        if me.id() == 1 {
            let quiet = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _dropped_by_the_panic = me;
                std::panic::resume_unwind(Box::new("on purpose"));
            }));
            assert!(quiet.is_err());
            return;
        }
        for _ in 0..2 {
            match me.wait() {
                Err(Error::Gone(gone)) => {
                    assert_eq!((gone.participant, gone.cause), (1, Cause::Panicked));
                    assert_eq!(gone.process, std::process::id());
                    assert!(gone.to_string().contains("participant 1"), "{gone}");
                }
                other => panic!("participant 1 panicked, yet {other:?}"),
            }
        }
        told.fetch_add(1, Ordering::Relaxed);
        // Otherwise dropping this participant would be reported to the other instead.
        while told.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
    });
    assert_eq!(told.load(Ordering::Relaxed), 2);
}

pub(crate) fn who_goes_away_without_leave_is_named_but_its_last_episode_stands(subject: Subject) {
    run(subject.participants(3), |mut me| {
        for _ in 0..5 {
            me.wait().expect("who went away after this episode had completed it");
        }
        if me.id() != 2 {
            assert!(matches!(me.wait(), Err(Error::Gone(gone)) if gone.cause == Cause::Left));
        }
    });
}

pub(crate) fn members_leave_between_episodes(subject: Subject) {
    let size = 4;
    run(subject.participants(size), |mut me| {
        for round in 0..size {
            for _ in 0..5 {
                me.wait().expect("everybody leaves properly");
                assert_eq!(me.members(), size - round);
            }
            // A member in the middle leaves first, then the first member, then the others.
            if me.id() == [2, 0, 3, 1][round] {
                me.leave().expect("everybody leaves properly");
                return;
            }
            me.wait().expect("the episode of the one who leaves");
            assert_eq!(me.members(), size - round - 1);
        }
    });
}

pub(crate) fn all_may_leave_after_the_same_episode(subject: Subject) {
    for _ in 0..10 {
        run(subject.participants(3), |me| {
            let last = me.leave().expect("everybody leaves properly");
            assert_eq!(last.number(), 1);
        });
    }
}

pub(crate) fn members_join_between_episodes(subject: Subject) {
    let group = subject.group(1, 4);
    let first = subject.reopened(&group).participant(0).expect("the place is free");
    thread::scope(|threads| {
        for wanted in [2, 3, 4] {
            let group = subject.reopened(&group);
            threads.spawn(move || {
                let mut me = group.join().expect("there is room");
                assert!(me.members() >= 2 && me.id() < 4, "{wanted}");
                finish_together(&mut me, 4);
            });
        }
        let mut me = first;
        finish_together(&mut me, 4);
    });
    assert!(matches!(group.join(), Err(Error::TooMany { wanted: 5, max: 4 })));
}

/// Passes episodes until the group has grown to `members`, and then ten more.
fn finish_together(me: &mut Participant, members: usize) {
    while me.members() < members {
        me.wait().expect("nobody goes away");
    }
    for _ in 0..10 {
        me.wait().expect("nobody goes away");
    }
}

pub(crate) fn members_come_and_go_at_once(subject: Subject) {
    let guests = 6;
    let group = subject.group(2, 2 + guests);
    let residents: Vec<_> =
        (0..2).map(|id| subject.reopened(&group).participant(id).expect("the place is free")).collect();
    let gone = AtomicUsize::new(0);
    thread::scope(|threads| {
        for _ in 0..guests {
            let (group, gone) = (subject.reopened(&group), &gone);
            threads.spawn(move || {
                let mut me = group.join().expect("there is room");
                for _ in 0..3 {
                    me.wait().expect("everybody leaves properly");
                }
                me.leave().expect("everybody leaves properly");
                gone.fetch_add(1, Ordering::SeqCst);
            });
        }
        for mut me in residents {
            let gone = &gone;
            threads.spawn(move || {
                loop {
                    // Member 0 leaves once all guests have left, and member 1 once it is alone. So each
                    // decides by itself when to stop.
                    let done = gone.load(Ordering::SeqCst) == guests;
                    if done && me.id() == 0 {
                        me.leave().expect("everybody leaves properly");
                        return;
                    }
                    me.wait().expect("everybody leaves properly");
                    if me.id() == 1 && me.members() == 1 {
                        me.leave().expect("the last may leave alone");
                        return;
                    }
                }
            });
        }
    });
    assert!(matches!(group.participant(0), Err(Error::Taken { id: 0, .. })));
}

/// Runs each participant in a thread of its own, and passes on panics.
fn run(participants: Vec<Participant>, body: impl Fn(Participant) + Sync) {
    thread::scope(|threads| {
        for me in participants {
            threads.spawn(|| body(me));
        }
    });
}
