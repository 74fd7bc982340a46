//! `btin-topo-1`: a network, its groups, and what else is known about it.
//!
//! ```json
//! {"format":"btin-topo-1", "ports":8, "switches":2, "links":[[0,7,1,7]], "nodes":[[0,0],[1,0]], "members":[0,1]}
//! ```
//!
//! Numbers count from 0. `ports` is one number, or one a switch; a link is switch, port, switch, port; a node is
//! switch, port. `members` is group 0. Four more keys may be there: `groups` (lists of nodes: groups 1, 2, ...),
//! `switch_names` and `node_names` (what they were called where the network came from), and `generated`.

use super::{ReadError, Step};
use crate::network::Part;
use crate::{End, Group, GroupError, GroupId, Link, Network, NetworkError, NodeId, Port, SwitchId};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The name of the format, in its files.
const FORMAT: &str = "btin-topo-1";

/// The most switches that a file may claim: a typing error must not take all memory.
const MOST_SWITCHES: u32 = 1 << 24;

/// What a topology file holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Topology {
    /// Switches, links and nodes.
    pub network: Network,
    /// The groups, by ascending number; none if the file names no members.
    pub groups: Vec<Group>,
    /// What the switches are called; empty, or one each.
    pub switch_names: Vec<String>,
    /// What the nodes are called; empty, or one each.
    pub node_names: Vec<String>,
    /// How it was drawn, if it was.
    pub generated: Option<Generated>,
    /// Keys of the file that mean nothing here.
    pub unknown: Vec<String>,
}

/// How a network was drawn.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Generated {
    /// The connectivity asked for: the part of all ports that is in use, on average.
    pub connectivity: f64,
    /// Where chance began.
    pub seed: u64,
    /// Whether that connectivity was too small for a connected network, and this is the bare tree instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare_tree: bool,
}

impl Topology {
    /// A network and its groups, without names.
    #[must_use]
    pub fn new(network: Network, groups: Vec<Group>) -> Self {
        let (switch_names, node_names, unknown) = (Vec::new(), Vec::new(), Vec::new());
        Self { network, groups, switch_names, node_names, generated: None, unknown }
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        let document: Document = serde_json::from_str(text).map_err(|error| ReadError::from_json(&error))?;
        document.check(text)
    }

    /// The text of a file, with a line end after each list; the same for the same topology.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = format!("{{\"format\":\"{FORMAT}\",\n");
        let ports: Vec<u16> = self.network.switches().map(|switch| self.network.ports(switch)).collect();
        match ports.first() {
            Some(first) if ports.iter().all(|ports| ports == first) => {
                let _ = write!(out, "\"ports\":{first},");
            }
            _ => list(&mut out, "ports", ports.iter().map(ToString::to_string)),
        }
        let _ = writeln!(out, "\n\"switches\":{},", ports.len());
        let link =
            |Link { a, b }: &Link| format!("[{},{},{},{}]", a.switch.0, a.port.0, b.switch.0, b.port.0);
        list(&mut out, "links", self.network.links().iter().map(link));
        out.push('\n');
        let node = |End { switch, port }: &End| format!("[{},{}]", switch.0, port.0);
        list(&mut out, "nodes", self.network.nodes().iter().map(node));
        out.push('\n');
        let members = self.groups.first().filter(|group| group.id() == GroupId(0));
        let members_of = |group: &Group| group.members().iter().map(|node| node.0.to_string()).collect();
        list(&mut out, "members", members.map_or_else(Vec::new, members_of).into_iter());
        let others = &self.groups[usize::from(members.is_some())..];
        if !others.is_empty() {
            out.push('\n');
            let inner = |group: &Group| format!("[{}]", members_of(group).join(","));
            list(&mut out, "groups", others.iter().map(inner));
        }
        for (key, names) in [("switch_names", &self.switch_names), ("node_names", &self.node_names)] {
            if !names.is_empty() {
                out.push('\n');
                list(
                    &mut out,
                    key,
                    names.iter().map(|name| serde_json::Value::from(name.as_str()).to_string()),
                );
            }
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

    /// What a switch is called: its name, or its number.
    #[must_use]
    pub fn switch_name(&self, switch: SwitchId) -> String {
        self.switch_names.get(switch.0 as usize).cloned().unwrap_or_else(|| switch.0.to_string())
    }

    /// What a node is called: its name, or its number.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> String {
        self.node_names.get(node.0 as usize).cloned().unwrap_or_else(|| node.0.to_string())
    }
}

/// `"key":[...],` with lines of at most 100 characters where items allow it.
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

#[derive(Deserialize)]
struct Document {
    format: String,
    ports: Ports,
    switches: u32,
    links: Vec<[u32; 4]>,
    nodes: Vec<[u32; 2]>,
    #[serde(default)]
    members: Vec<u32>,
    #[serde(default)]
    groups: Vec<Vec<u32>>,
    #[serde(default)]
    switch_names: Vec<String>,
    #[serde(default)]
    node_names: Vec<String>,
    generated: Option<Generated>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

enum Ports {
    All(u16),
    Each(Vec<u16>),
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of ports (0 to 65535), or a list of one a switch")
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Ports, E> {
                u16::try_from(value)
                    .map(Ports::All)
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(value), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Ports, A::Error> {
                let mut each = Vec::new();
                while let Some(ports) = items.next_element()? {
                    each.push(ports);
                }
                Ok(Ports::Each(each))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl Document {
    fn check(self, text: &str) -> Result<Topology, ReadError> {
        let wrong = |path: &[Step<'_>], problem: String| ReadError::in_json(text, path, problem);
        if self.format != FORMAT {
            let problem = format!("{:?} is not the format {FORMAT:?}", self.format);
            return Err(wrong(&[Step::Key("format")], problem));
        }
        if self.switches > MOST_SWITCHES {
            let problem = format!("{} switches, but at most {MOST_SWITCHES} can be read", self.switches);
            return Err(wrong(&[Step::Key("switches")], problem));
        }
        let ports = match self.ports {
            Ports::All(ports) => vec![ports; self.switches as usize],
            Ports::Each(each) if each.len() != self.switches as usize => {
                let problem = format!("{} numbers of ports for {} switches", each.len(), self.switches);
                return Err(wrong(&[Step::Key("ports")], problem));
            }
            Ports::Each(each) => each,
        };
        for (key, names, count) in [
            ("switch_names", self.switch_names.len(), ports.len()),
            ("node_names", self.node_names.len(), self.nodes.len()),
        ] {
            if names != 0 && names != count {
                let problem = format!("{names} names for {count}; name each, or leave the key out");
                return Err(wrong(&[Step::Key(key)], problem));
            }
        }
        let network = network(text, ports, &self.links, &self.nodes)?;
        let mut groups = Vec::new();
        if !self.members.is_empty() {
            groups.push(group(text, &[Step::Key("members")], &network, GroupId(0), &self.members)?);
        }
        for (number, members) in self.groups.iter().enumerate() {
            let path = [Step::Key("groups"), Step::Index(number)];
            let Ok(id) = u8::try_from(number + 1) else {
                return Err(wrong(
                    &path,
                    "more than 256 groups: a message has 8 bits for the group".to_owned(),
                ));
            };
            groups.push(group(text, &path, &network, GroupId(id), members)?);
        }
        Ok(Topology {
            network,
            groups,
            switch_names: self.switch_names,
            node_names: self.node_names,
            generated: self.generated,
            unknown: self.unknown.into_keys().collect(),
        })
    }
}

fn network(
    text: &str,
    ports: Vec<u16>,
    links: &[[u32; 4]],
    nodes: &[[u32; 2]],
) -> Result<Network, ReadError> {
    let path = |what: Part| match what {
        Part::Link(number) => [Step::Key("links"), Step::Index(number)],
        Part::Node(number) => [Step::Key("nodes"), Step::Index(number)],
    };
    let end = |what: Part, switch: u32, port: u32| {
        let port = u16::try_from(port).map_err(|_| {
            let has = ports.get(switch as usize).copied().unwrap_or_default();
            let problem =
                format!("{what} is at port {port} of switch {switch}, which has {has} ports (from 0)");
            ReadError::in_json(text, &path(what), problem)
        })?;
        Ok::<_, ReadError>(End { switch: SwitchId(switch), port: Port(port) })
    };
    let mut cables = Vec::with_capacity(links.len());
    for (number, [sa, pa, sb, pb]) in links.iter().enumerate() {
        let what = Part::Link(number);
        cables.push(Link { a: end(what, *sa, *pa)?, b: end(what, *sb, *pb)? });
    }
    let mut places = Vec::with_capacity(nodes.len());
    for (number, [switch, port]) in nodes.iter().enumerate() {
        places.push(end(Part::Node(number), *switch, *port)?);
    }
    Network::new(ports, cables, places).map_err(|error| {
        let what = match &error {
            NetworkError::NoSuchSwitch { what, .. } | NetworkError::NoSuchPort { what, .. } => *what,
            NetworkError::PortTwice { second, .. } => *second,
        };
        ReadError::in_json(text, &path(what), error.to_string())
    })
}

fn group(
    text: &str,
    path: &[Step<'_>],
    network: &Network,
    id: GroupId,
    members: &[u32],
) -> Result<Group, ReadError> {
    Group::new(network, id, members.iter().copied().map(NodeId).collect()).map_err(|error| {
        let at = match &error {
            GroupError::Empty => None,
            GroupError::NoSuchNode { node, .. } => members.iter().position(|member| member == node),
            GroupError::Twice { node } => members.iter().rposition(|member| member == node),
        };
        let mut path = path.to_vec();
        path.extend(at.map(Step::Index));
        ReadError::in_json(text, &path, error.to_string())
    })
}
