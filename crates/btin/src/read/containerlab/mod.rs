//! Reads the topology files of containerlab, YAML.
//!
//! ```yaml
//! topology:
//!   kinds: {nokia_srlinux: {image: ghcr.io/nokia/srlinux}}
//!   nodes:
//!     leaf1: {kind: nokia_srlinux}
//!     web1: {kind: linux}
//!   links:
//!     - endpoints: ["leaf1:e1-1", "web1:eth1"]
//!     - type: veth
//!       endpoints: [{node: leaf1, interface: e1-2}, {node: web1, interface: eth2}]
//! ```
//!
//! A node is a host if its kind runs ordinary programs, such as `linux`. Every other node is a switch,
//! because containerlab has too many kinds of routers to list. A node without a kind has the kind of its
//! group, or else the default kind, as in containerlab. `--role` overrides this by any key of a node, by its
//! labels, and by `name`. Links that end outside of the lab's nodes (at the host, in the management network)
//! are left out.

mod yaml;

use super::draft::{Draft, DraftCable, Plug};
use super::words::{VertexKind, VertexRole};
use crate::format::ReadError;
use std::collections::{BTreeSet, HashMap};
use unisono_text::counted;
use yaml::{Yaml, YamlValue};

/// Kinds of nodes that run a user's programs.
const HOSTS: [&str; 6] = ["linux", "host", "ext-container", "k8s-kind", "generic_vm", "keysight_ixia-c-one"];

/// Kinds that certainly are switches. The report names the other kinds that were taken for switches.
const BRIDGES: [&str; 2] = ["bridge", "ovs-bridge"];

/// Node names in links that stand for something outside the lab.
const OUTSIDE: [&str; 5] = ["host", "mgmt-net", "macvlan", "vxlan", "dummy"];

/// The maximum number of keys of a node, of its labels, and of a link. An alias repeats all keys with two
/// bytes of text, so that without a limit the time to read them would grow with the square of the file's
/// size. Containerlab knows about 50 keys of a node.
const MAX_KEYS: usize = 256;

/// The maximum number of kinds that the report names.
const MAX_NAMED: usize = 20;

/// Returns whether a line begins a topology of containerlab.
pub(super) fn is_telling(line: &str) -> bool {
    line.starts_with("topology:")
}

pub(super) fn read(text: &str, roles: &[VertexRole]) -> Result<Draft, ReadError> {
    let yaml = Yaml::parse(text)?;
    let missing =
        || ReadError::at(text, 0, "", "expected topology: with nodes: and links:, as containerlab has them");
    let root = yaml.root().ok_or_else(missing)?;
    let topology = root.find("topology").ok_or_else(missing)?;
    let nodes = topology.find("nodes").ok_or_else(|| topology.wrong("topology", "it has no nodes:"))?;
    let kind_of = |settings: YamlValue<'_>| Some(settings.find("kind")?.word()?.to_owned());
    let default = topology.find("defaults").and_then(kind_of);
    let groups = topology.find("groups").into_iter().flat_map(YamlValue::entries);
    let groups: HashMap<&str, String> =
        groups.filter_map(|(name, group)| Some((name, kind_of(group)?))).collect();

    let mut draft = Draft::new(roles);
    let mut doubtful: BTreeSet<String> = BTreeSet::new();
    for (name, node) in nodes.entries() {
        let vertex = draft.vertex(name, node.at());
        draft.stated.store_requested(vertex, "name", name);
        let (mut kind, mut of_group) = (None, None);
        for (key, value) in settings(name, node)? {
            match (key, value.word()) {
                ("kind", Some(word)) => kind = Some(word.to_owned()),
                ("labels", None) => {
                    for (label, value) in settings("labels", value)? {
                        if !draft.stated.store_requested(vertex, label, value.word().unwrap_or_default()) {
                            draft.unknown("label", label);
                        }
                    }
                }
                (_, Some(word)) if draft.stated.store_requested(vertex, key, word) => {}
                ("group", _) => {}
                _ => draft.unknown("node attribute", key),
            }
            if key == "group" {
                of_group = value.word().and_then(|group| groups.get(group)).cloned();
            }
        }
        let Some(kind) = kind.or(of_group).or_else(|| default.clone()) else { continue };
        draft.stated.store_requested(vertex, "kind", &kind);
        let is_host = HOSTS.contains(&kind.as_str());
        draft.vertices[vertex].kind = if is_host { VertexKind::Node } else { VertexKind::Switch };
        if !is_host && !BRIDGES.contains(&kind.as_str()) {
            doubtful.insert(kind);
        }
    }
    let mut outside = 0;
    for link in topology.find("links").into_iter().flat_map(YamlValue::items) {
        match cable(&mut draft, link)? {
            Some(cable) => draft.cables.push(cable),
            None => outside += 1,
        }
    }
    if !doubtful.is_empty() {
        let named: Vec<&str> = doubtful.iter().map(String::as_str).take(MAX_NAMED).collect();
        let more = doubtful.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = named.join(", ");
        draft
            .notes
            .push(format!("switches by their kind: {named}{more}; if one is a host: --role kind=KIND:host"));
    }
    if outside > 0 {
        draft.notes.push(format!("{} out of the lab left out", counted(outside, "link")));
    }
    for (key, _) in root.entries().chain(topology.entries()) {
        if !["name", "topology", "nodes", "links", "kinds", "groups", "defaults"].contains(&key) {
            draft.unknown("key", key);
        }
    }
    Ok(draft)
}

/// Returns the keys and values of a mapping. Fails if there are too many.
fn settings<'y>(
    element: &str,
    of: YamlValue<'y>,
) -> Result<impl Iterator<Item = (&'y str, YamlValue<'y>)> + use<'y>, ReadError> {
    let all = of.entries();
    if all.len() > MAX_KEYS {
        return Err(of.wrong(element, format!("it has more than {MAX_KEYS} keys")));
    }
    Ok(all)
}

/// Returns the cable of a link, or `None` if the link ends outside of the lab's nodes.
fn cable(draft: &mut Draft, link: YamlValue<'_>) -> Result<Option<DraftCable>, ReadError> {
    let mut ends = None;
    for (key, value) in settings("link", link)? {
        match key {
            "endpoints" => ends = Some(value),
            "endpoint" => return Ok(None),
            "type" => {}
            _ => draft.unknown("link attribute", key),
        }
    }
    let ends = ends.ok_or_else(|| link.wrong("link", "it has no endpoints:"))?;
    let mut plugs = Vec::with_capacity(2);
    for end in ends.items().take(3) {
        match plug(draft, end)? {
            Some(plug) => plugs.push(plug),
            None => return Ok(None),
        }
    }
    let Ok([a, b]) = <[Plug; 2]>::try_from(plugs) else {
        return Err(ends.wrong("link", "expected two endpoints, as [leaf1:e1-1, web1:eth1]"));
    };
    Ok(Some(DraftCable { a, b, at: link.at() }))
}

/// Returns the node and port at an end of a link, or `None` if that end is not at a node of the lab.
fn plug(draft: &Draft, end: YamlValue<'_>) -> Result<Option<Plug>, ReadError> {
    let stated = match end.word() {
        Some(word) => word.split_once(':'),
        None => {
            end.find("node").and_then(YamlValue::word).zip(end.find("interface").and_then(YamlValue::word))
        }
    };
    let Some((node, interface)) =
        stated.filter(|(node, interface)| !node.is_empty() && !interface.is_empty())
    else {
        return Err(end.wrong("link", "expected NODE:INTERFACE, or node: and interface:"));
    };
    match draft.find(node) {
        Some(vertex) => Ok(Some(Plug { vertex, port: Some(interface.to_owned()) })),
        None if OUTSIDE.contains(&node) => Ok(None),
        None => Err(end.wrong("link", format!("its node {node} is not there"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::read::{Assume, Language, ReadReport, read};
    use crate::{NetworkFile, Port, SwitchId};

    fn parsed(text: &str, roles: &[&str]) -> (NetworkFile, ReadReport) {
        let roles = roles.iter().map(|role| role.parse().expect("it is a role")).collect();
        let assume = Assume { roles, ..Assume::default() };
        read(text, None, &assume).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn refused(text: &str) -> String {
        read(text, Some(Language::Containerlab), &Assume::default()).expect_err("it is wrong").to_string()
    }

    const LAB: &str = "# Ein Labor für drei\nname: lab\nmgmt: {network: clab}\ntopology:\n  defaults: {kind: linux}\n  \
        groups:\n    spine: {kind: nokia_srlinux}\n  nodes:\n    leaf1:\n      kind: nokia_srlinux\n      type: ixrd2l\n      \
        image: &image ghcr.io/nokia/srlinux\n    spine1: {group: spine, image: *image, labels: {tier: top}}\n    br-1: \
        {kind: bridge}\n    web1:\n    web2: {ports: [\"80:8080\"]}\n  links:\n    - endpoints: [\"leaf1:e1-49\", \
        \"spine1:e1-1\"]\n    - endpoints: [ \"leaf1:e1-1\", \"web1:eth1\" ]\n      mtu: 1500\n    - type: veth\n      \
        endpoints:\n        - node: web2\n          interface: eth1\n          mac: 02:00:00:00:00:01\n        - node: leaf1\n          \
        interface: e1-2\n    - {type: host, endpoint: {node: leaf1, interface: e1-3}, host-interface: veth0}\n    - endpoints: \
        [\"mgmt-net:x\", \"leaf1:e1-4\"]\n    - endpoints: [\"br-1:eth1\", \"spine1:e1-2\"]\n";

    #[test]
    fn both_forms_of_links_are_cables_and_kinds_say_what_is_a_host() {
        let (topology, report) = parsed(LAB, &[]);
        assert_eq!(report.language, Language::Containerlab);
        assert_eq!(topology.switch_names, ["leaf1", "spine1", "br-1"]);
        assert_eq!(topology.node_names, ["web1", "web2"]);
        assert_eq!((report.links, report.ports_assigned), (2, 0));
        let shown = |switch, port| topology.port_shown(SwitchId(switch), Port(port));
        assert_eq!([shown(0, 0), shown(0, 1), shown(0, 2), shown(1, 1)], ["e1-1", "e1-2", "e1-49", "e1-2"]);
        let notes = [
            "switches by their kind: nokia_srlinux; if one is a host: --role kind=KIND:host",
            "2 links out of the lab left out",
            "6 ports with a name: each keeps its name beside its number",
        ];
        assert_eq!(report.notes, notes);
        let unknown: Vec<(&str, usize)> =
            report.unknown.iter().map(|(what, times)| (what.as_str(), *times)).collect();
        let expected = [
            ("key mgmt", 1),
            ("label tier", 1),
            ("link attribute host-interface", 0),
            ("link attribute mtu", 1),
            ("node attribute image", 2),
            ("node attribute ports", 1),
            ("node attribute type", 1),
        ];
        assert_eq!(unknown, expected.into_iter().filter(|(_, times)| *times > 0).collect::<Vec<_>>());
    }

    #[test]
    fn a_role_by_kind_label_or_name_has_the_last_word() {
        let (topology, _) = parsed(LAB, &["tier=top:host"]);
        assert_eq!(topology.switch_names, ["leaf1", "br-1"]);
        let (topology, _) = parsed(LAB, &["kind=linux:switch", "name=br-1:host"]);
        assert_eq!(topology.switch_names, ["leaf1", "spine1", "web1", "web2"]);
        assert_eq!(topology.node_names, ["br-1"]);
    }

    #[test]
    fn a_lab_that_is_wrong_is_refused_with_line_column_and_element() {
        let ends = |ends: &str| {
            refused(&format!(
                "topology:\n  nodes:\n    ä: {{kind: linux}}\n    b:\n  links:\n    - endpoints: {ends}\n"
            ))
        };
        assert_eq!(ends("[ä:1, c:1]"), "6:24: link: its node c is not there");
        assert_eq!(ends("[ä:1, b]"), "6:24: link: expected NODE:INTERFACE, or node: and interface:");
        assert_eq!(ends("[ä:1]"), "6:18: link: expected two endpoints, as [leaf1:e1-1, web1:eth1]");
        assert_eq!(
            refused("a: 1\n"),
            "1:1: expected topology: with nodes: and links:, as containerlab has them"
        );
        assert_eq!(refused(""), "1:1: expected topology: with nodes: and links:, as containerlab has them");
        assert_eq!(refused("topology:\n  links:\n"), "2:3: topology: it has no nodes:");
        let twice = "topology:\n  nodes:\n    a: {}\n    a: {}\n";
        assert_eq!(refused(twice), "4:5: a is there twice");
        assert_eq!(
            refused("topology: {nodes: {a: {}}, links: [{mtu: 9}]}"),
            "1:36: link: it has no endpoints:"
        );
        assert_eq!(refused("a: &a {<<: *a}\n"), "1:12: an alias inside the value that it stands for");
        assert_eq!(
            refused("a: &a {b: c}\nd: {<<: *a}\n"),
            "2:5: a merge key (<<) is not read; write its values here"
        );
        assert!(refused("topology: [\n").starts_with("2:1: "), "{}", refused("topology: [\n"));
        assert!(refused("a: 1\n---\nb: 2\n").ends_with("write one network into one file"));
    }

    #[test]
    fn a_lab_that_is_deep_or_repeats_much_by_aliases_is_refused_with_the_limit() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(refused(&deep), "1:65: values more than 64 deep");
        let keys: String = (0..300).map(|key| format!("k{key}: 1, ")).collect();
        let many = format!("topology:\n  nodes:\n    a: &a {{{keys}}}\n    b: *a\n");
        assert_eq!(refused(&many), "3:8: a: it has more than 256 keys");
    }
}
