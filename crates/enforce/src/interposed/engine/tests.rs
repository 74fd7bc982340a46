use super::*;
use proptest::prelude::*;

fn policy(text: &str) -> Policy {
    Policy::parse(text).expect("a sound policy")
}

fn change(text: &str) -> EngineChange {
    EngineChange::new(policy(text)).expect("a policy has a tree")
}

fn class(engine: &Engine<u32>, name: &str) -> ClassId {
    engine.policy().hierarchy.find(name).expect("it is in the policy")
}

/// Keeps `backlog` frames of each of these classes waiting for `seconds`; returns the bytes that each class
/// sent.
fn busy(engine: &mut Engine<u32>, names: &[&str], length: u32, seconds: f64, late: Duration) -> Vec<u64> {
    let classes: Vec<ClassId> = names.iter().map(|name| class(engine, name)).collect();
    let before: Vec<u64> = classes.iter().map(|class| engine.parts.served[class.index()].bytes).collect();
    let mut now = engine.link.free_at();
    let end = now + Duration::from_nanos((seconds * 1e9) as u64);
    for _ in 0..20 {
        for (class, at) in classes.iter().zip(0..) {
            engine.accept(now, *class, FlowNumber::default(), length, at);
        }
    }
    while now < end {
        match engine.next(now) {
            NextFrame::Send(frame) => {
                engine.accept(now, classes[frame as usize], FlowNumber::default(), length, frame);
            }
            NextFrame::Wait(until) => now = until + late,
            NextFrame::Rest => panic!("something always waits"),
        }
        while engine.dropped().is_some() {}
    }
    classes
        .iter()
        .zip(before)
        .map(|(class, before)| engine.parts.served[class.index()].bytes - before)
        .collect()
}

#[test]
fn busy_classes_share_the_rate_by_weight_and_an_idle_ones_part_goes_to_the_others_by_weight() {
    let text = "rate = \"100mbit\"\n[class.a]\nweight = 6\n[class.b]\nweight = 3\n[class.c]\nweight = 1\n";
    let mut engine = Engine::new(policy(text), EngineDiscipline::Fair).expect("sound");
    let rates = busy(&mut engine, &["a", "b", "c"], 1514, 2.0, Duration::from_micros(30));
    for (rate, share) in rates.iter().zip([0.6, 0.3, 0.1]) {
        let exact = 25e6 * share;
        assert!((*rate as f64 - exact).abs() < 0.005 * exact, "{rate} instead of {exact}");
    }
    let mut engine = Engine::new(policy(text), EngineDiscipline::Fair).expect("sound");
    let rates = busy(&mut engine, &["b", "c"], 1514, 2.0, Duration::from_micros(30));
    assert!((rates[0] as f64 / rates[1] as f64 - 3.0).abs() < 0.01, "{rates:?}");
    assert!(((rates[0] + rates[1]) as f64 - 25e6).abs() < 0.002 * 25e6, "{rates:?}");
}

#[test]
fn a_ceiling_holds_exactly_alone_and_beside_others_and_the_rest_is_lent() {
    let text = "rate = \"100mbit\"\n[class.a]\nweight = 9\nceiling = \"20mbit\"\n[class.b]\n[class.a.x]\nweight = 3\n\
                [class.a.y]\n";
    let mut engine = Engine::new(policy(text), EngineDiscipline::Fair).expect("sound");
    let rates = busy(&mut engine, &["x", "y", "b"], 1000, 2.0, Duration::from_micros(10));
    for (rate, exact) in rates.iter().zip([3.75e6, 1.25e6, 20e6]) {
        assert!((*rate as f64 - exact).abs() < 0.01 * exact, "{rate} instead of {exact}");
    }
    let mut engine = Engine::new(policy(text), EngineDiscipline::Fair).expect("sound");
    let rates = busy(&mut engine, &["x"], 1000, 2.0, Duration::from_micros(10));
    assert!((rates[0] as f64 - 5e6).abs() < 0.005 * 5e6, "{rates:?}");
}

#[test]
fn a_change_loses_nothing_and_weights_hold_from_then_on() {
    let mut engine = Engine::new(
        policy("rate = \"10mbit\"\ndefault = \"a\"\n[class.a]\n[class.b]\n"),
        EngineDiscipline::Fair,
    )
    .expect("sound");
    busy(&mut engine, &["a", "b"], 1000, 0.5, Duration::ZERO);
    let waiting = engine.waiting();
    engine
        .change(change(
            "rate = \"20mbit\"\ndefault = \"a\"\n[class.c]\n[class.a]\n[class.b]\nweight = 4\n",
        ))
        .expect("it can");
    assert_eq!(engine.waiting(), waiting);
    let rates = busy(&mut engine, &["a", "b"], 1000, 1.0, Duration::ZERO);
    assert!((rates[1] as f64 / rates[0] as f64 - 4.0).abs() < 0.1, "{rates:?}");
    assert!((rates[0] + rates[1]) as f64 > 0.99 * 2.5e6, "{rates:?}");
    let live = engine.live();
    assert_eq!(live.iter().map(|class| class.name.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
    assert!(live[1].packets > 250 && live[0].delay.is_none());
    let delay = live[1].delay.expect("packets have waited");
    assert!(
        delay.min_ns <= delay.median_ns && delay.median_ns <= delay.p99_ns && delay.p99_ns <= delay.max_ns
    );
    assert!(delay.min_ns < delay.mean_ns && delay.mean_ns < delay.max_ns && delay.mean_ns != delay.median_ns);
}

#[test]
fn a_class_without_a_limit_is_kept_short_and_says_what_it_dropped() {
    let mut engine =
        Engine::new(policy("rate = \"10mbit\"\n[class.a]\n"), EngineDiscipline::Fair).expect("sound");
    let a = class(&engine, "a");
    for frame in 0..100 {
        engine.accept(Instant::ZERO, a, FlowNumber::default(), 1000, frame);
    }
    let dropped: Vec<u32> = std::iter::from_fn(|| engine.dropped()).collect();
    assert_eq!(dropped, (65..100).collect::<Vec<_>>(), "64 KiB may wait");
    assert_eq!(engine.live()[0].dropped, 35);
    assert_eq!(engine.live()[0].backlog, Backlog { packets: 65, bytes: 65_000 });
}

#[test]
fn first_in_first_out_keeps_the_order_of_arrival() {
    let mut engine = Engine::new(policy("rate = \"10mbit\"\n[class.a]\n[class.b]\n"), EngineDiscipline::Fifo)
        .expect("sound");
    let classes = ["a", "b"].map(|name| class(&engine, name));
    for frame in 0..10 {
        engine.accept(Instant::ZERO, classes[frame as usize % 2], FlowNumber::default(), 1000, frame);
    }
    let mut now = Instant::ZERO;
    for frame in 0..10 {
        assert_eq!(engine.next(now), NextFrame::Send(frame));
        now = engine.link.free_at();
    }
    assert_eq!(now, Instant::from_millis(8));
}

proptest! {
    #[test]
    fn every_frame_leaves_once_or_is_dropped_and_the_rate_is_never_exceeded(
        arrivals in prop::collection::vec((0_u64..300_000, 0_usize..3, 60_u32..1514), 1..300),
    ) {
        let text = "rate = \"100mbit\"\n[class.a]\nlimit = \"8KiB\"\n[class.b]\nceiling = \"30mbit\"\nweight = 5\n[class.c]\n";
        let mut engine = Engine::new(policy(text), EngineDiscipline::Fair).expect("sound");
        let classes = ["a", "b", "c"].map(|name| class(&engine, name));
        let mut seen = vec![false; arrivals.len()];
        let (mut now, mut first, mut bits) = (Instant::ZERO, None, 0);
        let mut coming = arrivals.iter().scan(Instant::ZERO, |time, (pause, class, length)| {
            *time += Duration::from_nanos(*pause);
            Some((*time, classes[*class], *length))
        }).zip(0_u32..).peekable();
        loop {
            let next = match engine.next(now) {
                NextFrame::Send(frame) => {
                    prop_assert!(!std::mem::replace(&mut seen[frame as usize], true));
                    first.get_or_insert(now);
                    bits += u64::from(arrivals[frame as usize].2) * 8;
                    continue;
                }
                NextFrame::Wait(until) => until,
                NextFrame::Rest => Instant::NEVER,
            };
            match coming.peek().copied() {
                Some(((time, class, length), frame)) if time <= next => {
                    now = now.max(time);
                    engine.accept(now, class, FlowNumber::default(), length, frame);
                    coming.next();
                }
                _ if next == Instant::NEVER => break,
                _ => now = next,
            }
            while let Some(frame) = engine.dropped() {
                prop_assert!(!std::mem::replace(&mut seen[frame as usize], true));
            }
        }
        prop_assert!(seen.iter().all(|seen| *seen));
        prop_assert_eq!(engine.waiting(), 0);
        if let Some(first) = first {
            prop_assert!(u128::from((engine.link.free_at() - first).as_nanos() + 1) * 100_000_000 >= u128::from(bits) * 1_000_000_000);
        }
    }
}

#[test]
fn a_class_is_sure_of_no_more_than_its_ceiling_and_its_siblings_get_the_rest() {
    let text = "rate = \"100mbit\"\ndefault = \"rest\"\n[class.low]\nceiling = \"10mbit\"\n[class.other]\n";
    let engine =
        Engine::<()>::new(Policy::parse(text).expect("it is sound"), EngineDiscipline::Fair).expect("sound");
    let sure: Vec<(String, f64)> =
        engine.live().into_iter().map(|class| (class.name, class.guarantee.round())).collect();
    assert_eq!(sure, [("low".into(), 1e7), ("other".into(), 4.5e7), ("rest".into(), 4.5e7)]);
}

#[test]
fn a_changed_class_has_the_share_the_ceiling_and_the_limit_that_the_changed_policy_gives() {
    let text = "rate = \"100mbit\"\n[class.a]\nweight = 6\n[class.b]\nweight = 3\nflows = \"fair\"\n[class.c]\n[class.c.d]\n";
    let then = text.replace("weight = 6", "ceiling = \"8mbit\"\nweight = 60");
    let mut engine = Engine::new(policy(text), EngineDiscipline::Fair).expect("sound");
    busy(&mut engine, &["a", "b", "d"], 1514, 0.5, Duration::ZERO);
    let waiting = engine.waiting();
    assert!(waiting > 0);
    let change = TermsChange {
        weight: Some("60".parse().expect("a weight")),
        ceiling: Some("8mbit".parse().expect("a rate")),
        ..TermsChange::for_class("a")
    };
    engine.change_class(&change).expect("there is such a class");
    assert_eq!(engine.waiting(), waiting, "no frame is lost");

    let anew = Engine::<u32>::new(policy(&then), EngineDiscipline::Fair).expect("sound");
    assert_eq!(engine.policy().guarantees(), anew.policy().guarantees());
    let limits = |engine: &Engine<u32>| match &engine.queue {
        EngineQueue::Fair(queue) => {
            queue.hierarchy().classes().map(|(_, class)| class.limit).collect::<Vec<_>>()
        }
        EngineQueue::Fifo(_) => Vec::new(),
    };
    assert_eq!(limits(&engine), limits(&anew));
    let rates = busy(&mut engine, &["a", "b", "d"], 1514, 2.0, Duration::ZERO);
    for (rate, exact) in rates.iter().zip([2e6, 17.25e6, 5.75e6]) {
        assert!((*rate as f64 - exact).abs() < 0.01 * exact, "{rates:?}");
    }
    engine.change_class(&TermsChange { ceiling: None, ..change }).expect("there is such a class");
    assert!(matches!(
        engine.change_class(&TermsChange::for_class("e")),
        Err(EngineChangeError::NoClass { .. })
    ));
}
