//! Reads the neighbors that switches and hosts report: the output of `lldpctl -f json`.
//!
//! ```json
//! {"leaf1": {"lldp": {"interface": [
//!   {"swp51": {"chassis": {"spine1": {"capability": [{"type": "Bridge", "enabled": true}]}},
//!              "port": {"id": {"type": "ifname", "value": "swp1"}}}}]}}}
//! ```
//!
//! One output shows the cables of one machine, so a file holds the outputs of several machines. Either each
//! output has the name of its machine as its key, as above, or the outputs follow each other, each after the
//! output of `lldpcli -f json show chassis`, which names the machine. A cable that both ends report is one
//! cable. A machine that bridges, routes or repeats is a switch. Every other neighbor is a host, even without
//! reported capabilities, because adapters that speak LLDP themselves report none. A host that bridges for
//! its containers looks like a switch; `--role name=NAME:host` corrects that.

use super::draft::{Draft, DraftCable, Plug};
use super::words::{VertexKind, VertexRole};
use crate::format::ReadError;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

/// The name for a machine whose output does not name it.
const LOCAL: &str = "local";

/// The error for a second output of the same machine, or of a machine without a name: its cables would be
/// taken for cables of the first machine.
const TWICE: &str = "a second output of one machine, or of a machine without a name: write the output of lldpcli -f json \
                     show chassis before each output of lldpctl";

const EXPECTED: &str = "expected \"lldp\", as lldpctl -f json writes it, or machines by name";

/// Returns whether a JSON text begins like the output of lldpctl, and not like `btin-topo-1`.
pub(super) fn is_lldp(text: &str) -> bool {
    const MAX_BYTES_SCANNED: usize = 4096;
    let start = &text[..text.floor_char_boundary(MAX_BYTES_SCANNED)];
    !start.contains("\"format\"") && (start.contains("\"lldp\"") || start.contains("\"local-chassis\""))
}

pub(super) fn read(text: &str, roles: &[VertexRole]) -> Result<Draft, ReadError> {
    let mut reader =
        LldpReader { text, draft: Draft::new(roles), halves: Vec::new(), reporters: HashSet::new() };
    let mut local = None;
    let json = text.trim_start_matches('\u{feff}');
    for output in serde_json::Deserializer::from_str(json).into_iter::<&RawValue>() {
        let output = output.map_err(|error| ReadError::from_json(&error))?;
        let machines = reader.entries(output)?;
        if !matches!(output.get().as_bytes().first(), Some(b'{')) {
            return Err(reader.wrong(output, EXPECTED));
        }
        if let Some(own) = find(&machines, "local-chassis") {
            local = reader.own_chassis(own)?;
        }
        for (key, value) in machines {
            match key.as_str() {
                "local-chassis" => {}
                "lldp" => {
                    let machine = local.take().unwrap_or_else(|| reader.vertex(LOCAL, value));
                    reader.interfaces(machine, value)?;
                }
                name => {
                    let stated = reader.entries(value)?;
                    let lldp = find(&stated, "lldp").ok_or_else(|| reader.wrong(value, EXPECTED))?;
                    let own =
                        find(&stated, "local-chassis").map(|own| reader.own_chassis(own)).transpose()?;
                    let machine = own.flatten().unwrap_or_else(|| reader.vertex(name, value));
                    reader.interfaces(machine, lldp)?;
                }
            }
        }
    }
    reader.join_halves()?;
    let LldpReader { mut draft, reporters, .. } = reader;
    for vertex in 0..draft.vertices.len() {
        let kind = &mut draft.vertices[vertex].kind;
        if *kind == VertexKind::Unknown && !reporters.contains(&vertex) {
            *kind = VertexKind::Node;
        }
        let name = draft.vertices[vertex].name.clone();
        draft.stated.store(vertex, "name", &name);
    }
    Ok(draft)
}

/// One end of a cable: a vertex and a port.
type PluggedEnd = (usize, String);

/// The parts of a JSON object or array, as text that is not parsed yet. So reading a file takes no more
/// memory than its text and its network, however deep its nesting is.
struct JsonParts<'a>(Vec<JsonPart<'a>>);

/// A key and its value, or an element of an array with an empty key.
type JsonPart<'a> = (String, &'a RawValue);

impl<'de: 'a, 'a> Deserialize<'de> for JsonParts<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = JsonParts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or an array")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonParts<'de>, A::Error> {
                let mut parts = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    parts.push(entry);
                }
                Ok(JsonParts(parts))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonParts<'de>, A::Error> {
                let mut parts = Vec::new();
                while let Some(value) = list.next_element()? {
                    parts.push((String::new(), value));
                }
                Ok(JsonParts(parts))
            }
        }
        from.deserialize_any(Entries)
    }
}

fn find<'a>(parts: &[JsonPart<'a>], key: &str) -> Option<&'a RawValue> {
    parts.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
}

fn string(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

/// A cable as one of its ends reports it.
struct HalfCable<'a> {
    here: PluggedEnd,
    there: PluggedEnd,
    part: &'a RawValue,
}

struct LldpReader<'a> {
    text: &'a str,
    draft: Draft,
    halves: Vec<HalfCable<'a>>,
    /// Machines whose own output was read.
    reporters: HashSet<usize>,
}

impl<'a> LldpReader<'a> {
    /// Returns the byte offset of a part in the text.
    fn place(&self, part: &RawValue) -> usize {
        part.get().as_ptr().addr() - self.text.as_ptr().addr()
    }

    fn wrong(&self, part: &RawValue, problem: &str) -> ReadError {
        ReadError::at(self.text, self.place(part), "", problem)
    }

    fn vertex(&mut self, name: &str, part: &RawValue) -> usize {
        let at = self.place(part);
        self.draft.vertex(name, at)
    }

    /// Returns the parts of an object or array, and none for other values.
    fn entries(&self, whole: &'a RawValue) -> Result<Vec<JsonPart<'a>>, ReadError> {
        match whole.get().as_bytes().first() {
            Some(b'{' | b'[') => {
                let parts: Result<JsonParts<'a>, _> = serde_json::from_str(whole.get());
                parts.map(|parts| parts.0).map_err(|error| self.wrong(whole, &error.to_string()))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn interfaces(&mut self, machine: usize, lldp: &'a RawValue) -> Result<(), ReadError> {
        if !self.reporters.insert(machine) {
            return Err(self.wrong(lldp, TWICE));
        }
        if lldp.get().starts_with('[') {
            return Err(self.wrong(lldp, "this is the output of lldpctl -f json0; use -f json"));
        }
        // the output of a machine without neighbors has no interface
        let Some(all) = find(&self.entries(lldp)?, "interface") else { return Ok(()) };
        for (name, seen) in self.entries(all)? {
            if all.get().starts_with('{') {
                self.cable(machine, &name, seen)?;
                continue;
            }
            for (name, seen) in self.entries(seen)? {
                self.cable(machine, &name, seen)?;
            }
        }
        Ok(())
    }

    fn cable(&mut self, machine: usize, interface: &str, seen: &'a RawValue) -> Result<(), ReadError> {
        let stated = self.entries(seen)?;
        let neighbour = find(&stated, "chassis").map(|chassis| self.chassis(chassis)).transpose()?.flatten();
        let neighbour =
            neighbour.ok_or_else(|| self.wrong(seen, "a neighbour has neither a name nor an id"))?;
        let port = find(&stated, "port").map(|port| self.entries(port)).transpose()?.unwrap_or_default();
        let id = find(&port, "id").map(|id| self.entries(id)).transpose()?.unwrap_or_default();
        let description = string(find(&port, "descr"));
        // an `ifname` or `local` id is the interface's name on its machine; a hardware address is the last
        // resort
        let is_name = matches!(string(find(&id, "type")).as_deref(), Some("ifname" | "local"));
        let id = string(find(&id, "value"));
        let far = if is_name { id.or(description) } else { description.or(id) };
        let far =
            far.ok_or_else(|| self.wrong(seen, "a neighbour's port has neither an id nor a description"))?;
        let (here, there) = ((machine, interface.to_owned()), (neighbour, far));
        self.halves.push(HalfCable { here, there, part: seen });
        Ok(())
    }

    /// Makes one cable of the reports from its two ends. A machine may report its neighbor's port by another
    /// name than the neighbor uses itself: SONiC sends the alias. Such reports of the same two machines are
    /// paired in their order.
    fn join_halves(&mut self) -> Result<(), ReadError> {
        let mut neighbors: HashMap<&PluggedEnd, &HalfCable<'_>> = HashMap::new();
        for half in &self.halves {
            let earlier = neighbors.entry(&half.here).or_insert(half);
            if earlier.there.0 != half.there.0 {
                let name = |vertex: usize| &self.draft.vertices[vertex].name;
                let [machine, one, other] = [half.here.0, earlier.there.0, half.there.0].map(name);
                let problem = format!(
                    "interface {} of {machine} has two neighbours, {one} and {other}: a cable has one; leave out the one that a \
                     switch between them passed on",
                    half.here.1
                );
                return Err(self.wrong(half.part, &problem));
            }
        }
        let own: HashSet<&PluggedEnd> = self.halves.iter().map(|half| &half.here).collect();
        let has_alias =
            |half: &HalfCable<'_>| self.reporters.contains(&half.there.0) && !own.contains(&half.there);
        // the reports under an alias that are not paired yet, by the reporting machine and its neighbor
        let mut aliased: HashMap<(usize, usize), VecDeque<PluggedEnd>> = HashMap::new();
        for half in self.halves.iter().filter(|half| has_alias(half)) {
            aliased.entry((half.here.0, half.there.0)).or_default().push_back(half.here.clone());
        }
        let mut seen = HashSet::new();
        let mut cables = Vec::new();
        for half in &self.halves {
            let mut there = half.there.clone();
            if has_alias(half) {
                let (own, others) = ((half.here.0, half.there.0), (half.there.0, half.here.0));
                // skips a report that was already paired with a report of the other end
                if aliased.get(&own).is_none_or(|waiting| !waiting.contains(&half.here)) {
                    continue;
                }
                aliased.entry(own).or_default().pop_front();
                if let Some(end) = aliased.entry(others).or_default().pop_front() {
                    there = end;
                }
            }
            let here = half.here.clone();
            let ends = if here <= there { (here, there) } else { (there, here) };
            if seen.insert(ends.clone()) {
                let plug = |(vertex, port): PluggedEnd| Plug { vertex, port: Some(port) };
                cables.push(DraftCable { a: plug(ends.0), b: plug(ends.1), at: self.place(half.part) });
            }
        }
        self.draft.cables.extend(cables);
        Ok(())
    }

    /// Returns the machine that `lldpcli show chassis` describes.
    fn own_chassis(&mut self, own: &'a RawValue) -> Result<Option<usize>, ReadError> {
        match find(&self.entries(own)?, "chassis") {
            Some(chassis) => self.chassis(chassis),
            None => Ok(None),
        }
    }

    /// Returns the machine of a chassis, by its name or else by its id.
    fn chassis(&mut self, chassis: &'a RawValue) -> Result<Option<usize>, ReadError> {
        let stated = self.entries(chassis)?;
        let id = find(&stated, "id").map(|id| self.entries(id)).transpose()?.unwrap_or_default();
        let (name, about) = match (string(find(&id, "value")), stated.into_iter().next()) {
            (Some(id), _) => (id, chassis),
            (None, Some(named)) => named,
            (None, None) => return Ok(None),
        };
        let vertex = self.vertex(&name, chassis);
        self.capabilities(vertex, about)?;
        Ok(Some(vertex))
    }

    /// Applies the reported capabilities of a machine. A machine for which forwarding was reported once stays
    /// a switch.
    fn capabilities(&mut self, vertex: usize, about: &'a RawValue) -> Result<(), ReadError> {
        let Some(capability) = find(&self.entries(about)?, "capability") else { return Ok(()) };
        let all = match capability.get().starts_with('{') {
            true => vec![capability],
            false => self.entries(capability)?.into_iter().map(|(_, can)| can).collect(),
        };
        for can in all {
            let can = self.entries(can)?;
            let is_enabled = find(&can, "enabled").is_some_and(|enabled| enabled.get() == "true");
            let kind = &mut self.draft.vertices[vertex].kind;
            match string(find(&can, "type")).as_deref() {
                Some("Bridge" | "Router" | "Repeater") if is_enabled => *kind = VertexKind::Switch,
                _ if *kind == VertexKind::Unknown => *kind = VertexKind::Node,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::read::{Assume, Language, ReadReport, read};
    use crate::{NetworkFile, Port, SwitchId};

    fn parsed(text: &str) -> (NetworkFile, ReadReport) {
        read(text, None, &Assume::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn refused(text: &str) -> String {
        read(text, None, &Assume::default()).expect_err("it is wrong").to_string()
    }

    /// Two leaves and a spine, each with its neighbors, and hosts that only the leaves report.
    const LLDP: &str = r#"{"leaf1": {"lldp": {"interface": [
  {"swp51": {"via": "LLDP", "chassis": {"spine1": {"id": {"type": "mac", "value": "02:00:00:00:00:51"},
      "capability": [{"type": "Bridge", "enabled": true}, {"type": "Router", "enabled": true}]}},
    "port": {"id": {"type": "ifname", "value": "swp1"}, "descr": "to leaf1", "ttl": "120"}}},
  {"swp1": {"chassis": {"web1": {"capability": [{"type": "Bridge", "enabled": false}, {"type": "Station", "enabled": true}]}},
    "port": {"id": {"type": "mac", "value": "02:00:00:00:00:01"}, "descr": "eth0"}}}]}},
"spine1": {"lldp": {"interface": {
  "swp1": {"chassis": {"leaf1": {"capability": {"type": "Bridge", "enabled": true}}},
    "port": {"id": {"type": "ifname", "value": "swp51"}}},
  "swp2": {"chassis": {"leaf2": {"capability": [{"type": "Bridge", "enabled": true}]}},
    "port": {"id": {"type": "ifname", "value": "swp51"}}}}}}}
{"local-chassis": {"chassis": {"leaf2": {"capability": [{"type": "Bridge", "enabled": true}]}}}}
{"lldp": {"interface": {"swp2": {"chassis": {"id": {"type": "mac", "value": "02:00:00:00:00:02"}, "capability": []},
    "port": {"id": {"type": "mac", "value": "02:00:00:00:00:02"}}}}}}
"#;

    #[test]
    fn what_machines_say_of_their_neighbours_becomes_one_network_with_each_cable_once() {
        let (topology, report) = parsed(LLDP);
        assert_eq!(report.language, Language::Lldp);
        assert_eq!(topology.switch_names, ["leaf1", "spine1", "leaf2"]);
        assert_eq!(topology.node_names, ["web1", "02:00:00:00:00:02"]);
        assert_eq!((report.links, report.parallel_links), (2, 0));
        let shown = |switch, port| topology.port_shown(SwitchId(switch), Port(port));
        assert_eq!([shown(0, 0), shown(0, 1), shown(1, 1), shown(2, 0)], ["swp1", "swp51", "swp2", "swp2"]);
        let roles = vec!["name=leaf2:host".parse().expect("it is a role")];
        let (topology, _) = read(LLDP, None, &Assume { roles, ..Assume::default() }).expect("it is right");
        assert_eq!(topology.switch_names, ["leaf1", "spine1"]);
    }

    #[test]
    fn a_cable_whose_ends_report_aliases_is_one_link() {
        let machine = |name: &str, cables: &[(&str, &str, &str)]| {
            let cable = |(own, far, port): &(&str, &str, &str)| {
                format!(
                    "{{\"{own}\":{{\"chassis\":{{\"{far}\":{{\"capability\":[{{\"type\":\"Bridge\",\"enabled\":true}}]}}}},\
                     \"port\":{{\"id\":{{\"type\":\"local\",\"value\":\"{port}\"}}}}}}}}"
                )
            };
            let cables: Vec<String> = cables.iter().map(cable).collect();
            format!("\"{name}\":{{\"lldp\":{{\"interface\":[{}]}}}}", cables.join(","))
        };
        let two = [
            machine("a", &[("Ethernet28", "b", "hundredGigE30"), ("Ethernet32", "b", "hundredGigE31")]),
            machine("b", &[("Ethernet120", "a", "hundredGigE7"), ("Ethernet124", "a", "hundredGigE8")]),
        ];
        let (topology, report) = parsed(&format!("{{{}}}", two.join(",")));
        assert_eq!((report.links, report.parallel_links, report.nodes), (2, 1, 0));
        let shown = |switch, port| topology.port_shown(SwitchId(switch), Port(port));
        assert_eq!([shown(0, 0), shown(1, 0), shown(1, 1)], ["Ethernet28", "Ethernet120", "Ethernet124"]);
        let (_, report) = parsed(&format!("{{{}}}", two[0]));
        assert_eq!(report.links, 2, "the other end reports nothing");
    }

    #[test]
    fn an_interface_with_two_neighbours_is_named_with_both() {
        let two = "{\"leaf1\":{\"lldp\":{\"interface\":[\
                   {\"eno1\":{\"chassis\":{\"tor-a\":{}},\"port\":{\"id\":{\"type\":\"ifname\",\"value\":\"e3\"}}}},\
                   {\"eno1\":{\"chassis\":{\"tor-b\":{}},\"port\":{\"id\":{\"type\":\"ifname\",\"value\":\"e3\"}}}}]}}}";
        assert!(
            refused(two).contains("interface eno1 of leaf1 has two neighbours, tor-a and tor-b"),
            "{}",
            refused(two)
        );
    }

    #[test]
    fn neighbours_that_cannot_be_read_are_refused_with_the_remedy() {
        assert_eq!(
            refused("{\"lldp\":[{\"interface\":[]}]}"),
            "1:9: this is the output of lldpctl -f json0; use -f json"
        );
        let odd = "{\"lldp\":{}}\n{\"leaf1\":{\"other\":1}}";
        assert!(
            refused(odd).ends_with("expected \"lldp\", as lldpctl -f json writes it, or machines by name")
        );
        assert!(
            refused("{\"lldp\":{\"interface\":{\"eth0\":{}}}}").ends_with("has neither a name nor an id")
        );
        assert_eq!(refused("{\"lldp\":").split(':').next(), Some("1"));
        let nameless = "{\"lldp\":{\"interface\":{}}}\n";
        assert!(refused(&nameless.repeat(2)).contains("show chassis before each"));
    }
}
