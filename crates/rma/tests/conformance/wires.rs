//! The same contract over TCP, and over transports with faults.

use crate::{drive, model, watch};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use unisono_rma::wire::loopback::Loopback;
use unisono_rma::wire::ring::RingTransport;
use unisono_rma::wire::tcp::{JobListener, Tcp};
use unisono_rma::wire::tests::fault::{FaultPlan, Faulty};
use unisono_rma::{Assert, Error, Flavor, Job, JobMembership, Key, Lock, Rank, Spec, Style};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes connected transports between loopback addresses, in the order of ranks.
fn ends(size: usize) -> Vec<Tcp> {
    let key = Key::random().expect("the kernel has random bytes");
    let anywhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listener = |rank| {
        JobListener::bind(JobMembership { rank: Rank::at(rank), size, key }, anywhere).expect("a free port")
    };
    let listeners: Vec<JobListener> = (0..size).map(listener).collect();
    let root = listeners[0].address();
    let meeting: Vec<_> = listeners
        .into_iter()
        .map(|listener| thread::spawn(move || listener.connect_through(root, TIMEOUT)))
        .collect();
    meeting.into_iter().map(|thread| thread.join().expect("no panic").expect("all come")).collect()
}

pub(crate) fn tcp(size: usize) -> Vec<Job> {
    ends(size).into_iter().map(Job::over).collect()
}

pub(crate) fn faulty_tcp(size: usize, plan: FaultPlan) -> Vec<Job> {
    ends(size).into_iter().map(|end| Job::over(Faulty::new(end, plan))).collect()
}

pub(crate) fn faulty_loopback(size: usize, plan: FaultPlan) -> Vec<Job> {
    Loopback::job(size).into_iter().map(|end| Job::over(Faulty::new(end, plan))).collect()
}

/// Makes a job over shared memory, of threads that each map the segment, as processes do.
fn faulty_shared(size: usize, plan: FaultPlan) -> Vec<Job> {
    let key = Key::random().expect("the kernel has random bytes");
    let meet = |rank| RingTransport::connect(&JobMembership { rank: Rank::at(rank), size, key }, TIMEOUT);
    thread::scope(|threads| {
        let meeting: Vec<_> = (0..size).map(|rank| threads.spawn(move || meet(rank))).collect();
        let ends = meeting.into_iter().map(|thread| thread.join().expect("no panic").expect("all come"));
        ends.map(|end| Job::over(Faulty::new(end, plan))).collect()
    })
}

fn delays(seed: u64) -> FaultPlan {
    FaultPlan::new(seed).delay(Duration::from_micros(300).into())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn messages_over_tcp_agree_with_the_model_deferred(program in model::program()) {
        watch();
        drive::compare(&program, tcp(program.size), Style::Deferred, Flavor::Allocated);
    }

    #[test]
    fn messages_over_tcp_agree_with_the_model_naive(program in model::program()) {
        watch();
        drive::compare(&program, tcp(program.size), Style::Naive, Flavor::Created);
    }

    #[test]
    fn delayed_messages_between_threads_agree_with_the_model_deferred(
        program in model::program(), seed in any::<u64>(),
    ) {
        watch();
        drive::compare(&program, faulty_loopback(program.size, delays(seed)), Style::Deferred, Flavor::Created);
    }

    #[test]
    fn delayed_messages_between_threads_agree_with_the_model_naive(
        program in model::program(), seed in any::<u64>(),
    ) {
        watch();
        drive::compare(&program, faulty_loopback(program.size, delays(seed)), Style::Naive, Flavor::Allocated);
    }

    #[test]
    fn delayed_messages_through_shared_memory_agree_with_the_model(
        program in model::program(), seed in any::<u64>(),
    ) {
        watch();
        drive::compare(&program, faulty_shared(program.size, delays(seed)), Style::Deferred, Flavor::Allocated);
    }

    #[test]
    fn dynamic_windows_over_tcp_agree_with_the_model(program in model::program()) {
        watch();
        drive::compare(&program, tcp(program.size), Style::Deferred, Flavor::Dynamic);
    }

    #[test]
    fn delayed_messages_over_tcp_agree_with_the_model(program in model::program(), seed in any::<u64>()) {
        watch();
        drive::compare(&program, faulty_tcp(program.size, delays(seed)), Style::Deferred, Flavor::Allocated);
    }
}

/// Works through epochs of every kind until a member is gone.
fn work(mut job: Job) -> Result<(), Error> {
    let (me, size) = (job.rank().index(), job.size());
    let everybody: Vec<Rank> = (0..size).map(Rank::at).collect();
    let mut window = job.allocate(8 * size as u64, Spec::new().unit(8).style(Style::Deferred))?;
    loop {
        window.fence(Assert::NONE)?;
        for target in &everybody {
            window.put(&[7_u64], *target, me as i64)?;
        }
        window.fence(Assert::NO_SUCCEED)?;
        window.post(&everybody, Assert::NONE)?;
        window.start(&everybody, Assert::NONE)?;
        window.put(&[8_u64], everybody[(me + 1) % size], me as i64)?;
        window.complete()?;
        window.wait()?;
        for target in &everybody {
            window.lock(*target, Lock::Exclusive, Assert::NONE)?;
            window.put(&[9_u64], *target, me as i64)?;
            window.unlock(*target)?;
        }
        job.barrier()?;
    }
}

/// Lets rank 1 of three die before its packet `packet`; the others must get the error, in whatever call they
/// wait.
fn dies(packet: u64, make: impl Fn(usize, FaultPlan) -> Vec<Job>) {
    let plan = delays(packet).death(Rank(1), packet);
    let errors: Vec<Error> = thread::scope(|threads| {
        let working: Vec<_> = make(3, plan).into_iter().map(|job| threads.spawn(move || work(job))).collect();
        let ended = working.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.map(|result| result.expect_err("rank 1 is dead")).collect()
    });
    assert!(errors[1].to_string().contains("fault injector"), "{plan}: {}", errors[1]);
    for survivor in [0, 2] {
        // The first survivor with the error leaves too, and the other may notice that first.
        let who = match &errors[survivor] {
            Error::Gone { rank, .. } => rank.index(),
            other => panic!("{plan}: rank {survivor} heard {other}"),
        };
        assert!(who != survivor, "{plan}: rank {survivor} heard that rank {who} is gone");
    }
    let named = [0, 2].map(|rank| matches!(errors[rank], Error::Gone { rank: Rank(1), .. }));
    assert!(named.contains(&true), "{plan}: nobody named rank 1");
}

#[test]
fn a_rank_that_dies_at_any_packet_is_named_to_those_who_wait_over_loopback() {
    watch();
    for packet in 0..60 {
        dies(packet, faulty_loopback);
    }
}

#[test]
fn a_rank_that_dies_at_any_packet_is_named_to_those_who_wait_through_shared_memory() {
    watch();
    for packet in (0..60).step_by(3) {
        dies(packet, faulty_shared);
    }
}

#[test]
fn a_rank_that_dies_at_any_packet_is_named_to_those_who_wait_over_tcp() {
    watch();
    for packet in (0..60).step_by(3) {
        dies(packet, faulty_tcp);
    }
}
