//! Every algorithm's protocol and the sleep/wake handshake, under every interleaving within the bound.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p unisono-barrier --test loom
//! ```
//! Two or three participants, two episodes: the second is the first in which a word of an earlier episode
//! could be mistaken for a current one. Interleavings are bounded to two preemptions (`LOOM_MAX_PREEMPTIONS`
//! overrides): the known bugs of barriers need no more, and the whole run takes minutes. Membarrier is
//! modeled by a full fence on both sides; time does not exist: a lost wake-up is a deadlock, and loom reports
//! it. Each model was seen to fail when the rule that it checks was broken on purpose (the fences of `Flag`,
//! the check before a sleep, the order in which a member's words are read, the wake-up of a joiner).

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use unisono_barrier::{Algorithm, Barrier, Cause, Error, Group, GroupSpec, Participant, Wait};
use unisono_sync::RegimeAdvice;

/// Plain memory that the barrier has to order: loom reports any race on it.
struct Plain(Vec<UnsafeCell<u32>>);

// SAFETY: accesses are ordered by the barrier under test; loom checks exactly that.
unsafe impl Sync for Plain {}
// SAFETY: accesses are ordered by the barrier under test; loom checks exactly that.
unsafe impl Send for Plain {}

fn model(check: impl Fn() + Sync + Send + 'static) {
    model_within(2, check);
}

fn model_within(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(check);
}

/// Each participant writes its own cell, waits, reads all cells and waits again, `count` times.
fn episodes(mut me: Participant, plain: &Plain, count: u32) {
    for episode in 1..=count {
        // SAFETY: only this participant writes its cell, and no participant reads it before the barrier.
        plain.0[me.id()].with_mut(|cell| unsafe { *cell = episode });
        me.wait().expect("nobody goes away");
        for cell in &plain.0 {
            // SAFETY: written before the barrier just passed, and not again before the next.
            cell.with(|cell| assert_eq!(unsafe { *cell }, episode));
        }
        me.wait().expect("nobody goes away");
    }
    me.leave().expect("everybody leaves properly");
}

fn group(algorithm: Algorithm, wait: Wait, participants: usize, capacity: usize) -> Group {
    let spec = GroupSpec::new(participants).and_then(|spec| spec.capacity(capacity)).expect("a small group");
    spec.algorithm(algorithm).wait(wait).for_threads().expect("memory")
}

fn pair(algorithm: Algorithm, wait: Wait) -> (Participant, Participant) {
    let mut all = group(algorithm, wait, 2, 2).participants().expect("a fresh group");
    let second = all.remove(1);
    (all.remove(0), second)
}

fn completes(algorithm: Algorithm, wait: Wait, participants: usize, count: u32) {
    model(move || {
        let all = group(algorithm, wait, participants, participants).participants().expect("a fresh group");
        let plain = Arc::new(Plain((0..participants).map(|_| UnsafeCell::new(0)).collect()));
        let mut all = all.into_iter();
        let first = all.next().expect("at least one");
        let running: Vec<_> = all
            .map(|me| {
                let plain = Arc::clone(&plain);
                thread::spawn(move || rounds(me, &plain, count))
            })
            .collect();
        rounds(first, &plain, count);
        for thread in running {
            thread.join().expect("no participant panics");
        }
    });
}

/// Does the same as [`episodes`] with one barrier per round, and ends without leaving, so without a boundary.
fn rounds(mut me: Participant, plain: &Plain, count: u32) {
    for episode in 1..=count {
        if episode % 2 == 1 {
            // SAFETY: odd episodes: only this participant writes its cell, none reads it before the barrier.
            plain.0[me.id()].with_mut(|cell| unsafe { *cell = episode });
        }
        me.wait().expect("nobody goes away");
        if episode % 2 == 1 {
            for cell in &plain.0 {
                // SAFETY: written before the barrier just passed, and not again before the next.
                cell.with(|cell| assert_eq!(unsafe { *cell }, episode));
            }
        }
    }
    me.forget();
}

macro_rules! models {
    ($($name:ident = $algorithm:ident),*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn two_spinning_pass_two_episodes() {
                completes(Algorithm::$algorithm, Wait::Spin, 2, 2);
            }

            #[test]
            fn two_sleeping_pass_two_episodes_and_no_wake_up_is_lost() {
                completes(Algorithm::$algorithm, Wait::Block, 2, 2);
            }

            #[test]
            fn two_that_poll_and_then_sleep_pass_two_episodes_and_no_wake_up_is_lost() {
                completes(Algorithm::$algorithm, Wait::SpinBlock, 2, 2);
            }

            #[test]
            fn how_members_wait_may_change_at_any_moment() {
                advised(Algorithm::$algorithm);
            }

            #[test]
            fn a_member_that_goes_without_leave_is_named_to_who_sleeps() {
                poisoned(Algorithm::$algorithm, Wait::Block);
                poisoned(Algorithm::$algorithm, Wait::SpinBlock);
            }

            #[test]
            fn three_sleeping_pass_an_episode_and_no_wake_up_is_lost() {
                completes(Algorithm::$algorithm, Wait::Block, 3, 1);
            }
        } )*
    };
}

models!(
    central = Central,
    competitive = Competitive,
    per_core = PerCore,
    combining_tree = CombiningTree,
    static_tree = StaticTree,
    dissemination = Dissemination,
    tournament = Tournament,
    mcs_tree = McsTree
);

/// In the first episode the participants find out that they share a core. The next two may overlap: one
/// participant may wait in the later while the other is still leaving the earlier.
#[test]
fn two_sleeping_on_one_core_pass_three_episodes_and_no_wake_up_is_lost() {
    completes(Algorithm::PerCore, Wait::Block, 2, 3);
}

/// The first member, in place of the learner, makes all members sleep while the second may be anywhere in its
/// episode, and later lets them yield to one another; the protocol does not rely on hints, so it must work
/// with every mixture of them.
fn advised(algorithm: Algorithm) {
    model(move || {
        let (mut first, mut second) = pair(algorithm, Wait::Adaptive);
        let thread = thread::spawn(move || {
            second.wait().expect("nobody goes away");
            second.wait().expect("nobody goes away");
            second.forget();
        });
        first.advise(RegimeAdvice::Sleep);
        first.wait().expect("nobody goes away");
        first.advise(RegimeAdvice::Yield);
        first.wait().expect("nobody goes away");
        thread.join().expect("no participant panics");
        first.forget();
    });
}

/// One member is dropped while the other polls, is about to sleep, or sleeps.
fn poisoned(algorithm: Algorithm, wait: Wait) {
    model(move || {
        let (mut first, second) = pair(algorithm, wait);
        let thread = thread::spawn(move || drop(second));
        match first.wait() {
            Err(Error::Gone(gone)) => assert_eq!((gone.participant, gone.cause), (1, Cause::Left)),
            other => panic!("the other never arrived, yet {other:?}"),
        }
        first.forget();
        thread.join().expect("no participant panics");
    });
}

/// The second member may see the first member's announcement for the next episode while the second still
/// completes this one.
#[test]
fn who_announces_its_leave_is_a_member_until_the_episode_it_named() {
    model(|| {
        let (mut first, mut second) = pair(Algorithm::Central, Wait::Block);
        let thread = thread::spawn(move || {
            first.wait().expect("nobody goes away");
            first.leave().expect("a proper leave");
        });
        second.wait().expect("nobody goes away");
        assert_eq!(second.members(), 2);
        second.wait().expect("the episode of the one who leaves");
        assert_eq!(second.members(), 1);
        second.forget();
        thread.join().expect("no participant panics");
    });
}

#[test]
fn one_joins_between_two_episodes_and_both_go_on() {
    model(|| {
        let group = group(Algorithm::Central, Wait::Block, 1, 2);
        let mut first = group.participant(0).expect("a fresh group");
        let plain = Arc::new(Plain(vec![UnsafeCell::new(0), UnsafeCell::new(0)]));
        let also = Arc::clone(&plain);
        let thread = thread::spawn(move || {
            let joined = group.join().expect("there is room");
            assert_eq!((joined.id(), joined.members()), (1, 2));
            rounds(joined, &also, 1);
        });
        while first.members() == 1 {
            first.wait().expect("nobody goes away");
            thread::yield_now();
        }
        rounds(first, &plain, 1);
        thread.join().expect("no participant panics");
    });
}

/// A joiner is admitted by the last member before it leaves, or gets the error that all have left; it never
/// sleeps for ever.
#[test]
fn who_asks_to_join_while_everybody_leaves_is_answered() {
    model(|| {
        let group = group(Algorithm::Central, Wait::Block, 1, 2);
        let first = group.participant(0).expect("a fresh group");
        let thread = thread::spawn(move || match group.join() {
            Ok(joined) => assert_eq!(joined.members(), 1),
            Err(error) => assert!(matches!(error, Error::Disbanded), "{error}"),
        });
        first.leave().expect("everybody leaves properly");
        thread.join().expect("no participant panics");
    });
}

#[test]
fn two_leave_one_after_the_other() {
    model(|| {
        let (first, second) = pair(Algorithm::Central, Wait::Block);
        let plain = Arc::new(Plain(vec![UnsafeCell::new(0)]));
        let thread = thread::spawn(move || second.leave().expect("a proper leave"));
        let mut first = first;
        first.wait().expect("the episode of the one who leaves");
        assert_eq!(first.members(), 1);
        episodes(first, &plain, 1);
        thread.join().expect("no participant panics");
    });
}

#[test]
fn two_leave_after_the_same_episode() {
    model(|| {
        let (first, second) = pair(Algorithm::Central, Wait::Block);
        let thread = thread::spawn(move || second.leave().expect("a proper leave"));
        first.leave().expect("a proper leave");
        thread.join().expect("no participant panics");
    });
}

/// Threads of a [`Barrier`]: each writes its own cell, waits, reads all cells, and waits again.
fn shared(threads: usize, count: u32) {
    model(move || {
        let barrier = Arc::new(Barrier::new(threads));
        let plain = Arc::new(Plain((0..threads).map(|_| UnsafeCell::new(0)).collect()));
        let rounds = move |me: usize, barrier: Arc<Barrier>, plain: Arc<Plain>| {
            for episode in 1..=count {
                // SAFETY: only this thread writes its cell, and no thread reads it before the barrier.
                plain.0[me].with_mut(|cell| unsafe { *cell = episode });
                barrier.wait();
                for cell in &plain.0 {
                    // SAFETY: written before the barrier just passed, and not again before the next.
                    cell.with(|cell| assert_eq!(unsafe { *cell }, episode));
                }
                barrier.wait();
            }
        };
        let running: Vec<_> = (1..threads)
            .map(|me| {
                let (barrier, plain) = (Arc::clone(&barrier), Arc::clone(&plain));
                thread::spawn(move || rounds(me, barrier, plain))
            })
            .collect();
        rounds(0, barrier, plain);
        for thread in running {
            thread.join().expect("no thread panics");
        }
    });
}

#[test]
fn two_threads_of_a_shared_barrier_pass_four_episodes() {
    shared(2, 2);
}

#[test]
fn three_threads_of_a_shared_barrier_pass_two_episodes() {
    shared(3, 1);
}

#[test]
fn signals_of_a_shared_barrier_keep_their_order_when_more_threads_use_it_than_make_an_episode() {
    // four threads; a signal out of order needs one preemption, between the last arrival and its signal
    model_within(1, || {
        let barrier = Arc::new(Barrier::new(2));
        let led = |barrier: Arc<Barrier>| u32::from(barrier.wait().is_leader());
        let running: Vec<_> = (0..3)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                thread::spawn(move || led(barrier))
            })
            .collect();
        let first = led(barrier);
        let others: u32 = running.into_iter().map(|thread| thread.join().expect("no thread panics")).sum();
        assert_eq!(first + others, 2);
    });
}
