//! Compares the trees of roots that should be equal by symmetry, and checks that there are many such roots.

use super::super::search::Search;
use super::super::tests::everybody;
use super::super::tests::families::{Links, any_family, fat_tree, network, regular, torus, with_nodes};
use super::super::{PlanOptions, plan};
use super::*;
use proptest::prelude::*;

fn graph((n, links): &Links) -> Graph {
    Graph::new(&network(*n, links, &[]))
}

/// Returns the number of classes. Checks that each root's tree has the same height and leaves as the tree of
/// the lowest root in its class.
fn classes(graph: &Graph, scan: Scan) -> usize {
    let count = graph.len();
    let Some(symmetries) = Symmetries::find(graph, scan, Workers::new(None)) else { return count };
    let Symmetries { lowest: classes, leaves_at_least, .. } = &symmetries;
    let lowest_bound = |root| symmetries.leaves_at_least(root)[0];
    assert!(leaves_at_least.iter().all(|rest| rest.windows(2).all(|pair| pair[0] >= pair[1])));
    let mut search = Search::new(graph);
    let shapes: Vec<_> = (0..count as u32)
        .map(|root| {
            search.run(graph, root, scan);
            search.shape(&vec![true; count])
        })
        .collect();
    for (root, &lowest) in (0..).zip(classes) {
        assert!(lowest <= root && symmetries.lowest(lowest) == lowest && symmetries.lowest(root) == lowest);
        assert!(lowest_bound(root) <= shapes[root as usize].leaves);
        assert_eq!(shapes[root as usize], shapes[lowest as usize], "{scan:?}: {root} and {lowest}");
    }
    classes.iter().enumerate().filter(|&(root, &lowest)| root == lowest as usize).count()
}

/// Makes a torus with arbitrary links: each switch is linked to the switches whose number is greater by an
/// offset, digit by digit, modulo the radix.
fn shifts(radices: &[u32], offsets: &[Vec<u32>]) -> Links {
    let count = radices.iter().product();
    let to = |switch: u32, offset: &[u32]| {
        let (mut rest, mut unit, mut number) = (switch, 1, 0);
        for (&radix, &more) in radices.iter().zip(offset) {
            number += (rest % radix + more) % radix * unit;
            rest /= radix;
            unit *= radix;
        }
        number
    };
    let links = (0..count).flat_map(|switch| offsets.iter().map(move |offset| (switch, to(switch, offset))));
    (count, links.collect())
}

fn regularly_numbered() -> impl Strategy<Value = Links> {
    let digits = proptest::collection::vec(2_u32..9, 1..4);
    digits.prop_filter("small enough", |radices| radices.iter().product::<u32>() <= 300).prop_flat_map(
        |radices| {
            let units =
                (0..radices.len()).map(|digit| (0..radices.len()).map(|at| u32::from(at == digit)).collect());
            let units: Vec<Vec<u32>> = units.collect();
            let more = proptest::collection::vec(proptest::collection::vec(0_u32..9, radices.len()), 0..3);
            more.prop_map(move |more| shifts(&radices, &[&units[..], &more[..]].concat()))
        },
    )
}

/// Makes the level the lowest digit instead of the highest.
fn level_last((n, links): Links, levels: u32) -> Links {
    let width = n / levels;
    let renumber = |switch: u32| switch % width * levels + switch / width;
    (n, links.into_iter().map(|(a, b)| (renumber(a), renumber(b))).collect())
}

fn with_a_link_more((n, mut links): Links, a: u32, b: u32) -> Links {
    links.push((a % n, b % n));
    (n, links)
}

proptest! {
    #[test]
    fn roots_that_are_alike_have_trees_of_the_same_height_and_as_many_leaves(
        links in prop_oneof![
            3 => regularly_numbered(),
            1 => any_family(),
            1 => (2_u32..5, 2_u32..5).prop_map(|(k, levels)| fat_tree(k, levels)),
            1 => (2_u32..4, 2_u32..5).prop_map(|(k, levels)| level_last(fat_tree(k, levels), levels)),
            1 => (3_u32..14, 3_u32..14).prop_map(|(rows, columns)| torus(rows, columns)),
            1 => (regularly_numbered(), any::<u32>(), any::<u32>()).prop_map(|(links, a, b)| with_a_link_more(links, a, b)),
        ]
    ) {
        let graph = graph(&links);
        let mut search = Search::new(&graph);
        search.run(&graph, 0, Scan::Queue);
        prop_assume!(search.reached().len() == graph.len());
        for scan in [Scan::Queue, Scan::Level] {
            classes(&graph, scan);
        }
    }
}

#[test]
fn a_row_of_a_torus_is_one_class_if_it_is_odd_and_two_if_it_is_even() {
    for scan in [Scan::Queue, Scan::Level] {
        assert_eq!(classes(&graph(&torus(8, 15)), scan), 8);
        assert_eq!(classes(&graph(&torus(15, 16)), scan), 30);
        assert_eq!(classes(&graph(&torus(20, 20)), scan), 40);
    }
}

#[test]
fn in_a_fat_tree_only_zeros_matter() {
    for scan in [Scan::Queue, Scan::Level] {
        assert_eq!(classes(&graph(&fat_tree(4, 4)), scan), 4 * 8);
        assert_eq!(classes(&graph(&level_last(fat_tree(4, 4), 4)), scan), 4 * 8);
    }
}

#[test]
fn one_link_more_or_numbers_at_random_leave_nothing_alike() {
    let (n, links) = torus(12, 13);
    assert_eq!(classes(&graph(&with_a_link_more((n, links), 5, 70)), Scan::Queue), 156);
    assert_eq!(classes(&graph(&regular(200, 4)), Scan::Queue), 200);
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn the_best_of_those_left_is_the_best_of_all() {
    let cases = [torus(31, 33), torus(30, 40), torus(40, 30), fat_tree(4, 5), level_last(fat_tree(4, 5), 5)];
    for links in cases {
        let graph = graph(&links);
        let network = with_nodes(&links);
        let mut search = Search::new(&graph);
        for scan in [Scan::Queue, Scan::Level] {
            let of = |root| {
                search.run(&graph, root, scan);
                (search.shape(&vec![true; graph.len()]), root)
            };
            let (shape, root) = (0..links.0).map(of).min().expect("there are switches");
            let options = PlanOptions { scan, ..PlanOptions::default() };
            let plan = plan(&network, &everybody(&network), &options).expect("it is connected");
            let found = (plan.height, plan.edges, plan.leaves, plan.tree.root_switch.0);
            assert_eq!(found, (shape.height, shape.edges, shape.leaves, root), "{scan:?}");
        }
    }
}
