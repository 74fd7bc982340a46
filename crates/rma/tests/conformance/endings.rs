//! Epochs whose end is not waited for: test instead of wait, sync instead of a call that ends an epoch, and
//! completion at the origin only; on every path.

use crate::paths::{Path, everywhere};
use std::thread;
use unisono_rma::{Assert, Completion, Error, Job, Lock, Rank, Spec};

/// Runs one rank. Rank 0 exposes its part to the two others, and tests whether they have completed.
fn asks(path: &Path, mut job: Job) -> Result<(), Error> {
    let me = job.rank();
    let mut window = path.window(&mut job, 24, Spec::new().unit(8))?;
    for round in 1..20_u64 {
        if me == Rank(0) {
            window.post(&[Rank(1), Rank(2)], Assert::NONE)?;
            while !window.test()? {
                thread::yield_now();
            }
            let mut found = [0_u64; 3];
            window.load(0, &mut found)?;
            assert_eq!(found, [0, round, if round.is_multiple_of(2) { round } else { round - 1 }]);
            assert!(matches!(window.test(), Err(Error::Sync { .. })), "there is no epoch to ask for");
        } else {
            window.start(&[Rank(0)], Assert::NONE)?;
            // Every other time rank 2 has no operation.
            if me == Rank(1) || round.is_multiple_of(2) {
                window.put(&[round], Rank(0), i64::from(me.0))?;
            }
            window.complete()?;
        }
    }
    job.barrier()?;
    window.free()?;
    job.finalize()
}

#[test]
fn test_says_when_all_origins_have_completed_on_every_path() {
    everywhere(3, asks);
}

/// Runs one rank, which reads its own part, with nothing but `sync` between two reads, until the word of the
/// other rank has arrived.
fn synchronizes(path: &Path, mut job: Job) -> Result<(), Error> {
    let (me, other) = (job.rank(), Rank(1 - job.rank().0));
    let mut window = path.window(&mut job, 16, Spec::new().unit(8))?;
    window.lock_all(Assert::NONE)?;
    for round in 1..50_u64 {
        window.put(&[round + u64::from(me.0)], other, 0)?;
        window.flush(other)?;
        window.put(&[round], other, 1)?;
        window.flush(other)?;
        let mut found = [0_u64; 2];
        while found[1] < round {
            window.sync()?;
            window.load(0, &mut found)?;
            thread::yield_now();
        }
        // The first word may belong to the next round by now.
        let expected = round + u64::from(other.0);
        assert!(found[0] == expected || found[0] == expected + 1, "round {round}: {found:?}");
    }
    window.unlock_all()?;
    job.barrier()?;
    window.free()?;
    job.finalize()
}

#[test]
fn a_member_that_only_looks_and_synchronizes_sees_what_comes_on_every_path() {
    everywhere(2, synchronizes);
}

/// Runs one rank. Rank 0's unlock does not wait for the target; its settle does.
fn settles(path: &Path, mut job: Job) -> Result<(), Error> {
    let me = job.rank();
    let spec = Spec::new().unit(8).completion(Completion::Local);
    let mut window = path.window(&mut job, 800, spec)?;
    for round in 1..30_u64 {
        if me == Rank(0) {
            for lock in [Lock::Shared, Lock::Exclusive] {
                window.lock(Rank(1), lock, Assert::NONE)?;
                window.put(&[round; 100], Rank(1), 0)?;
                window.put(&[round + 1], Rank(1), 99)?;
                window.unlock(Rank(1))?;
            }
            window.settle()?;
        }
        job.barrier()?;
        if me == Rank(1) {
            window.lock(me, Lock::Shared, Assert::NONE)?;
            let mut found = [0_u64; 100];
            window.load(0, &mut found)?;
            window.unlock(me)?;
            assert_eq!((&found[..99], found[99]), (&[round; 99][..], round + 1));
        }
        job.barrier()?;
    }
    window.free()?;
    job.finalize()
}

#[test]
fn what_was_only_complete_at_the_origin_is_complete_everywhere_once_settled_on_every_path() {
    everywhere(2, settles);
}
