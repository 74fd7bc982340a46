//! For `unisono tree export --to p4`: writes barrier registers as table entries of a P4 switch, in the JSON
//! of P4's tools.
//!
//! A switch that is programmed in P4 needs three things for each group: the ports whose arrivals it waits
//! for, the port to which it sends the last arrival, and the ports to which it replicates a release. The
//! first two are entries of a table, by group and port of arrival; the third is a group of the replication
//! engine. The P4 program belongs to the switch's owner. It has to define the tables, keys, actions and
//! parameters named below.
//!
//! ```text
//!   barrier.reduction     (group, ingress_port) -> arrive(bit, all, egress_port)    the last arrival goes up
//!                                               -> turn(bit, all, multicast_group)  ... or turns around here
//!   barrier.distribution  (group, ingress_port) -> replicate(multicast_group)       a release comes down
//! ```
//!
//! `bit` and `all` are masks of ports as hexadecimal text, because a switch may have more ports than a JSON
//! number has bits. A multicast group's number is the barrier group's number plus one, because 0 means "none"
//! there.

use crate::{NetworkFile, Port, Register, SwitchId, Tree, TurnPoint};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Returns the entries for all switches of a tree, by ascending switch.
pub fn p4(topology: &NetworkFile, tree: &Tree, turn: TurnPoint) -> Value {
    let one = |(switch, register): (&SwitchId, &Register)| entries(topology, tree, turn, *switch, register);
    json!({
        "format": "btin-p4-1",
        "group": tree.group.0,
        "turn": match turn { TurnPoint::AtNode => "node", TurnPoint::AtSwitch => "switch" },
        "switches": tree.registers.iter().map(one).collect::<Vec<_>>(),
    })
}

fn entries(
    topology: &NetworkFile,
    tree: &Tree,
    turn: TurnPoint,
    switch: SwitchId,
    register: &Register,
) -> Value {
    let (above, below) = register.sides(tree.turn_at(switch, turn));
    let (group, multicast) = (tree.group.0, u32::from(tree.group.0) + 1);
    let all = mask(&below);
    let arrival = |port: &Port| {
        let key = json!({"group": group, "ingress_port": port.0});
        let (bit, all) = (mask(&[*port]), &all);
        let (action, parameters) = match above {
            Some(above) => ("barrier.arrive", json!({"bit": bit, "all": all, "egress_port": above.0})),
            None => ("barrier.turn", json!({"bit": bit, "all": all, "multicast_group": multicast})),
        };
        json!({"table": "barrier.reduction", "match": key, "action_name": action, "action_params": parameters})
    };
    let mut table: Vec<Value> = below.iter().map(arrival).collect();
    if let Some(above) = above {
        table.push(json!({
            "table": "barrier.distribution",
            "match": {"group": group, "ingress_port": above.0},
            "action_name": "barrier.replicate",
            "action_params": {"multicast_group": multicast},
        }));
    }
    let replicas: Vec<Value> =
        below.iter().map(|port| json!({"egress_port": port.0, "instance": 0})).collect();
    let used: BTreeSet<Port> = below.iter().chain(&register.parent).copied().collect();
    let names = used.into_iter().filter_map(|port| {
        let name = topology.port_names.get(crate::End { switch, port })?;
        Some((port.0.to_string(), Value::from(name)))
    });
    json!({
        "switch": switch.0,
        "name": topology.switch_name(switch),
        "port_names": names.collect::<Map<_, _>>(),
        "table_entries": table,
        "multicast_group_entries": [{"multicast_group_id": multicast, "replicas": replicas}],
    })
}

/// Returns a mask with the bits of these ports, as hexadecimal text.
fn mask(ports: &[Port]) -> String {
    let digits = ports.iter().map(|port| usize::from(port.0) / 4 + 1).max().unwrap_or(1);
    let mut nibbles = vec![0_u8; digits];
    for port in ports {
        nibbles[usize::from(port.0) / 4] |= 1 << (port.0 % 4);
    }
    let text: String = nibbles.iter().rev().map(|nibble| format!("{nibble:x}")).collect();
    format!("0x{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{NetworkOptions, generate};
    use crate::{MessageKind, PlanOptions, Switch, plan};
    use std::collections::BTreeMap;

    #[test]
    fn masks_have_a_bit_for_each_port_however_many_there_are() {
        assert_eq!(mask(&[Port(0), Port(5)]), "0x21");
        assert_eq!(mask(&[Port(64)]), "0x10000000000000000");
        assert_eq!(mask(&[]), "0x0");
    }

    /// Applies the entries of a switch to messages, as a P4 switch would.
    struct Tables<'a> {
        entries: &'a Value,
        arrived: u128,
    }

    impl Tables<'_> {
        fn lookup(&self, table: &str, port: u16) -> Option<&Value> {
            let entries = self.entries["table_entries"].as_array()?;
            entries.iter().find(|entry| entry["table"] == table && entry["match"]["ingress_port"] == port)
        }

        fn replicas(&self) -> Vec<u16> {
            let replicas = self.entries["multicast_group_entries"][0]["replicas"].as_array();
            let port =
                |replica: &Value| replica["egress_port"].as_u64().and_then(|port| u16::try_from(port).ok());
            replicas.into_iter().flatten().filter_map(port).collect()
        }

        /// Returns the ports at which a message leaves, and whether it leaves as a release.
        fn take(&mut self, kind: MessageKind, port: u16) -> (Vec<u16>, bool) {
            if kind == MessageKind::Distribution {
                return (self.lookup("barrier.distribution", port).map_or(vec![], |_| self.replicas()), true);
            }
            let Some(entry) = self.lookup("barrier.reduction", port).cloned() else { return (vec![], false) };
            let parameters = &entry["action_params"];
            let bits = |key: &str| {
                let text = parameters[key].as_str().and_then(|text| text.strip_prefix("0x"));
                u128::from_str_radix(text.expect("it is hexadecimal"), 16).expect("it fits")
            };
            self.arrived |= bits("bit");
            if self.arrived != bits("all") {
                return (vec![], false);
            }
            self.arrived = 0;
            match parameters["egress_port"].as_u64() {
                Some(up) => (vec![u16::try_from(up).expect("a port")], false),
                None => (self.replicas(), true),
            }
        }
    }

    #[test]
    fn the_entries_send_what_the_registers_send() {
        for (seed, turn) in (0..20).zip([TurnPoint::AtNode, TurnPoint::AtSwitch].into_iter().cycle()) {
            let options =
                NetworkOptions { switches: 15, nodes: 30, members: 12, seed, ..NetworkOptions::default() };
            let topology = generate(&options).expect("there is such a network");
            let group = &topology.groups[0];
            let tree = plan(&topology.network, group, &PlanOptions::default()).expect("connected").tree;
            let exported = p4(&topology, &tree, turn);
            let tables = exported["switches"].as_array().expect("a list").iter();
            let mut tables: BTreeMap<u64, Tables<'_>> = tables
                .map(|entries| {
                    (entries["switch"].as_u64().expect("a number"), Tables { entries, arrived: 0 })
                })
                .collect();
            for (id, mut switch) in Switch::all(&tree, turn, crate::ReductionOperator::Or) {
                let table = tables.get_mut(&u64::from(id.0)).expect("each register has entries");
                let register = &tree.registers[&id];
                let ports = register.children.iter().chain(&register.locals).chain(&register.parent);
                for kind in [MessageKind::Reduction, MessageKind::Distribution] {
                    for port in ports.clone() {
                        let message = crate::SyncMessage::new(kind, tree.group, 0);
                        let mut replies = Vec::new();
                        switch.take(*port, crate::BarrierFrame { message, episode: 0 }, &mut replies);
                        let mut out: Vec<u16> = replies.iter().map(|(port, _)| port.0).collect();
                        out.sort_unstable();
                        let (sent, _) = table.take(kind, port.0);
                        assert_eq!(sent, out, "seed {seed}, {turn:?}, switch {}, port {}", id.0, port.0);
                    }
                }
            }
        }
    }
}
