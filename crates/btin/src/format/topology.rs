//! `btin-topo-1`: a network, its groups, and further data about it.
//!
//! ```json
//! {"format":"btin-topo-1", "ports":8, "switches":2, "links":[[0,7,1,7]], "nodes":[[0,0],[1,0]],
//!  "members":[0,1]}
//! ```
//!
//! Numbers count from 0. `ports` is one number for all switches, or a list with one for each. A link is
//! switch, port, switch, port; a node is switch, port. `members` is group 0. All further keys are optional.
//! `groups` are lists of nodes: groups 1, 2, and so on. `switch_names` and `node_names` are the names in the
//! original file. `switch_labels` and `node_labels` are readable names, for networks whose names are hardware
//! numbers. `port_names` are the switches' own names of ports (`{"0":{"5":"swp51"}}`: port 5 of switch 0 is
//! swp51). `generated` describes how a random network was made.

use crate::names::{Names, PortNames};
use crate::{BarrierGroup, End, GroupId, NodeId, Port, SwitchId, SwitchLink, SwitchNetwork};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

pub(super) const FORMAT: &str = "btin-topo-1";

/// The maximum number of switches in a file, so that a typing error does not take all memory.
pub(super) const MAX_SWITCHES: u32 = 1 << 24;

/// A network, its groups, and the names in the file.
///
/// ```
/// use unisono_btin::NetworkFile;
///
/// let text = r#"{"format":"btin-topo-1", "ports":8, "switches":2, "links":[[0,7,1,7]],
///                "nodes":[[0,0],[1,0]], "members":[0,1]}"#;
/// let file = NetworkFile::from_json(text)?;
/// assert_eq!(file.groups[0].members().len(), 2);
/// assert!(NetworkFile::from_json("{}").is_err_and(|error| error.line == 1));
/// # Ok::<(), unisono_btin::ReadError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkFile {
    pub network: SwitchNetwork,
    /// The groups, by ascending number; empty if the file names no members.
    pub groups: Vec<BarrierGroup>,
    /// Names of the switches; empty, or one each.
    pub switch_names: Names,
    /// Names of the nodes; empty, or one each.
    pub node_names: Names,
    /// Readable names of the switches if `switch_names` are numbers, such as InfiniBand's; empty, or one
    /// each.
    pub switch_labels: Names,
    /// The same as `switch_labels`, for nodes.
    pub node_labels: Names,
    /// The switches' own names of ports.
    pub port_names: PortNames,
    pub generated: Option<Generated>,
    /// Keys of the file that this format does not know.
    pub unknown: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Generated {
    /// The requested connectivity: the fraction of all ports that is in use, on average.
    pub connectivity: f64,
    pub seed: u64,
    /// Whether that connectivity was too small for a connected network, so that this network is a bare
    /// spanning tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare_tree: bool,
}

impl NetworkFile {
    pub fn new(network: SwitchNetwork, groups: Vec<BarrierGroup>) -> Self {
        let [switch_names, node_names, switch_labels, node_labels] = [(); 4].map(|()| Names::default());
        let (port_names, generated, unknown) = (PortNames::default(), None, Vec::new());
        Self {
            network,
            groups,
            switch_names,
            node_names,
            switch_labels,
            node_labels,
            port_names,
            generated,
            unknown,
        }
    }

    /// Writes the text of a file, with a line end after each list. The same topology gives the same text.
    pub fn to_json(&self) -> String {
        // Reserves room for all links and nodes: text that grows by doubling takes up to twice its size.
        let digits = |number: usize| number.max(1).ilog10() as usize + 1;
        let max_ports = self.network.switches().map(|switch| self.network.ports(switch)).max().unwrap_or(0);
        let end = digits(self.network.switch_count()) + digits(usize::from(max_ports));
        let (links, nodes) = (self.network.links().len(), self.network.nodes().len());
        let mut out = String::with_capacity(200 + links * (2 * end + 6) + nodes * (end + 4));
        let _ = writeln!(out, "{{\"format\":\"{FORMAT}\",");
        let ports: Vec<u16> = self.network.switches().map(|switch| self.network.ports(switch)).collect();
        match ports.first() {
            Some(first) if ports.iter().all(|ports| ports == first) => {
                let _ = write!(out, "\"ports\":{first},");
            }
            _ => list(&mut out, "ports", ports.iter().map(ToString::to_string)),
        }
        let _ = writeln!(out, "\n\"switches\":{},", ports.len());
        let link = |SwitchLink { a, b }: &SwitchLink| {
            format!("[{},{},{},{}]", a.switch.0, a.port.0, b.switch.0, b.port.0)
        };
        list(&mut out, "links", self.network.links().iter().map(link));
        out.push('\n');
        let node = |End { switch, port }: &End| format!("[{},{}]", switch.0, port.0);
        list(&mut out, "nodes", self.network.nodes().iter().map(node));
        out.push('\n');
        let members = self.groups.first().filter(|group| group.id() == GroupId(0));
        let members_of =
            |group: &BarrierGroup| group.members().iter().map(|node| node.0.to_string()).collect();
        list(&mut out, "members", members.map_or_else(Vec::new, members_of).into_iter());
        let others = &self.groups[usize::from(members.is_some())..];
        if !others.is_empty() {
            out.push('\n');
            let inner = |group: &BarrierGroup| format!("[{}]", members_of(group).join(","));
            list(&mut out, "groups", others.iter().map(inner));
        }
        for (key, names) in [
            ("switch_names", &self.switch_names),
            ("node_names", &self.node_names),
            ("switch_labels", &self.switch_labels),
            ("node_labels", &self.node_labels),
        ] {
            if !names.is_empty() {
                out.push('\n');
                list(&mut out, key, names.iter().map(|name| serde_json::Value::from(name).to_string()));
            }
        }
        if !self.port_names.is_empty() {
            let _ = write!(out, "\n\"port_names\":{},", self.ports_named(|_| true));
        }
        if let Some(generated) = &self.generated
            && let Ok(said) = serde_json::to_string(generated)
        {
            let _ = write!(out, "\n\"generated\":{said},");
        }
        out.pop();
        out.push_str("}\n");
        out
    }

    /// Writes the names of the ports that `wanted` selects as JSON, by switch, then by port.
    pub fn ports_named(&self, wanted: impl Fn(End) -> bool) -> String {
        let mut out = String::from("{");
        let mut before = None;
        for (end, name) in self.port_names.iter().filter(|(end, _)| wanted(*end)) {
            match before {
                Some(switch) if switch == end.switch => out.push(','),
                Some(_) => {
                    let _ = write!(out, "}},\n\"{}\":{{", end.switch.0);
                }
                None => {
                    let _ = write!(out, "\"{}\":{{", end.switch.0);
                }
            }
            before = Some(end.switch);
            let _ = write!(out, "\"{}\":{}", end.port.0, serde_json::Value::from(name));
        }
        out.push_str(if before.is_some() { "}}" } else { "}" });
        out
    }

    /// Returns the name of a switch, or else its number.
    pub fn switch_name(&self, switch: SwitchId) -> String {
        let name = self.switch_names.get(switch.0 as usize);
        name.map_or_else(|| switch.0.to_string(), str::to_owned)
    }

    /// Returns the name of a node, or else its number.
    pub fn node_name(&self, node: NodeId) -> String {
        let name = self.node_names.get(node.0 as usize);
        name.map_or_else(|| node.0.to_string(), str::to_owned)
    }

    /// Returns a switch for display: its name and its label.
    pub fn switch_shown(&self, switch: SwitchId) -> String {
        labelled(self.switch_name(switch), self.switch_labels.get(switch.0 as usize))
    }

    /// Returns a node for display: its name and its label.
    pub fn node_shown(&self, node: NodeId) -> String {
        labelled(self.node_name(node), self.node_labels.get(node.0 as usize))
    }

    /// Returns a port for display: its name, or else its number.
    pub fn port_shown(&self, switch: SwitchId, port: Port) -> String {
        self.port_names.shown(switch, port)
    }

    /// Returns the nodes on which programs can run: all but aggregation nodes.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> {
        let aggregates = |node: usize| self.node_labels.get(node).is_some_and(is_aggregation);
        let nodes = (0..).zip(self.network.nodes()).map(|(node, _)| NodeId(node));
        nodes.filter(move |node| !aggregates(node.0 as usize))
    }
}

/// Returns whether a node with this description is an *aggregation node*: a part of the switch that combines
/// data, but appears in the network as if it were a host. No program runs on it.
pub(crate) fn is_aggregation(label: &str) -> bool {
    label.contains("Aggregation Node")
}

fn labelled(name: String, label: Option<&str>) -> String {
    match label {
        Some(label) if !label.is_empty() && label != name => format!("{name} ({label})"),
        _ => name,
    }
}

/// Writes `"key":[...],` with lines of at most 100 characters unless an item is longer.
fn list(out: &mut String, key: &str, items: impl Iterator<Item = String>) {
    let _ = write!(out, "\"{key}\":[");
    let mut width = out.len() - out.rfind('\n').map_or(0, |end| end + 1);
    let mut first = true;
    for item in items {
        if !first {
            out.push(',');
        }
        if !first && width + item.len() + 1 > 100 {
            out.push('\n');
            width = 0;
        }
        width += item.len() + 1;
        out.push_str(&item);
        first = false;
    }
    out.push_str("],");
}
