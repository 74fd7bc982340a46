//! Tests changes of classes and weights while packets wait: no packet is lost or reordered, and no class
//! gains an advantage.

use crate::reference::Reference;
use num_rational::BigRational;
use num_traits::Zero;
use proptest::prelude::*;
use std::collections::HashMap;
use unisono_fairqueue::{
    Backlog, ClassId, ClassSpec, Discipline, Hierarchy, Limit, Order, Overflow, Packet, Scheduler, Weight,
    bounds,
};
use unisono_time::Instant;

/// The number of class names. Trees choose from the same names, so that two trees have some in common.
const NAMES: u32 = 12;

fn weight(whole: u32) -> Weight {
    whole.to_string().parse().expect("it is a weight")
}

/// Generates trees of some of the names, with a default class. The parent of each class is a class before it.
fn hierarchy() -> impl Strategy<Value = Hierarchy> {
    let classes: Vec<u32> = (0..NAMES).collect();
    let chosen = prop::sample::subsequence(classes, 1..=NAMES as usize).prop_shuffle();
    (chosen, prop::collection::vec((any::<prop::sample::Index>(), 1..20_u32), NAMES as usize)).prop_map(
        |(names, of)| {
            let mut specs = vec![ClassSpec::new("link")];
            let mut parents = vec![0];
            for (at, name) in names.iter().enumerate() {
                parents.push(of[at].0.index(at + 1));
                specs.push(ClassSpec::new(name.to_string()).weighing(weight(of[at].1)));
            }
            while specs.len() > 1 {
                let at = specs.len() - 1;
                let spec = specs.pop().expect("there is more than one");
                specs[parents[at]].children.insert(0, spec);
            }
            let tree = Hierarchy::new(specs.pop().expect("the root is left")).expect("names are unique");
            tree.with_default("rest").expect("a leaf")
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { leaf: prop::sample::Index, length: u32 },
    Finish,
    Choose,
    Change { to: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let arrive = (any::<prop::sample::Index>(), 1..1500_u32);
    let step = prop_oneof![
        12 => arrive.prop_map(|(leaf, length)| Step::Arrive { leaf, length }),
        1 => Just(Step::Finish),
        8 => Just(Step::Choose),
        1 => (0..4_usize).prop_map(|to| Step::Change { to }),
    ];
    prop::collection::vec(step, 1..250)
}

fn leaves(hierarchy: &Hierarchy) -> Vec<ClassId> {
    hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect()
}

proptest! {
    #[test]
    fn every_choice_has_the_least_start_tag_whatever_changes(
        trees in prop::collection::vec(hierarchy(), 4), steps in steps(),
    ) {
        let mut tree = &trees[0];
        let mut scheduler = Scheduler::new(tree.clone());
        let mut reference = Reference::new(tree);
        // a change rounds a lead down by less than a byte, and a virtual time may pass the error on
        let mut rounding = BigRational::zero();
        let (mut arrived, mut left) = (0, 0);
        let rest = std::iter::repeat_n(&Step::Choose, steps.len() + 1);
        for (at, step) in steps.iter().chain(rest).enumerate() {
            match step {
                Step::Arrive { leaf, length } => {
                    let leaf = *leaf.get(&leaves(tree));
                    scheduler.enqueue(Instant::ZERO, leaf, Packet::new(*length, ())).expect("a leaf takes packets");
                    reference.enqueue(leaf, *length);
                    arrived += 1;
                }
                Step::Finish => {
                    scheduler.finish(Instant::ZERO);
                    reference.finish();
                }
                Step::Change { to } => {
                    let before = scheduler.backlog();
                    scheduler.apply(trees[*to].clone()).expect("it has a default");
                    prop_assert_eq!(scheduler.backlog(), before);
                    prop_assert_eq!(scheduler.waiting(ClassId::ROOT), before);
                    reference.apply(tree, &trees[*to]);
                    tree = &trees[*to];
                    rounding += BigRational::from_integer(2.into());
                }
                Step::Choose => {
                    reference.finish();
                    let Some((leaf, packet)) = scheduler.dequeue(Instant::ZERO) else {
                        prop_assert!(!reference.wants_any(), "nothing was chosen, though packets wait");
                        continue;
                    };
                    prop_assert!(reference.may_serve_within(leaf, &rounding), "step {at}: {leaf:?} is too early");
                    prop_assert_eq!(reference.serve(leaf), packet.length);
                    left += 1;
                }
            }
        }
        prop_assert_eq!(arrived, left);
    }

    #[test]
    fn every_choice_has_the_least_start_tag_whatever_weights_single_classes_get(
        tree in hierarchy(), steps in steps(), weights in prop::collection::vec(1..40_u32, 4),
    ) {
        let mut tree = tree;
        let mut scheduler = Scheduler::new(tree.clone());
        let mut reference = Reference::new(&tree);
        let mut rounding = BigRational::zero();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Arrive { leaf, length } => {
                    let leaf = *leaf.get(&leaves(&tree));
                    scheduler.enqueue(Instant::ZERO, leaf, Packet::new(*length, ())).expect("a leaf takes packets");
                    reference.enqueue(leaf, *length);
                }
                Step::Finish => {
                    scheduler.finish(Instant::ZERO);
                    reference.finish();
                }
                Step::Change { to } => {
                    let (class, _) = tree.classes().nth(1 + at % (tree.classes().count() - 1)).expect("it is one");
                    scheduler.set_weight(class, weight(weights[*to]));
                    let changed = scheduler.hierarchy().clone();
                    reference.apply(&tree, &changed);
                    tree = changed;
                    rounding += BigRational::from_integer(2.into());
                }
                Step::Choose => {
                    reference.finish();
                    let Some((leaf, packet)) = scheduler.dequeue(Instant::ZERO) else {
                        prop_assert!(!reference.wants_any(), "nothing was chosen, though packets wait");
                        continue;
                    };
                    prop_assert!(reference.may_serve_within(leaf, &rounding), "step {at}: {leaf:?} is too early");
                    prop_assert_eq!(reference.serve(leaf), packet.length);
                }
            }
        }
    }

    #[test]
    fn the_same_classes_again_change_nothing_at_all(tree in hierarchy(), steps in steps()) {
        let all = leaves(&tree);
        let (mut one, mut other) = (Scheduler::new(tree.clone()), Scheduler::new(tree.clone()));
        let rest = std::iter::repeat_n(&Step::Choose, steps.len() + 1);
        for (at, step) in steps.iter().chain(rest).enumerate() {
            match step {
                Step::Arrive { leaf, length } => {
                    for scheduler in [&mut one, &mut other] {
                        scheduler.enqueue(Instant::ZERO, *leaf.get(&all), Packet::new(*length, at)).expect("a leaf");
                    }
                }
                Step::Finish => {
                    one.finish(Instant::ZERO);
                    other.finish(Instant::ZERO);
                }
                Step::Choose => prop_assert_eq!(one.dequeue(Instant::ZERO), other.dequeue(Instant::ZERO)),
                Step::Change { .. } => {
                    let changes = other.apply(tree.clone()).expect("nothing has to move");
                    prop_assert_eq!(changes, unisono_fairqueue::Changes::default());
                }
            }
        }
        for (id, _) in tree.classes() {
            prop_assert_eq!(one.served(id), other.served(id));
        }
    }

    #[test]
    fn from_the_change_on_siblings_stay_within_the_fairness_bound(
        before in hierarchy(), after in hierarchy(), lengths in prop::collection::vec(1..1500_u32, 1..7),
        packets in 1..200_usize,
    ) {
        let mut next = lengths.iter().cycle().copied();
        let mut send = |scheduler: &mut Scheduler<()>, leaf| {
            scheduler.enqueue(Instant::ZERO, leaf, Packet::new(next.next().expect("endless"), ())).expect("a leaf");
        };
        let mut scheduler = Scheduler::new(before.clone());
        for leaf in leaves(&before).into_iter().flat_map(|leaf| [leaf; 3]) {
            send(&mut scheduler, leaf);
        }
        for _ in 0..packets {
            let (leaf, _) = scheduler.dequeue(Instant::ZERO).expect("everybody wants service");
            send(&mut scheduler, leaf);
        }
        scheduler.apply(after.clone()).expect("it has a default");
        for leaf in leaves(&after).into_iter().flat_map(|leaf| [leaf; 2]) {
            send(&mut scheduler, leaf);
        }
        let mut served: HashMap<ClassId, Vec<(usize, u32)>> = HashMap::new();
        for at in 0..600 {
            let (leaf, packet) = scheduler.dequeue(Instant::ZERO).expect("everybody wants service");
            send(&mut scheduler, leaf);
            let mut class = leaf;
            while class != ClassId::ROOT {
                served.entry(class).or_default().push((at, packet.length));
                class = after.class(class).parent;
            }
        }
        let longest = f64::from(*lengths.iter().max().expect("some"));
        for (_, class) in after.classes() {
            for (one, other) in class.children.iter().flat_map(|one| class.children.iter().map(move |other| (*one, *other))) {
                if one >= other { continue }
                let weights = [one, other].map(|id| after.class(id).weight.to_f64());
                // one byte more for the rounding of each class's lead
                let bound = bounds::fairness([longest + 1.0; 2], weights);
                let mut events: Vec<(usize, f64)> = vec![];
                for (id, sign, weight) in [(one, 1.0, weights[0]), (other, -1.0, weights[1])] {
                    let of = served.get(&id).into_iter().flatten();
                    events.extend(of.map(|(at, length)| (*at, sign * f64::from(*length) / weight)));
                }
                events.sort_by_key(|event| event.0);
                let (mut difference, mut least, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
                for (_, by) in events {
                    difference += by;
                    (least, most) = (least.min(difference), most.max(difference));
                }
                prop_assert!(most - least <= bound * (1.0 + 1e-9), "{} > {bound}", most - least);
            }
        }
    }

    #[test]
    fn packets_of_a_class_keep_their_order_where_they_go(
        trees in prop::collection::vec(hierarchy(), 3), steps in steps(), deadlines in any::<bool>(),
    ) {
        // a flow is made of the packets that arrived at one class
        let flow = |tree: &Hierarchy, leaf: ClassId| match tree.class(leaf).name.as_str() {
            "link" => 1000,
            "rest" => 999,
            name => name.parse::<u32>().expect("a number"),
        };
        let ordered = |mut tree: Hierarchy| {
            if deadlines {
                let names: Vec<String> = tree.classes().map(|(_, class)| class.name.clone()).collect();
                for (at, name) in names.iter().enumerate() {
                    let order = if at % 2 == 0 { Order::Deadline } else { Order::Fifo };
                    tree = tree.ordering(name, order);
                }
            }
            tree
        };
        let mut tree = ordered(trees[0].clone());
        let mut scheduler = Scheduler::new(tree.clone());
        let mut last: HashMap<u32, usize> = HashMap::new();
        // packets that have moved to the default class may be overtaken by later arrivals at their old class
        // if it comes back, so this test sends none there
        let mut closed: Vec<u32> = vec![];
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Arrive { leaf, length } => {
                    let leaf = *leaf.get(&leaves(&tree));
                    let flow = flow(&tree, leaf);
                    if closed.contains(&flow) { continue }
                    let deadline = Instant::from_nanos(u64::from(length % 7));
                    scheduler.enqueue(Instant::ZERO, leaf, Packet { length: *length, flow, deadline, item: at }).expect("a leaf");
                }
                Step::Change { to } => {
                    let to = ordered(trees[to % 3].clone());
                    let changes = scheduler.apply(to.clone()).expect("it has a default");
                    closed.extend(changes.closed.iter().map(|closed| {
                        let id = tree.find(&closed.name).expect("it was there");
                        flow(&tree, id)
                    }));
                    tree = to;
                }
                Step::Finish => scheduler.finish(Instant::ZERO),
                Step::Choose => {
                    if let Some((_, packet)) = scheduler.dequeue(Instant::ZERO) {
                        let before = last.insert(packet.flow, packet.item);
                        prop_assert!(before < Some(packet.item), "flow {} was reordered", packet.flow);
                    }
                }
            }
        }
    }
}

#[test]
fn a_class_that_is_held_stays_held() {
    let before = tree([ClassSpec::new("a"), ClassSpec::new("b")]);
    let [a, b] = ["a", "b"].map(|name| before.find(name).expect("it is there"));
    let mut scheduler = Scheduler::new(before);
    for class in [a, a, b, b] {
        scheduler.enqueue(Instant::ZERO, class, Packet::new(100, ())).expect("a leaf");
    }
    assert_eq!(scheduler.dequeue(Instant::ZERO).expect("packets wait").0, a);
    scheduler.hold(a);
    scheduler.apply(tree([ClassSpec::new("b"), ClassSpec::new("a")])).expect("nothing moves");
    let [a, b] = ["a", "b"].map(|name| scheduler.hierarchy().find(name).expect("it is there"));
    assert!(scheduler.is_held(a));
    let order: Vec<ClassId> =
        std::iter::from_fn(|| scheduler.dequeue(Instant::ZERO)).map(|(class, _)| class).collect();
    assert_eq!(order, [b, b]);
    scheduler.release(a);
    assert_eq!(scheduler.dequeue(Instant::ZERO).expect("it waits").0, a);
}

fn tree(children: impl IntoIterator<Item = ClassSpec>) -> Hierarchy {
    Hierarchy::new(ClassSpec::new("link").with(children)).expect("names are unique")
}

#[test]
fn without_a_default_a_class_with_packets_cannot_go_and_nothing_has_changed() {
    let before = tree([ClassSpec::new("a"), ClassSpec::new("b")]);
    let a = before.find("a").expect("it is there");
    let mut scheduler = Scheduler::new(before);
    scheduler.enqueue(Instant::ZERO, a, Packet::new(100, ())).expect("a leaf");
    let error = scheduler.apply(tree([ClassSpec::new("b")])).expect_err("a packet would be lost");
    assert!(error.to_string().starts_with("1 packets wait in class `a`"), "{error}");
    assert!(scheduler.hierarchy().find("a").is_some());
    assert_eq!(scheduler.dequeue(Instant::ZERO).expect("it waits").0, a);
    // without packets in "a" the change succeeds
    let changes = scheduler.apply(tree([ClassSpec::new("b"), ClassSpec::new("c")])).expect("nobody waits");
    assert_eq!(changes.closed.len(), 1);
    assert_eq!((changes.closed[0].name.as_str(), changes.closed[0].served.bytes), ("a", 100));
    let c = scheduler.hierarchy().find("c").expect("it was added");
    assert_eq!(changes.added, [c]);
}

#[test]
fn a_limit_below_what_waits_drops_nothing_until_more_comes_and_then_no_more_than_that() {
    let limited = |limit: Option<Limit>| {
        let mut spec = ClassSpec::new("all").with([ClassSpec::new("a"), ClassSpec::new("b")]);
        spec.limit = limit;
        tree([spec])
    };
    for overflow in [Overflow::DropTail, Overflow::DropLongest] {
        let mut scheduler = Scheduler::new(limited(None));
        let [a, b] = ["a", "b"].map(|name| scheduler.hierarchy().find(name).expect("it is there"));
        for _ in 0..10 {
            scheduler.enqueue(Instant::ZERO, a, Packet::new(100, ())).expect("a leaf");
        }
        scheduler.apply(limited(Some(Limit { packets: 4, bytes: 400, overflow }))).expect("nothing moves");
        assert_eq!(scheduler.backlog(), Backlog { packets: 10, bytes: 1000 });
        scheduler.enqueue(Instant::ZERO, b, Packet::new(100, ())).expect("a leaf");
        let from = scheduler.dropped().expect("there was no room").0;
        assert_eq!(from, if overflow == Overflow::DropTail { b } else { a });
        assert!(scheduler.dropped().is_none());
        for _ in 0..8 {
            scheduler.dequeue(Instant::ZERO).expect("packets wait");
        }
        scheduler.enqueue(Instant::ZERO, b, Packet::new(100, ())).expect("a leaf");
        assert!(scheduler.dropped().is_none(), "there is room again");
        for _ in 0..4 {
            scheduler.enqueue(Instant::ZERO, b, Packet::new(100, ())).expect("a leaf");
        }
        assert_eq!(scheduler.backlog().packets, 4);
    }
}
