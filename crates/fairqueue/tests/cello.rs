//! Tests the disk scheduler on a simulated disk: shares and deadlines are kept, requests are served in
//! sweeps, and none starves.

use proptest::prelude::*;
use std::collections::HashSet;
use unisono_fairqueue::{Cello, ClassId, ClassSpec, Disk, DiskRequest, Hierarchy, Purpose};
use unisono_time::{Duration, Instant};

const DISK: Disk =
    Disk { request: Duration::from_micros(100), bytes_per_second: 100_000_000, ahead: 64 << 10 };

fn disk(weights: [u32; 3]) -> (Cello<usize>, [ClassId; 3]) {
    let names = ["interactive", "throughput", "real-time"];
    let leaf = |(name, weight): (&str, u32)| {
        ClassSpec::new(name).weighing(weight.to_string().parse().expect("a weight"))
    };
    let tree = ClassSpec::new("disk").with(names.into_iter().zip(weights).map(leaf));
    let tree = Hierarchy::new(tree).expect("names are unique");
    let ids = names.map(|name| tree.find(name).expect("it is there"));
    let purpose = move |id| match ids.iter().position(|each| *each == id) {
        Some(0) => Purpose::Interactive,
        Some(2) => Purpose::RealTime,
        _ => Purpose::Throughput,
    };
    (Cello::new(tree, purpose, DISK), ids)
}

fn request(position: u64, length: u32, deadline: Instant, item: usize) -> DiskRequest<usize> {
    DiskRequest { position, length, deadline, item }
}

proptest! {
    #[test]
    fn classes_that_always_want_service_get_their_shares(
        weights in prop::array::uniform3(1..10_u32),
        lengths in prop::collection::vec(4096..65_536_u32, 1..9),
        deadlines in 0..100_000_000_u64,
    ) {
        let (mut cello, ids) = disk(weights);
        let mut now = Instant::ZERO;
        let mut next = lengths.iter().copied().cycle().zip(0..);
        let mut submit = |cello: &mut Cello<usize>, now: Instant, class| {
            let (length, item) = next.next().expect("endless");
            cello.submit(now, class, request(item as u64 * 7919 % 1000, length, now + Duration::from_nanos(deadlines), item)).expect("a leaf");
        };
        for class in ids.into_iter().flat_map(|id| [id; 3]) {
            submit(&mut cello, now, class);
        }
        let longest = f64::from(*lengths.iter().max().expect("some"));
        for _ in 0..800 {
            let (class, sent) = cello.dispatch(now).expect("everybody wants service");
            now += DISK.takes(sent.length);
            submit(&mut cello, now, class);
            cello.complete(now);
            for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                let got = |at: usize| cello.shares().served(ids[at]).bytes as f64 / f64::from(weights[at]);
                // the fairness bound, and how far a class may be ahead
                let most = |at: usize| (longest + f64::from(DISK.ahead)) / f64::from(weights[at]);
                prop_assert!((got(one) - got(other)).abs() <= most(one) + most(other) + 1e-6);
            }
        }
    }

    #[test]
    fn real_time_requests_within_their_share_are_in_time(
        length in 4096..32_768_u32, others in prop::collection::vec(4096..65_536_u32, 1..9), phase in 0..40_u64,
    ) {
        // one request each 20 ms; the disk takes some 0.75 ms for the longest other request
        let (mut cello, ids) = disk([2, 3, 5]);
        let period = Duration::from_millis(20);
        let (mut now, mut due, mut item) = (Instant::ZERO, Instant::from_millis(phase), 0);
        let mut lengths = others.iter().copied().cycle();
        for _ in 0..3 {
            for class in [ids[0], ids[1]] {
                cello.submit(Instant::ZERO, class, request(0, lengths.next().expect("endless"), Instant::NEVER, 0)).expect("a leaf");
            }
        }
        for _ in 0..1500 {
            while due <= now {
                // the tightest feasible deadline: the request itself, and the request that the disk serves
                // when it arrives
                let longest = *others.iter().max().expect("some");
                let deadline = due + DISK.takes(length) + DISK.takes(longest) * 2;
                cello.submit(due, ids[2], request(item, length, deadline, 1)).expect("a leaf");
                due += period;
                item += 1;
            }
            let (class, sent) = cello.dispatch(now).expect("others always want service");
            now += DISK.takes(sent.length);
            cello.complete(now);
            if class == ids[2] {
                prop_assert!(now <= sent.deadline, "{:?} late", now - sent.deadline);
            } else {
                cello.submit(now, class, request(item, lengths.next().expect("endless"), Instant::NEVER, 0)).expect("a leaf");
            }
        }
    }

    #[test]
    fn nobody_is_forgotten_and_sweeps_go_up(
        arrivals in prop::collection::vec((0..3_usize, 0..50_u64, 4096..65_536_u32, 0..3_usize), 1..200),
    ) {
        let (mut cello, ids) = disk([1, 1, 1]);
        let (mut now, mut seen) = (Instant::ZERO, HashSet::new());
        let mut serve = |cello: &mut Cello<usize>, now: &mut Instant| {
            let Some((_, sent)) = cello.dispatch(*now) else { return false };
            *now += DISK.takes(sent.length);
            cello.complete(*now);
            assert!(seen.insert(sent.item), "{} was sent twice", sent.item);
            true
        };
        for (item, (class, position, length, then)) in arrivals.iter().enumerate() {
            cello.submit(now, ids[*class], request(*position, *length, now + Duration::from_millis(1), item)).expect("a leaf");
            for _ in 0..*then {
                serve(&mut cello, &mut now);
            }
        }
        while serve(&mut cello, &mut now) {}
        prop_assert_eq!(seen.len(), arrivals.len());
        prop_assert_eq!(cello.backlog().packets, 0);
    }
}

#[test]
fn a_sweep_goes_up_and_who_comes_meanwhile_waits_for_the_next() {
    let (mut cello, [_, throughput, _]) = disk([1, 1, 1]);
    for (item, position) in [50, 10, 30].into_iter().enumerate() {
        cello
            .submit(Instant::ZERO, throughput, request(position, 4096, Instant::ZERO, item))
            .expect("a leaf");
    }
    let mut order = vec![];
    for at in (0..5).map(Instant::from_nanos) {
        order.push(cello.dispatch(at).expect("requests wait").1.position);
        if at == Instant::ZERO {
            // positions ahead of the sweep and behind it: neither may keep 30 and 50 waiting
            cello.submit(at, throughput, request(20, 4096, Instant::ZERO, 3)).expect("a leaf");
            cello.submit(at, throughput, request(5, 4096, Instant::ZERO, 4)).expect("a leaf");
        }
        cello.complete(at);
    }
    assert_eq!(order, [10, 30, 50, 5, 20]);
}

#[test]
fn interactive_requests_go_first_until_they_are_ahead_or_a_deadline_is_near() {
    let (mut cello, [interactive, throughput, real_time]) = disk([1, 1, 1]);
    for item in 0..30 {
        cello
            .submit(Instant::ZERO, throughput, request(0, 16 << 10, Instant::ZERO, 100 + item))
            .expect("a leaf");
        cello.submit(Instant::ZERO, interactive, request(0, 16 << 10, Instant::ZERO, item)).expect("a leaf");
    }
    let mut classes = vec![];
    for at in (0..7).map(Instant::from_nanos) {
        classes.push(cello.dispatch(at).expect("requests wait").0);
        cello.complete(at);
    }
    // after four of its requests the class is 64 KiB ahead; one more may go, and then the others catch up
    assert_eq!(classes.iter().filter(|class| **class == interactive).count(), 5, "{classes:?}");
    assert!(classes[..5].iter().all(|class| *class == interactive));
    // a real-time request that would be late after any other request
    let length = 4096;
    cello
        .submit(
            Instant::from_nanos(7),
            real_time,
            request(0, length, Instant::from_nanos(1007) + DISK.takes(length), 0),
        )
        .expect("a leaf");
    assert_eq!(cello.dispatch(Instant::from_nanos(7)).expect("requests wait").0, real_time);
}

#[test]
fn the_deadlines_of_two_real_time_classes_are_kept_together() {
    let classes = ["backup", "audio", "video"].map(ClassSpec::new);
    let tree = Hierarchy::new(ClassSpec::new("disk").with(classes)).expect("names are unique");
    let [backup, audio, video] =
        ["backup", "audio", "video"].map(|name| tree.find(name).expect("it is there"));
    let purpose = |class| if class == backup { Purpose::Throughput } else { Purpose::RealTime };
    let mut cello = Cello::new(tree, purpose, DISK);
    let length = 16 << 10;
    // alone, each of the two could wait for the other request; together they cannot
    let due = Instant::ZERO + DISK.takes(length) * 2 + Duration::from_micros(200);
    for (item, class) in [backup, audio, video].into_iter().enumerate() {
        cello.submit(Instant::ZERO, class, request(0, length, due, item)).expect("a leaf");
    }
    let mut now = Instant::ZERO;
    for class in [audio, video, backup] {
        let (sent, _) = cello.dispatch(now).expect("requests wait");
        assert_eq!(sent, class, "at {now:?}");
        now += DISK.takes(length);
        cello.complete(now);
    }
}

#[test]
fn after_a_change_of_weights_all_requests_are_served_by_the_new_ones() {
    let (mut cello, ids) = disk([1, 1, 1]);
    for item in 0..300 {
        let at = Instant::ZERO;
        cello.submit(at, ids[item % 3], request(item as u64, 65_536, at, item)).expect("a leaf");
    }
    let mut served: Vec<usize> =
        (0..30).filter_map(|_| cello.dispatch(Instant::ZERO)).map(|sent| sent.1.item).collect();
    let (mut changed, ids) = disk([1, 8, 1]);
    changed.take_over(Instant::ZERO, cello, |item| ids[item % 3]).expect("leaves");
    let after: Vec<usize> =
        (0..50).filter_map(|_| changed.dispatch(Instant::ZERO)).map(|sent| sent.1.item).collect();
    let bulk = after.iter().filter(|item| **item % 3 == 1).count();
    assert!((38..=42).contains(&bulk), "eight tenths of 50, and one request more or less: {bulk}");
    served.extend(after);
    served.extend(std::iter::from_fn(|| changed.dispatch(Instant::ZERO)).map(|sent| sent.1.item));
    assert_eq!(served.iter().collect::<HashSet<_>>().len(), 300);
    let bulk: Vec<usize> = served.into_iter().filter(|item| item % 3 == 1).collect();
    assert!(bulk.is_sorted(), "a sweep goes on");
}
