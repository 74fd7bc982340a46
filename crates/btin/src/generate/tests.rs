//! Tests properties of random networks.

use super::*;
use crate::reach::Components;
use proptest::prelude::*;

fn options(switches: u32, ports: u16, nodes: u32, connectivity: f64) -> NetworkOptions {
    NetworkOptions { switches, ports, nodes, connectivity, members: nodes / 3, ..NetworkOptions::default() }
}

proptest! {
    #[test]
    fn drawn_networks_are_connected_and_use_the_ports_asked_for(
        switches in 1..40_u32, ports in 1..12_u16, load in 0.0..1.0_f64, connectivity in 0.0..=1.0_f64, seed: u64,
    ) {
        let nodes = (load * f64::from(switches) * f64::from(ports)) as u32;
        let options = NetworkOptions { seed, ..options(switches, ports, nodes, connectivity) };
        match generate(&options) {
            Ok(topology) => {
                let network = &topology.network;
                prop_assert_eq!(Components::new(network).count(), 1);
                prop_assert_eq!(network.nodes().len(), nodes as usize);
                let used = 2 * network.links().len() + network.nodes().len();
                let wanted = connectivity * f64::from(switches) * f64::from(ports);
                if switches > 1 {
                    prop_assert!((used as f64 - wanted).abs() <= 1.5, "{used} ports, {wanted} wanted");
                }
                let again = generate(&options);
                prop_assert_eq!(again.as_ref(), Ok(&topology));
                let mut read = NetworkFile::from_json(&topology.to_json()).expect("what was written can be read");
                read.generated.clone_from(&topology.generated); // except for the last digit of a fraction
                prop_assert_eq!(&read, &topology);
                prop_assert_eq!(topology.groups.iter().map(|group| group.members().len()).sum::<usize>(), nodes as usize / 3);
            }
            Err(GenerateError::TooSparse { min, .. }) => {
                prop_assert!(connectivity < min);
                let enough = NetworkOptions { connectivity: (min + 1e-9).min(1.0), ..options.clone() };
                prop_assert!(generate(&enough).is_ok());
                let bare = generate(&NetworkOptions { sparse: Sparse::BareTree, ..options }).expect("a tree fits");
                prop_assert_eq!(bare.network.links().len(), switches as usize - 1);
                prop_assert!(bare.generated.is_some_and(|how| how.bare_tree));
                prop_assert_eq!(Components::new(&bare.network).count(), 1);
            }
            Err(GenerateError::TooFewPorts { .. }) => {
                prop_assert!(2 * (switches - 1) + nodes > switches * u32::from(ports));
            }
            Err(GenerateError::OnePort { .. }) => prop_assert!(ports == 1 && switches > 2),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn the_papers_sparsest_system_is_refused_with_the_connectivity_that_would_do() {
    let error = generate(&options(75, 8, 256, 0.5)).expect_err("300 ports cannot hold 404 ends");
    assert_eq!(
        error.to_string(),
        "75 switches of 8 ports with 256 nodes cannot be connected at 50 %: that takes at least 67.3 % (or the bare \
         tree: --at-least-tree)"
    );
    assert!((min_connectivity(75, 8, 256) - 404.0 / 600.0).abs() < 1e-12);
}

#[test]
fn no_cable_joins_a_switch_with_itself_while_others_have_room() {
    for seed in 0..200 {
        let topology =
            generate(&NetworkOptions { seed, ..options(5, 6, 0, 1.0) }).expect("30 ports, no nodes");
        assert_eq!(topology.network.links().len(), 15);
        assert!(topology.network.links().iter().all(|link| link.a.switch != link.b.switch), "seed {seed}");
    }
}

#[test]
fn a_seed_means_the_same_network_for_ever() {
    // if this network changes, every seed that users have recorded gives another network
    let topology = generate(&options(4, 4, 5, 0.75)).expect("it fits");
    let links: Vec<_> = topology
        .network
        .links()
        .iter()
        .map(|l| [l.a.switch.0, l.a.port.0.into(), l.b.switch.0, l.b.port.0.into()])
        .collect();
    assert_eq!(links, [[0, 2, 2, 2], [2, 1, 1, 1], [1, 0, 3, 0]]);
    let nodes: Vec<_> = topology.network.nodes().iter().map(|end| (end.switch.0, end.port.0)).collect();
    assert_eq!(nodes, [(0, 3), (2, 0), (3, 3), (0, 1), (2, 3)]);
    assert_eq!(topology.groups[0].members(), [NodeId(4)]);
}
