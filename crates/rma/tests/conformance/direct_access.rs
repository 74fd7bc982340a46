//! Loads and stores of the program's own beside the engine: the lock that they need, and results at absolute
//! addresses.

use crate::paths::everywhere;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use unisono_linux::clock::Duration;
use unisono_rma::{Assert, Element, Layout, Lock, Rank, Run, Sink, Spec, Target};

#[test]
fn a_rank_that_holds_its_lock_comes_after_the_exclusive_lock_of_another() {
    for all in [false, true] {
        let changed = AtomicBool::new(false);
        everywhere(2, |path, mut job| {
            let mut window = path.window(&mut job, 8, Spec::new())?;
            if job.rank() == Rank(0) {
                changed.store(false, Ordering::Relaxed);
                window.lock(Rank(0), Lock::Exclusive, Assert::NONE)?;
                window.hold(Rank(0))?;
                job.barrier()?;
                thread::sleep(Duration::from_millis(30).into());
                changed.store(true, Ordering::Relaxed);
                window.unlock(Rank(0))?;
            } else {
                job.barrier()?;
                match all {
                    true => window.lock_all(Assert::NONE)?,
                    false => window.lock(Rank(0), Lock::Shared, Assert::NONE)?,
                }
                window.hold(Rank(0))?;
                window.hold(Rank(0))?;
                assert!(changed.load(Ordering::Relaxed), "{}", path.name);
                match all {
                    true => window.unlock_all()?,
                    false => window.unlock(Rank(0))?,
                }
                assert!(window.hold(Rank(0)).is_err(), "the epoch has ended");
            }
            window.free()?;
            job.finalize()
        });
    }
}

#[test]
fn a_get_delivers_its_data_to_absolute_addresses() {
    everywhere(2, |path, mut job| {
        let (me, other) = (job.rank(), Rank(1 - job.rank().0));
        let mut window = path.window(&mut job, 16, Spec::new().unit(8))?;
        window.store(0, &[10 + u64::from(me.0), 20])?;
        window.fence(Assert::NO_PRECEDE)?;
        job.barrier()?;
        let mut result = [0_u64; 3];
        let base = (&raw mut result).expose_provenance() as i64;
        let run = |at: i64| Run { offset: base + 8 * at, bytes: 8, stride: 8, count: 1 };
        let sink = Layout::from_runs(vec![run(2), run(0)], 24, Some(Element::U64))?;
        let target = Element::U64.layout();
        let target = Target { rank: other, displacement: 0, count: 2, layout: &target };
        // SAFETY: the layout's blocks are those of `result`, which lives until the fence below.
        unsafe { window.raw_get(Sink { address: null_mut(), count: 1, layout: &sink }, target)? };
        window.fence(Assert::NO_SUCCEED)?;
        assert_eq!(result, [20, 0, 10 + u64::from(other.0)], "{}", path.name);
        window.free()?;
        job.finalize()
    });
}
