//! Every algorithm's protocol and the sleep/wake handshake, under every interleaving that matters.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p unisono-barrier --test loom
//! ```
//! Two or three participants, two episodes: the second is where a word of the first could be mistaken.
//! Interleavings are bounded to two preemptions (`LOOM_MAX_PREEMPTIONS` overrides), which is where the
//! known bugs of barriers live and keeps the whole run to minutes. Membarrier is modelled by a full fence
//! on both sides, time by nothing: a lost wake-up is a deadlock, which loom reports.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use unisono_barrier::{Algorithm, Participant, Spec, Wait};

/// Plain memory that the barrier has to order: loom reports any race on it.
struct Plain(Vec<UnsafeCell<u32>>);

// SAFETY: accesses are ordered by the barrier under test; loom checks exactly that.
unsafe impl Sync for Plain {}
// SAFETY: as above.
unsafe impl Send for Plain {}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 20_000;
    builder.check(check);
}

/// Each writes its own cell, waits, and reads all; then the same again.
fn episodes(mut me: Participant, plain: &Plain, count: u32) {
    for episode in 1..=count {
        // SAFETY: only this participant writes its cell, and nobody reads before the barrier.
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

fn completes(algorithm: Algorithm, wait: Wait, participants: usize, count: u32) {
    model(move || {
        let spec = Spec::new(participants).expect("a small group").algorithm(algorithm).wait(wait);
        let all = spec.for_threads().and_then(|group| group.participants()).expect("a fresh group");
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

/// As [`episodes`], but without the boundary of leaving.
fn rounds(mut me: Participant, plain: &Plain, count: u32) {
    for episode in 1..=count {
        if episode % 2 == 1 {
            // SAFETY: odd episodes: only this participant writes its cell, nobody reads before the barrier.
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

/// The first episode finds out who shares a core; the next two then overlap: one may wait in the later while
/// another is still leaving the earlier.
#[test]
fn two_sleeping_on_one_core_pass_three_episodes_and_no_wake_up_is_lost() {
    completes(Algorithm::PerCore, Wait::Block, 2, 3);
}

#[test]
fn two_leave_one_after_the_other() {
    model(|| {
        let spec = Spec::new(2).expect("a pair").algorithm(Algorithm::Central).wait(Wait::Block);
        let mut all = spec.for_threads().and_then(|group| group.participants()).expect("a fresh group");
        let (second, first) = (all.remove(1), all.remove(0));
        let plain = Arc::new(Plain(vec![UnsafeCell::new(0)]));
        let thread = thread::spawn(move || second.leave().expect("a proper leave"));
        let mut first = first;
        first.wait().expect("the episode of the one who leaves");
        assert_eq!(first.members(), 1);
        episodes(first, &plain, 1);
        thread.join().expect("no participant panics");
    });
}
