//! Finds the program behind a process that only waits for it: a shell, `timeout`, a launcher in Python.
//!
//! A wrapper is known by its behavior, not by its name: while it is watched, it uses almost no processor time
//! and keeps the same single child. A shell whose commands come and go is no wrapper of any of them. Cost:
//! two lists of the host's processes. When not to use: to read the times of threads, because
//! [`tree`](crate::tree) includes the wrappers' threads.

use crate::tree::TreeReading;
use unisono_linux::clock::Duration;
use unisono_linux::process_list::{self, ListedProcess};
use unisono_linux::process_stat;

/// A process that uses less than this share of one processor only waits: a launcher may wake a few times a
/// second. Chosen, not measured.
const MAX_WAITER_SHARE: f64 = 0.01;

/// Returns the processes that there are now, without ended ones that their parents have not waited for.
pub fn living() -> Vec<ListedProcess> {
    let mut all = process_list::all();
    all.retain(|one| !process_stat::is_gone(one.number));
    all
}

pub fn children(all: &[ListedProcess], parent: i32) -> Vec<ListedProcess> {
    all.iter().filter(|one| one.parent == parent).copied().collect()
}

/// Returns `first`, then its child if it has only one, then the only child of that one, and so on.
pub fn chain(first: i32, all: &[ListedProcess]) -> Vec<i32> {
    let (mut chain, mut last) = (vec![first], first);
    // a list is not read in one moment: a number that was given away meanwhile must not make a circle
    while let [only] = children(all, last)[..]
        && !chain.contains(&only.number)
    {
        last = only.number;
        chain.push(last);
    }
    chain
}

/// Returns the position in `chain` of the first process that is no wrapper: it works, or its children are not
/// the same single one in both lists.
pub fn program_behind(
    chain: &[i32],
    before: &[ListedProcess],
    after: &[ListedProcess],
    is_idle: impl Fn(i32) -> bool,
) -> usize {
    let is_wrapper = |process: i32| is_idle(process) && children(before, process) == children(after, process);
    chain.windows(2).take_while(|pair| is_wrapper(pair[0])).count()
}

/// Returns whether a process only waited between two readings. The work of a thread that ended between them
/// is not seen.
pub fn is_idle(process: i32, before: &TreeReading, after: &TreeReading) -> bool {
    let threads = after.threads.range((process, i32::MIN)..=(process, i32::MAX));
    let ran = threads.map(|(key, one)| one.ran - before.threads.get(key).copied().unwrap_or_default().ran);
    ran.sum::<Duration>().as_secs_f64() < MAX_WAITER_SHARE * (after.at - before.at).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::ThreadReading;
    use unisono_linux::clock::Instant;

    fn list(pairs: &[(i32, i32)]) -> Vec<ListedProcess> {
        let listed = |(number, parent): &(i32, i32)| ListedProcess {
            number: *number,
            parent: *parent,
            group: 1,
            started: 7,
        };
        pairs.iter().map(listed).collect()
    }

    #[test]
    fn wrappers_are_followed_to_the_program_that_works_or_has_several_children() {
        // 10 is a shell, 11 `timeout`, 12 a launcher of two ranks
        let all = list(&[(10, 1), (11, 10), (12, 11), (13, 12), (14, 12), (20, 1)]);
        let found = chain(10, &all);
        assert_eq!(found, [10, 11, 12]);
        assert_eq!(program_behind(&found, &all, &all, |_| true), 2);
        assert_eq!(program_behind(&found, &all, &all, |process| process != 11), 1);
        assert_eq!(program_behind(&found, &all, &all, |_| false), 0);
        let next_command = list(&[(10, 1), (15, 10)]);
        assert_eq!(program_behind(&found, &all, &next_command, |_| true), 0, "a shell with many commands");
        assert_eq!(chain(20, &all), [20]);
        assert_eq!(chain(1, &list(&[(1, 2), (2, 1)])), [1, 2], "a circle ends");
    }

    #[test]
    fn a_process_that_used_a_hundredth_of_the_time_is_not_idle() {
        let thread = |(thread, ran): (i32, &u64)| {
            let ran = Duration::from_millis(*ran);
            ((5, thread), ThreadReading { ran, ..ThreadReading::default() })
        };
        let reading = |at_ms: u64, ran_ms: &[u64]| TreeReading {
            at: Instant::from_millis(at_ms),
            threads: (1..).zip(ran_ms).map(thread).collect(),
            machine_time: Duration::ZERO,
        };
        let before = reading(0, &[100, 50]);
        assert!(is_idle(5, &before, &reading(1000, &[104, 55])));
        assert!(!is_idle(5, &before, &reading(1000, &[110, 50])));
        assert!(!is_idle(5, &before, &before), "no time has passed");
    }
}
