//! Tests of the barrier over threads, over TCP, and beside a faster barrier that stops working.

use super::*;
use crate::model::{JobMembership, Key};
use crate::wire::loopback::Loopback;
use crate::wire::tcp::{JobListener, Tcp};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const TIMEOUT: Duration = Duration::from_secs(60);

/// The parents of members: member `n` hangs below one of those before it.
fn parents() -> impl Strategy<Value = Vec<usize>> {
    (1_usize..9).prop_flat_map(|size| (1..size).map(|member| 0..member).collect::<Vec<_>>())
}

fn children(parents: &[usize], of: usize) -> Vec<Rank> {
    let with_parents = (1..).zip(parents);
    with_parents.filter(|(_, parent)| **parent == of).map(|(member, _)| Rank::at(member)).collect()
}

fn member(transport: impl Transport + 'static, parents: &[usize]) -> TreeBarrierMember {
    let own = transport.rank().index();
    let parent = own.checked_sub(1).map(|before| Rank::at(parents[before]));
    TreeBarrierMember::over(transport, parent, children(parents, own))
}

fn answering(transport: impl Transport + 'static, parents: &[usize]) -> AnsweringMember {
    let mut member = AnsweringMember::over(member(transport, parents));
    member.start().expect("a thread more");
    member
}

/// Runs episodes; checks that no member leaves one before all have entered it.
fn run(members: Vec<TreeBarrierMember>, seed: u64) {
    const EPISODES: usize = 20;
    let entered: Vec<AtomicUsize> = members.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|threads| {
        for (rank, mut member) in members.into_iter().enumerate() {
            let entered = &entered;
            threads.spawn(move || {
                for episode in 1..=EPISODES {
                    if (seed >> ((rank + episode) % 64)) & 1 == 1 {
                        thread::sleep(Duration::from_micros(seed % 300));
                    }
                    entered[rank].store(episode, Ordering::Relaxed);
                    member.wait().expect("all are there");
                    for other in entered {
                        assert!(other.load(Ordering::Relaxed) >= episode, "left before all had entered");
                    }
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn no_member_leaves_before_all_have_entered(parents in parents(), seed in any::<u64>()) {
        let ends = Loopback::job(parents.len() + 1);
        run(ends.into_iter().map(|end| member(end, &parents)).collect(), seed);
    }
}

/// The ends of connections over TCP between neighbors, by rank.
fn over_tcp(parents: &[usize]) -> Vec<Tcp> {
    let key = Key::random().expect("random");
    let address = "127.0.0.1:0".parse().expect("an address");
    let listeners: Vec<JobListener> = (0..=parents.len())
        .map(|rank| JobMembership { rank: Rank::at(rank), size: parents.len() + 1, key })
        .map(|place| JobListener::bind(place, address).expect("a free port"))
        .collect();
    let addresses: Vec<_> = listeners.iter().map(JobListener::address).collect();
    let meet = |(rank, listener): (usize, JobListener)| {
        let mut near = children(parents, rank);
        near.extend(rank.checked_sub(1).map(|before| Rank::at(parents[before])));
        listener.connect_neighbours(&addresses, &near, TIMEOUT).expect("all meet")
    };
    thread::scope(|threads| {
        let meeting: Vec<_> =
            listeners.into_iter().enumerate().map(|one| threads.spawn(|| meet(one))).collect();
        meeting.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn members_over_tcp_connect_to_their_neighbours_alone() {
    let parents = [0, 0, 1, 1, 2];
    let members = over_tcp(&parents).into_iter().map(|end| member(end, &parents)).collect();
    run(members, 0x5555_aaaa_1234_0000);
}

#[test]
fn all_members_name_the_one_that_is_gone() {
    let parents = [0, 1, 2, 3];
    let mut members: Vec<TreeBarrierMember> =
        Loopback::job(5).into_iter().map(|end| member(end, &parents)).collect();
    drop(members.remove(3));
    let errors: Vec<String> = thread::scope(|threads| {
        let waiting: Vec<_> = members
            .iter_mut()
            .map(|member| threads.spawn(|| member.wait().expect_err("one is gone").to_string()))
            .collect();
        waiting.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for error in errors {
        assert!(error.starts_with("rank 3 is gone (its end was dropped)"), "{error}");
    }
    let again = members[0].wait().expect_err("for ever").to_string();
    assert!(again.starts_with("rank 3 is gone"), "{again}");
}

/// The numbers of arrivals at each barrier.
type Arrivals = Arc<Mutex<Vec<usize>>>;

/// A faster barrier among threads: counts arrivals. From the barrier `fails_at` on, it releases only the
/// members whose bit in `released` is set there, and later none.
struct Counting {
    member: usize,
    episode: usize,
    arrived: Arrivals,
    members: usize,
    fails_at: usize,
    released: u64,
    slow: Duration,
}

impl FastBarrier for Counting {
    fn arrive(&mut self) {
        self.arrived.lock().expect("no panic")[self.episode] += 1;
    }

    fn wait(&mut self, until: Instant) -> bool {
        let works = self.episode < self.fails_at
            || self.episode == self.fails_at && self.released >> self.member & 1 == 1;
        while now() < until {
            thread::sleep(Duration::from_micros(50));
            if works && self.arrived.lock().expect("no panic")[self.episode] == self.members {
                thread::sleep(self.slow);
                self.episode += 1;
                return true;
            }
        }
        false
    }

    fn skip(&mut self) {
        self.episode += 1;
    }
}

/// Another call, between two barriers, in which the members wait for each other. If one of them has panicked,
/// the others panic, too.
fn meet(met: &AtomicUsize, all: usize) {
    met.fetch_add(1, Ordering::Relaxed);
    let until = now() + TIMEOUT.into();
    while met.load(Ordering::Relaxed) < all {
        assert!(now() < until, "a member does not come");
        thread::sleep(Duration::from_micros(50));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn no_member_leaves_early_when_a_faster_barrier_fails_in_the_middle(
        parents in parents(), seed in any::<u64>(), fails_at in 0_usize..12, slow in 0_u64..4,
        meets in any::<bool>()
    ) {
        const EPISODES: usize = 20;
        let members = parents.len() + 1;
        let arrived: Arrivals = Arc::new(Mutex::new(vec![0; EPISODES + 1]));
        let entered: Vec<AtomicUsize> = (0..members).map(|_| AtomicUsize::new(0)).collect();
        let by_tree = AtomicUsize::new(0);
        let met = AtomicUsize::new(0);
        thread::scope(|threads| {
            for (rank, end) in Loopback::job(members).into_iter().enumerate() {
                let mut tree = answering(end, &parents);
                let mut fast = Counting {
                    member: rank, episode: 0, arrived: arrived.clone(), members, fails_at,
                    released: seed >> 8, slow: Duration::from_millis(slow * (rank as u64 % 2)),
                };
                let (entered, by_tree, met) = (&entered, &by_tree, &met);
                threads.spawn(move || {
                    for episode in 1..=EPISODES {
                        if (seed >> ((rank + episode) % 64)) & 7 == 1 {
                            thread::sleep(Duration::from_millis(seed % 5));
                        }
                        entered[rank].store(episode, Ordering::Relaxed);
                        let by = tree.wait_beside(&mut fast, Duration::from_millis(3)).expect("all are there");
                        if by == ReleasedBy::Tree {
                            by_tree.fetch_add(1, Ordering::Relaxed);
                        }
                        for other in entered {
                            assert!(other.load(Ordering::Relaxed) >= episode, "left before all had entered");
                        }
                        if meets {
                            meet(met, members * episode);
                        }
                    }
                    tree.leave();
                });
            }
        });
        prop_assert!(by_tree.into_inner() >= members * (EPISODES - fails_at - 1));
    }

    #[test]
    fn data_of_all_members_are_combined_and_every_member_gets_them(parents in parents(), seed in any::<u64>()) {
        let sum = &|into: &mut [u8], from: &[u8]| {
            into.iter_mut().zip(from).for_each(|(into, from)| *into = into.wrapping_add(*from));
        };
        let given = |rank: usize, round: usize| (seed >> ((8 * rank + round) % 57)) as u8;
        let members = parents.len() + 1;
        thread::scope(|threads| {
            for (rank, end) in Loopback::job(members).into_iter().enumerate() {
                let mut tree = member(end, &parents);
                threads.spawn(move || {
                    for round in 0..20 {
                        let mut data = [given(rank, round), 1];
                        tree.combine(&mut data, &mut |into, from| sum(into, from)).expect("all are there");
                        let all = (0..members).fold(0_u8, |all, rank| all.wrapping_add(given(rank, round)));
                        assert_eq!(data, [all, members as u8]);
                        if round % 3 == 0 {
                            tree.wait().expect("all are there");
                        }
                    }
                    tree.leave();
                });
            }
        });
    }
}

#[test]
fn who_leaves_releases_a_neighbour_that_the_faster_barrier_has_forgotten() {
    let parents = [0];
    let arrived: Arrivals = Arc::new(Mutex::new(vec![0; 2]));
    let fast = |member: usize| Counting {
        member,
        episode: 0,
        arrived: arrived.clone(),
        members: 2,
        fails_at: 0,
        released: 0b01,
        slow: Duration::ZERO,
    };
    let mut ends = Loopback::job(2).into_iter();
    let mut root = member(ends.next().expect("two"), &parents);
    let mut leaf = member(ends.next().expect("two"), &parents);
    thread::scope(|threads| {
        let (mut near, mut far) = (fast(0), fast(1));
        threads.spawn(move || {
            assert_eq!(root.wait_beside(&mut near, TIMEOUT).expect("both come"), ReleasedBy::Fast);
            root.leave();
        });
        threads.spawn(move || {
            assert_eq!(leaf.wait_beside(&mut far, TIMEOUT).expect("both come"), ReleasedBy::Fast);
            assert_eq!(far.episode, 1);
        });
    });
}

/// Runs a chain of three members whose faster barrier releases the last one alone, and then no member. That
/// member waits for the others in another call before it comes to the next barrier.
fn release_the_last_alone(mut chain: Vec<AnsweringMember>) {
    const STALL_AFTER: Duration = Duration::from_millis(3);
    let arrived: Arrivals = Arc::new(Mutex::new(vec![0; 2]));
    let fast = |member: usize| Counting {
        member,
        episode: 0,
        arrived: arrived.clone(),
        members: 3,
        fails_at: 0,
        released: 0b100,
        slow: Duration::ZERO,
    };
    let (to_last, others) = mpsc::channel();
    let mut last = chain.pop().expect("three");
    thread::scope(|threads| {
        let mut switches = fast(2);
        threads.spawn(move || {
            // it does not report, even if the others come late
            assert_eq!(last.wait_beside(&mut switches, TIMEOUT).expect("all come"), ReleasedBy::Fast);
            for _ in 0..2 {
                others.recv_timeout(TIMEOUT).expect("the others were released");
            }
            let by = last.wait_beside(&mut switches, STALL_AFTER).expect("all come");
            assert_eq!(by, ReleasedBy::Tree);
            last.leave();
        });
        for (rank, mut member) in chain.into_iter().enumerate() {
            let (to_last, mut switches) = (to_last.clone(), fast(rank));
            threads.spawn(move || {
                let by = member.wait_beside(&mut switches, STALL_AFTER).expect("all come");
                assert_eq!((by, switches.episode), (ReleasedBy::Fast, 1), "by an answer");
                to_last.send(()).expect("it waits");
                let by = member.wait_beside(&mut switches, STALL_AFTER).expect("all come");
                assert_eq!(by, ReleasedBy::Tree);
                member.leave();
            });
        }
    });
}

#[test]
fn a_member_that_was_released_alone_answers_while_it_waits_elsewhere() {
    let parents = [0, 1];
    release_the_last_alone(Loopback::job(3).into_iter().map(|end| answering(end, &parents)).collect());
    release_the_last_alone(over_tcp(&parents).into_iter().map(|end| answering(end, &parents)).collect());
}

#[test]
fn who_was_released_while_the_first_decision_came_answers_after_it() {
    // the middle of a chain has left the second barrier when the root's decision about the first one comes
    let parents = [0, 1];
    let arrived: Arrivals = Arc::new(Mutex::new(vec![0; 2]));
    let fast = |member: usize| Counting {
        member,
        episode: 0,
        arrived: arrived.clone(),
        members: 2,
        fails_at: 1,
        released: 0b010,
        slow: Duration::ZERO,
    };
    let mut ends = Loopback::job(3).into_iter();
    let mut next = || ends.next().expect("three");
    let (mut root, middle, leaf) = (next(), next(), next());
    let (mut middle, mut leaf) = (answering(middle, &parents), member(leaf, &parents));
    let (mut near, mut far) = (fast(1), fast(2));
    thread::scope(|threads| {
        let last = threads.spawn(move || {
            assert_eq!(leaf.wait_beside(&mut far, TIMEOUT).expect("both come"), ReleasedBy::Fast);
            leaf.wait_beside(&mut far, TIMEOUT).expect("both come")
        });
        for _ in 0..2 {
            assert_eq!(middle.wait_beside(&mut near, TIMEOUT).expect("both come"), ReleasedBy::Fast);
        }
        let decision = Header { tag: 1, extra: DECISION, ..Header::new(PacketKind::Collect, 0) };
        root.send(Rank(1), &decision.encode(0), &[]).expect("it is there");
        assert_eq!(last.join().expect("no panic"), ReleasedBy::Tree);
    });
}

#[test]
fn a_member_in_no_barrier_passes_on_what_its_neighbours_send() {
    // the middle of a chain never waits; the root names a member that is lost
    let parents = [0, 1];
    let mut ends = Loopback::job(3).into_iter();
    let mut next = || ends.next().expect("three");
    let (root, middle, leaf) = (next(), next(), next());
    let middle = answering(middle, &parents);
    let mut leaf = member(leaf, &parents);
    let mut root = member(root, &parents);
    root.give_up(Gone { rank: Rank(7), why: "its host is down".to_owned() });
    let error = leaf.wait().expect_err("the root has told it").to_string();
    assert!(error.starts_with("rank 7 is gone (its host is down)"), "{error}");
    drop(middle);
}
