//! The words of the mapped path - lock, gate, post and completion flags - under every interleaving within the
//! bound.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p unisono-rma --test loom
//! ```
//! The files under test are the same files from which the crate is built. A futex is modeled by a lock that
//! is held from the comparison until the sleep, membarrier by a full fence on both sides; a lost wake-up is a
//! deadlock, and loom reports it. Each model was seen to fail when the rule that it checks was broken on
//! purpose: the lock without its acquire, without the sleepers' bit, or with a release that does not wake
//! sleepers; the gate without a fence, without a check with the lock held, or turned back without a release;
//! the fence without a check of the exposure.

#![cfg(loom)]

#[path = "../src/path/mapped/gate.rs"]
mod gate;
#[path = "../src/path/mapped/hand_off.rs"]
mod hand_off;
#[path = "../src/path/mapped/lock_word.rs"]
mod lock_word;

use gate::{AccumulateLength, TargetGate};
use hand_off::{OfferLine, OfferPlacement, OfferedSpan};
use lock_word::{Attempt, LockWord};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use unisono_linux::futex::Scope;
use unisono_sync::atomics::{AtomicU32, Ordering};
use unisono_sync::{Block, Lines, Unwatched, WaitPolicy, Wakeups, WatchVerdict};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 20_000;
    builder.check(check);
}

/// A window's part: plain memory that the word under test has to order.
struct Part(UnsafeCell<u32>);

// SAFETY: accesses are ordered by the word under test; loom checks exactly that.
unsafe impl Sync for Part {}
// SAFETY: accesses are ordered by the word under test; loom checks exactly that.
unsafe impl Send for Part {}

impl Part {
    fn add(&self) {
        // SAFETY: the caller holds the lock; loom reports it if another thread does too.
        self.0.with_mut(|part| unsafe { *part += 1 });
    }

    fn set(&self, value: u32) {
        // SAFETY: the caller is alone, according to the word under test; loom reports it if the caller is not
        // alone.
        self.0.with_mut(|part| unsafe { *part = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: the caller holds the lock; loom reports it if another thread does too.
        self.0.with(|part| unsafe { *part })
    }
}

/// A futex: a lock that is held from the comparison until the sleep.
#[derive(Default)]
struct Kernel {
    lock: Mutex<()>,
    sleepers: Condvar,
}

struct Window {
    word: AtomicU32,
    kernel: Kernel,
    part: Part,
}

impl Window {
    fn new() -> Arc<Self> {
        let (word, kernel) = (AtomicU32::new(0), Kernel::default());
        Arc::new(Self { word, kernel, part: Part(UnsafeCell::new(0)) })
    }

    /// Takes a lock as `mapped::passive` does.
    fn lock(&self, exclusive: Option<u32>) {
        let taken = match exclusive {
            Some(rank) => LockWord(&self.word).try_exclusive(rank),
            None => LockWord(&self.word).try_shared(),
        };
        let mut slept = false;
        while !taken {
            match LockWord(&self.word).attempt(exclusive, slept) {
                Attempt::Taken => return,
                Attempt::Again => thread::yield_now(),
                Attempt::Sleep(seen) => {
                    slept = true;
                    let kernel = self.kernel.lock.lock().expect("no model thread panics with it");
                    if self.word.load(Ordering::Relaxed) == seen {
                        drop(self.kernel.sleepers.wait(kernel).expect("no model thread panics with it"));
                    }
                }
            }
        }
    }

    fn unlock(&self, exclusive: Option<u32>) {
        let wakes = match exclusive {
            Some(_) => LockWord(&self.word).release_exclusive(),
            None => LockWord(&self.word).release_shared(),
        };
        if wakes {
            let _kernel = self.kernel.lock.lock().expect("no model thread panics with it");
            self.kernel.sleepers.notify_all();
        }
    }

    fn write(&self, rank: u32) {
        self.lock(Some(rank));
        self.part.add();
        self.unlock(Some(rank));
    }

    fn look(&self) -> u32 {
        self.lock(None);
        let seen = self.part.read();
        self.unlock(None);
        seen
    }
}

#[test]
fn exclusive_holders_exclude_each_other_and_nobody_sleeps_for_ever() {
    model(|| {
        let window = Window::new();
        let others: Vec<_> = (1..3)
            .map(|rank| {
                let window = Arc::clone(&window);
                thread::spawn(move || window.write(rank))
            })
            .collect();
        window.write(0);
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(window.look(), 3);
    });
}

#[test]
fn a_writer_among_readers_is_seen_whole_and_gets_its_turn() {
    model(|| {
        let window = Window::new();
        let reader = {
            let window = Arc::clone(&window);
            thread::spawn(move || assert!(window.look() <= 1))
        };
        let writer = {
            let window = Arc::clone(&window);
            thread::spawn(move || window.write(1))
        };
        assert!(window.look() <= 1);
        reader.join().expect("no panic");
        writer.join().expect("no panic");
        assert_eq!(window.look(), 1);
        assert_eq!(window.word.load(Ordering::Relaxed), 0, "nothing is left in the word");
    });
}

/// A ring of one entry, the line of its offers, and the memory of its target.
struct Offered {
    line: Lines,
    entry: Part,
    memory: Part,
}

/// The size of an entry (bytes), data included.
const ENTRY: u32 = 32;

impl Offered {
    fn offers(&self) -> OfferLine<'_> {
        OfferLine(self.line.line(0))
    }

    /// Completes a staged put as `mapped::passive` does: the target applies it or, after a while, the origin.
    fn complete(&self, number: u32, form: OfferPlacement) {
        match form {
            // SAFETY: one word, which is readable.
            OfferPlacement::InLine => unsafe {
                self.offers().carry(number.into(), (&raw const number).cast(), 4)
            },
            OfferPlacement::InRing => self.entry.set(number),
        }
        let span = OfferedSpan { start: ENTRY * (number - 1), end: ENTRY * number };
        self.offers().offer(span, form);
        let mut is_offered = true;
        while !self.offers().is_applied(span.end) {
            if is_offered && self.offers().revoke(span.end, form) {
                self.memory.add();
                return;
            }
            is_offered = false;
            thread::yield_now();
        }
    }

    /// Checks for offers as `mapped::passive` does.
    fn serve(&self) {
        let mut begins = 0;
        let claimed = self.offers().claim(|start| {
            begins = start;
            true
        });
        if let Some((end, form)) = claimed {
            let number = end / ENTRY;
            assert_eq!(begins, ENTRY * (number - 1), "the start of this offer");
            match form {
                OfferPlacement::InLine => {
                    let put = self.offers().carried();
                    let (data, length) = put.data();
                    // SAFETY: the put's data is a word long.
                    let found = unsafe { data.cast::<u32>().read() };
                    assert_eq!((put.offset, length, found), (number.into(), 4, number), "of this offer");
                }
                OfferPlacement::InRing => assert_eq!(self.entry.read(), number, "the entry of this offer"),
            }
            self.memory.add();
            self.offers().applied(end);
        }
    }
}

#[test]
fn what_is_offered_is_done_once_by_the_one_or_the_other() {
    for forms in [
        [OfferPlacement::InLine, OfferPlacement::InLine],
        [OfferPlacement::InLine, OfferPlacement::InRing],
        [OfferPlacement::InRing, OfferPlacement::InLine],
        [OfferPlacement::InRing, OfferPlacement::InRing],
    ] {
        model(move || {
            let cell = || Part(UnsafeCell::new(0));
            let offered = Arc::new(Offered { line: Lines::on_heap(1), entry: cell(), memory: cell() });
            let target = {
                let offered = Arc::clone(&offered);
                thread::spawn(move || (0..2).for_each(|_| offered.serve()))
            };
            for (number, form) in (1..).zip(forms) {
                offered.complete(number, form);
                assert_eq!(offered.memory.read(), number, "complete is complete");
            }
            target.join().expect("no panic");
        });
    }
}

/// A target's gate, the part behind it, and the presences of two ranks.
struct Gated {
    words: [AtomicU32; 4],
    presences: [AtomicU32; 2],
    kernel: Kernel,
    part: Part,
    wakeups: Wakeups,
}

impl Gated {
    fn new(wakeups: Wakeups) -> Arc<Self> {
        let words = || AtomicU32::new(0);
        Arc::new(Self {
            words: std::array::from_fn(|_| words()),
            presences: std::array::from_fn(|_| words()),
            kernel: Kernel::default(),
            part: Part(UnsafeCell::new(0)),
            wakeups,
        })
    }

    fn gate(&self, rank: usize) -> TargetGate<'_> {
        TargetGate {
            one_by_one: &self.words[0],
            holder: &self.words[1],
            sleepers: &self.words[2],
            shorts: &self.words[3],
            presence: &self.presences[rank],
            target: 0,
            wakeups: self.wakeups,
        }
    }

    /// Takes the gate's lock as `mapped::accumulate` does.
    fn take(&self, rank: usize) {
        let gate = self.gate(rank);
        if gate.try_lock(rank as u32) {
            return;
        }
        gate.announce_sleeper();
        while !gate.try_lock(rank as u32) {
            let holder = gate.holder.load(Ordering::Relaxed);
            let kernel = self.kernel.lock.lock().expect("no model thread panics with it");
            if holder != 0 && gate.holder.load(Ordering::Relaxed) == holder {
                drop(self.kernel.sleepers.wait(kernel).expect("no model thread panics with it"));
            }
        }
        gate.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn give_back(&self, rank: usize, passed: AccumulateLength) {
        if self.gate(rank).unlock(passed) {
            let _kernel = self.kernel.lock.lock().expect("no model thread panics with it");
            self.kernel.sleepers.notify_all();
        }
    }

    /// Does a long accumulate as `mapped::accumulate` does.
    fn long(&self, rank: usize) {
        self.take(rank);
        let gate = self.gate(rank);
        if !gate.is_one_by_one() {
            gate.turn();
            while gate.holds(&self.presences[1 - rank]) {
                thread::yield_now();
            }
        }
        self.part.add();
        self.give_back(rank, AccumulateLength::Long);
    }

    /// Does a short accumulate. Side by side with others it only reads, because other short accumulates may
    /// be inside as well, but no long one.
    fn short(&self, rank: usize) {
        let gate = self.gate(rank);
        loop {
            if !gate.is_one_by_one() && gate.try_enter() {
                self.part.read();
                gate.leave();
                return;
            }
            self.take(rank);
            if gate.is_one_by_one() {
                self.part.add();
                return self.give_back(rank, AccumulateLength::Short);
            }
            self.give_back(rank, AccumulateLength::Long);
        }
    }
}

/// Runs `first` on one thread and `second` on another, once with each kind of fence. `least` is the minimal
/// number of additions to the part, `most` the number if all short accumulates come one by one.
fn gated(first: fn(&Gated), second: fn(&Gated), (least, most): (u32, u32)) {
    for wakeups in [Wakeups::Asymmetric(Scope::Shared), Wakeups::Symmetric(Scope::Shared)] {
        model(move || {
            let gated = Gated::new(wakeups);
            let other = {
                let gated = Arc::clone(&gated);
                thread::spawn(move || second(&gated))
            };
            first(&gated);
            other.join().expect("no panic");
            assert!((least..=most).contains(&gated.part.read()));
        });
    }
}

#[test]
fn a_short_accumulate_and_a_long_one_are_never_inside_together() {
    gated(|gated| gated.long(0), |gated| gated.short(1), (1, 2));
}

#[test]
fn two_long_accumulates_take_turns_and_nobody_sleeps_for_ever() {
    gated(|gated| gated.long(0), |gated| gated.long(1), (2, 2));
}

#[test]
fn a_gate_that_turns_round_and_back_lets_nobody_in_too_early() {
    let both = |gated: &Gated| {
        gated.long(0);
        // in a model a single short accumulate turns the gate back, so the first one does
        gated.short(0);
        gated.short(0);
    };
    gated(both, |gated| gated.short(1), (1, 4));
    gated(both, |gated| gated.long(1), (2, 4));
}

/// Post, a store, complete and wait, twice, as `mapped::pscw` does them for a queued operation.
#[test]
fn a_put_between_post_and_complete_is_seen_after_wait_and_never_before_post() {
    let wakeups = Wakeups::Symmetric(Scope::Private);
    model(move || {
        let lines = Lines::on_heap(2);
        let part = Arc::new(Part(UnsafeCell::new(0)));
        let origin = {
            let (lines, part) = (lines.clone(), Arc::clone(&part));
            thread::spawn(move || {
                for epoch in 1..=2 {
                    let posts = lines.line(0).flag(0);
                    let waited = Block::new(wakeups).wait(posts, epoch, &mut Unwatched);
                    assert_eq!(waited, WatchVerdict::Continue);
                    part.add();
                    lines.line(1).flag(1).signal(epoch, wakeups);
                }
            })
        };
        for epoch in 1..=2 {
            // Before it posts, a target may use its part freely.
            part.add();
            lines.line(0).flag(0).signal(epoch, wakeups);
            let completions = lines.line(1).flag(1);
            let waited = Block::new(wakeups).wait(completions, epoch, &mut Unwatched);
            assert_eq!(waited, WatchVerdict::Continue);
            assert_eq!(part.read(), 2 * epoch);
        }
        origin.join().expect("no panic");
    });
}

/// A staged entry is published to the target with the ring's fill level, and its room comes back with the
/// read position: the ring's cell is reused only then.
#[test]
fn a_staged_entry_is_whole_when_it_is_counted_and_its_room_is_reused_after_it_was_read() {
    model(|| {
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let cell = Arc::new(Part(UnsafeCell::new(0)));
        let origin = {
            let (words, cell) = (Arc::clone(&words), Arc::clone(&cell));
            thread::spawn(move || {
                for entry in 1..=2 {
                    // SYNC(given-back) acquire: as in `staging`
                    while words[1].load(Ordering::Acquire) != entry - 1 {
                        thread::yield_now();
                    }
                    cell.add();
                    // SYNC(filled) release: as in `staging`
                    words[0].store(entry, Ordering::Release);
                }
            })
        };
        for entry in 1..=2 {
            // SYNC(filled) acquire: as in `staging`
            while words[0].load(Ordering::Acquire) != entry {
                thread::yield_now();
            }
            assert_eq!(cell.read(), entry);
            // SYNC(given-back) release: as in `staging`
            words[1].store(entry, Ordering::Release);
        }
        origin.join().expect("no panic");
    });
}

/// Runs a barrier episode of two: each thread signals its arrival, and waits for that of the other.
fn meet(lines: &Lines, me: usize, episode: u32, wakeups: Wakeups) {
    lines.line(me).flag(0).signal(episode, wakeups);
    let other = lines.line(1 - me).flag(0);
    assert_eq!(Block::new(wakeups).wait(other, episode, &mut Unwatched), WatchVerdict::Continue);
}

/// Three fence epochs as in `mapped::fence`: the put of the first epoch is staged, and applied by the target
/// after the barrier; in the second the origin checks the target's exposure and stores; in the third it
/// stores.
#[test]
fn a_store_of_the_next_fence_epoch_comes_after_what_the_last_one_left_staged() {
    let wakeups = Wakeups::Symmetric(Scope::Private);
    model(move || {
        let (lines, exposure) = (Lines::on_heap(2), Lines::on_heap(1));
        let (ring, part) = (Arc::new(Part(UnsafeCell::new(0))), Arc::new(Part(UnsafeCell::new(0))));
        let origin = {
            let (lines, exposure) = (lines.clone(), exposure.clone());
            let (ring, part) = (Arc::clone(&ring), Arc::clone(&part));
            thread::spawn(move || {
                ring.add();
                meet(&lines, 0, 1, wakeups);
                let exposed = exposure.line(0).flag(0);
                assert_eq!(Block::new(wakeups).wait(exposed, 2, &mut Unwatched), WatchVerdict::Continue);
                part.add();
                meet(&lines, 0, 2, wakeups);
                part.add();
                meet(&lines, 0, 3, wakeups);
            })
        };
        // The target may use its own part until the first epoch has ended.
        assert_eq!(part.read(), 0);
        meet(&lines, 1, 1, wakeups);
        assert_eq!(ring.read(), 1);
        part.add();
        exposure.line(0).flag(0).signal(2, wakeups);
        meet(&lines, 1, 2, wakeups);
        meet(&lines, 1, 3, wakeups);
        assert_eq!(part.read(), 3);
        origin.join().expect("no panic");
    });
}
