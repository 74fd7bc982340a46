//! Every misuse is an error of its class at the caller, nothing is written, and the window stays usable.

use crate::{shared, watch};
use std::thread;
use unisono_rma::{
    Assert, Error, ErrorClass, Job, Layout, Lock, Locks, Operation, Rank, Source, Spec, Target,
};

fn alone(test: impl FnOnce(&mut Job)) {
    watch();
    let mut job = Job::threads(1).pop().expect("a job of one");
    test(&mut job);
}

#[track_caller]
fn class<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorClass {
    result.expect_err("misuse is an error").class()
}

#[test]
fn operations_outside_an_epoch_are_errors_and_write_nothing() {
    alone(|job| {
        let mut window = job.allocate(64, Spec::new()).expect("a small window");
        assert_eq!(class(window.put(&[1_u8], Rank(0), 0)), ErrorClass::RmaSync);
        assert_eq!(class(window.get::<u8>(1, Rank(0), 0)), ErrorClass::RmaSync);
        assert_eq!(class(window.flush(Rank(0))), ErrorClass::RmaSync);
        assert_eq!(class(window.complete()), ErrorClass::RmaSync);
        assert_eq!(class(window.wait()), ErrorClass::RmaSync);
        assert_eq!(class(window.unlock(Rank(0))), ErrorClass::RmaSync);
        assert_eq!(class(window.unlock_all()), ErrorClass::RmaSync);
        let mut byte = [7_u8];
        window.load(0, &mut byte).expect("own memory");
        assert_eq!(byte, [0]);
        window.fence(Assert::NO_PRECEDE).expect("a fence");
        window.put(&[1_u8], Rank(0), 0).expect("after a fence");
        window.fence(Assert::NO_SUCCEED).expect("a fence");
        assert_eq!(class(window.put(&[1_u8], Rank(0), 0)), ErrorClass::RmaSync);
    });
}

#[test]
fn places_outside_the_window_and_unknown_ranks_are_errors_and_write_nothing() {
    alone(|job| {
        let mut window = job.allocate(64, Spec::new().unit(4)).expect("a small window");
        window.lock(Rank(0), Lock::Exclusive, Assert::NONE).expect("nobody has it");
        assert_eq!(class(window.put(&[1_u32], Rank(0), 16)), ErrorClass::RmaRange);
        assert_eq!(class(window.put(&[1_u32; 17], Rank(0), 0)), ErrorClass::RmaRange);
        assert_eq!(class(window.put(&[1_u32], Rank(0), i64::MAX)), ErrorClass::RmaRange);
        assert_eq!(class(window.put(&[1_u32], Rank(0), -1)), ErrorClass::Disp);
        assert_eq!(class(window.put(&[1_u32], Rank(1), 0)), ErrorClass::Rank);
        window.put::<u32>(&[], Rank(0), 16).expect("nothing, one past the end");
        let all = window.fetch_and_op(0_u32, Rank(0), 15, Operation::NoOp).expect("the last one");
        assert_eq!(all, 0);
        let wrong = window.put(&[1_u32; 17], Rank(0), 0).expect_err("too long").to_string();
        assert!(wrong.contains("68") && wrong.contains("64 bytes"), "{wrong}");
        window.unlock(Rank(0)).expect("it is locked");
    });
}

#[test]
fn a_locked_window_is_not_freed_and_a_freed_one_not_used() {
    alone(|job| {
        let mut window = job.allocate(8, Spec::new()).expect("a small window");
        window.lock_all(Assert::NONE).expect("nobody has it");
        assert_eq!(class(window.free()), ErrorClass::RmaSync);
        assert_eq!(class(window.fence(Assert::NONE)), ErrorClass::RmaSync);
        assert_eq!(class(window.lock(Rank(0), Lock::Shared, Assert::NONE)), ErrorClass::RmaSync);
        window.unlock_all().expect("it is locked");
        window.free().expect("nothing is open");
        assert_eq!(class(window.free()), ErrorClass::Win);
        assert_eq!(class(window.put(&[1_u8], Rank(0), 0)), ErrorClass::Win);
        assert_eq!(class(window.load(0, &mut [0_u8])), ErrorClass::Win);
    });
}

#[test]
fn operations_and_types_that_do_not_fit_are_errors() {
    alone(|job| {
        let mut window = job.allocate(64, Spec::new()).expect("a small window");
        window.fence(Assert::NONE).expect("a fence");
        assert_eq!(class(window.accumulate(&[1.0_f64], Rank(0), 0, Operation::BitAnd)), ErrorClass::Op);
        assert_eq!(class(window.fence(Assert::NO_CHECK)), ErrorClass::Assert);
        let (four, eight) = (Layout::bytes(4), Layout::bytes(8));
        let source = Source { address: [0_u8; 8].as_ptr(), count: 1, layout: &eight };
        let target = Target { rank: Rank(0), displacement: 0, count: 1, layout: &four };
        // SAFETY: the source is eight readable bytes; nothing is queued because the amounts differ.
        assert_eq!(class(unsafe { window.raw_put(source, target) }), ErrorClass::Type);
        // SAFETY: nothing is attached because the window is of another flavor.
        assert_eq!(class(unsafe { window.attach(std::ptr::null_mut(), 8) }), ErrorClass::RmaFlavor);
    });
}

#[test]
fn locks_that_were_ruled_out_are_errors() {
    alone(|job| {
        let mut window = job.allocate(8, Spec::new().locks(Locks::Never)).expect("a small window");
        assert_eq!(class(window.lock(Rank(0), Lock::Shared, Assert::NONE)), ErrorClass::RmaSync);
        assert_eq!(class(window.lock_all(Assert::NONE)), ErrorClass::RmaSync);
        assert_eq!(class(job.allocate(8, Spec::new().unit(0))), ErrorClass::Disp);
    });
}

#[test]
fn a_second_lock_after_operations_in_the_epoch_of_the_first_is_no_misuse() {
    watch();
    thread::scope(|threads| {
        for mut job in [Job::threads(2), shared(2)].into_iter().flatten() {
            threads.spawn(move || {
                let mut window = job.allocate(8, Spec::new()).expect("a small window");
                for _ in 0..3 {
                    if job.rank() == Rank(0) {
                        for rank in [Rank(0), Rank(1)] {
                            window.lock(rank, Lock::Shared, Assert::NONE).expect("only the first was used");
                            window.put(&[1_u32], rank, 0).expect("it is locked");
                            window.accumulate(&[1_u32], rank, 4, Operation::Sum).expect("it is locked");
                        }
                        window.unlock(Rank(0)).expect("it is locked");
                        window.put(&[2_u32], Rank(1), 0).expect("the second is still locked");
                        window.unlock(Rank(1)).expect("it is locked");
                    }
                    window.fence(Assert::NONE).expect("no lock is held");
                    window.fence(Assert::NO_PRECEDE).expect("nothing since the last one");
                }
                window.free().expect("nothing is open");
            });
        }
    });
}

#[test]
fn members_that_disagree_about_a_window_all_learn_it() {
    watch();
    thread::scope(|threads| {
        for mut job in Job::threads(2) {
            threads.spawn(move || {
                let locks = if job.rank() == Rank(0) { Locks::Never } else { Locks::Possible };
                assert_eq!(class(job.allocate(8, Spec::new().locks(locks))), ErrorClass::Arg);
            });
        }
    });
}

#[test]
fn a_member_that_is_gone_is_named_to_whoever_waits_for_it() {
    watch();
    // Both survivors stay until both have the error, so that neither is reported gone itself.
    let both = std::sync::Barrier::new(2);
    thread::scope(|threads| {
        for mut job in Job::threads(3) {
            let both = &both;
            threads.spawn(move || {
                let mut window = job.allocate(8, Spec::new()).expect("a small window");
                if job.rank() == Rank(1) {
                    return;
                }
                window.fence(Assert::NONE).expect("the first fence waits for nobody");
                let found = window.fence(Assert::NONE);
                both.wait();
                let error = found.expect_err("rank 1 never comes");
                assert!(matches!(error, Error::Gone { rank: Rank(1), .. }), "{error}");
            });
        }
    });
}

/// The target detects the error only after the operation was sent. So the epoch must end all the same, and
/// leave the lock free.
#[test]
fn an_operation_on_memory_that_is_not_attached_is_an_error_and_its_epoch_ends() {
    watch();
    thread::scope(|threads| {
        for mut job in Job::threads(2) {
            threads.spawn(move || {
                let mut memory = [0_u8; 8];
                let nowhere = memory.as_ptr() as i64;
                let mut window = job.dynamic(Spec::new()).expect("a dynamic window");
                let other = Rank(1 - job.rank().0);
                for lock in [Lock::Exclusive, Lock::Shared] {
                    window.lock(other, lock, Assert::NONE).expect("a lock");
                    let _pending = window.get::<u8>(1, other, nowhere).expect("the target checks");
                    assert_eq!(class(window.unlock(other)), ErrorClass::RmaRange);
                    assert_eq!(class(window.unlock(other)), ErrorClass::RmaSync);
                }
                window.lock_all(Assert::NONE).expect("nobody has it for long");
                window.put(&[1_u8], other, nowhere).expect("the target checks");
                assert_eq!(class(window.unlock_all()), ErrorClass::RmaRange);
                window.fence(Assert::NO_PRECEDE).expect("a fence");
                let _pending = window.get::<u8>(1, other, nowhere).expect("the target checks");
                assert_eq!(class(window.fence(Assert::NO_SUCCEED)), ErrorClass::RmaRange);
                window.post(&[other], Assert::NONE).expect("nothing is open");
                window.start(&[other], Assert::NONE).expect("nothing is open");
                let _pending = window.get::<u8>(1, other, nowhere).expect("the target checks");
                assert_eq!(class(window.complete()), ErrorClass::RmaRange);
                window.wait().expect("the other has completed");
                job.barrier().expect("both are here");
                window.lock(other, Lock::Exclusive, Assert::NONE).expect("a lock");
                window.unlock(other).expect("it is free");
                window.free().expect("nothing is open");
                memory[0] = 0;
                assert_eq!(memory, [0; 8]);
                job.finalize().expect("both end");
            });
        }
    });
}

#[test]
fn a_refused_operation_leaves_no_epoch_open() {
    alone(|job| {
        let mut window = job.allocate(64, Spec::new()).expect("a small window");
        window.fence(Assert::NO_PRECEDE).expect("a fence");
        assert_eq!(class(window.put(&[1_u8], Rank(0), 64)), ErrorClass::RmaRange);
        window.fence(Assert::NO_PRECEDE | Assert::NO_SUCCEED).expect("nothing was issued");
        window.freeable().expect("nothing is open");
        window.start(&[], Assert::NONE).expect("an empty group");
        assert_eq!(class(window.put(&[1_u8], Rank(0), 0)), ErrorClass::RmaSync);
        assert_eq!(class(window.freeable()), ErrorClass::RmaSync);
        window.complete().expect("it began");
        window.free().expect("nothing is open");
    });
}
