//! Common parts of the examples: for windows, how a program joins its job, and how ranks divide work; for
//! events, [`events`].
#![forbid(unsafe_code)]

pub mod events;

use anyhow::Context;
use std::ops::Range;
use std::time::Duration;
use unisono_rma::{Assert, Error, Job, Operation, Plain, Rank, Spec};

/// Time that a rank waits for the others to join.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Joins the job for which `unisono run` started this process. Without `unisono run`, a process is a job of
/// one.
pub fn join() -> anyhow::Result<Job> {
    match Job::join(TIMEOUT).context("cannot join the job")? {
        Some(job) => Ok(job),
        None => Job::threads(1).pop().context("a job of one has a member"),
    }
}

/// Returns the part of `all` items that belongs to `rank`, divided as evenly as possible among `size` ranks.
pub fn part(all: usize, rank: usize, size: usize) -> Range<usize> {
    all * rank / size..all * (rank + 1) / size
}

/// Combines the ranks' values; every rank gets the result. The operation must have zero as its neutral
/// element, because the window begins with it: a sum, or the maximum of values that are not negative.
pub fn combined<T: Plain>(job: &mut Job, mine: T, operation: Operation) -> Result<T, Error> {
    let mut window = job.allocate(size_of::<T>() as u64, Spec::new())?;
    window.fence(Assert::NO_PRECEDE)?;
    window.accumulate(&[mine], Rank(0), 0, operation)?;
    window.fence(Assert::NONE)?;
    let all = window.get::<T>(1, Rank(0), 0)?;
    window.fence(Assert::NO_SUCCEED)?;
    let all = window.take(all)?;
    window.free()?;
    Ok(all.first().copied().unwrap_or(mine))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_meet_and_cover_everything() {
        for (all, size) in [(10, 3), (4, 4), (7, 1), (64, 5)] {
            let mut next = 0;
            for rank in 0..size {
                let part = part(all, rank, size);
                assert_eq!(part.start, next);
                assert!(part.len() == all / size || part.len() == all / size + 1);
                next = part.end;
            }
            assert_eq!(next, all);
        }
    }
}
