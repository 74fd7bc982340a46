//! Tests a link that the scheduler serves: the proven bounds hold, and so do the invariants of all
//! disciplines.

use proptest::prelude::*;
use std::collections::HashMap;
use unisono_fairqueue::{
    Backlog, ClassId, ClassSpec, Discipline, Fifo, Hierarchy, Limit, NO_DEADLINE, Order, Overflow, Packet,
    Rate, RoundRobin, Scheduler, Trace, Weight, Weighted, bounds,
};
use unisono_time::{Duration, Instant};

fn weight(text: &str) -> Weight {
    text.parse().expect("it is a weight")
}

fn flat(weights: &[u32]) -> Hierarchy {
    let leaf =
        |(at, each): (usize, &u32)| ClassSpec::new(format!("c{at}")).weighing(weight(&each.to_string()));
    Hierarchy::new(ClassSpec::new("link").with(weights.iter().enumerate().map(leaf))).expect("unique names")
}

fn class(hierarchy: &Hierarchy, name: &str) -> ClassId {
    hierarchy.find(name).expect("it is in the tree")
}

/// Keeps the classes in `lengths` backlogged. Returns the class and the length of each packet served.
fn saturate(
    scheduler: &mut Scheduler<()>,
    lengths: &HashMap<ClassId, Vec<u32>>,
    packets: usize,
) -> Vec<(ClassId, u32)> {
    let mut sent: HashMap<ClassId, usize> = HashMap::new();
    let mut send = |scheduler: &mut Scheduler<()>, class: ClassId| {
        let at = sent.entry(class).or_default();
        let length = lengths[&class][*at % lengths[&class].len()];
        *at += 1;
        scheduler.enqueue(Instant::ZERO, class, Packet::new(length, ())).expect("a leaf takes packets");
    };
    for class in lengths.keys().flat_map(|class| [*class; 2]) {
        send(scheduler, class);
    }
    let mut served = vec![];
    for _ in 0..packets {
        let (class, packet) = scheduler.dequeue(Instant::ZERO).expect("everybody wants service");
        served.push((class, packet.length));
        if lengths.contains_key(&class) {
            send(scheduler, class);
        }
    }
    served
}

proptest! {
    #[test]
    fn siblings_that_always_want_service_stay_within_the_fairness_bound(
        weights in prop::collection::vec(1..50_u32, 2..8),
        lengths in prop::collection::vec(prop::collection::vec(1..1500_u32, 1..9), 8),
        nested in any::<bool>(),
    ) {
        // if `nested`, the siblings share what their parent gets in competition with another class
        let hierarchy = if nested {
            let inner = weights.iter().enumerate().map(|(at, each)| {
                ClassSpec::new(format!("c{at}")).weighing(weight(&each.to_string()))
            });
            let root = ClassSpec::new("link").with([ClassSpec::new("inner").with(inner), ClassSpec::new("other")]);
            Hierarchy::new(root).expect("unique names")
        } else {
            flat(&weights)
        };
        let mut of: HashMap<ClassId, Vec<u32>> = HashMap::new();
        for (at, lengths) in lengths.iter().take(weights.len()).enumerate() {
            of.insert(class(&hierarchy, &format!("c{at}")), lengths.clone());
        }
        if nested {
            of.insert(class(&hierarchy, "other"), vec![1500, 40]);
        }
        let served = saturate(&mut Scheduler::new(hierarchy.clone()), &of, 600);
        for (one, other) in (0..weights.len()).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let pair = [one, other].map(|at| class(&hierarchy, &format!("c{at}")));
            let longest = pair.map(|class| f64::from(*of[&class].iter().max().expect("some")));
            let bound = bounds::fairness(longest, [one, other].map(|at| f64::from(weights[at])));
            // the difference of normalized services, over all intervals
            let (mut difference, mut least, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
            for (class, length) in &served {
                if *class == pair[0] { difference += f64::from(*length) / f64::from(weights[one]); }
                if *class == pair[1] { difference -= f64::from(*length) / f64::from(weights[other]); }
                least = least.min(difference);
                most = most.max(difference);
            }
            prop_assert!(most - least <= bound * (1.0 + 1e-9), "{} > {bound}", most - least);
        }
    }

    #[test]
    fn no_packet_is_later_than_the_delay_bound(
        flows in prop::collection::vec(
            prop::collection::vec((0..2000_u32, 1..1500_u32), 1..30), 2..6),
    ) {
        // weights are rates in bytes a second; their sum is the link's rate
        let rates: Vec<u32> = (0..flows.len()).map(|at| 1000 * (u32::try_from(at).expect("few") + 1)).collect();
        let link = f64::from(rates.iter().sum::<u32>());
        let hierarchy = flat(&rates);
        let mut arrivals: Vec<(f64, usize, u32)> = vec![];
        for (flow, packets) in flows.iter().enumerate() {
            let mut time = 0.0;
            for (gap, length) in packets {
                time += f64::from(*gap) / 1000.0;
                arrivals.push((time, flow, *length));
            }
        }
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut scheduler = Scheduler::new(hierarchy.clone());
        let mut left: Vec<Vec<f64>> = vec![vec![]; flows.len()];
        let (mut now, mut coming) = (0.0_f64, arrivals.iter().peekable());
        loop {
            while let Some((_, flow, length)) = coming.next_if(|arrival| arrival.0 <= now) {
                let to = class(&hierarchy, &format!("c{flow}"));
                scheduler.enqueue(Instant::ZERO, to, Packet::new(*length, *flow)).expect("a leaf");
            }
            if let Some((_, packet)) = scheduler.dequeue(Instant::ZERO) {
                now += f64::from(packet.length) / link;
                left[packet.item].push(now);
                while let Some((_, flow, length)) = coming.next_if(|arrival| arrival.0 < now) {
                    let to = class(&hierarchy, &format!("c{flow}"));
                    scheduler.enqueue(Instant::ZERO, to, Packet::new(*length, *flow)).expect("a leaf");
                }
                scheduler.finish(Instant::ZERO);
            } else if let Some(next) = coming.peek() {
                now = next.0;
            } else {
                break;
            }
        }
        let longest = |flow: usize| arrivals.iter().filter(|a| a.1 == flow).map(|a| f64::from(a.2)).fold(0.0, f64::max);
        for flow in 0..flows.len() {
            let own: Vec<(f64, f64)> =
                arrivals.iter().filter(|a| a.1 == flow).map(|a| (a.0, f64::from(a.2))).collect();
            let others: Vec<f64> = (0..flows.len()).filter(|other| *other != flow).map(longest).collect();
            let expected = bounds::expected_arrivals(&own, f64::from(rates[flow]));
            for ((expected, left), (_, length)) in expected.iter().zip(&left[flow]).zip(&own) {
                let bound = expected + bounds::delay(&others, *length, link);
                prop_assert!(*left <= bound + 1e-9, "flow {flow}: {left} > {bound}");
            }
        }
    }

    #[test]
    fn no_discipline_loses_a_packet_or_reorders_a_class(
        arrivals in prop::collection::vec((0..4_usize, 1..1500_u32, any::<bool>()), 1..200),
    ) {
        let hierarchy = flat(&[1, 2, 3, 10]);
        let disciplines: [Box<dyn Discipline<usize>>; 4] = [
            Box::new(Scheduler::new(hierarchy.clone())),
            Box::new(Fifo::default()),
            Box::new(RoundRobin::new(hierarchy.clone(), 1500)),
            Box::new(Weighted::new(hierarchy.clone(), Rate::new(8_000_000).expect("positive"))),
        ];
        for mut discipline in disciplines {
            let (mut now, mut out): (Instant, Vec<(ClassId, usize)>) = (Instant::ZERO, vec![]);
            let mut serve = |discipline: &mut dyn Discipline<usize>, now: &mut Instant| {
                let served = discipline.dequeue(*now).map(|(class, packet)| {
                    *now += Duration::from_micros(packet.length.into());
                    out.push((class, packet.item));
                });
                served.is_some()
            };
            for (at, (to, length, then)) in arrivals.iter().enumerate() {
                let to = class(&hierarchy, &format!("c{to}"));
                discipline.enqueue(now, to, Packet::new(*length, at)).expect("a leaf");
                if *then {
                    prop_assert!(serve(&mut *discipline, &mut now), "the link idles beside a packet");
                }
            }
            while serve(&mut *discipline, &mut now) {}
            prop_assert_eq!(discipline.backlog(), Backlog::default());
            prop_assert_eq!(out.len(), arrivals.len());
            for (id, _) in hierarchy.classes() {
                let items: Vec<usize> = out.iter().filter(|(class, _)| *class == id).map(|(_, item)| *item).collect();
                prop_assert!(items.is_sorted(), "a class was reordered");
            }
        }
    }

    #[test]
    fn limits_hold_and_what_does_not_fit_is_handed_back(
        arrivals in prop::collection::vec((0..3_usize, 1..1500_u32, 0..3_u32), 1..200),
        overflow in prop::sample::select(vec![Overflow::DropTail, Overflow::DropLongest]),
        packets in 1..8_u64, bytes in 1500..8000_u64,
    ) {
        let mut spec = ClassSpec::new("limited").with((0..3).map(|at| ClassSpec::new(format!("c{at}"))));
        spec.limit = Some(Limit { packets, bytes, overflow });
        let hierarchy = Hierarchy::new(ClassSpec::new("link").with([spec])).expect("unique names");
        let limited = class(&hierarchy, "limited");
        let mut scheduler = Scheduler::new(hierarchy.clone());
        let (mut seen, mut longest_kept) = (0, true);
        for (to, length, then) in &arrivals {
            let to = class(&hierarchy, &format!("c{to}"));
            scheduler.enqueue(Instant::ZERO, to, Packet::new(*length, ())).expect("a leaf");
            // undoes the drops, the last one first: before each drop, no leaf held more than the leaf whose
            // packet was dropped
            let mut held: HashMap<ClassId, u64> =
                hierarchy.classes().map(|(id, _)| (id, scheduler.waiting(id).bytes)).collect();
            let dropped: Vec<_> = std::iter::from_fn(|| scheduler.dropped()).collect();
            for (from, packet) in dropped.iter().rev() {
                seen += 1;
                *held.entry(*from).or_default() += u64::from(packet.length);
                let leaves = held.iter().filter(|(id, _)| hierarchy.is_leaf(**id));
                longest_kept &= leaves.map(|(_, bytes)| *bytes).max() == Some(held[from]);
            }
            let waiting = scheduler.waiting(limited);
            prop_assert!(waiting.packets <= packets && waiting.bytes <= bytes);
            for _ in 0..*then {
                seen += usize::from(scheduler.dequeue(Instant::ZERO).is_some());
            }
        }
        seen += std::iter::from_fn(|| scheduler.dequeue(Instant::ZERO)).count();
        prop_assert_eq!(seen, arrivals.len());
        prop_assert!(longest_kept || overflow == Overflow::DropTail);
    }

    #[test]
    fn weights_change_while_packets_wait_and_none_is_lost(
        changes in prop::collection::vec((0..3_usize, 1..1000_u32, 1..40_usize), 1..12),
    ) {
        let hierarchy = flat(&[6, 3, 1]);
        let ids: Vec<ClassId> = (0..3).map(|at| class(&hierarchy, &format!("c{at}"))).collect();
        let mut scheduler = Scheduler::new(hierarchy);
        let lengths: HashMap<ClassId, Vec<u32>> = ids.iter().map(|id| (*id, vec![1000])).collect();
        saturate(&mut scheduler, &lengths, 50);
        let mut weights = [6, 3, 1];
        for (which, new, packets) in changes {
            weights[which] = new;
            scheduler.set_weight(ids[which], weight(&new.to_string()));
            let before = scheduler.backlog().packets;
            for _ in 0..packets {
                let (class, packet) = scheduler.dequeue(Instant::ZERO).expect("everybody wants service");
                scheduler.enqueue(Instant::ZERO, class, Packet::new(packet.length, ())).expect("a leaf");
            }
            prop_assert_eq!(scheduler.backlog().packets, before);
        }
        // and the new weights soon take effect
        let before: Vec<u64> = ids.iter().map(|id| scheduler.served(*id).bytes).collect();
        for _ in 0..6000 {
            let (class, packet) = scheduler.dequeue(Instant::ZERO).expect("everybody wants service");
            scheduler.enqueue(Instant::ZERO, class, Packet::new(packet.length, ())).expect("a leaf");
        }
        let got: Vec<f64> = ids.iter().zip(&before).map(|(id, before)| (scheduler.served(*id).bytes - before) as f64).collect();
        let all = f64::from(weights.iter().sum::<u32>());
        for (weight, got) in weights.iter().zip(&got) {
            let fair = 6e6 * f64::from(*weight) / all;
            prop_assert!((got - fair).abs() <= 0.02 * 6e6 + 2000.0, "{got} where {fair} is fair");
        }
    }
}

#[test]
fn what_a_class_leaves_goes_to_its_siblings_by_weight_and_not_to_others() {
    // a: 60 (a1 3 : a2 1), b: 30, c: 10; with a1 idle, a2 gets all of a's, and with a idle b and c share 3:1
    let a = ClassSpec::new("a")
        .weighing(weight("60"))
        .with([ClassSpec::new("a1").weighing(weight("3")), ClassSpec::new("a2").weighing(weight("1"))]);
    let root = ClassSpec::new("link").with([
        a,
        ClassSpec::new("b").weighing(weight("30")),
        ClassSpec::new("c").weighing(weight("10")),
    ]);
    let hierarchy = Hierarchy::new(root).expect("unique names");
    let busy = |names: &[&str]| {
        let lengths = names.iter().map(|name| (class(&hierarchy, name), vec![1500, 64])).collect();
        let mut scheduler = Scheduler::new(hierarchy.clone());
        saturate(&mut scheduler, &lengths, 20_000);
        let all = scheduler.served(ClassId::ROOT).bytes as f64;
        names
            .iter()
            .map(|name| scheduler.served(class(&hierarchy, name)).bytes as f64 / all)
            .collect::<Vec<_>>()
    };
    let near = |got: Vec<f64>, expected: &[f64]| {
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 0.003, "{got} where {expected} is due");
        }
    };
    near(busy(&["a1", "a2", "b", "c"]), &[0.45, 0.15, 0.3, 0.1]);
    near(busy(&["a2", "b", "c"]), &[0.6, 0.3, 0.1]);
    near(busy(&["b", "c"]), &[0.75, 0.25]);
}

#[test]
fn deadlines_order_a_class_and_leave_its_share_alone() {
    let mut urgent = ClassSpec::new("urgent");
    urgent.order = Order::Deadline;
    let root = ClassSpec::new("link").with([urgent, ClassSpec::new("plain")]);
    let hierarchy = Hierarchy::new(root).expect("unique names");
    let (urgent, plain) = (class(&hierarchy, "urgent"), class(&hierarchy, "plain"));
    let mut scheduler = Scheduler::new(hierarchy);
    for at in 0..6_u32 {
        let deadline = if at == 0 { NO_DEADLINE } else { Instant::from_nanos(u64::from(10 - at)) };
        scheduler
            .enqueue(Instant::ZERO, urgent, Packet { length: 100, flow: at, deadline, item: at })
            .expect("a leaf");
        scheduler.enqueue(Instant::ZERO, plain, Packet::new(100, 100 + at)).expect("a leaf");
    }
    let order: Vec<u32> =
        std::iter::from_fn(|| scheduler.dequeue(Instant::ZERO)).map(|(_, packet)| packet.item).collect();
    assert_eq!(order, [5, 100, 4, 101, 3, 102, 2, 103, 1, 104, 0, 105]);
}

#[test]
fn a_long_run_moves_its_tags_back_and_stays_fair() {
    // a byte costs the light class 10^8 tag units, so that tags come near their limit within the test
    let root = ClassSpec::new("link").with([
        ClassSpec::new("heavy").weighing(weight("100000000")),
        ClassSpec::new("light").weighing(weight("1")),
    ]);
    let hierarchy = Hierarchy::new(root).expect("unique names");
    let (heavy, light) = (class(&hierarchy, "heavy"), class(&hierarchy, "light"));
    let mut scheduler = Scheduler::new(hierarchy);
    assert!(scheduler.is_exact());
    let longest = Packet::<()>::MAX_LENGTH;
    for round in 0..10_000_u32 {
        scheduler.enqueue(Instant::ZERO, light, Packet::new(longest, ())).expect("a leaf");
        assert_eq!(scheduler.dequeue(Instant::ZERO).expect("one waits").0, light, "round {round}");
    }
    // 10^4 packets of 2^24 bytes at 10^8 units are beyond 2^62: the next packets must still be served in turn
    for _ in 0..20_000 {
        scheduler.enqueue(Instant::ZERO, light, Packet::new(longest, ())).expect("a leaf");
        scheduler.dequeue(Instant::ZERO).expect("one waits");
    }
    scheduler.enqueue(Instant::ZERO, light, Packet::new(longest, ())).expect("a leaf");
    for _ in 0..100 {
        scheduler.enqueue(Instant::ZERO, heavy, Packet::new(1500, ())).expect("a leaf");
    }
    let served: Vec<ClassId> =
        std::iter::from_fn(|| scheduler.dequeue(Instant::ZERO)).map(|(class, _)| class).collect();
    assert_eq!(served.len(), 101);
    assert_eq!(served.iter().filter(|class| **class == heavy).count(), 100);
    assert_eq!(served[100], light, "who has had so much waits for the others");
}

fn simulate(trace: &str) -> Vec<(String, String, String)> {
    let trace = Trace::parse(trace).expect("it is a trace");
    let departures = trace.departures(&mut Scheduler::new(trace.hierarchy().clone()));
    departures.iter().map(|d| (d.id.to_string(), d.start.to_string(), d.end.to_string())).collect()
}

#[test]
fn departures_of_a_trace_are_exact_and_follow_the_conventions() {
    // 1500 bytes take 0.00012 s; the packets at 0.00012 arrive exactly at the end of the last one
    let departures = simulate(
        r#"{"rate": 100000000, "tree": {"name": "root", "children": [
            {"name": "a", "weight": 2}, {"name": "b", "weight": 1}]},
            "packets": [{"id": 0, "t": "0.0", "class": "a", "len": 1500},
                        {"id": "x", "t": "0.00012", "class": "b", "len": 750},
                        {"id": 2, "t": "0.00012", "class": "a", "len": 750},
                        {"id": 3, "t": "1", "class": "a", "len": 1}]}"#,
    );
    let expected = [
        ("0", "0.0", "0.00012"),
        // the new busy period begins at the greatest finish tag, 750, for both; b has waited longer
        ("\"x\"", "0.00012", "0.00018"),
        ("2", "0.00018", "0.00024"),
        ("3", "1.0", "1.00000008"),
    ];
    assert_eq!(departures, expected.map(|(id, start, end)| (id.into(), start.into(), end.into())));
}

#[test]
fn what_is_wrong_with_a_trace_is_named() {
    let error = |rate: &str, tree: &str, packets: &str| {
        let text = format!("{{\"rate\": {rate}, \"tree\": {tree},\n \"packets\": [{packets}]}}");
        Trace::parse(&text).expect_err("it is wrong").to_string()
    };
    let tree = r#"{"name": "r", "children": [{"name": "a", "weight": 1}]}"#;
    assert!(error("0", tree, "").starts_with("rate: expected a whole number"));
    assert!(error("1.5", tree, "").starts_with("rate: expected a whole number"));
    let packet = r#"{"id": 0, "t": "0.0", "class": "a", "len": 1}"#;
    assert_eq!(error("1", tree, &packet.replace("\"a\"", "\"b\"")), "packets[0]: there is no class `b`");
    assert!(error("1", tree, &packet.replace("\"a\"", "\"r\"")).contains("has children"));
    assert!(error("1", tree, &packet.replace("0.0", "1e3")).starts_with("packets[0]: t: expected seconds"));
    assert!(error("1", tree, &packet.replace("\"len\": 1", "\"len\": 0")).contains("expected 1 to"));
    assert!(error("1", tree, &packet.replace("len", "length")).contains("unknown field `length`"));
    assert!(error("1", tree, "{").contains("line 2"));
    let weight = |weight: &str| error("1", &tree.replace(": 1", &format!(": {weight}")), "");
    for wrong in ["0", "-1", "1e300"] {
        assert!(weight(wrong).starts_with("class `a`: "), "{wrong}: {}", weight(wrong));
    }
    assert!(error("1", &tree.replace(", \"weight\": 1", ""), "").contains("has no weight"));
    assert!(error("1", &tree.replace("\"a\"", "\"r\""), "").contains("two classes are called `r`"));
    let deep = format!("{}{}", r#"{"name": "x", "weight": 1, "children": ["#.repeat(600), "]}".repeat(600));
    assert!(error("1", &deep, "").contains("500 deep"));
}

#[test]
fn deep_trees_are_read_and_served() {
    let mut tree = r#"{"name": "leaf", "weight": 1}"#.to_owned();
    for level in 0..490 {
        let other = format!(r#"{{"name": "o{level}", "weight": 2}}"#);
        tree = format!(r#"{{"name": "n{level}", "weight": 1, "children": [{tree}, {other}]}}"#);
    }
    let packets: Vec<String> = (0..100)
        .map(|at| {
            let class = if at % 2 == 0 { "leaf".to_owned() } else { format!("o{at}") };
            format!(r#"{{"id": {at}, "t": "0.0", "class": "{class}", "len": 100}}"#)
        })
        .collect();
    let trace = format!(r#"{{"rate": 8, "tree": {tree}, "packets": [{}]}}"#, packets.join(","));
    assert_eq!(simulate(&trace).len(), 100);
}
