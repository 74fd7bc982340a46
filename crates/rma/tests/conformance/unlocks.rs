//! Exclusive unlocks over messages return before their target has applied the operations: no rank may notice
//! that.
//!
//! Rank 0 holds rank 1's lock exclusively, puts twice and unlocks. (Puts that travel with their lock request
//! are acknowledged in any case.) Rank 2 learns of the unlock by rank 0's next call, and puts to the same
//! places without a lock. Rank 2's values have to stay.

use crate::{watch, wires};
use std::sync::mpsc;
use std::thread;
use unisono_linux::clock::Duration;
use unisono_rma::wire::tests::fault::FaultPlan;
use unisono_rma::{Assert, Error, Job, Lock, Rank, Spec, Style, Window};

/// Puts a value to each of rank 1's first two places.
fn put(window: &mut Window, value: u64) -> Result<(), Error> {
    window.put(&[value], Rank(1), 0)?;
    window.put(&[value], Rank(1), 1)
}

/// How rank 2 learns that rank 0 has unlocked.
#[derive(Clone, Copy)]
enum Word {
    Barrier,
    Post,
    Complete,
    /// By a flag at rank 2, which rank 0 puts while it holds another lock.
    Flag,
    /// By a flag in rank 0's own part.
    OwnFlag,
    /// By a channel outside the engine.
    Channel,
}

/// Runs one member of three; returns rank 1's final values.
fn member(
    word: Word,
    mut job: Job,
    say: &mpsc::Sender<()>,
    hear: Option<mpsc::Receiver<()>>,
) -> Result<Vec<u64>, Error> {
    let me = job.rank();
    let mut window = job.allocate(24, Spec::new().unit(8).style(Style::Deferred))?;
    job.barrier()?;
    match me.0 {
        0 => {
            window.lock(Rank(1), Lock::Exclusive, Assert::NONE)?;
            window.hold(Rank(1))?;
            put(&mut window, 10)?;
            window.unlock(Rank(1))?;
            match word {
                Word::Barrier => {}
                Word::Post => {
                    window.post(&[Rank(2)], Assert::NONE)?;
                    window.wait()?;
                }
                Word::Complete => {
                    window.start(&[Rank(2)], Assert::NONE)?;
                    window.complete()?;
                }
                Word::Flag | Word::OwnFlag => {
                    let at = if matches!(word, Word::Flag) { Rank(2) } else { me };
                    window.lock(at, Lock::Shared, Assert::NONE)?;
                    window.put(&[1_u64], at, 2)?;
                    window.unlock(at)?;
                }
                Word::Channel => {
                    window.settle()?;
                    say.send(()).expect("rank 2 listens");
                }
            }
        }
        2 => match word {
            Word::Barrier => {}
            Word::Post => {
                window.start(&[Rank(0)], Assert::NONE)?;
                window.complete()?;
            }
            Word::Complete => {
                window.post(&[Rank(0)], Assert::NONE)?;
                window.wait()?;
            }
            Word::Flag | Word::OwnFlag => {
                let at = if matches!(word, Word::Flag) { me } else { Rank(0) };
                let mut flag = 0;
                while flag == 0 {
                    window.lock(at, Lock::Shared, Assert::NONE)?;
                    let pending = window.get::<u64>(1, at, 2)?;
                    window.unlock(at)?;
                    flag = window.take(pending)?[0];
                }
            }
            Word::Channel => hear.expect("rank 2 has it").recv().expect("rank 0 says"),
        },
        _ => {}
    }
    if matches!(word, Word::Barrier) {
        job.barrier()?;
    }
    // Rank 2 needs no lock and no message of rank 1.
    match me.0 {
        1 => {
            window.post(&[Rank(2)], Assert::NO_CHECK)?;
            window.wait()?;
        }
        2 => {
            window.start(&[Rank(1)], Assert::NO_CHECK)?;
            put(&mut window, 20)?;
            window.complete()?;
        }
        _ => {}
    }
    job.barrier()?;
    window.lock(me, Lock::Shared, Assert::NONE)?;
    let mut found = vec![0; 2];
    window.load(0, &mut found)?;
    window.unlock(me)?;
    window.free()?;
    job.finalize()?;
    Ok(found)
}

fn nobody_overtakes(word: Word, jobs: impl Fn(FaultPlan) -> Vec<Job>) {
    watch();
    for seed in 0..40 {
        let plan = FaultPlan::new(seed).delay(Duration::from_millis(2));
        let (say, hear) = mpsc::channel();
        let mut hear = Some(hear);
        let found: Vec<Vec<u64>> = thread::scope(|threads| {
            let running: Vec<_> = jobs(plan)
                .into_iter()
                .map(|job| {
                    let (say, hear) = (say.clone(), if job.rank() == Rank(2) { hear.take() } else { None });
                    threads.spawn(move || member(word, job, &say, hear).expect("no misuse here"))
                })
                .collect();
            running.into_iter().map(|thread| thread.join().expect("members do not panic")).collect()
        });
        assert_eq!(found[1], [20, 20], "{plan}");
    }
}

macro_rules! words {
    ($($name:ident: $word:ident,)*) => {$(
        #[test]
        fn $name() {
            nobody_overtakes(Word::$word, |plan| wires::faulty_loopback(3, plan));
        }
    )*};
}

words! {
    who_passes_a_barrier_after_an_exclusive_unlock_does_not_overtake_it: Barrier,
    who_is_posted_to_after_an_exclusive_unlock_does_not_overtake_it: Post,
    whom_the_origin_completes_at_after_an_exclusive_unlock_does_not_overtake_it: Complete,
    who_sees_a_flag_put_after_an_exclusive_unlock_does_not_overtake_it: Flag,
    who_sees_a_flag_at_the_origin_after_an_exclusive_unlock_does_not_overtake_it: OwnFlag,
    who_is_told_outside_the_job_of_a_settled_unlock_does_not_overtake_it: Channel,
}

#[test]
fn who_passes_a_barrier_after_an_exclusive_unlock_does_not_overtake_it_over_tcp() {
    nobody_overtakes(Word::Barrier, |plan| wires::faulty_tcp(3, plan));
}
