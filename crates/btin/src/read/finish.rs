//! Turns a reader's draft into a network: numbers switches and nodes, assigns ports to cables, and records
//! the elements that are left out.

use super::draft::{Draft, Plug};
use super::port_assignment::PortAssignment;
use super::words::VertexKind;
use super::{Assume, Language, LeafVertices, LeftOut, ReadReport};
use crate::format::ReadError;
use crate::names::Names;
use crate::network::NetworkElement;
use crate::{BarrierGroup, GroupId, NetworkFile, NodeId, SwitchLink, SwitchNetwork, SwitchNetworkError};
use std::collections::BTreeMap;
use unisono_text::counted;

/// The nodes of a draft, in the order of the file.
#[derive(Default)]
struct Nodes {
    ends: Vec<crate::End>,
    /// For each node, the byte of the text at which its cable is described.
    places: Vec<usize>,
    names: Names,
    labels: Names,
    members: Vec<NodeId>,
    several: usize,
    /// Nodes that are parts of switches and run no programs.
    aggregating: usize,
}

impl Draft {
    /// Returns the network, its members, and a report of all assumptions.
    pub(super) fn finish(
        mut self,
        text: &str,
        language: Language,
        assume: &Assume,
    ) -> Result<(NetworkFile, ReadReport), ReadError> {
        let whole = |problem: String| ReadError::at(text, 0, "", problem);
        self.roles(&assume.roles, language).map_err(whole)?;
        self.decide(assume);
        let (switches, numbers) = self.switches();
        let mut plugs = PortAssignment::new(&self, &switches, &numbers, assume, text)?;
        let mut links = Vec::new();
        let mut link_places = Vec::new();
        // nodes in the order of the file, each with its cables
        let mut cables_of: BTreeMap<usize, Vec<(&Plug, usize)>> = BTreeMap::new();
        let mut idle = 0;
        for cable in &self.cables {
            let switch = |plug: &Plug| self.vertices[plug.vertex].kind == VertexKind::Switch;
            match (switch(&cable.a), switch(&cable.b)) {
                (true, true) => {
                    links.push(SwitchLink { a: plugs.end(&cable.a), b: plugs.end(&cable.b) });
                    link_places.push(cable.at);
                }
                (true, false) => cables_of.entry(cable.b.vertex).or_default().push((&cable.a, cable.at)),
                (false, true) => cables_of.entry(cable.a.vertex).or_default().push((&cable.b, cable.at)),
                (false, false) => idle += 1,
            }
        }
        let is_unplugged =
            |at: &usize| self.vertices[*at].kind == VertexKind::Node && !cables_of.contains_key(at);
        let unplugged: Vec<usize> = (0..self.vertices.len()).filter(is_unplugged).collect();
        self.check_left_out(idle, unplugged.len()).map_err(whole)?;
        let mut nodes = self.nodes(&cables_of, &mut plugs);
        self.added(&switches, assume, &mut plugs, &mut nodes);
        let ports = plugs.ports(assume);
        let network = SwitchNetwork::new(ports, links, nodes.ends).map_err(|error| {
            let (at, element) = match error.element() {
                NetworkElement::Link(number) => (link_places[number], "cable".to_owned()),
                NetworkElement::Node(number) => {
                    (nodes.places[number], format!("node {}", nodes.names.get(number).unwrap_or_default()))
                }
            };
            ReadError::at(text, at, element, self.named(&switches, &error))
        })?;
        let groups = BarrierGroup::new(&network, GroupId(0), nodes.members).into_iter().collect();
        let mut report = ReadReport::new(language, &network);
        let member_switches = switches.iter().filter(|at| self.vertices[**at].member).count();
        report.left_out =
            LeftOut { cables_between_nodes: idle, nodes_without_a_cable: unplugged.len(), member_switches };
        report.ports_assigned = plugs.assigned;
        report.node_places = nodes.places;
        let port_names = plugs.names();
        let (several, aggregating, named) = (nodes.several, nodes.aggregating, port_names.iter().len());
        let notes = [
            (
                idle,
                format!(
                    "{} between two nodes left out: switches have no part in them",
                    counted(idle, "cable")
                ),
            ),
            (
                several,
                format!(
                    "{} with more than one cable: each further one became a node NAME/2, ...",
                    counted(several, "node")
                ),
            ),
            (member_switches, "members are nodes: that switches are members was left out".to_owned()),
            (
                named,
                format!("{} with a name: each keeps its name beside its number", counted(named, "port")),
            ),
            (
                aggregating,
                format!(
                    "{} for aggregation inside switches: --members all leaves them out",
                    counted(aggregating, "node")
                ),
            ),
        ];
        self.notes.extend(notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note));
        if let Some(first) = unplugged.first() {
            let others = unplugged.len() - 1;
            let others =
                if others > 0 { format!(" and {}", counted(others, "other")) } else { String::new() };
            let first = &self.vertices[*first].name;
            self.notes.push(format!("node {first}{others} without a cable was left out"));
        }
        report.unknown = std::mem::take(&mut self.unknown);
        report.notes = std::mem::take(&mut self.notes);
        let mut topology = NetworkFile::new(network, groups);
        topology.switch_names = switches.iter().map(|at| &self.vertices[*at].name).collect();
        topology.node_names = nodes.names;
        topology.port_names = port_names;
        topology.switch_labels =
            unless_all_empty(switches.iter().map(|at| &self.vertices[*at].label).collect());
        topology.node_labels = unless_all_empty(nodes.labels);
        Ok((topology, report))
    }

    /// Returns the vertices that are switches, and, by vertex, its number among the switches.
    fn switches(&self) -> (Vec<usize>, Vec<u32>) {
        let mut numbers = vec![0_u32; self.vertices.len()];
        let mut switches = Vec::new();
        for (at, vertex) in self.vertices.iter().enumerate() {
            if vertex.kind == VertexKind::Switch {
                numbers[at] =
                    u32::try_from(switches.len()).expect("fits because each takes more than a byte");
                switches.push(at);
            }
        }
        (switches, numbers)
    }

    /// Refuses roles that would leave most of the file out: such roles probably misread the file.
    fn check_left_out(&self, idle: usize, unplugged: usize) -> Result<(), String> {
        let (cables, vertices) = (self.cables.len(), self.vertices.len());
        if 2 * idle <= cables && 2 * unplugged <= vertices {
            return Ok(());
        }
        Err(format!(
            "most of the file would be left out: {idle} of {cables} cables join two hosts, and {unplugged} of \
             {vertices} vertices are hosts without a cable to a switch; say what is a switch: \
             --role ATTRIBUTE=VALUE:switch"
        ))
    }

    /// Makes a node for each cable of each host.
    fn nodes(
        &self,
        cables_of: &BTreeMap<usize, Vec<(&Plug, usize)>>,
        plugs: &mut PortAssignment<'_>,
    ) -> Nodes {
        let mut nodes = Nodes::default();
        for (vertex, cables) in cables_of {
            let vertex = &self.vertices[*vertex];
            nodes.several += usize::from(cables.len() > 1);
            nodes.aggregating += usize::from(crate::format::is_aggregation(&vertex.label));
            for (number, (plug, at)) in cables.iter().enumerate() {
                if vertex.member && number == 0 {
                    nodes.members.push(NodeId(u32::try_from(nodes.ends.len()).unwrap_or(u32::MAX)));
                }
                nodes.ends.push(plugs.end(plug));
                nodes.places.push(*at);
                match number {
                    0 => nodes.names.push(&vertex.name),
                    _ => nodes.names.push(&format!("{}/{}", vertex.name, number + 1)),
                }
                nodes.labels.push(&vertex.label);
            }
        }
        nodes
    }

    /// Adds the nodes that the caller wants at each switch.
    fn added(&self, switches: &[usize], assume: &Assume, plugs: &mut PortAssignment<'_>, nodes: &mut Nodes) {
        for switch in switches {
            let vertex = &self.vertices[*switch];
            for extra in 0..assume.nodes_per_switch {
                nodes.ends.push(plugs.end(&Plug { vertex: *switch, port: None }));
                nodes.places.push(vertex.at);
                nodes.names.push(&format!("{}.{extra}", vertex.name));
                nodes.labels.push("");
            }
        }
    }

    /// Decides the kind of each vertex whose kind the file does not give.
    fn decide(&mut self, assume: &Assume) {
        let stated = self.vertices.iter().any(|vertex| vertex.kind != VertexKind::Unknown);
        let mut degree = vec![0_u32; self.vertices.len()];
        for cable in &self.cables {
            degree[cable.a.vertex] += 1;
            degree[cable.b.vertex] += 1;
        }
        let (mut switches, mut nodes) = (0, 0);
        for (vertex, degree) in self.vertices.iter_mut().zip(degree) {
            if vertex.kind != VertexKind::Unknown {
                continue;
            }
            let node = !stated && assume.leaves == LeafVertices::Nodes && degree == 1;
            vertex.kind = if node { VertexKind::Node } else { VertexKind::Switch };
            *if node { &mut nodes } else { &mut switches } += 1;
        }
        if nodes > 0 {
            self.notes.push(format!(
                "vertices with one cable became nodes: {nodes}; others became switches: {switches}"
            ));
        } else if switches > 0 {
            self.notes.push(format!(
                "vertices that do not say what they are (type=switch or type=node) became switches: {switches}"
            ));
        }
    }

    /// Describes an error with the names that the file uses.
    fn named(&self, switches: &[usize], error: &SwitchNetworkError) -> String {
        let name = |switch: &u32| switches.get(*switch as usize).map_or("?", |at| &self.vertices[*at].name);
        match error {
            SwitchNetworkError::PortTwice { switch, port, .. } => {
                format!("port {port} of switch {} is used twice", name(switch))
            }
            SwitchNetworkError::NoSuchPort { switch, port, ports, .. } => {
                format!(
                    "there is no port {port} at switch {}, which has {} (counted from 0)",
                    name(switch),
                    counted(ports, "port")
                )
            }
            SwitchNetworkError::NoSuchSwitch { .. } => error.to_string(),
        }
    }
}

/// Returns the labels, or an empty list if all labels are empty.
fn unless_all_empty(labels: Names) -> Names {
    if labels.iter().all(str::is_empty) { Names::default() } else { labels }
}
