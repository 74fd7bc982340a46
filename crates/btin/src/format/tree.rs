//! `btin-tree-1`: the barrier registers of a group.
//!
//! ```json
//! {"format":"btin-tree-1", "root_switch":0, "root_node":0,
//!  "registers":{"0":{"parent":0,"children":[7],"locals":[]}, "1":{"parent":7,"children":[],"locals":[0]}}}
//! ```
//!
//! `parent` is the port towards the parent switch; at the root switch it is the root node's port. `root_node`
//! and that `parent` are null if the root switch has no members and messages turn around in it. `group` is
//! the number of the group; the default is 0. A plan adds `in_memory` (`{"4":12}`: the register of switch 4
//! is in the memory of node 12). The reader ignores it, because set-up computes it again. `unisono tree plan`
//! also writes `height`, `edges` and `leaves` ([`Claims`]) for a check to compare with the tree, `members`
//! (`[0,3]`, numbers of nodes) if they were named for the plan and not by the network's file, and more keys
//! (`simulated`, `port_names`, ...) that the reader ignores. Reading checks only the form; [`crate::check`]
//! checks whether the registers are a barrier tree of a network.

use super::{JsonStep, ReadError};
use crate::{Claims, GroupId, NodeId, Port, Register, SwitchId, Tree, TreeElement, TreePlan};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Write};

const FORMAT: &str = "btin-tree-1";

impl Tree {
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        Self::with_claims(text).map(|(tree, _)| tree)
    }

    /// Reads the text of a file: the tree, and the file's statements about the tree.
    pub fn with_claims(text: &str) -> Result<(Self, Claims), ReadError> {
        let text = super::without_mark(text);
        let document: TreeDocument =
            serde_json::from_str(text).map_err(|error| ReadError::from_json(&error))?;
        if document.format != FORMAT {
            let problem = format!("{:?} is not the format {FORMAT:?}", document.format);
            return Err(ReadError::in_json(text, &[JsonStep::Key("format")], problem));
        }
        let ports = |ports: Vec<u16>| ports.into_iter().map(Port).collect();
        let mut registers = BTreeMap::new();
        for (key, fields) in document.registers.0 {
            let wrong = |problem: String| {
                ReadError::in_json(text, &[JsonStep::Key("registers"), JsonStep::Key(&key)], problem)
            };
            let switch = super::number(&key)
                .map(SwitchId)
                .ok_or_else(|| wrong(format!("{key:?} is no number of a switch (0, 1, ...)")))?;
            let register = Register {
                parent: fields.parent.map(Port),
                children: ports(fields.children),
                locals: ports(fields.locals),
            };
            match registers.entry(switch) {
                Entry::Vacant(vacant) => vacant.insert(register),
                Entry::Occupied(_) => return Err(wrong(format!("switch {key} has two registers"))),
            };
        }
        let tree = Self {
            group: GroupId(document.group),
            root_switch: SwitchId(document.root_switch),
            root_node: document.root_node.map(NodeId),
            registers,
        };
        let (height, edges, leaves) = (document.height, document.edges, document.leaves);
        let members = document.members.map(|members| members.into_iter().map(NodeId).collect());
        Ok((tree, Claims { height, edges, leaves, members }))
    }

    /// Makes an error at an element of the tree, with the element's position in the text from which the tree
    /// was read.
    pub fn locate(&self, text: &str, place: TreeElement, problem: String) -> ReadError {
        let switch = match place {
            TreeElement::Register(switch) | TreeElement::Parent(switch) => switch,
            TreeElement::Child(switch, _) | TreeElement::Local(switch, _) => switch,
            _ => self.root_switch,
        };
        let switch = switch.0.to_string();
        let register = [JsonStep::Key("registers"), JsonStep::Key(&switch)];
        let inside = |field, at: Option<usize>| {
            let mut path = register.to_vec();
            path.push(JsonStep::Key(field));
            path.extend(at.map(JsonStep::Index));
            path
        };
        let path = match place {
            TreeElement::Group => vec![JsonStep::Key("group")],
            TreeElement::RootSwitch => vec![JsonStep::Key("root_switch")],
            TreeElement::RootNode => vec![JsonStep::Key("root_node")],
            TreeElement::Register(_) => register.to_vec(),
            TreeElement::Parent(_) => inside("parent", None),
            TreeElement::Child(_, at) => inside("children", Some(at)),
            TreeElement::Local(_, at) => inside("locals", Some(at)),
            TreeElement::Claim(key) => vec![JsonStep::Key(key)],
            TreeElement::Whole => vec![JsonStep::Key("registers")],
        };
        ReadError::in_json(text, &path, problem)
    }

    /// Writes the text of a file, one register a line. The same tree gives the same text.
    pub fn to_json(&self) -> String {
        let number = |number: Option<u32>| number.map_or("null".to_owned(), |number| number.to_string());
        let ports = |ports: &[Port]| {
            let ports: Vec<_> = ports.iter().map(|port| port.0.to_string()).collect();
            ports.join(",")
        };
        let mut out = format!(
            "{{\"format\":\"{FORMAT}\",\"group\":{},\"root_switch\":{},\"root_node\":{},\n\"registers\":{{",
            self.group.0,
            self.root_switch.0,
            number(self.root_node.map(|node| node.0)),
        );
        for (at, (switch, register)) in self.registers.iter().enumerate() {
            let _ = write!(
                out,
                "{}\n\"{}\":{{\"parent\":{},\"children\":[{}],\"locals\":[{}]}}",
                if at == 0 { "" } else { "," },
                switch.0,
                number(register.parent.map(|port| port.0.into())),
                ports(&register.children),
                ports(&register.locals),
            );
        }
        out.push_str("}}\n");
        out
    }
}

impl TreePlan {
    /// Writes the text of a file: the tree, and the registers that are in a node's memory, if any.
    pub fn to_json(&self) -> String {
        let mut out = self.tree.to_json();
        if !self.in_memory.is_empty() {
            let places: Vec<_> =
                self.in_memory.iter().map(|(switch, node)| format!("\"{}\":{}", switch.0, node.0)).collect();
            out.truncate(out.trim_end().len() - 1);
            let _ = writeln!(out, ",\n\"in_memory\":{{{}}}}}", places.join(","));
        }
        out
    }
}

#[derive(Deserialize)]
struct TreeDocument {
    format: String,
    #[serde(default)]
    group: u8,
    root_switch: u32,
    root_node: Option<u32>,
    registers: Registers,
    height: Option<u32>,
    edges: Option<u32>,
    leaves: Option<u32>,
    members: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Fields {
    parent: Option<u16>,
    children: Vec<u16>,
    locals: Vec<u16>,
}

/// The registers in the file's order. A map would hide a register that is given twice.
struct Registers(Vec<(String, Fields)>);

impl<'de> Deserialize<'de> for Registers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Registers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the registers, by number of the switch")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Registers, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Registers(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "{\"format\":\"btin-tree-1\",\"group\":3,\"root_switch\":10,\"root_node\":2,\n\"registers\":{\n\
        \"2\":{\"parent\":7,\"children\":[],\"locals\":[0,4]},\n\
        \"10\":{\"parent\":0,\"children\":[5,7],\"locals\":[]}}}\n";

    fn refused(text: &str) -> String {
        Tree::from_json(text).expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_tree_is_written_as_it_was_read() {
        let tree = Tree::from_json(SMALL).expect("it is right");
        assert_eq!(tree.registers[&SwitchId(2)].locals, [Port(0), Port(4)]);
        assert_eq!(tree.to_json(), SMALL);
    }

    #[test]
    fn a_root_without_members_is_null_and_a_group_not_named_is_0() {
        let text = r#"{"format":"btin-tree-1","root_switch":1,"root_node":null,
            "registers":{"1":{"parent":null,"children":[1],"locals":[]}}}"#;
        let tree = Tree::from_json(text).expect("it is right");
        assert_eq!((tree.group, tree.root_node), (GroupId(0), None));
        assert_eq!(Tree::from_json(&tree.to_json()), Ok(tree));
    }

    #[test]
    fn errors_name_line_column_and_register() {
        let twice = SMALL.replace("\"10\":", "\"2\":");
        assert_eq!(refused(&twice), "4:5: registers.2: switch 2 has two registers");
        let unnumbered = SMALL.replace("\"10\":", "\"x\":");
        assert_eq!(refused(&unnumbered), "4:5: registers.x: \"x\" is no number of a switch (0, 1, ...)");
        let many = SMALL.replace("\"group\":3", "\"group\":256");
        assert_eq!(refused(&many), "1:35: invalid value: integer `256`, expected u8");
        assert_eq!(refused("{\n"), "2:1: the file ends inside an object");
    }

    #[test]
    fn one_register_has_one_key() {
        for key in ["00", "010", "+10", " 10", "-0", "4294967296"] {
            let text = SMALL.replace("\"10\":", &format!("\"{key}\":"));
            assert!(
                refused(&text).ends_with(&format!("{key:?} is no number of a switch (0, 1, ...)")),
                "{key}"
            );
        }
    }

    #[test]
    fn the_members_that_a_file_names_are_read_beside_its_tree() {
        let named = SMALL.replace("\"registers\"", "\"members\":[2,7],\n\"registers\"");
        let (tree, claims) = Tree::with_claims(&named).expect("it is right");
        assert_eq!(claims.members, Some(vec![NodeId(2), NodeId(7)]));
        assert_eq!(Tree::with_claims(SMALL), Ok((tree, Claims::default())));
        let wrong = named.replace("[2,7]", "[2,-7]");
        assert!(refused(&wrong).starts_with("2:15: invalid value: integer `-7`"), "{}", refused(&wrong));
    }

    #[test]
    fn a_mark_before_the_text_is_no_part_of_it() {
        let marked = format!("\u{feff}{SMALL}");
        assert_eq!(Tree::from_json(&marked), Tree::from_json(SMALL));
    }

    #[test]
    fn a_plan_says_which_registers_are_in_memory_and_still_reads_as_its_tree() {
        let tree = Tree::from_json(SMALL).expect("it is right");
        let in_memory = BTreeMap::from([(SwitchId(2), NodeId(7)), (SwitchId(10), NodeId(2))]);
        let mut plan = TreePlan { tree, height: 1, edges: 1, leaves: 1, in_memory: BTreeMap::new() };
        assert_eq!(plan.to_json(), SMALL);
        plan.in_memory = in_memory;
        let text = plan.to_json();
        assert!(text.ends_with("]}},\n\"in_memory\":{\"2\":7,\"10\":2}}\n"), "{text}");
        assert_eq!(Tree::from_json(&text), Ok(plan.tree));
    }
}
