//! Operations that a fence left staged are applied before a later lock lets any rank store.
//!
//! A fence returns at the origin before the target has applied the staged operations. Rank 0 stages many puts
//! to one place. After the fence it puts there once more, under a lock. This last value has to stay.

use crate::{shared, watch};
use std::thread;
use unisono_rma::{Assert, Element, Error, Job, Lock, Rank, Source, Spec, Target};

const STAGED: u64 = 500;
const ROUNDS: u64 = 100;

/// Runs one member. Rank 1 has the place, and reads it between barriers.
fn member(mut job: Job, after: Assert, lock: Assert) -> Result<(), Error> {
    let mut place = 0_u64;
    let base = (&raw mut place).cast::<u8>();
    // SAFETY: the place outlives the window, and is read only between epochs.
    let mut window = unsafe { job.create(base, 8, Spec::new()) }?;
    let layout = Element::U64.layout();
    for round in 0..ROUNDS {
        let values: Vec<u64> = (0..=STAGED).map(|number| round * 1000 + number).collect();
        let target = Target { rank: Rank(1), displacement: 0, count: 1, layout: &layout };
        let source = |value: &u64| Source { address: (&raw const *value).cast(), count: 1, layout: &layout };
        window.fence(Assert::NO_PRECEDE)?;
        if job.rank() == Rank(0) {
            for value in &values[..values.len() - 1] {
                // SAFETY: the values live until the epoch has ended, and no code writes them.
                unsafe { window.raw_put(source(value), target) }?;
            }
        }
        window.fence(after)?;
        if job.rank() == Rank(0) {
            window.lock(Rank(1), Lock::Exclusive, lock)?;
            // SAFETY: the values live until the epoch has ended, and no code writes them.
            unsafe { window.raw_put(source(&values[values.len() - 1]), target) }?;
            window.unlock(Rank(1))?;
        }
        job.barrier()?;
        // SAFETY: no rank writes between the two barriers.
        let came = unsafe { base.cast::<u64>().read() };
        if job.rank() == Rank(1) {
            assert_eq!(came, values[values.len() - 1], "round {round}");
        }
        job.barrier()?;
    }
    window.free()?;
    job.finalize()
}

#[test]
fn a_lock_comes_after_what_the_last_fence_left_staged() {
    watch();
    for after in [Assert::NONE, Assert::NO_SUCCEED] {
        for lock in [Assert::NONE, Assert::NO_CHECK] {
            thread::scope(|threads| {
                let members =
                    shared(2).into_iter().map(|job| threads.spawn(move || member(job, after, lock)));
                let members: Vec<_> = members.collect();
                for member in members {
                    member.join().expect("no member panics").expect("no misuse here");
                }
            });
        }
    }
}
