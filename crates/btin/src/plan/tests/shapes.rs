//! Regular networks for tests and for `benches/plan.rs`, which includes this file by its path.

use super::{End, Port, SwitchId, SwitchLink, SwitchNetwork};

/// The number of switches, and the links between them.
pub(crate) type Links = (u32, Vec<(u32, u32)>);

/// Makes a network of switches with at least eight ports. Links take the lowest free ports, in order. Then
/// each switch in `nodes` gets a node at its next port.
pub(crate) fn network(switches: u32, links: &[(u32, u32)], nodes: &[u32]) -> SwitchNetwork {
    let mut used = vec![0; switches as usize];
    let mut next = |switch: u32| {
        used[switch as usize] += 1;
        End { switch: SwitchId(switch), port: Port(used[switch as usize] - 1) }
    };
    let links = links.iter().map(|&(a, b)| SwitchLink { a: next(a), b: next(b) }).collect();
    let nodes = nodes.iter().map(|&switch| next(switch)).collect();
    let ports = used.iter().map(|&used| used.max(8)).collect();
    SwitchNetwork::new(ports, links, nodes).expect("ports are given out once")
}

/// Makes a network with one node at each switch.
pub(crate) fn with_nodes((switches, links): &Links) -> SwitchNetwork {
    network(*switches, links, &(0..*switches).collect::<Vec<_>>())
}

pub(crate) fn torus(rows: u32, columns: u32) -> Links {
    let at = |row: u32, column: u32| row % rows * columns + column % columns;
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let links = all.flat_map(|(r, c)| [(at(r, c), at(r, c + 1)), (at(r, c), at(r + 1, c))]);
    (rows * columns, links.collect())
}

pub(crate) fn torus_of_cubes(side: u32) -> Links {
    let at = |x: u32, y: u32, z: u32| (x % side * side + y % side) * side + z % side;
    let all = (0..side.pow(3)).map(|at| (at / side / side, at / side % side, at % side));
    let links =
        |(x, y, z)| [(x + 1, y, z), (x, y + 1, z), (x, y, z + 1)].map(|(a, b, c)| (at(x, y, z), at(a, b, c)));
    (side.pow(3), all.flat_map(links).collect())
}

/// Makes a k-ary tree whose levels all have the same width. Each switch is linked to the k switches above it
/// whose numbers differ from its own in one digit.
pub(crate) fn fat_tree(k: u32, levels: u32) -> Links {
    let width = k.pow(levels - 1);
    let mut links = Vec::new();
    for level in 0..levels - 1 {
        let unit = k.pow(level);
        for switch in 0..width {
            let rest = switch - switch / unit % k * unit;
            links.extend(
                (0..k).map(|digit| (level * width + switch, (level + 1) * width + rest + digit * unit)),
            );
        }
    }
    (levels * width, links)
}

/// Makes a fat tree of edge, aggregation and core switches with this many ports each.
pub(crate) fn fat_tree_of_pods(ports: u32) -> Links {
    let half = ports / 2;
    let (edges, above) = (ports * half, 2 * ports * half);
    let mut links = Vec::new();
    for (pod, one) in (0..ports).flat_map(|pod| (0..half).map(move |one| (pod * half, one))) {
        links.extend((0..half).map(|other| (pod + one, edges + pod + other)));
        links.extend((0..half).map(|core| (edges + pod + one, above + one * half + core)));
    }
    (above + half * half, links)
}
