//! Tests with threads as ranks, which share a page. An atomic word stands for the host MPI of each rank: the
//! rank polls the word for the end of its request.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use unisono_sync::Lines;

/// Makes the ranks of a host. Their shared page is leaked, because [`MpiHostRanks`] borrows it for `'static`.
fn ranks(members: usize, oversubscribed: bool) -> Vec<MpiHostRanks> {
    let lines: &'static Lines = Box::leak(Box::new(Lines::on_heap(SHARED + members)));
    let first: *const CacheLine = lines.line(0);
    // SAFETY: these are the lines of the array, which was leaked.
    let lines = unsafe { std::slice::from_raw_parts(first, SHARED + members) };
    let of = |member| MpiHostRanks {
        lines,
        member,
        max_nap: MAX_NAP,
        oversubscribed: AtomicBool::new(oversubscribed),
    };
    (0..members).map(of).collect()
}

/// Makes the waits of this host sleep instead of spin, as the load of other programs does: by two long
/// yields.
fn beside_foreign_load(ranks: &MpiHostRanks) {
    for milliseconds in [1_000, 1_005] {
        ranks.regime().yield_took_long(Instant::from_millis(milliseconds));
    }
    assert!(ranks.regime().is_asleep());
}

#[test]
fn a_wait_asks_until_the_answer_is_yes_and_not_once_more() {
    for oversubscribed in [false, true] {
        for asleep in [false, true] {
            let ranks = &ranks(2, oversubscribed)[1];
            if asleep {
                beside_foreign_load(ranks);
            }
            for needed in [1, 2, 7, 5_000] {
                let needed = if asleep { needed.min(4) } else { needed };
                let mut asked = 0;
                ranks.wait(WaitKind::Directed, 0, || {
                    asked += 1;
                    asked == needed
                });
                assert_eq!(asked, needed, "full {oversubscribed}, asleep {asleep}");
            }
        }
    }
}

#[test]
fn a_rank_that_naps_is_woken_by_a_bell_of_its_kind_and_counts_only_while_it_naps() {
    for (kind, undirected) in [(WaitKind::Directed, 0), (WaitKind::Undirected, 1)] {
        let mut ranks = ranks(2, true);
        let ringing = ranks.pop().expect("two members");
        let sleeping = ranks.pop().expect("one member");
        beside_foreign_load(&ringing);
        let shared = &ringing.lines[1];
        let (asked, arrived) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, arrives) = (Arc::clone(&asked), Arc::clone(&arrived));
        let sleeper = thread::spawn(move || {
            sleeping.wait(kind, 0, || {
                counts.fetch_add(1, Ordering::SeqCst);
                arrives.load(Ordering::SeqCst)
            })
        });
        let begun = now();
        while asked.load(Ordering::SeqCst) < 6 {
            assert!(now() - begun < Duration::from_secs(60), "it does not ask");
            thread::yield_now();
        }
        assert_eq!(shared.word(SLEEPING_RANKS).load(Ordering::SeqCst), 1);
        assert_eq!(shared.word(UNDIRECTED_SLEEPERS).load(Ordering::SeqCst), undirected);
        arrived.store(true, Ordering::SeqCst);
        if kind == WaitKind::Directed {
            ringing.ring(0);
        } else {
            ringing.ring_undirected();
        }
        let wait = sleeper.join().expect("it does not panic");
        assert!(wait.slept > Duration::ZERO, "it asked {asked:?} times and never slept");
        assert_eq!(shared.word(SLEEPING_RANKS).load(Ordering::SeqCst), 0);
        assert_eq!(shared.word(UNDIRECTED_SLEEPERS).load(Ordering::SeqCst), 0);
    }
}

#[test]
fn naps_grow_to_their_longest_and_no_further() {
    let ranks = &ranks(2, true)[0];
    let mut watch = CompletionWatch {
        ranks,
        question: || false,
        nap: FIRST_NAP,
        longest: Duration::from_micros(350),
        rings_left: 0,
    };
    let mut naps = Vec::new();
    for _ in 0..4 {
        naps.push(watch.nap.as_micros());
        watch.sleep_until();
    }
    assert_eq!(naps, [100, 200, 350, 350]);
}

#[test]
fn a_wait_within_a_wait_is_possible() {
    let ranks = &ranks(2, true)[0];
    let mut outer = 0;
    ranks.wait(WaitKind::Directed, 0, || {
        let mut inner = 0;
        ranks.wait(WaitKind::Directed, 0, || {
            inner += 1;
            inner == 3
        });
        outer += 1;
        outer == 3
    });
    assert_eq!(outer, 3);
}

#[test]
fn bells_of_ranks_that_are_none_are_silent() {
    ranks(2, true)[0].ring(7);
}
