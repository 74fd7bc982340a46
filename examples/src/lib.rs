//! What the examples share: for windows, how a program becomes a member of its job, and how ranks divide
//! work; for events, [`events`].
#![forbid(unsafe_code)]

pub mod events;

use anyhow::Context;
use std::ops::Range;
use std::time::Duration;
use unisono_rma::{Assert, Error, Job, Operation, Plain, Rank, Spec};

/// How long a rank waits for the others to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Joins the job that `unisono run` started this process for. Started by itself, a process is a job of one.
pub fn join() -> anyhow::Result<Job> {
    match Job::join(PATIENCE).context("cannot join the job")? {
        Some(job) => Ok(job),
        None => Job::threads(1).pop().context("a job of one has a member"),
    }
}

/// The part of `all` things that is `rank`'s, when `size` ranks have as equal parts as possible.
pub fn part(all: usize, rank: usize, size: usize) -> Range<usize> {
    all * rank / size..all * (rank + 1) / size
}

/// What the ranks' values combine to, at every rank. The operation has to leave zero out, with which a window
/// begins: a sum, or the greatest of what is not negative.
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
