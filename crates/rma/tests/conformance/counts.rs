//! A window's statistics count each operation once: by verb, by medium, and by synchronization.

use crate::paths::{Path, everywhere};
use unisono_rma::{
    Amount, Assert, Error, Flavor, Job, Lock, Medium, Operation, Rank, Spec, Style, Verb, Window, WindowStats,
};

const fn amount(operations: u64, bytes: u64) -> Amount {
    Amount { operations, bytes }
}

/// The operations issued to the other rank, in the order of [`Verb`].
const TO_THE_OTHER: [Amount; 5] = [amount(3, 48), amount(3, 40), amount(1, 8), amount(3, 24), amount(2, 16)];
/// The operations issued to this rank itself, in the same order.
const TO_ITSELF: [Amount; 5] = [amount(1, 8), amount(1, 8), amount(1, 8), amount(0, 0), amount(0, 0)];

fn issue(window: &mut Window, rank: Rank) -> Result<(), Error> {
    let other = Rank(1 - rank.0);
    window.fence(Assert::NO_PRECEDE)?;
    window.put(&[1_u64, 2], other, 0)?;
    window.put(&[1_u64, 2, 3], other, 0)?;
    let came = window.get::<u64>(1, other, 64)?;
    let fetched = window.get_accumulate(&[1_u64], other, 128, Operation::Sum)?;
    window.fence(Assert::NO_SUCCEED)?;
    window.take(came)?;
    window.take(fetched)?;
    window.lock_all(Assert::NONE)?;
    for target in [other, rank] {
        window.put(&[1_u64], target, 192)?;
        window.accumulate(&[1_u64], target, 128, Operation::Sum)?;
        window.get_now(&mut [0_u64], target, 64)?;
    }
    window.get_now(&mut [0_u64; 3], other, 64)?;
    window.fetch_and_op(1_u64, other, 128, Operation::Sum)?;
    window.fetch_and_op(1_u64, other, 128, Operation::NoOp)?;
    window.compare_and_swap(0_u64, 1, other, 136)?;
    window.compare_and_swap(0_u64, 1, other, 136)?;
    window.unlock_all()
}

fn check(path: &Path, window: &Window) {
    let name = path.name;
    let stats: WindowStats = window.stats();
    let mut sum = Amount::default();
    for verb in Verb::ALL {
        let of = |medium| stats.traffic.get(verb, medium);
        let (there, here) = (TO_THE_OTHER[verb as usize], TO_ITSELF[verb as usize]);
        let mut all = there;
        all += here;
        sum += all;
        let mut counted = Amount::default();
        Medium::ALL.into_iter().for_each(|medium| counted += of(medium));
        assert_eq!(counted, all, "{name}: {verb:?}");
        match (path.style, window.flavor()) {
            (Style::Direct, Flavor::Allocated) => assert_eq!(of(Medium::Stores), all, "{name}: {verb:?}"),
            (Style::Direct, _) => {
                assert_eq!(of(Medium::Messages), Amount::default(), "{name}: {verb:?}");
                // Puts and accumulates may be staged.
                if matches!(verb, Verb::Get | Verb::GetAccumulate | Verb::CompareAndSwap) {
                    assert_eq!(of(Medium::Kernel), there, "{name}: {verb:?}");
                }
            }
            _ => assert_eq!((of(Medium::Messages), of(Medium::Stores)), (there, here), "{name}: {verb:?}"),
        }
    }
    let by_reach = [stats.fence, stats.pscw, stats.passive];
    let operations: u64 = by_reach.iter().map(|stats| stats.operations).sum();
    let bytes: u64 = by_reach.iter().map(|stats| stats.bytes).sum();
    assert_eq!(amount(operations, bytes), sum, "{name}: by synchronization");
    assert_eq!(stats.fence.operations, 4, "{name}: between the fences");
}

#[test]
fn each_operation_is_counted_once_by_kind_and_by_what_carried_it() {
    everywhere(2, |path: &Path, mut job: Job| {
        let mut window = path.window(&mut job, 256, Spec::new())?;
        assert!(matches!(window.name(), "allocated" | "created"));
        window.set_name("ghosts");
        assert_eq!(window.name(), "ghosts");
        issue(&mut window, job.rank())?;
        check(path, &window);
        window.free()?;
        job.finalize()
    });
}

#[test]
fn an_exclusive_lock_counts_as_a_shared_one_does() {
    everywhere(2, |path: &Path, mut job: Job| {
        let mut window = path.window(&mut job, 8, Spec::new())?;
        let other = Rank(1 - job.rank().0);
        window.lock(other, Lock::Exclusive, Assert::NONE)?;
        window.put(&[1_u64], other, 0)?;
        window.unlock(other)?;
        let stats = window.stats();
        assert_eq!((stats.passive.operations, stats.passive.bytes), (1, 8), "{}", path.name);
        window.free()?;
        job.finalize()
    });
}
