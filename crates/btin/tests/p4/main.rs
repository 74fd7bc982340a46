//! Tests that the example in P4, interpreted with the exported entries, sends the same messages as
//! [`Switch`].

mod interpreter;

use interpreter::{P4Switch, Program};
use unisono_btin::generate::{NetworkOptions, generate};
use unisono_btin::{
    BarrierFrame, MessageKind, PlanOptions, Port, ReductionOperator, Switch, SyncMessage, TurnPoint, export,
    plan,
};

const EXAMPLE: &str = include_str!("../../../../examples/p4/barrier.p4");

/// Passes the same message to both switches and checks that they send the same messages.
fn compare(switch: &mut Switch, p4: &mut P4Switch<'_>, port: Port, frame: BarrierFrame, context: &str) {
    let mut replies = Vec::new();
    switch.take(port, frame, &mut replies);
    let mut ports: Vec<u64> = replies.iter().map(|(port, _)| u64::from(port.0)).collect();
    ports.sort_unstable();
    let SyncMessage { kind, group, .. } = frame.message;
    let message = (kind as u64, u64::from(group.0), u64::from(frame.message.data()));
    let (sent, (kind, group, data)) = p4.take(port.0.into(), message);
    assert_eq!(sent, ports, "{context}, port {}", port.0);
    for (_, reply) in replies {
        let wanted = (
            reply.message.kind as u64,
            u64::from(reply.message.group.0),
            u64::from(reply.message.data()),
        );
        assert_eq!((kind, group, data), wanted, "{context}, port {}", port.0);
    }
}

#[test]
fn the_example_in_p4_sends_what_the_registers_send() {
    let program = Program::read(EXAMPLE, "barrier");
    for (seed, turn) in (0..20).zip([TurnPoint::AtNode, TurnPoint::AtSwitch].into_iter().cycle()) {
        let options =
            NetworkOptions { switches: 15, nodes: 30, members: 12, seed, ..NetworkOptions::default() };
        let topology = generate(&options).expect("there is such a network");
        let group = &topology.groups[0];
        let tree = plan(&topology.network, group, &PlanOptions::default()).expect("connected").tree;
        let exported = export::p4(&topology, &tree, turn);
        let entries = exported["switches"].as_array().expect("a list");
        for (id, mut switch) in Switch::all(&tree, turn, ReductionOperator::Or) {
            let entries = entries.iter().find(|entries| entries["switch"] == id.0).expect("it has entries");
            let mut p4 = P4Switch::new(&program, entries);
            let (above, below) = tree.registers[&id].sides(tree.turn_at(id, turn));
            for episode in 0..3 {
                let context = format!("seed {seed}, {turn:?}, switch {}, episode {episode}", id.0);
                let frame =
                    |kind, data| BarrierFrame { message: SyncMessage::new(kind, tree.group, data), episode };
                let first = usize::from(episode) % below.len();
                let (later, earlier) = below.split_at(first);
                for (port, data) in
                    earlier.iter().chain(later).zip([1_u8, 2, 4, 8, 16, 32].into_iter().cycle())
                {
                    compare(&mut switch, &mut p4, *port, frame(MessageKind::Reduction, data), &context);
                }
                if let Some(above) = above {
                    compare(&mut switch, &mut p4, above, frame(MessageKind::Distribution, 63), &context);
                }
            }
        }
    }
}
