//! Accumulates of every length, fetch-and-op and compare-and-swap on the same elements lose nothing, in any
//! mixture at the same time: the gate of the mapped path turns round and back meanwhile.

use crate::{shared, watch};
use std::thread;
use unisono_rma::{Assert, Error, Job, Lock, Operation, Rank, Spec};

const ELEMENTS: usize = 64;
const ROUNDS: u64 = 3000;

/// Makes the additions of a rank; returns its sum for each element. Stretches of single elements and long
/// accumulates alternate, with another rhythm at each rank.
fn add(mut job: Job, created: bool) -> Result<Vec<u64>, Error> {
    let (me, size) = (u64::from(job.rank().0), job.size() as u64);
    let spec = Spec::new().unit(8);
    let memory = vec![0_u64; ELEMENTS].leak();
    let mut window = if created {
        // SAFETY: the memory is never freed, and accessed only through the window.
        unsafe { job.create(memory.as_mut_ptr().cast(), 8 * ELEMENTS as u64, spec) }
    } else {
        job.allocate(8 * ELEMENTS as u64, spec)
    }?;
    let rounds = if created { ROUNDS / 10 } else { ROUNDS };
    window.lock_all(Assert::NONE)?;
    for round in 0..rounds {
        match (round / (7 + me)) % 4 {
            0 => window.accumulate(&[1_u64; ELEMENTS], Rank(0), 0, Operation::Sum)?,
            1 => {
                for at in 0..ELEMENTS {
                    window.fetch_and_op(1_u64, Rank(0), at as i64, Operation::Sum)?;
                }
            }
            2 => (0..ELEMENTS as i64)
                .try_for_each(|at| window.accumulate(&[1_u64], Rank(0), at, Operation::Sum))?,
            _ => {
                for at in 0..ELEMENTS as i64 {
                    let mut seen = window.fetch_and_op(0_u64, Rank(0), at, Operation::NoOp)?;
                    loop {
                        let found = window.compare_and_swap(seen, seen + 1, Rank(0), at)?;
                        if found == seen {
                            break;
                        }
                        seen = found;
                    }
                }
            }
        }
    }
    window.unlock_all()?;
    job.barrier()?;
    window.lock(Rank(0), Lock::Shared, Assert::NONE)?;
    let there: Vec<u64> = (0..ELEMENTS as i64)
        .map(|at| window.fetch_and_op(0_u64, Rank(0), at, Operation::NoOp))
        .collect::<Result<_, _>>()?;
    window.unlock(Rank(0))?;
    assert_eq!(there, vec![rounds * size; ELEMENTS]);
    window.free()?;
    job.finalize()?;
    Ok(there)
}

fn nothing_is_lost(created: bool) {
    watch();
    for size in [2, 3] {
        thread::scope(|threads| {
            let working: Vec<_> =
                shared(size).into_iter().map(|job| threads.spawn(move || add(job, created))).collect();
            for rank in working {
                rank.join().expect("no panic").expect("nobody is gone");
            }
        });
    }
}

#[test]
fn accumulates_of_every_length_on_the_same_elements_lose_nothing() {
    nothing_is_lost(false);
}

#[test]
fn accumulates_into_the_users_memory_lose_nothing() {
    nothing_is_lost(true);
}
