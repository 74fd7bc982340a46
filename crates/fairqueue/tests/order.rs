//! Compares the scheduler with the definition of start-time fair queuing, computed with exact fractions.

use crate::reference::Reference;
use proptest::prelude::*;
use std::num::NonZeroU32;
use unisono_fairqueue::{
    ClassId, ClassSpec, Discipline, Exact, Hierarchy, Packet, Scheduler, Weight, start_time,
};
use unisono_time::Instant;

fn weight() -> impl Strategy<Value = Weight> {
    let text = prop_oneof![
        4 => (1..10_u32).prop_map(|whole| whole.to_string()),
        2 => (1..100_u32).prop_map(|tenths| format!("{}.{}", tenths / 10, tenths % 10 + 1)),
        1 => (1..1000_u32).prop_map(|whole| whole.to_string()),
    ];
    text.prop_filter_map("a weight", |text| text.parse().ok())
}

/// Generates trees of every shape: the parent of each class is a class before it.
fn hierarchy(most: usize, skew: bool) -> impl Strategy<Value = Hierarchy> {
    prop::collection::vec((any::<prop::sample::Index>(), weight()), 1..most).prop_map(move |classes| {
        let mut parents = vec![0];
        let mut weights = vec![Weight::ONE];
        for (at, (parent, weight)) in classes.iter().enumerate() {
            // in a skewed tree, two of three classes are children of the class before them
            let parent = if skew && at % 3 != 0 { at } else { parent.index(at + 1) };
            parents.push(parent);
            weights.push(*weight);
        }
        let mut specs: Vec<ClassSpec> = weights
            .iter()
            .enumerate()
            .map(|(at, weight)| ClassSpec::new(format!("c{at}")).weighing(*weight))
            .collect();
        while specs.len() > 1 {
            let at = specs.len() - 1;
            let spec = specs.pop().expect("there is more than one");
            specs[parents[at]].children.insert(0, spec);
        }
        Hierarchy::new(specs.pop().expect("the root is left")).expect("names are unique")
    })
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { leaf: usize, length: u32 },
    Finish,
    Choose,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![3 => 1..1500_u32, 1 => Just(1500_u32), 1 => 0..4_u32];
    let arrive = (any::<usize>(), length).prop_map(|(leaf, length)| Step::Arrive { leaf, length });
    prop::collection::vec(prop_oneof![5 => arrive, 1 => Just(Step::Finish), 4 => Just(Step::Choose)], 1..200)
}

fn follow(
    hierarchy: &Hierarchy,
    steps: &[Step],
    scheduler: &mut dyn Discipline<usize>,
) -> Result<(), TestCaseError> {
    let leaves: Vec<ClassId> =
        hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect();
    let mut reference = Reference::new(hierarchy);
    let mut last = vec![None; hierarchy.classes().count()];
    let rest = std::iter::repeat_n(&Step::Choose, steps.len() + 1);
    for (at, step) in steps.iter().chain(rest).enumerate() {
        match step {
            Step::Arrive { leaf, length } => {
                let leaf = leaves[leaf % leaves.len()];
                scheduler
                    .enqueue(Instant::ZERO, leaf, Packet::new(*length, at))
                    .expect("a leaf takes packets");
                reference.enqueue(leaf, *length);
            }
            Step::Finish => {
                scheduler.finish(Instant::ZERO);
                reference.finish();
            }
            Step::Choose => {
                reference.finish();
                let Some((leaf, packet)) = scheduler.dequeue(Instant::ZERO) else {
                    prop_assert!(!reference.wants_any(), "nothing was chosen, though packets wait");
                    continue;
                };
                prop_assert!(reference.may_serve(leaf), "step {at}: {leaf:?} has not the least start tag");
                prop_assert_eq!(reference.serve(leaf), packet.length);
                prop_assert!(
                    last[leaf.index()] < Some(packet.item),
                    "packets of a class overtook each other"
                );
                last[leaf.index()] = Some(packet.item);
            }
        }
    }
    prop_assert!(!reference.wants_any());
    prop_assert_eq!(scheduler.backlog(), unisono_fairqueue::Backlog::default());
    Ok(())
}

proptest! {
    #[test]
    fn every_choice_has_the_least_start_tag_on_every_level(tree in hierarchy(12, false), steps in steps()) {
        let mut scheduler = Scheduler::new(tree.clone());
        prop_assume!(scheduler.is_exact());
        follow(&tree, &steps, &mut scheduler)?;
    }

    #[test]
    fn so_it_has_in_deep_and_skewed_trees(tree in hierarchy(60, true), steps in steps()) {
        let mut scheduler = Scheduler::new(tree.clone());
        prop_assume!(scheduler.is_exact());
        follow(&tree, &steps, &mut scheduler)?;
    }

    #[test]
    fn longer_tags_decide_as_the_scheduler_does_where_that_does_not_round(
        tree in hierarchy(12, false), steps in steps(),
    ) {
        let (mut scheduler, mut longer) = (Scheduler::new(tree.clone()), Exact::new(tree.clone()));
        prop_assume!(scheduler.is_exact());
        let leaves: Vec<ClassId> = tree.classes().map(|(id, _)| id).filter(|id| tree.is_leaf(*id)).collect();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Arrive { leaf, length } => {
                    let packet = Packet::new(*length, at);
                    scheduler.enqueue(Instant::ZERO, leaves[leaf % leaves.len()], packet.clone()).expect("a leaf takes packets");
                    longer.enqueue(Instant::ZERO, leaves[leaf % leaves.len()], packet).expect("a leaf takes packets");
                }
                Step::Finish => {
                    scheduler.finish(Instant::ZERO);
                    longer.finish(Instant::ZERO);
                }
                Step::Choose => prop_assert_eq!(scheduler.dequeue(Instant::ZERO), longer.dequeue(Instant::ZERO)),
            }
            prop_assert_eq!(scheduler.backlog(), longer.backlog());
        }
    }

    #[test]
    fn so_it_has_among_more_siblings_than_a_list_holds(
        weights in prop::collection::vec(prop::sample::select(vec!["1", "2", "3", "2.5"]), 33..80),
        steps in steps(),
    ) {
        let leaf = |(at, weight): (usize, &&str)| {
            ClassSpec::new(at.to_string()).weighing(weight.parse().expect("a weight"))
        };
        let root = ClassSpec::new("link").with(weights.iter().enumerate().map(leaf));
        let tree = Hierarchy::new(root).expect("names are unique");
        follow(&tree, &steps, &mut Scheduler::new(tree.clone()))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn start_time_is_never_rounded_however_odd_the_weights_are(
        heavy in prop::collection::vec(100_000..1_000_000_u32, 8..24), light in 1..9_u32,
        lengths in prop::collection::vec(1..1500_u32, 40..60),
    ) {
        let weights = heavy.iter().chain([&light]).enumerate();
        let leaf = |(at, weight): (usize, &u32)| {
            let weight = Weight::from_integer(NonZeroU32::new(*weight).expect("it is above 0"));
            ClassSpec::new(at.to_string()).weighing(weight)
        };
        let tree = Hierarchy::new(ClassSpec::new("link").with(weights.map(leaf))).expect("names are unique");
        prop_assume!(!Scheduler::<usize>::new(tree.clone()).is_exact());
        // every class always has packets, with other lengths than the others at the same time
        let turns = (0..lengths.len()).flat_map(|packet| (0..=heavy.len()).map(move |leaf| (packet, leaf)));
        let steps: Vec<Step> = turns
            .map(|(packet, leaf)| {
                Step::Arrive { leaf, length: lengths[(packet + 7 * leaf) % lengths.len()] }
            })
            .collect();
        follow(&tree, &steps, start_time(tree.clone()).as_mut())?;
    }
}
