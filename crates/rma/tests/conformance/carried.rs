//! Operations that travel with their lock request wait at the target for the lock, and no acknowledgement
//! comes before they are done.

use crate::paths::together;
use crate::{shared, watch, wires};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use unisono_linux::clock::Duration;
use unisono_rma::wire::tests::fault::FaultPlan;
use unisono_rma::{Assert, Completion, Error, Job, Lock, Operation, Rank, Spec, Style};

const ROUNDS: u64 = 50;

fn spec() -> Spec {
    Spec::new().unit(8).style(Style::Deferred)
}

/// Every transport of packets, with and without delays.
fn on_all_wires(size: usize, member: impl Fn(Job) -> Result<(), Error> + Sync) {
    watch();
    together(Job::threads(size), &member, "threads");
    together(shared(size), &member, "shared memory");
    together(wires::tcp(size), &member, "TCP");
    for seed in 0..10 {
        let plan = FaultPlan::new(seed).delay(Duration::from_millis(1));
        together(wires::faulty_loopback(size, plan), &member, "delayed threads");
    }
}

/// Adds one to each of two places of rank 0, in each round. Even ranks compute what they put while they hold
/// the lock; the accumulates of odd ranks travel with the lock request.
fn add(mut job: Job) -> Result<(), Error> {
    let (me, size) = (job.rank().0, job.size() as u64);
    let mut window = job.allocate(16, spec())?;
    let mut seen = [0_u64; 2];
    job.barrier()?;
    for round in 0..ROUNDS {
        if me.is_multiple_of(2) {
            window.lock(Rank(0), Lock::Exclusive, Assert::NONE)?;
            window.get_now(&mut seen, Rank(0), 0)?;
            window.put(&[seen[0] + 1, seen[1] + 1], Rank(0), 0)?;
        } else {
            let lock = if round.is_multiple_of(2) { Lock::Shared } else { Lock::Exclusive };
            window.lock(Rank(0), lock, Assert::NONE)?;
            window.accumulate(&[1_u64], Rank(0), 0, Operation::Sum)?;
            window.accumulate(&[1_u64], Rank(0), 1, Operation::Sum)?;
        }
        window.unlock(Rank(0))?;
    }
    job.barrier()?;
    window.lock(Rank(0), Lock::Shared, Assert::NONE)?;
    window.get_now(&mut seen, Rank(0), 0)?;
    window.unlock(Rank(0))?;
    assert_eq!(seen, [size * ROUNDS; 2]);
    window.free()?;
    job.finalize()
}

#[test]
fn accumulates_that_travel_with_their_lock_request_exclude_those_who_hold_the_lock() {
    on_all_wires(4, add);
}

/// The number of epochs that rank 2 ends, and the number of those before rank 1 releases the lock.
const EPOCHS: usize = 100;
const BEFORE: usize = 20;

/// The call that completes rank 2's operations at rank 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompletedBy {
    Settle,
    Free,
    Flush,
}

/// Rank 1 holds the lock of rank 0's part, until rank 2 has sent operations that wait for it.
fn wait_behind(
    mut job: Job,
    completed: CompletedBy,
    meet: &Barrier,
    is_released: &AtomicBool,
) -> Result<(), Error> {
    let me = job.rank().0;
    let mut memory = [0_u64];
    // SAFETY: the memory outlives the window, and is read only after it was freed.
    let made = unsafe { job.create(memory.as_mut_ptr().cast(), 8, spec().completion(Completion::Local)) };
    let mut window = made?;
    match me {
        1 => {
            window.lock(Rank(0), Lock::Exclusive, Assert::NONE)?;
            window.hold(Rank(0))?;
            meet.wait();
            meet.wait();
            thread::sleep(std::time::Duration::from_millis(10));
            is_released.store(true, Ordering::Relaxed);
            window.unlock(Rank(0))?;
        }
        2 => {
            meet.wait();
            let epochs = if completed == CompletedBy::Flush { 1 } else { EPOCHS };
            for epoch in 1..=epochs {
                let lock = if epoch.is_multiple_of(2) { Lock::Shared } else { Lock::Exclusive };
                window.lock(Rank(0), lock, Assert::NONE)?;
                window.accumulate(&[1_u64], Rank(0), 0, Operation::Sum)?;
                if completed == CompletedBy::Flush {
                    window.flush_local(Rank(0))?;
                    meet.wait();
                    window.flush(Rank(0))?;
                    assert!(is_released.load(Ordering::Relaxed));
                }
                window.unlock(Rank(0))?;
                if epoch == BEFORE {
                    meet.wait();
                }
            }
            if completed == CompletedBy::Settle {
                window.settle()?;
                assert!(is_released.load(Ordering::Relaxed));
            }
        }
        _ => {}
    }
    window.free()?;
    let expected = if completed == CompletedBy::Flush { 1 } else { EPOCHS as u64 };
    job.finalize()?;
    assert!(me != 0 || memory == [expected], "{memory:?}");
    Ok(())
}

#[track_caller]
fn waits_behind(completed: CompletedBy) {
    let (meet, is_released) = (Barrier::new(2), AtomicBool::new(false));
    on_all_wires(3, |job| {
        // each wire has its own jobs, which run one after the other
        if job.rank() == Rank(0) {
            is_released.store(false, Ordering::Relaxed);
        }
        wait_behind(job, completed, &meet, &is_released)
    });
}

#[test]
fn epochs_that_asked_for_nothing_are_settled_when_the_lock_they_wait_for_was_released() {
    waits_behind(CompletedBy::Settle);
}

#[test]
fn a_window_is_freed_after_the_epochs_that_asked_for_nothing() {
    waits_behind(CompletedBy::Free);
}

#[test]
fn a_flush_after_a_local_flush_waits_for_operations_that_wait_for_their_lock() {
    waits_behind(CompletedBy::Flush);
}

static LONG: [u64; 20_000] = [7; 20_000];

/// Rank 2 puts long data to rank 0, whose lock rank 1 holds until it has put there, too.
fn put_behind(mut job: Job, meet: &Barrier) -> Result<(), Error> {
    let me = job.rank().0;
    let mut window = job.allocate(8 * LONG.len() as u64, spec())?;
    job.barrier()?;
    match me {
        1 => {
            window.lock(Rank(0), Lock::Exclusive, Assert::NONE)?;
            window.hold(Rank(0))?;
            meet.wait();
            thread::sleep(std::time::Duration::from_millis(10));
            window.put(&[1_u64], Rank(0), 0)?;
            window.unlock(Rank(0))?;
        }
        2 => {
            meet.wait();
            window.lock(Rank(0), Lock::Exclusive, Assert::NONE)?;
            window.put_static(&LONG, Rank(0), 0)?;
            window.unlock(Rank(0))?;
        }
        _ => {}
    }
    job.barrier()?;
    let mut seen = vec![0_u64; LONG.len()];
    window.lock(Rank(0), Lock::Shared, Assert::NONE)?;
    window.get_now(&mut seen[..], Rank(0), 0)?;
    window.unlock(Rank(0))?;
    assert!(seen == LONG);
    window.free()?;
    job.finalize()
}

#[test]
fn long_data_that_travels_with_its_lock_request_waits_for_the_lock() {
    let meet = Barrier::new(2);
    on_all_wires(3, |job| put_behind(job, &meet));
}
