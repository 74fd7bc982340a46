//! A process blocks at most once an epoch, where two processes share a processor.
//!
//! The kernel counts how often a thread blocks. This test is a program of its own, because other tests on the
//! same processor would add waits.

#![cfg(not(loom))]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::fs;
use std::thread;
use std::time::Duration;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_rma::{Assert, Error, Flavor, Job, JobMembership, Key, Rank, Spec, Window};

const EPOCHS: u64 = 2000;

/// Returns the number of times that this thread has blocked so far.
fn blocks() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

fn fence(window: &mut Window, other: Rank) -> Result<(), Error> {
    window.fence(Assert::NO_PRECEDE)?;
    (0..4).try_for_each(|place| window.put(&[7_u64], other, place))?;
    window.fence(Assert::NO_SUCCEED)
}

fn pscw(window: &mut Window, other: Rank) -> Result<(), Error> {
    window.post(&[other], Assert::NONE)?;
    window.start(&[other], Assert::NONE)?;
    (0..4).try_for_each(|place| window.put(&[7_u64], other, place))?;
    window.complete()?;
    window.wait()
}

type Epoch = fn(&mut Window, Rank) -> Result<(), Error>;

/// Runs one member of two that share a processor; returns how often it blocked in [`EPOCHS`] epochs.
fn member(rank: usize, key: Key, cpu: usize, flavor: Flavor, epoch: Epoch) -> Option<u64> {
    affinity::restrict_own(&CpuSet::single(cpu)).expect("a processor of our own mask");
    let place = JobMembership { rank: Rank::at(rank), size: 2, key };
    let mut job = Job::shared(&place, Duration::from_secs(60)).expect("both come");
    let memory = vec![0_u64; 64].leak();
    let spec = Spec::new().unit(8);
    let mut window = if flavor == Flavor::Created {
        // SAFETY: the memory is never freed, and accessed only through the window.
        unsafe { job.create(memory.as_mut_ptr().cast(), 512, spec) }.expect("a small window")
    } else {
        job.allocate(512, spec).expect("a small window")
    };
    let other = Rank::at(1 - rank);
    let mut many = |count: u64| (0..count).try_for_each(|_| epoch(&mut window, other)).expect("both live");
    many(100);
    let before = blocks();
    many(EPOCHS);
    let count = blocks().zip(before).map(|(after, before)| after - before);
    window.free().expect("no epoch is open");
    job.finalize().expect("both end");
    count
}

#[test]
fn a_member_blocks_at_most_once_an_epoch_where_two_share_a_processor() {
    thread::spawn(|| {
        thread::sleep(Duration::from_secs(120));
        eprintln!("two members on one processor hang");
        std::process::abort();
    });
    if blocks().is_none() {
        println!("skipped: /proc/thread-self/status does not count voluntary switches here");
        return;
    }
    let cpus = affinity::allowed(Tid::current()).expect("every thread has a mask");
    let cpu = cpus.iter().next().expect("not empty");
    for (name, epoch) in [("fence", fence as Epoch), ("pscw", pscw)] {
        for flavor in [Flavor::Allocated, Flavor::Created] {
            let key = Key::random().expect("the kernel has random bytes");
            let counts: Vec<u64> = thread::scope(|threads| {
                let member = |rank| threads.spawn(move || member(rank, key, cpu, flavor, epoch));
                let both = [member(0), member(1)].map(|thread| thread.join().expect("no panic"));
                both.map(|count| count.expect("counted before")).into()
            });
            println!("{name}, {flavor:?}: {counts:?} in {EPOCHS} epochs");
            for count in counts {
                // The allowance is for other threads that have the processor meanwhile, and for checks for
                // dead members.
                assert!(count <= EPOCHS + EPOCHS / 20, "{name}, {flavor:?}: {count} in {EPOCHS} epochs");
            }
        }
    }
}
