//! What readers fill: vertices and cables as the file has them, and how they become a network.

use super::{Assume, Language, Leaves, LeftOut, Report};
use crate::format::ReadError;
use crate::network::Part;
use crate::{End, Group, GroupId, Link, Network, NetworkError, NodeId, Port, SwitchId, Topology};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a vertex is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Switch,
    Node,
    /// The file does not say.
    Unsaid,
}

impl Kind {
    /// From an attribute like `type=switch`.
    pub(super) fn of(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "switch" | "sw" | "router" | "bridge" => Some(Self::Switch),
            "node" | "host" | "ca" | "hca" | "server" | "terminal" | "endpoint" | "compute" => {
                Some(Self::Node)
            }
            _ => None,
        }
    }
}

/// A switch or node to be.
#[derive(Clone, Debug)]
pub(super) struct Vertex {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// How many ports it has, if the file says so.
    pub(super) ports: Option<u16>,
    pub(super) member: bool,
    /// Where in the text it is.
    pub(super) at: usize,
}

/// One end of a cable: which vertex, and which port if the file says so.
#[derive(Clone, Debug)]
pub(super) struct Plug {
    pub(super) vertex: usize,
    pub(super) port: Option<String>,
}

/// A cable to be.
#[derive(Clone, Debug)]
pub(super) struct Cable {
    pub(super) a: Plug,
    pub(super) b: Plug,
    /// Where in the text it is.
    pub(super) at: usize,
}

/// A network to be.
#[derive(Default, Debug)]
pub(super) struct Draft {
    pub(super) vertices: Vec<Vertex>,
    pub(super) cables: Vec<Cable>,
    pub(super) unknown: BTreeMap<String, usize>,
    pub(super) notes: Vec<String>,
    by_name: HashMap<String, usize>,
}

impl Draft {
    /// The vertex of a name; a new one if there is none yet.
    pub(super) fn vertex(&mut self, name: &str, at: usize) -> usize {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let vertex = Vertex { name: name.to_owned(), kind: Kind::Unsaid, ports: None, member: false, at };
        self.vertices.push(vertex);
        self.by_name.insert(name.to_owned(), self.vertices.len() - 1);
        self.vertices.len() - 1
    }

    /// The vertex of a name, if there is one.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// An attribute that means nothing here.
    pub(super) fn unknown(&mut self, what: &str, name: &str) {
        *self.unknown.entry(format!("{what} {name}")).or_default() += 1;
    }

    /// What an attribute of a vertex means; whether it means anything.
    ///
    /// Answers an error where it is known but its value is not.
    pub(super) fn attribute(&mut self, vertex: usize, key: &str, value: &str) -> Result<bool, String> {
        let vertex = &mut self.vertices[vertex];
        match key.to_ascii_lowercase().as_str() {
            "type" | "kind" | "role" => match Kind::of(value) {
                Some(kind) => vertex.kind = kind,
                None => return Ok(false),
            },
            "ports" => {
                let problem =
                    || format!("ports={value} of {}, expected a number from 0 to 65535", vertex.name);
                vertex.ports = Some(value.trim().parse().map_err(|_| problem())?);
            }
            "member" => {
                vertex.member = match value.trim().to_ascii_lowercase().as_str() {
                    "1" | "true" | "yes" => true,
                    "0" | "false" | "no" => false,
                    _ => return Err(format!("member={value} of {}, expected true or false", vertex.name)),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The network, its members, and what had to be assumed.
    pub(super) fn finish(
        mut self,
        text: &str,
        language: Language,
        assume: &Assume,
    ) -> Result<(Topology, Report), ReadError> {
        self.decide(assume);
        let mut numbers = vec![0_u32; self.vertices.len()];
        let mut switches = Vec::new();
        for (at, vertex) in self.vertices.iter().enumerate() {
            if vertex.kind == Kind::Switch {
                numbers[at] =
                    u32::try_from(switches.len()).expect("fits because each takes more than a byte");
                switches.push(at);
            }
        }
        let mut plugs = Plugs::new(&self, &switches, &numbers, text)?;
        let mut links = Vec::new();
        let mut link_places = Vec::new();
        // nodes in the order of the file, each with its cables
        let mut cables_of: BTreeMap<usize, Vec<(&Plug, usize)>> = BTreeMap::new();
        let mut idle = 0;
        for cable in &self.cables {
            let switch = |plug: &Plug| self.vertices[plug.vertex].kind == Kind::Switch;
            match (switch(&cable.a), switch(&cable.b)) {
                (true, true) => {
                    links.push(Link { a: plugs.end(&cable.a), b: plugs.end(&cable.b) });
                    link_places.push(cable.at);
                }
                (true, false) => cables_of.entry(cable.b.vertex).or_default().push((&cable.a, cable.at)),
                (false, true) => cables_of.entry(cable.a.vertex).or_default().push((&cable.b, cable.at)),
                (false, false) => idle += 1,
            }
        }
        let mut nodes = Vec::new();
        let mut node_places = Vec::new();
        let mut node_names = Vec::new();
        let mut members = Vec::new();
        let mut several = 0;
        for (vertex, cables) in &cables_of {
            several += usize::from(cables.len() > 1);
            for (number, (plug, at)) in cables.iter().enumerate() {
                if self.vertices[*vertex].member && number == 0 {
                    members.push(NodeId(u32::try_from(nodes.len()).unwrap_or(u32::MAX)));
                }
                nodes.push(plugs.end(plug));
                node_places.push(*at);
                let name = &self.vertices[*vertex].name;
                node_names.push(if number == 0 { name.clone() } else { format!("{name}/{}", number + 1) });
            }
        }
        let unplugged = self
            .vertices
            .iter()
            .enumerate()
            .filter(|(at, v)| v.kind == Kind::Node && !cables_of.contains_key(at));
        let unplugged: Vec<_> = unplugged.map(|(_, vertex)| vertex.name.clone()).collect();
        let member_switches = self.vertices.iter().filter(|v| v.kind == Kind::Switch && v.member).count();
        for (number, switch) in switches.iter().enumerate() {
            for extra in 0..assume.nodes_per_switch {
                let plug = Plug { vertex: *switch, port: None };
                nodes.push(plugs.end(&plug));
                node_places.push(self.vertices[*switch].at);
                node_names.push(format!("{}.{extra}", self.vertices[switches[number]].name));
            }
        }
        let ports = plugs.ports(assume);
        let network = Network::new(ports, links, nodes).map_err(|error| {
            let (NetworkError::NoSuchSwitch { what, .. }
            | NetworkError::NoSuchPort { what, .. }
            | NetworkError::PortTwice { second: what, .. }) = &error;
            let (at, element) = match what {
                Part::Link(number) => (link_places[*number], "cable".to_owned()),
                Part::Node(number) => (node_places[*number], format!("node {}", node_names[*number])),
            };
            ReadError::at(text, at, element, self.named(&switches, &error))
        })?;
        let ports_assigned = plugs.assigned;
        let mut note = |count: usize, what: &str| {
            if count > 0 {
                self.notes.push(what.to_owned());
            }
        };
        note(
            idle,
            &format!("{idle} cables between two nodes were left out: switches have no part in them"),
        );
        note(
            several,
            &format!("{several} nodes have more than one cable: each further one became a node NAME/2, ..."),
        );
        note(member_switches, "members are nodes: that switches are members was left out");
        if let Some(first) = unplugged.first() {
            let others = if unplugged.len() > 1 {
                format!(" and {} others", unplugged.len() - 1)
            } else {
                String::new()
            };
            self.notes.push(format!("node {first}{others} without a cable was left out"));
        }
        let groups = Group::new(&network, GroupId(0), members).into_iter().collect();
        let mut report = Report::of(language, &network);
        report.left_out =
            LeftOut { cables_between_nodes: idle, nodes_without_a_cable: unplugged.len(), member_switches };
        report.ports_assigned = ports_assigned;
        report.unknown = std::mem::take(&mut self.unknown);
        report.notes = std::mem::take(&mut self.notes);
        report.node_places = node_places;
        let mut topology = Topology::new(network, groups);
        topology.switch_names = switches.iter().map(|at| self.vertices[*at].name.clone()).collect();
        topology.node_names = node_names;
        Ok((topology, report))
    }

    /// Decides what the vertices are that do not say it.
    fn decide(&mut self, assume: &Assume) {
        let said = self.vertices.iter().any(|vertex| vertex.kind != Kind::Unsaid);
        let mut degree = vec![0_u32; self.vertices.len()];
        for cable in &self.cables {
            degree[cable.a.vertex] += 1;
            degree[cable.b.vertex] += 1;
        }
        let (mut switches, mut nodes) = (0, 0);
        for (vertex, degree) in self.vertices.iter_mut().zip(degree) {
            if vertex.kind != Kind::Unsaid {
                continue;
            }
            let node = !said && assume.leaves == Leaves::Nodes && degree == 1;
            vertex.kind = if node { Kind::Node } else { Kind::Switch };
            *if node { &mut nodes } else { &mut switches } += 1;
        }
        if nodes > 0 {
            self.notes
                .push(format!("{nodes} vertices with one cable became nodes, {switches} others switches"));
        } else if switches > 0 {
            self.notes.push(format!(
                "{switches} vertices do not say what they are (type=switch or type=node) and became switches"
            ));
        }
    }

    /// An error in the names that the file uses.
    fn named(&self, switches: &[usize], error: &NetworkError) -> String {
        let name = |switch: &u32| switches.get(*switch as usize).map_or("?", |at| &self.vertices[*at].name);
        match error {
            NetworkError::PortTwice { switch, port, .. } => {
                format!("port {port} of switch {} is used twice", name(switch))
            }
            NetworkError::NoSuchPort { switch, port, ports, .. } => {
                format!(
                    "there is no port {port} at switch {}, which has {ports} ports (from 0)",
                    name(switch)
                )
            }
            NetworkError::NoSuchSwitch { .. } => error.to_string(),
        }
    }
}

/// Which ports are taken, and by which names they are known.
struct Plugs<'a> {
    numbers: &'a [u32],
    /// For each switch: the ports that the file names, as numbers.
    named: Vec<HashMap<String, u16>>,
    taken: Vec<BTreeSet<u16>>,
    said: Vec<Option<u16>>,
    next: Vec<u16>,
    assigned: usize,
}

impl<'a> Plugs<'a> {
    fn new(draft: &Draft, switches: &[usize], numbers: &'a [u32], text: &str) -> Result<Self, ReadError> {
        let mut names: Vec<BTreeSet<(usize, &str)>> = vec![BTreeSet::new(); switches.len()];
        for cable in &draft.cables {
            for plug in [&cable.a, &cable.b] {
                let Some(port) = &plug.port else { continue };
                if draft.vertices[plug.vertex].kind != Kind::Switch {
                    continue;
                }
                if port.parse::<u64>().is_ok_and(|port| port >= u64::from(u16::MAX)) {
                    let name = &draft.vertices[plug.vertex].name;
                    let problem = format!("port {port} of switch {name} is beyond the greatest, 65534");
                    return Err(ReadError::at(text, cable.at, "cable", problem));
                }
                // by length first, so that eth10 comes after eth9
                names[numbers[plug.vertex] as usize].insert((port.len(), port));
            }
        }
        let mut named = Vec::new();
        let mut taken = Vec::new();
        for names in names {
            // numbers are what they say; other names get the lowest numbers that are left, in their order
            let mut ports: HashMap<String, u16> = HashMap::new();
            let mut used: BTreeSet<u16> = BTreeSet::new();
            for (_, name) in &names {
                if let Ok(port) = name.parse() {
                    ports.insert((*name).to_owned(), port);
                    used.insert(port);
                }
            }
            let mut next = 0;
            for (_, name) in names.iter().filter(|(_, name)| name.parse::<u16>().is_err()) {
                while used.contains(&next) {
                    next += 1;
                }
                ports.insert((*name).to_owned(), next);
                used.insert(next);
            }
            named.push(ports);
            taken.push(used);
        }
        let said = switches.iter().map(|at| draft.vertices[*at].ports).collect();
        Ok(Self { numbers, named, taken, said, next: vec![0; switches.len()], assigned: 0 })
    }

    /// Where a plug of a switch ends: at the port that the file names, or at the lowest that is free.
    fn end(&mut self, plug: &Plug) -> End {
        let switch = self.numbers[plug.vertex] as usize;
        let port = match &plug.port {
            Some(name) => self.named[switch].get(name).copied().unwrap_or(u16::MAX),
            None => {
                self.assigned += 1;
                let mut port = self.next[switch];
                while self.taken[switch].contains(&port) {
                    port = port.saturating_add(1);
                }
                self.next[switch] = port.saturating_add(1);
                port
            }
        };
        self.taken[switch].insert(port);
        End { switch: SwitchId(self.numbers[plug.vertex]), port: Port(port) }
    }

    /// How many ports each switch has: as it says, as all have, or as many as are used.
    fn ports(&self, assume: &Assume) -> Vec<u16> {
        let used = |taken: &BTreeSet<u16>| taken.last().map_or(0, |last| last.saturating_add(1));
        let each = self.said.iter().zip(&self.taken);
        each.map(|(said, taken)| said.or(assume.ports).unwrap_or_else(|| used(taken))).collect()
    }
}
