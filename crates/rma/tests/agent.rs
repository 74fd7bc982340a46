//! The agent: it exists only if locks are possible, and makes progress while the target's program makes no
//! call.
//!
//! This test is a program of its own, because no other test may start threads in its process.

#![cfg(not(loom))]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use unisono_rma::{Assert, Error, Job, Lock, Locks, Operation, Rank, Spec, Style};

/// Returns the number of agents in this process.
fn agents() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists threads").flatten();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.trim() == "unisono-agent").count()
}

/// Waits for this number of agents: a thread gets its name a moment after its start.
fn await_agents(count: usize) {
    while agents() != count {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs one member; returns the final contents of its own part of the window. Rank 0 locks and combines at
/// rank 1 while rank 1's program makes no call.
fn member(mut job: Job, locks: Locks, meet: &Barrier) -> Result<u64, Error> {
    let spec = Spec::new().unit(8).style(Style::Deferred).locks(locks);
    let mut window = job.allocate(8, spec)?;
    meet.wait();
    if locks == Locks::Possible {
        await_agents(2);
    } else {
        // Longer than any thread takes to get its name.
        thread::sleep(Duration::from_millis(100));
        assert_eq!(agents(), 0);
    }
    meet.wait();
    if locks == Locks::Possible && job.rank() == Rank(0) {
        for lock in [Lock::Exclusive, Lock::Shared] {
            window.lock(Rank(1), lock, Assert::NONE)?;
            let old = window.fetch_and_op(1_u64, Rank(1), 0, Operation::Sum)?;
            window.accumulate(&[old + 1], Rank(1), 0, Operation::Sum)?;
            window.unlock(Rank(1))?;
        }
        window.settle()?;
    }
    // Rank 1 waits here, in no call of the engine.
    meet.wait();
    let mut found = [0];
    window.load(0, &mut found)?;
    window.free()?;
    job.finalize()?;
    Ok(found[0])
}

fn both(locks: Locks) -> Vec<u64> {
    let meet = Barrier::new(2);
    thread::scope(|threads| {
        let work = |job| threads.spawn(|| member(job, locks, &meet));
        let working: Vec<_> = Job::threads(2).into_iter().map(work).collect();
        let ended = working.into_iter().map(|member| member.join().expect("no panic"));
        ended.collect::<Result<_, _>>().expect("nobody is gone")
    })
}

#[test]
fn an_agent_is_there_only_if_locks_are_possible_and_makes_the_progress_that_its_rank_does_not() {
    thread::spawn(|| {
        thread::sleep(Duration::from_secs(120));
        eprintln!("the target has made no progress for two minutes");
        std::process::abort();
    });
    assert_eq!(both(Locks::Never), [0, 0]);
    // (0 + 1) + 1 = 2, then (2 + 1) + 3 = 6
    assert_eq!(both(Locks::Possible), [0, 6]);
    // The agents end with their jobs.
    await_agents(0);
}
