//! Reads `btin-topo-1` without a second copy of the file in memory.
//!
//! A file may have 256 MiB, and the lists of lists that a JSON library builds take many times the memory of
//! the text. So each element is stored in its final place as soon as it is read: links and nodes become ends
//! of cables, and names are appended to one string. Checks that need the whole file come afterwards. Their
//! errors give the position of the element, too.

use super::topology::{FORMAT, Generated, MAX_SWITCHES, NetworkFile};
use super::{JsonStep, ReadError};
use crate::names::{Names, PortNames};
use crate::network::NetworkElement;
use crate::{BarrierGroup, End, GroupError, GroupId, NodeId, Port, SwitchId, SwitchLink, SwitchNetwork};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt;
use unisono_text::counted;

/// The maximum number of groups in a file, because a message has 8 bits for the group. The reader keeps one
/// group more, so that it can report that there are too many.
const MAX_GROUPS: usize = 256;

const MAX_UNKNOWN: usize = 1000;

const REQUIRED: [&str; 5] = ["format", "ports", "switches", "links", "nodes"];

impl NetworkFile {
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        let text = super::without_mark(text);
        let document: TopologyDocument =
            serde_json::from_str(text).map_err(|error| ReadError::from_json(&error))?;
        document.check(text)
    }
}

#[derive(Default)]
struct TopologyDocument {
    format: String,
    ports: Ports,
    switches: u32,
    links: LinkList,
    nodes: NodeEnds,
    members: Vec<NodeId>,
    groups: GroupLists,
    switch_names: Names,
    node_names: Names,
    switch_labels: Names,
    node_labels: Names,
    port_names: NamedPorts,
    generated: Option<Generated>,
    unknown: BTreeSet<String>,
}

/// The first cable with a port beyond 65535: its number, switch and port.
type InvalidPort = Option<(usize, u32, u32)>;

#[derive(Default)]
struct LinkList(Vec<SwitchLink>, InvalidPort);

#[derive(Default)]
struct NodeEnds(Vec<End>, InvalidPort);

#[derive(Default)]
struct GroupLists(Vec<Vec<NodeId>>);

#[derive(Default)]
struct NamedPorts(PortNames);

enum Ports {
    All(u16),
    Each(Vec<u16>),
}

impl Default for Ports {
    fn default() -> Self {
        Self::All(0)
    }
}

impl<'de> Deserialize<'de> for TopologyDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = TopologyDocument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a network (an object of the format btin-topo-1)")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TopologyDocument, A::Error> {
                let mut document = TopologyDocument::default();
                let mut seen = BTreeSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if document.value(&key, &mut map)? && !seen.insert(key.clone()) {
                        return Err(A::Error::custom(format!("duplicate field `{key}`")));
                    }
                }
                match REQUIRED.iter().find(|key| !seen.contains(**key)) {
                    Some(key) => Err(A::Error::missing_field(key)),
                    None => Ok(document),
                }
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

impl TopologyDocument {
    /// Reads the value of a key. Returns whether the format knows the key.
    fn value<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "format" => self.format = map.next_value()?,
            "ports" => self.ports = map.next_value()?,
            "switches" => self.switches = map.next_value()?,
            "links" => self.links = map.next_value()?,
            "nodes" => self.nodes = map.next_value()?,
            "members" => self.members = members(map.next_value()?),
            "groups" => self.groups = map.next_value()?,
            "switch_names" => self.switch_names = map.next_value()?,
            "node_names" => self.node_names = map.next_value()?,
            "switch_labels" => self.switch_labels = map.next_value()?,
            "node_labels" => self.node_labels = map.next_value()?,
            "port_names" => self.port_names = map.next_value()?,
            "generated" => self.generated = map.next_value()?,
            _ => {
                map.next_value::<IgnoredAny>()?;
                if self.unknown.len() < MAX_UNKNOWN {
                    self.unknown.insert(key.to_owned());
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn members(numbers: Vec<u32>) -> Vec<NodeId> {
    // reuses the memory of `numbers`, because a NodeId has the same size
    numbers.into_iter().map(NodeId).collect()
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

/// Makes an end of a cable, and records the first port that does not fit the format in `beyond`.
fn port(beyond: &mut InvalidPort, number: usize, switch: u32, port: u32) -> End {
    let fits = u16::try_from(port);
    if fits.is_err() && beyond.is_none() {
        *beyond = Some((number, switch, port));
    }
    End { switch: SwitchId(switch), port: Port(fits.unwrap_or(u16::MAX)) }
}

/// Reads a list and passes each element to `take`.
struct ListVisitor<F>(F, &'static str);

impl<'de, T: Deserialize<'de>, F: FnMut(T)> Visitor<'de> for ListVisitor<(F, std::marker::PhantomData<T>)> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            (self.0.0)(item);
        }
        Ok(())
    }
}

fn visit_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    what: &'static str,
    take: impl FnMut(T),
) -> Result<(), D::Error> {
    deserializer.deserialize_seq(ListVisitor((take, std::marker::PhantomData), what))
}

impl<'de> Deserialize<'de> for LinkList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mut links, mut beyond) = (Vec::new(), None);
        visit_list(
            deserializer,
            "links, each [switch, port, switch, port]",
            |[sa, pa, sb, pb]: [u32; 4]| {
                let number = links.len();
                let a = port(&mut beyond, number, sa, pa);
                links.push(SwitchLink { a, b: port(&mut beyond, number, sb, pb) });
            },
        )?;
        links.shrink_to_fit();
        Ok(Self(links, beyond))
    }
}

impl<'de> Deserialize<'de> for NodeEnds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mut nodes, mut beyond) = (Vec::new(), None);
        visit_list(deserializer, "nodes, each [switch, port]", |[switch, at]: [u32; 2]| {
            nodes.push(port(&mut beyond, nodes.len(), switch, at));
        })?;
        nodes.shrink_to_fit();
        Ok(Self(nodes, beyond))
    }
}

impl<'de> Deserialize<'de> for GroupLists {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut groups = Vec::new();
        visit_list(deserializer, "groups, each a list of nodes", |group: Vec<u32>| {
            if groups.len() < MAX_GROUPS {
                groups.push(members(group));
            }
        })?;
        Ok(Self(groups))
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut names = Names::default();
        visit_list(deserializer, "a list of names", |name: String| names.push(&name))?;
        Ok(names)
    }
}

impl<'de> Deserialize<'de> for NamedPorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = NamedPorts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of ports, as {\"SWITCH\":{\"PORT\":\"NAME\"}}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedPorts, A::Error> {
                let (mut ends, mut names) = (Vec::new(), Names::default());
                while let Some(switch) = map.next_key::<String>()? {
                    let switch = super::number(&switch)
                        .ok_or_else(|| A::Error::custom(format!("{switch:?} is no number of a switch")))?;
                    map.next_value_seed(PortsOf(SwitchId(switch), &mut ends, &mut names))?;
                }
                Ok(NamedPorts(PortNames::new(ends, names)))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Appends the names of one switch's ports to the lists.
struct PortsOf<'a>(SwitchId, &'a mut Vec<End>, &'a mut Names);

impl<'de> DeserializeSeed<'de> for PortsOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PortsOf<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names of ports, as {\"PORT\":\"NAME\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(switch, ends, names) = self;
        while let Some(port) = map.next_key::<String>()? {
            let port = super::number(&port)
                .ok_or_else(|| A::Error::custom(format!("{port:?} is no number of a port")))?;
            ends.push(End { switch, port: Port(port) });
            names.push(&map.next_value::<String>()?);
        }
        Ok(())
    }
}

impl TopologyDocument {
    fn check(self, text: &str) -> Result<NetworkFile, ReadError> {
        let wrong = |path: &[JsonStep<'_>], problem: String| ReadError::in_json(text, path, problem);
        if self.format != FORMAT {
            let problem = format!("{:?} is not the format {FORMAT:?}", self.format);
            return Err(wrong(&[JsonStep::Key("format")], problem));
        }
        if self.switches > MAX_SWITCHES {
            let problem =
                format!("{}, but at most {MAX_SWITCHES} can be read", counted(self.switches, "switch"));
            return Err(wrong(&[JsonStep::Key("switches")], problem));
        }
        let ports = match self.ports {
            Ports::All(ports) => vec![ports; self.switches as usize],
            Ports::Each(each) if each.len() != self.switches as usize => {
                let problem =
                    format!("{} for {}", counted(each.len(), "number"), counted(self.switches, "switch"));
                return Err(wrong(&[JsonStep::Key("ports")], problem));
            }
            Ports::Each(each) => each,
        };
        for (key, names, count) in [
            ("switch_names", self.switch_names.len(), ports.len()),
            ("node_names", self.node_names.len(), self.nodes.0.len()),
            ("switch_labels", self.switch_labels.len(), ports.len()),
            ("node_labels", self.node_labels.len(), self.nodes.0.len()),
        ] {
            if names != 0 && names != count {
                let problem =
                    format!("{} for {count}; name each, or leave the key out", counted(names, "name"));
                return Err(wrong(&[JsonStep::Key(key)], problem));
            }
        }
        let NamedPorts(port_names) = self.port_names;
        for (End { switch, port }, _) in port_names.iter() {
            if ports.get(switch.0 as usize).is_none_or(|ports| port.0 >= *ports) {
                let (switch, port) = (switch.0.to_string(), port.0.to_string());
                let path = [JsonStep::Key("port_names"), JsonStep::Key(&switch), JsonStep::Key(&port)];
                return Err(wrong(&path, format!("there is no port {port} at switch {switch}")));
            }
        }
        let network = network(text, ports, self.links, self.nodes)?;
        let mut groups = Vec::new();
        if !self.members.is_empty() {
            groups.push(group(text, &[JsonStep::Key("members")], &network, GroupId(0), self.members)?);
        }
        for (number, members) in self.groups.0.into_iter().enumerate() {
            let path = [JsonStep::Key("groups"), JsonStep::Index(number)];
            let Ok(id) = u8::try_from(number + 1) else {
                return Err(wrong(
                    &path,
                    "more than 256 groups: a message has 8 bits for the group".to_owned(),
                ));
            };
            groups.push(group(text, &path, &network, GroupId(id), members)?);
        }
        Ok(NetworkFile {
            network,
            groups,
            switch_names: self.switch_names,
            node_names: self.node_names,
            switch_labels: self.switch_labels,
            node_labels: self.node_labels,
            port_names,
            generated: self.generated,
            unknown: self.unknown.into_iter().collect(),
        })
    }
}

fn network(
    text: &str,
    ports: Vec<u16>,
    LinkList(links, bad_link): LinkList,
    NodeEnds(nodes, bad_node): NodeEnds,
) -> Result<SwitchNetwork, ReadError> {
    let path = |what: NetworkElement| match what {
        NetworkElement::Link(number) => [JsonStep::Key("links"), JsonStep::Index(number)],
        NetworkElement::Node(number) => [JsonStep::Key("nodes"), JsonStep::Index(number)],
    };
    let bad_link = bad_link.map(|(number, switch, port)| (NetworkElement::Link(number), switch, port));
    let bad_node = bad_node.map(|(number, switch, port)| (NetworkElement::Node(number), switch, port));
    if let Some((what, switch, port)) = bad_link.or(bad_node) {
        let has = ports.get(switch as usize).copied().unwrap_or_default();
        let problem = format!(
            "{what} is at port {port} of switch {switch}, which has {} (counted from 0)",
            counted(has, "port")
        );
        return Err(ReadError::in_json(text, &path(what), problem));
    }
    SwitchNetwork::new(ports, links, nodes)
        .map_err(|error| ReadError::in_json(text, &path(error.element()), error.to_string()))
}

fn group(
    text: &str,
    path: &[JsonStep<'_>],
    network: &SwitchNetwork,
    id: GroupId,
    members: Vec<NodeId>,
) -> Result<BarrierGroup, ReadError> {
    BarrierGroup::new(network, id, members.clone()).map_err(|error| {
        let at = match &error {
            GroupError::Empty => None,
            GroupError::NoSuchNode { node, .. } => members.iter().position(|member| member.0 == *node),
            GroupError::Twice { node } => members.iter().rposition(|member| member.0 == *node),
        };
        let mut path = path.to_vec();
        path.extend(at.map(JsonStep::Index));
        ReadError::in_json(text, &path, error.to_string())
    })
}
