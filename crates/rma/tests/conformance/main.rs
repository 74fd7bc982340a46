//! One contract for every transport, style and flavor: results as in the sequential model, and an error for
//! each misuse.

#![cfg(not(loom))]

mod atomicity;
mod carried;
mod counts;
mod crosswise;
mod direct_access;
mod drive;
mod endings;
mod hand_off;
mod layouts;
mod long;
mod misuse;
mod model;
mod operations;
mod packet_server;
mod paths;
mod ranges;
mod requests;
mod settling;
mod thrift;
mod unlocks;
mod waits;
mod wires;

use proptest::prelude::*;
use unisono_rma::{Flavor, Job, JobMembership, Key, Rank, Style};

/// Ends the test program, with a message, when it hangs.
fn watch() {
    use std::sync::Once;
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(300));
            eprintln!("a test has hung for five minutes");
            std::process::abort();
        });
    });
}

/// Makes a job over shared memory, of threads of this process. Each maps the segment for itself, as a process
/// does.
fn shared(size: usize) -> Vec<Job> {
    let key = Key::random().expect("the kernel has random bytes");
    let join = move |rank| {
        let place = JobMembership { rank: Rank::at(rank), size, key };
        Job::shared(&place, std::time::Duration::from_secs(60)).expect("all come")
    };
    let joining: Vec<_> = (0..size).map(|rank| std::thread::spawn(move || join(rank))).collect();
    joining.into_iter().map(|thread| thread.join().expect("joining does not panic")).collect()
}

proptest! {
    #[test]
    fn messages_between_threads_agree_with_the_model_deferred(program in model::program()) {
        watch();
        drive::compare(&program, Job::threads(program.size), Style::Deferred, Flavor::Allocated);
    }

    #[test]
    fn messages_between_threads_agree_with_the_model_naive(program in model::program()) {
        watch();
        drive::compare(&program, Job::threads(program.size), Style::Naive, Flavor::Created);
    }

    #[test]
    fn messages_through_shared_memory_agree_with_the_model_deferred(program in model::program()) {
        watch();
        drive::compare(&program, shared(program.size), Style::Deferred, Flavor::Allocated);
    }

    #[test]
    fn stores_into_allocated_memory_agree_with_the_model(program in model::program()) {
        watch();
        drive::compare(&program, shared(program.size), Style::Direct, Flavor::Allocated);
    }

    #[test]
    fn stores_into_the_users_memory_agree_with_the_model(program in model::program()) {
        watch();
        drive::compare(&program, shared(program.size), Style::Direct, Flavor::Created);
    }

    #[test]
    fn messages_through_shared_memory_agree_with_the_model_naive(program in model::program()) {
        watch();
        drive::compare(&program, shared(program.size), Style::Naive, Flavor::Created);
    }

    #[test]
    fn dynamic_windows_over_shared_memory_agree_with_the_model(program in model::program()) {
        watch();
        drive::compare(&program, shared(program.size), Style::Direct, Flavor::Dynamic);
    }

    #[test]
    fn dynamic_windows_between_threads_agree_with_the_model_naive(program in model::program()) {
        watch();
        drive::compare(&program, Job::threads(program.size), Style::Naive, Flavor::Dynamic);
    }
}
