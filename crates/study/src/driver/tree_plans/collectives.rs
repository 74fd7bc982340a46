//! Compares collective operations other than the barrier: done by the registers of a barrier tree, and done
//! by messages.
//!
//! The collectives are allreduce (a sum), multicast and total exchange. Each is done by the tree as in the
//! paper, by the same tree turned at the root switch, and by messages. By messages, allreduce and multicast
//! go to one member and back, and the exchange goes from every member to every other.

use super::{PartSamples, draw_group, plan_tree};
use rand_pcg::Pcg64Mcg;
use unisono_btin::collective::{self, Collective};
use unisono_btin::simulate::{Conditions, Scheme, SimulatedBarrier, Simulator};
use unisono_btin::{NodeId, ReductionOperator, Roots, SwitchNetwork};

pub(super) const PARTS: [&str; 9] = [
    "sum-tree",
    "sum-turned",
    "sum-messages",
    "multicast-tree",
    "multicast-turned",
    "multicast-messages",
    "exchange-tree",
    "exchange-turned",
    "exchange-messages",
];

pub(super) fn compare_collectives(
    network: &SwitchNetwork,
    members: u32,
    random: &mut Pcg64Mcg,
    seen: &mut PartSamples,
) -> Result<(), String> {
    let group = draw_group(network, 0, members, random)?;
    let plan = plan_tree(network, &group, Roots::Members)?;
    let barrier = SimulatedBarrier::planned(&group, &plan);
    let simulator = Simulator::new(network);
    let conditions = Conditions::default();
    let brings = |node: NodeId| (node.0 % 2) as u8;
    let source = group.members()[0];
    let by_messages = simulator.run(std::slice::from_ref(&barrier), Scheme::Unicast, &conditions).latency();
    let exchanged = collective::direct_exchange(&simulator, &barrier, &conditions);
    let sum = |scheme| {
        collective::allreduce(&simulator, &barrier, (ReductionOperator::Sum, &brings), scheme, &conditions)
    };
    let multicast = |scheme| collective::multicast(&simulator, &barrier, (source, 1), scheme, &conditions);
    let exchange = |scheme| collective::total_exchange(&simulator, &barrier, &brings, scheme, &conditions);
    let by_tree: [&dyn Fn(Scheme) -> Collective; 3] = [&sum, &multicast, &exchange];
    let by_messages = [by_messages, by_messages, Some(exchanged)];
    for ((parts, by_tree), by_messages) in PARTS.chunks(3).zip(by_tree).zip(by_messages) {
        let latencies = [by_tree(Scheme::Btin).latency, by_tree(Scheme::BtinTurn).latency, by_messages];
        for (part, latency) in parts.iter().zip(latencies) {
            let latency = latency.ok_or_else(|| format!("{part} did not end"))?;
            seen.entry((part, members)).or_default().add("latency_us", "us", latency.as_us());
        }
    }
    Ok(())
}
