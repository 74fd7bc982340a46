//! The scheduler against the definition of start-time fair queuing, computed with exact fractions.

mod reference;

use proptest::prelude::*;
use reference::Reference;
use unisono_fairqueue::{ClassId, ClassSpec, Discipline, Hierarchy, Packet, Scheduler, Weight};

fn weight() -> impl Strategy<Value = Weight> {
    let text = prop_oneof![
        4 => (1..10_u32).prop_map(|whole| whole.to_string()),
        2 => (1..100_u32).prop_map(|tenths| format!("{}.{}", tenths / 10, tenths % 10 + 1)),
        1 => (1..1000_u32).prop_map(|whole| whole.to_string()),
    ];
    text.prop_filter_map("a weight", |text| text.parse().ok())
}

/// Trees of every shape: each class hangs below one made before it.
fn hierarchy(most: usize, skew: bool) -> impl Strategy<Value = Hierarchy> {
    prop::collection::vec((any::<prop::sample::Index>(), weight()), 1..most).prop_map(move |classes| {
        let mut parents = vec![0];
        let mut weights = vec![Weight::ONE];
        for (at, (parent, weight)) in classes.iter().enumerate() {
            // a skewed tree hangs almost everything below the last class but one
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
    Arrive { leaf: prop::sample::Index, length: u32 },
    Finish,
    Choose,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![3 => 1..1500_u32, 1 => Just(1500_u32), 1 => 0..4_u32];
    let arrive =
        (any::<prop::sample::Index>(), length).prop_map(|(leaf, length)| Step::Arrive { leaf, length });
    prop::collection::vec(prop_oneof![5 => arrive, 1 => Just(Step::Finish), 4 => Just(Step::Choose)], 1..200)
}

fn follow(
    hierarchy: &Hierarchy,
    steps: &[Step],
    mut scheduler: Scheduler<usize>,
) -> Result<(), TestCaseError> {
    let leaves: Vec<ClassId> =
        hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect();
    let mut reference = Reference::new(hierarchy);
    let mut last = vec![None; hierarchy.classes().count()];
    let rest = std::iter::repeat_n(&Step::Choose, steps.len() + 1);
    for (at, step) in steps.iter().chain(rest).enumerate() {
        match step {
            Step::Arrive { leaf, length } => {
                let leaf = *leaf.get(&leaves);
                scheduler.enqueue(0, leaf, Packet::new(*length, at)).expect("a leaf takes packets");
                reference.enqueue(leaf, *length);
            }
            Step::Finish => {
                scheduler.finish(0);
                reference.finish();
            }
            Step::Choose => {
                reference.finish();
                let Some((leaf, packet)) = scheduler.dequeue(0) else {
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
    #![proptest_config(ProptestConfig::with_cases(700))]

    #[test]
    fn every_choice_has_the_least_start_tag_on_every_level(tree in hierarchy(12, false), steps in steps()) {
        let scheduler = Scheduler::new(tree.clone());
        prop_assume!(scheduler.is_exact());
        follow(&tree, &steps, scheduler)?;
    }

    #[test]
    fn so_it_has_in_deep_and_skewed_trees(tree in hierarchy(60, true), steps in steps()) {
        let scheduler = Scheduler::new(tree.clone());
        prop_assume!(scheduler.is_exact());
        follow(&tree, &steps, scheduler)?;
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
        follow(&tree, &steps, Scheduler::new(tree.clone()))?;
    }
}
