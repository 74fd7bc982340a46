//! A window's statistics contain the time that its member waited, by synchronization, on every path.

use crate::{shared, watch, wires};
use std::sync::{Barrier, mpsc};
use std::thread;
use unisono_linux::clock::{Duration, now};
use unisono_rma::{Assert, Error, Job, Lock, Operation, Rank, Spec, Stats, Style, WindowStats};

/// The delay of rank 1 each time.
const LATE: Duration = Duration::from_millis(40);

/// Runs one rank; rank 1 is late in each synchronization. Returns the rank's final statistics of its window.
fn wait_for_the_other(mut job: Job, style: Style, held: Held) -> Result<WindowStats, Error> {
    let other = Rank(1 - job.rank().0);
    let late = other == Rank(0);
    let mut window = job.allocate(8, Spec::new().style(style))?;
    window.fence(Assert::NO_PRECEDE)?;
    window.put(&[1_u8], other, 0)?;
    if late {
        thread::sleep(LATE.into());
    }
    window.fence(Assert::NO_SUCCEED)?;
    window.post(&[other], Assert::NONE)?;
    window.start(&[other], Assert::NONE)?;
    if late {
        thread::sleep(LATE.into());
    }
    window.complete()?;
    window.wait()?;
    if late {
        window.lock(Rank(1), Lock::Exclusive, Assert::NONE)?;
        // over messages only a lock on one's own part is taken at once
        held.say.send(()).expect("rank 0 listens");
        thread::sleep(LATE.into());
        window.unlock(Rank(1))?;
    } else {
        held.hear.recv().expect("rank 1 says so");
        window.lock(Rank(1), Lock::Exclusive, Assert::NONE)?;
        window.put(&[1_u8], Rank(1), 0)?;
        window.unlock(Rank(1))?;
    }
    let stats = window.stats();
    window.free()?;
    job.finalize()?;
    Ok(stats)
}

/// How one member learns that the other holds the lock.
struct Held {
    say: mpsc::Sender<()>,
    hear: mpsc::Receiver<()>,
}

#[track_caller]
fn waits_are_counted(jobs: Vec<Job>, style: Style) {
    watch();
    let (to_zero, from_one) = mpsc::channel();
    let (to_one, from_zero) = mpsc::channel();
    let ends = [Held { say: to_one, hear: from_one }, Held { say: to_zero, hear: from_zero }];
    let stats: Vec<_> = thread::scope(|threads| {
        let members = jobs.into_iter().zip(ends);
        let working: Vec<_> =
            members.map(|(job, held)| threads.spawn(move || wait_for_the_other(job, style, held))).collect();
        let ended = working.into_iter().map(|member| member.join().expect("no panic"));
        ended.collect::<Result<_, _>>().expect("nobody is gone")
    });
    for (kind, Stats { spun, blocked, .. }) in
        [("fence", stats[0].fence), ("pscw", stats[0].pscw), ("passive", stats[0].passive)]
    {
        // The other rank may have begun its delay before this rank began to wait.
        let waited = spun + blocked;
        assert!(waited > LATE / 4, "{kind}: {waited:?} of {stats:?}");
        // A waiter must not stay awake this long.
        assert!(blocked > spun, "{kind}: {spun:?} awake, {blocked:?} asleep");
    }
}

/// Enough elements that combining them takes many milliseconds.
const LONG: usize = 1 << 19;

/// Runs one rank. Ranks 1 and 2 combine long rows into rank 0's part at the same time. Returns the time that
/// each took, and the waiting time in its statistics.
fn combine_at_once(mut job: Job, kind: Kind, meet: &Barrier) -> Result<(Duration, Stats), Error> {
    let (me, zero) = (job.rank(), Rank(0));
    let mut window = job.allocate(8 * LONG as u64, Spec::new().unit(8))?;
    let ones = vec![1_u64; if me == zero { 0 } else { LONG }];
    let both = [Rank(1), Rank(2)];
    match kind {
        // at the third fence all members are in the epoch
        Kind::Fence => (0..3).try_for_each(|_| window.fence(Assert::NONE))?,
        Kind::Started if me == zero => window.post(&both, Assert::NONE)?,
        Kind::Started => window.start(&[zero], Assert::NONE)?,
        Kind::Passive => window.lock_all(Assert::NONE)?,
    }
    meet.wait();
    let before = window.stats();
    let begun = now();
    if me != zero {
        for _ in 0..4 {
            window.accumulate(&ones, zero, 0, Operation::Sum)?;
        }
    }
    let took = now() - begun;
    // so that the end of the epoch waits for no rank
    meet.wait();
    match kind {
        Kind::Fence => window.fence(Assert::NO_SUCCEED)?,
        Kind::Started if me == zero => window.wait()?,
        Kind::Started => window.complete()?,
        Kind::Passive => window.unlock_all()?,
    }
    let of = |stats: WindowStats| match kind {
        Kind::Fence => stats.fence,
        Kind::Started => stats.pscw,
        Kind::Passive => stats.passive,
    };
    let (before, mut after) = (of(before), of(window.stats()));
    after.spun -= before.spun;
    after.blocked -= before.blocked;
    window.free()?;
    job.finalize()?;
    Ok((took, after))
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Fence,
    Started,
    Passive,
}

/// The gate lets one long row through at a time: of the time that the two ranks took, each waited about half.
#[test]
fn waits_for_others_that_combine_are_counted_in_every_synchronization() {
    watch();
    for kind in [Kind::Fence, Kind::Started, Kind::Passive] {
        let meet = Barrier::new(3);
        let ended: Vec<(Duration, Stats)> = thread::scope(|threads| {
            let work = |job| threads.spawn(|| combine_at_once(job, kind, &meet));
            let working: Vec<_> = shared(3).into_iter().map(work).collect();
            let ended = working.into_iter().map(|member| member.join().expect("no panic"));
            ended.collect::<Result<_, _>>().expect("nobody is gone")
        });
        let waited: Duration = ended[1..].iter().map(|(_, stats)| stats.spun + stats.blocked).sum();
        // As long as both work, one of them waits whenever the other works.
        let both = ended[1].0.min(ended[2].0);
        assert!(waited > both / 4, "{kind:?}: {ended:?}");
    }
}

#[test]
fn waits_for_flags_in_shared_memory_are_counted() {
    waits_are_counted(shared(2), Style::Direct);
}

#[test]
fn waits_for_messages_are_counted() {
    waits_are_counted(shared(2), Style::Deferred);
    waits_are_counted(Job::threads(2), Style::Deferred);
    waits_are_counted(Job::threads(2), Style::Naive);
    waits_are_counted(wires::tcp(2), Style::Deferred);
}
