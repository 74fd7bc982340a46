//! Networks for tests: regular networks, in which many roots are tied, and random networks.

pub(crate) use super::shapes::{
    Links, fat_tree, fat_tree_of_pods, network, torus, torus_of_cubes, with_nodes,
};
use crate::{BarrierGroup, GroupId, NodeId, SwitchNetwork};
use proptest::prelude::*;

pub(crate) fn path(n: u32) -> Links {
    (n, (1..n).map(|v| (v - 1, v)).collect())
}

pub(crate) fn ring(n: u32) -> Links {
    (n, (0..n).map(|v| (v, (v + 1) % n)).collect())
}

pub(crate) fn star(n: u32) -> Links {
    (n, (1..n).map(|v| (0, v)).collect())
}

pub(crate) fn clique(n: u32) -> Links {
    (n, (0..n).flat_map(|a| (0..a).map(move |b| (a, b))).collect())
}

/// Makes two cliques joined by a path.
pub(crate) fn barbell(n: u32, between: u32) -> Links {
    let (_, mut links) = clique(n);
    links.extend(clique(n).1.into_iter().map(|(a, b)| (a + n, b + n)));
    let way: Vec<u32> = [0].into_iter().chain(2 * n..2 * n + between).chain([n]).collect();
    links.extend(way.windows(2).map(|pair| (pair[0], pair[1])));
    (2 * n + between, links)
}

/// Makes a network in which each switch has `links` links, scattered over the network by a fixed rule: all
/// trees are about the same, and most of their switches are in the last levels.
pub(crate) fn regular(n: u32, links: u32) -> Links {
    let scatter = |at: u32| (at.wrapping_mul(0x9E37_79B1) ^ 0x5851_F42D).wrapping_mul(0x85EB_CA6B);
    let mut ends: Vec<u32> = (0..n * links).collect();
    ends.sort_unstable_by_key(|&end| scatter(end));
    let joined = (1..n).map(|v| (v - 1, v));
    let scattered = ends.chunks_exact(2).map(|pair| (pair[0] % n, pair[1] % n));
    (n, joined.step_by(2).chain(scattered).chain([(n - 1, 0)]).collect())
}

/// Generates a random tree with random links added, including parallel links and self loops.
pub(crate) fn random() -> impl Strategy<Value = Links> {
    (2u32..40, 0usize..60).prop_flat_map(|(n, more)| {
        let tree = (1..n).map(|v| (0..v).prop_map(move |up| (up, v))).collect::<Vec<_>>();
        let more = proptest::collection::vec((0..n, 0..n), more);
        (Just(n), tree, more).prop_map(|(n, tree, more)| (n, tree.into_iter().chain(more).collect()))
    })
}

pub(crate) fn any_family() -> impl Strategy<Value = Links> {
    prop_oneof![
        4 => random(),
        1 => (1u32..30).prop_map(path),
        1 => (3u32..30).prop_map(ring),
        1 => (2u32..20).prop_map(star),
        1 => (2u32..12).prop_map(clique),
        1 => (2u32..6, 0u32..6).prop_map(|(n, between)| barbell(n, between)),
        2 => (3u32..8, 3u32..8).prop_map(|(rows, columns)| torus(rows, columns)),
        2 => (2u32..4, 2u32..4).prop_map(|(k, levels)| fat_tree(k, levels)),
    ]
}

/// Generates a network with switches optionally renumbered at random, one or two nodes at each, and a group
/// of all or some nodes.
pub(crate) fn network_and_group() -> impl Strategy<Value = (SwitchNetwork, BarrierGroup)> {
    (any_family(), any::<bool>()).prop_flat_map(|((n, links), shuffle)| {
        let ids: Vec<u32> = (0..n).collect();
        let ids = if shuffle { Just(ids).prop_shuffle().boxed() } else { Just(ids).boxed() };
        let nodes = proptest::collection::vec(0..n, 1..=n as usize);
        let members =
            prop_oneof![Just(None), proptest::collection::vec(any::<bool>(), 2 * n as usize).prop_map(Some)];
        (ids, nodes, members).prop_map(move |(ids, more, members)| {
            let links: Vec<_> = links.iter().map(|&(a, b)| (ids[a as usize], ids[b as usize])).collect();
            let nodes: Vec<u32> = (0..n).chain(more).collect();
            let network = network(n, &links, &nodes);
            let chosen = (0..)
                .zip(&nodes)
                .filter(|&(node, _)| node == 0 || members.as_ref().is_none_or(|members| members[node]));
            let members =
                chosen.map(|(node, _)| NodeId(u32::try_from(node).expect("there are few"))).collect();
            let group = BarrierGroup::new(&network, GroupId(1), members).expect("all nodes exist");
            (network, group)
        })
    })
}
