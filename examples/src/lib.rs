//! What the examples share: how a program becomes a member of its job, and how ranks divide work.
#![forbid(unsafe_code)]

use anyhow::Context;
use std::ops::Range;
use std::time::Duration;
use unisono_rma::{Job, Place};

/// How long a rank waits for the others to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Joins the job that `unisono run` started this process for. Started by itself, a process is a job of one.
///
/// # Errors
/// What the environment or the others have wrong.
pub fn join() -> anyhow::Result<Job> {
    match Place::from_environment()? {
        Some(place) => Job::shared(&place, PATIENCE).context("cannot join the job"),
        None => Job::threads(1).pop().context("a job of one has a member"),
    }
}

/// The part of `all` things that is `rank`'s, when `size` ranks have as equal parts as possible.
#[must_use]
pub fn part(all: usize, rank: usize, size: usize) -> Range<usize> {
    all * rank / size..all * (rank + 1) / size
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
