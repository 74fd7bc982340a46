//! Measures the time of simulating: `cargo bench -p unisono-btin --bench simulate [NETWORKS]`.
//!
//! The workload is figure 6 of the paper, on one thread: networks of 300 switches and 1,024 nodes, with every
//! scheme and every size of group. The time includes planning.

#![expect(clippy::print_stdout, reason = "a program that prints a line")]

use std::time::Instant;
use unisono_btin::generate::{NetworkOptions, generate};
use unisono_btin::simulate::{Conditions, Scheme, SimulatedBarrier, Simulator};
use unisono_btin::{BarrierGroup, GroupId, NodeId, PlanOptions, plan};

fn main() {
    let wanted = std::env::args().skip(1).find(|word| word != "--bench");
    let networks: u64 = wanted.map_or(100, |word| word.parse().expect("NETWORKS is a number"));
    let start = Instant::now();
    let mut events = 0;
    for seed in 0..networks {
        let options =
            NetworkOptions { switches: 300, nodes: 1024, members: 1024, seed, ..NetworkOptions::default() };
        let network = generate(&options).expect("there is such a network").network;
        let simulator = Simulator::new(&network);
        for size in 1..=10 {
            let members = (0..1024_u32).step_by(1024 >> size).map(NodeId).collect();
            let group = BarrierGroup::new(&network, GroupId(0), members).expect("all nodes exist");
            let planned = plan(&network, &group, &PlanOptions::default()).expect("the network is connected");
            let barrier = SimulatedBarrier::planned(&group, &planned);
            for scheme in Scheme::ALL {
                events += simulator.run(&[barrier], scheme, &Conditions::default()).events;
            }
        }
    }
    println!("{networks} networks, {events} events: {:.3} s", start.elapsed().as_secs_f64());
}
