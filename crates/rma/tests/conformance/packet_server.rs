//! A thread that waits for something that the job does not know serves the other members' packets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use unisono_rma::{Assert, Job, Lock, Locks, Rank, Spec, Style};

#[test]
fn a_server_does_the_agents_work_and_nothing_after_the_end_of_its_job() {
    let is_over = AtomicBool::new(false);
    let mut jobs = Job::threads(2).into_iter();
    let (mut origin, mut target) = (jobs.next().expect("two"), jobs.next().expect("two"));
    let spec = || Spec::new().unit(8).style(Style::Deferred).locks(Locks::Possible);
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut window = origin.allocate(8, spec()).expect("both make it");
            for value in [5_u64, 6] {
                window.lock(Rank(1), Lock::Exclusive, Assert::NONE).expect("a valid call");
                window.put(&[value], Rank(1), 0).expect("a valid call");
                window.unlock(Rank(1)).expect("the target serves");
            }
            window.settle().expect("the target serves");
            is_over.store(true, Ordering::Release);
            window.free().expect("both free it");
            origin.finalize().expect("both leave");
        });
        target.without_agent();
        let mut window = target.allocate(8, spec()).expect("both make it");
        let server = target.packet_server();
        let mut served = 0;
        while !is_over.load(Ordering::Acquire) {
            served += u32::from(server.serve());
            thread::yield_now();
        }
        assert!(served > 0);
        let mut found = [0_u64];
        window.load(0, &mut found).expect("its own part");
        assert_eq!(found, [6]);
        window.free().expect("both free it");
        target.finalize().expect("both leave");
        assert!(!server.serve());
    });
}
