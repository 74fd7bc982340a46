use super::super::engine::{Engine, EngineChange, EngineDiscipline, NextFrame};
use super::*;
use proptest::prelude::*;
use unisono_linux::clock::Instant;

const FAIR: &str = "rate = \"100mbit\"\ndefault = \"a\"\n[class.a]\nweight = 3\nflows = \"fair\"\n[class.b]\nflows = \"fair\"\n";

fn engine(text: &str) -> Engine<u32> {
    Engine::new(Policy::parse(text).expect("it is sound"), EngineDiscipline::Fair).expect("it is sound")
}

fn class(engine: &Engine<u32>, name: &str) -> ClassId {
    engine.policy().hierarchy.find(name).expect("it is in the policy")
}

/// Takes all waiting frames out, in the order of their departure.
fn order(engine: &mut Engine<u32>) -> Vec<u32> {
    let (mut now, mut left) = (Instant::ZERO, Vec::new());
    loop {
        match engine.next(now) {
            NextFrame::Send(frame) => left.push(frame),
            NextFrame::Wait(until) => now = until,
            NextFrame::Rest => return left,
        }
    }
}

#[test]
fn a_flow_that_begins_waits_for_a_frame_of_the_busy_one_and_without_flows_for_all() {
    for (text, place) in [(FAIR.to_owned(), 1), (FAIR.replace("flows = \"fair\"", ""), 40)] {
        let mut engine = engine(&text);
        let a = class(&engine, "a");
        for _ in 0..40 {
            engine.accept(Instant::ZERO, a, FlowNumber(1), 1500, 1);
        }
        engine.accept(Instant::ZERO, a, FlowNumber(2), 100, 2);
        assert_eq!(order(&mut engine).iter().position(|frame| *frame == 2), Some(place), "{text}");
    }
}

#[test]
fn a_flow_that_fills_its_class_pays_for_it() {
    let mut engine = engine("rate = \"1mbit\"\n[class.a]\nflows = \"fair\"\npackets = 10\n");
    let a = class(&engine, "a");
    for _ in 0..30 {
        engine.accept(Instant::ZERO, a, FlowNumber(1), 1500, 1);
    }
    engine.accept(Instant::ZERO, a, FlowNumber(2), 1500, 2);
    let dropped: Vec<u32> = std::iter::from_fn(|| engine.dropped()).collect();
    assert_eq!(dropped, [1; 21]);
    assert_eq!(engine.live()[0].dropped, 21);
    assert_eq!(engine.live()[0].backlog.packets, 10);
    assert!(order(&mut engine).contains(&2));
}

#[test]
fn a_frame_that_waited_longer_than_its_class_says_is_late() {
    for (name, at, late) in [("a", 2_000_000, false), ("a", 2_000_001, true), ("b", 900_000_000, false)] {
        let mut engine = engine("rate = \"8mbit\"\n[class.a]\necn = \"2ms\"\n[class.b]\n");
        let class = class(&engine, name);
        engine.accept(Instant::ZERO, class, FlowNumber(1), 1000, 7);
        assert_eq!(
            (engine.next(Instant::from_nanos(at)), engine.was_late()),
            (NextFrame::Send(7), late),
            "{name} {at}"
        );
    }
}

#[test]
fn a_policy_with_flows_and_one_without_follow_each_other_and_nothing_is_lost() {
    let plain = FAIR.replace("flows = \"fair\"", "");
    for (first, second) in [(FAIR.to_owned(), plain.clone()), (plain, FAIR.to_owned())] {
        let mut engine = engine(&first);
        let classes = ["a", "b"].map(|name| class(&engine, name));
        for at in 0..20 {
            engine.accept(Instant::ZERO, classes[at as usize % 2], FlowNumber(at % 5), 1000, at as u32);
        }
        let second = Policy::parse(&second).expect("it is sound");
        engine.change(EngineChange::new(second).expect("it has a tree")).expect("nothing is lost");
        let mut left = order(&mut engine);
        left.sort_unstable();
        assert_eq!(left, (0..20).collect::<Vec<u32>>());
    }
}

#[test]
fn a_ceiling_holds_a_class_with_flows_back() {
    let mut engine = engine("rate = \"80mbit\"\n[class.a]\nflows = \"fair\"\nceiling = \"8mbit\"\n");
    let a = class(&engine, "a");
    for flow in 0..5 {
        engine.accept(Instant::ZERO, a, FlowNumber(flow), 1000, 0);
    }
    // a frame takes 1 ms of the ceiling and 0.1 ms of the link
    let (mut now, mut at) = (Instant::ZERO, Vec::new());
    loop {
        match engine.next(now) {
            NextFrame::Send(_) => at.push(now),
            NextFrame::Wait(until) => now = until,
            NextFrame::Rest => break,
        }
    }
    assert_eq!(at, [0, 1, 2, 3, 4].map(Instant::from_millis));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn classes_take_turns_with_flows_as_without(frames in prop::collection::vec((0_usize..2, 0_u64..4), 1..40)) {
        let sequence = |text: &str| {
            let mut engine = engine(text);
            let classes = ["a", "b"].map(|name| class(&engine, name));
            for (at, flow) in &frames {
                engine.accept(Instant::ZERO, classes[*at], FlowNumber(*flow), 1000, *at as u32);
            }
            order(&mut engine)
        };
        prop_assert_eq!(sequence(FAIR), sequence(&FAIR.replace("flows = \"fair\"", "")));
    }

    /// The reference sorts: all frames of a host in one row, each with the bytes before it as its start tag;
    /// the frames of all hosts leave in the order of their start tags.
    #[test]
    fn hosts_are_served_in_the_order_of_their_start_tags_however_many_flows_each_has(
        frames in prop::collection::vec((0_u8..3, 0_u16..8, 60_u32..1500), 2..60),
    ) {
        let hosts = FAIR.replace("flows = \"fair\"", "fair = \"host\"");
        let (mut engine, hash) = (engine(&hosts), FlowHash::default());
        let a = class(&engine, "a");
        let address = |host: u8| IpAddr::from([10, 0, 0, host]);
        let buckets: Vec<u64> = (0..3).map(|host| hash.host(address(host)).0 % BUCKETS as u64).collect();
        prop_assume!(buckets[0] != buckets[1] && buckets[1] != buckets[2] && buckets[0] != buckets[2]);
        let (mut before, mut tags) = ([0_u64; 3], Vec::new());
        for (number, (host, _, length)) in (0..).zip(&frames) {
            engine.accept(Instant::ZERO, a, hash.host(address(*host)), *length, number);
            let tag = &mut before[usize::from(*host)];
            tags.push(*tag);
            *tag += u64::from(*length);
        }
        let mut sorted = tags.clone();
        sorted.sort_unstable();
        let served: Vec<u64> = order(&mut engine).into_iter().map(|number| tags[number as usize]).collect();
        prop_assert_eq!(served, sorted);
    }

    #[test]
    fn while_two_flows_are_busy_neither_is_two_frames_ahead(
        lengths in prop::collection::vec((60_u32..1500, 60_u32..1500), 2..30),
    ) {
        let mut engine = engine(FAIR);
        let a = class(&engine, "a");
        for (one, other) in &lengths {
            engine.accept(Instant::ZERO, a, FlowNumber(1), *one, *one << 1);
            engine.accept(Instant::ZERO, a, FlowNumber(2), *other, *other << 1 | 1);
        }
        let (mut got, mut left) = ([0_i64; 2], [lengths.len(); 2]);
        for frame in order(&mut engine) {
            let flow = (frame & 1) as usize;
            got[flow] += i64::from(frame >> 1);
            left[flow] -= 1;
            if left.contains(&0) {
                break;
            }
            prop_assert!((got[0] - got[1]).abs() <= 2 * 1500, "{:?}", got);
        }
    }
}
