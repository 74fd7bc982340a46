//! How ranks meet: without a common parent, each rank only once, within a time limit, and without leaving
//! files.

use crate::children::{TIMEOUT, place, start, went_well};
use crate::watchdog::watched;
use std::fs;
use std::time::Duration;
use unisono_rma::{Error, Job, Key};

fn key() -> Key {
    Key::random().expect("the kernel has random bytes")
}

#[test]
fn ranks_without_a_common_parent_meet() {
    watched("orphans", || {
        let key = key();
        let started = [1, 2].map(|rank| start("orphan", &place(rank, 3, key)));
        let job = Job::shared(&place(0, 3, key), TIMEOUT).expect("all come");
        assert_eq!(job.size(), 3);
        started.into_iter().for_each(went_well);
    });
}

#[test]
fn rank_0_may_come_last() {
    watched("last", || {
        let key = key();
        let started = start("joins", &place(1, 2, key));
        std::thread::sleep(Duration::from_millis(50));
        Job::shared(&place(0, 2, key), TIMEOUT).expect("all come");
        went_well(started);
    });
}

#[test]
fn who_has_not_come_is_named_by_rank_0_and_by_the_others() {
    watched("missing", || {
        let key = key();
        let other = std::thread::spawn(move || Job::shared(&place(2, 5, key), Duration::from_millis(300)));
        let ours = Job::shared(&place(0, 5, key), Duration::from_millis(300));
        for error in [ours.map(drop), other.join().expect("no panic").map(drop)] {
            let error = error.expect_err("three are missing");
            assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
            assert!(error.to_string().contains("ranks 1, 3, 4 of 5"), "{error}");
        }
    });
}

#[test]
fn a_missing_rank_0_is_named() {
    watched("no leader", || {
        let error = Job::shared(&place(1, 2, key()), Duration::from_millis(100)).expect_err("nobody leads");
        assert!(error.to_string().contains("waiting for rank 0"), "{error}");
    });
}

#[test]
fn a_rank_taken_twice_is_an_error_of_the_second_alone() {
    watched("twice", || {
        let key = key();
        let leader = std::thread::spawn(move || Job::shared(&place(0, 3, key), TIMEOUT));
        let first = start("joins", &place(1, 3, key));
        // The second process with rank 1 is refused, so wait until the first is in the table.
        std::thread::sleep(Duration::from_millis(300));
        let second = Job::shared(&place(1, 3, key), TIMEOUT).expect_err("rank 1 is taken");
        assert!(matches!(second, Error::Job(_)) && second.to_string().contains("taken"), "{second}");
        let another = Job::shared(&place(0, 3, key), TIMEOUT).expect_err("rank 0 is taken");
        assert!(another.to_string().contains("rank 0 is taken"), "{another}");
        let wrong = Job::shared(&place(2, 4, key), TIMEOUT).expect_err("the job has three");
        assert!(wrong.to_string().contains("rank 0 says 3"), "{wrong}");
        let last = start("joins", &place(2, 3, key));
        leader.join().expect("no panic").expect("the right ones have come");
        [first, last].into_iter().for_each(went_well);
    });
}

/// Returns the files that could have been left behind.
fn leftovers() -> Vec<String> {
    let files = ["/dev/shm", "/tmp"].into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let paths = files.flatten().map(|file| file.path().display().to_string());
    paths.filter(|path| path.contains("unisono-") || path.contains("memfd")).collect()
}

#[test]
fn killed_processes_leave_no_name_and_no_memory() {
    watched("killed", || {
        let (key, before) = (key(), leftovers());
        // Rank 2 never comes: both are killed in the middle of the rendezvous.
        let mut started = [0, 1].map(|rank| start("stays", &place(rank, 3, key)));
        std::thread::sleep(Duration::from_millis(200));
        for child in &mut started {
            child.kill().expect("our child can be killed");
            child.wait().expect("our child can be collected");
        }
        // The name at which they met is free again at once.
        let started = start("joins", &place(1, 2, key));
        Job::shared(&place(0, 2, key), TIMEOUT).expect("the place is free");
        went_well(started);
        assert_eq!(leftovers(), before);
    });
}
