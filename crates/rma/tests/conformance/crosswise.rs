//! Locks on several targets in opposite orders, while other ranks request them exclusively: no deadlock.

use crate::{shared, watch, wires};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use unisono_rma::{Assert, Error, Job, Lock, Rank, Spec, Style};

/// How ranks 0 and 1 hold both targets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holding {
    All,
    Each,
}

/// Runs one rank. Ranks 0 and 1 each hold one of the parts of ranks 2 and 3; then ranks 2 and 3 request each
/// other's part exclusively; then ranks 0 and 1 each request the part that the other holds.
fn cross(mut job: Job, style: Style, holding: Holding, meet: &Barrier) -> Result<(), Error> {
    let me = job.rank().0;
    let mut window = job.allocate(16, Spec::new().unit(8).style(style))?;
    let mut seen = [0_u64];
    job.barrier()?;
    if me < 2 {
        let order = if me == 0 { [Rank(2), Rank(3)] } else { [Rank(3), Rank(2)] };
        if holding == Holding::All {
            window.lock_all(Assert::NONE)?;
        }
        for (target, is_second) in order.into_iter().zip([false, true]) {
            if is_second {
                meet.wait();
                // until both other ranks wait in their turn
                thread::sleep(Duration::from_millis(30));
            }
            if holding == Holding::Each {
                window.lock(target, Lock::Shared, Assert::NONE)?;
            }
            window.get_now(&mut seen, target, 0)?;
        }
        match holding {
            Holding::All => window.unlock_all()?,
            Holding::Each => order.into_iter().try_for_each(|target| window.unlock(target))?,
        }
    } else {
        meet.wait();
        let target = Rank(5 - me);
        window.lock(target, Lock::Exclusive, Assert::NONE)?;
        window.put(&[7_u64], target, 0)?;
        window.unlock(target)?;
    }
    job.barrier()?;
    if me >= 2 {
        window.lock(job.rank(), Lock::Shared, Assert::NONE)?;
        window.get_now(&mut seen, job.rank(), 0)?;
        window.unlock(job.rank())?;
        assert_eq!(seen, [7], "the exclusive lock was had in the end");
    }
    window.free()?;
    job.finalize()
}

#[track_caller]
fn crossing(jobs: impl Fn() -> Vec<Job>, style: Style) {
    watch();
    for holding in [Holding::All, Holding::Each] {
        let meet = Barrier::new(4);
        thread::scope(|threads| {
            let cross = |job| threads.spawn(|| cross(job, style, holding, &meet));
            let crossing: Vec<_> = jobs().into_iter().map(cross).collect();
            for member in crossing {
                member.join().expect("no panic").expect("nobody waits for ever");
            }
        });
    }
}

#[test]
fn who_holds_a_lock_gets_another_shared_one_before_those_who_wait_in_shared_memory() {
    crossing(|| shared(4), Style::Direct);
}

#[test]
fn who_holds_a_lock_gets_another_shared_one_before_those_who_wait_over_messages() {
    crossing(|| shared(4), Style::Deferred);
    crossing(|| Job::threads(4), Style::Deferred);
    crossing(|| Job::threads(4), Style::Naive);
    crossing(|| wires::tcp(4), Style::Deferred);
}

/// Operations that are done at once in a passive or access epoch must not count as operations of a fence
/// epoch: a second lock, and an exposure inside an access epoch, may follow them.
#[test]
fn after_an_operation_another_target_may_be_locked_and_the_own_part_exposed() {
    watch();
    let members = shared(3).into_iter().map(|mut job| {
        thread::spawn(move || {
            let everybody = [Rank(0), Rank(1), Rank(2)];
            let mut window = job.allocate(8, Spec::new().unit(8))?;
            for target in everybody {
                window.lock(target, Lock::Shared, Assert::NONE)?;
                window.put(&[1_u64], target, 0)?;
            }
            everybody.into_iter().try_for_each(|target| window.unlock(target))?;
            job.barrier()?;
            window.start(&[job.rank()], Assert::NO_CHECK)?;
            window.put(&[2_u64], job.rank(), 0)?;
            window.post(&[job.rank()], Assert::NO_CHECK)?;
            window.complete()?;
            window.wait()?;
            // operations of a fence epoch still count for it
            window.fence(Assert::NONE)?;
            window.put(&[3_u64], job.rank(), 0)?;
            assert!(matches!(window.lock(Rank(0), Lock::Shared, Assert::NONE), Err(Error::Sync { .. })));
            window.fence(Assert::NO_SUCCEED)?;
            window.free()?;
            job.finalize()
        })
    });
    for member in members.collect::<Vec<_>>() {
        member.join().expect("no panic").expect("all of it is allowed");
    }
}
