//! For `unisono tree check`: checks whether registers are a barrier tree of a group in a network. If they are
//! not, the checker names the first rule that they break.
//!
//! The checker shares no code with the planner: it follows cables instead of searching. It looks up each port
//! in the lists of links and nodes, and walks the tree from its root along the `children` ports. Registers
//! may come from any source: another program, a switch, a file edited by hand.
//!
//! Cost: linear in ports and registers. The optional rules of the paper (`Rules::Optimal`) run a simple, slow
//! search from every member switch.

mod optimal;

use crate::{BarrierGroup, Claims, End, NodeId, Port, Register, SwitchId, SwitchNetwork, Tree, TreeElement};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use unisono_text::counted;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rules {
    /// The rules that every working barrier tree meets.
    #[default]
    Sound,
    /// Also the paper's rules for the best tree: least height, lowest ports.
    Optimal,
}

/// A rule of barrier trees. The order of the variants is the order of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TreeRule {
    GroupMatches,
    SwitchExists,
    PortExists,
    /// The ports in `children` and in `locals` ascend.
    Ascending,
    PortOnce,
    RootHasRegister,
    /// The root's parent port leads to the root node, and the root node is a member; or both are missing.
    RootNodeAtRootPort,
    OneRoot,
    /// A parent port leads to a switch whose register points back with a child port.
    ParentLinked,
    /// A child port leads to a switch whose register points back with its parent port.
    ChildLinked,
    LocalIsNode,
    LocalIsMember,
    /// Every register is below the root: there are no cycles and no second tree.
    Acyclic,
    /// Every member is in the tree once.
    EveryMember,
    NoIdleLeaf,
    /// Optimal: no member switch as root gives a smaller height.
    LeastHeight,
    /// Optimal: the root node is the member at the lowest port of the root switch.
    LowestRootPort,
    /// Optimal: among parallel links, the tree uses the link with the lowest port at the parent.
    LowestParallel,
    /// The file's statements about its tree (height, edges, leaves) are true.
    AsClaimed,
}

impl fmt::Display for TreeRule {
    /// Writes the name of the rule in lower case with hyphens: `port-once`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in format!("{self:?}").char_indices() {
            let hyphen = if at > 0 && letter.is_ascii_uppercase() { "-" } else { "" };
            write!(f, "{hyphen}{}", letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rule {rule} is broken: {what}")]
#[non_exhaustive]
pub struct Broken {
    pub rule: TreeRule,
    pub place: TreeElement,
    pub what: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TreeShape {
    /// The number of links from the root switch to the switch farthest below it.
    pub height: u32,
    pub edges: u32,
    /// The number of switches of the tree without children.
    pub leaves: u32,
}

impl TreeShape {
    /// Compares a file's statements about its tree with this shape. Fails with [`TreeRule::AsClaimed`] and
    /// the first key that differs.
    pub fn is_as_claimed(&self, claims: &Claims) -> Result<(), Broken> {
        let all = [
            ("height", claims.height, self.height),
            ("edges", claims.edges, self.edges),
            ("leaves", claims.leaves, self.leaves),
        ];
        for (key, claimed, is) in all {
            if let Some(claimed) = claimed.filter(|claimed| *claimed != is) {
                let what =
                    format!("the file says {key} {claimed}, and the registers are a tree of {key} {is}");
                return broken(TreeRule::AsClaimed, TreeElement::Claim(key), what);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum FarEnd {
    Switch(End),
    Node(NodeId),
}

/// Checks the registers of a group; returns the shape of the tree if they break no rule. Fails with the first
/// broken rule, in the order of [`TreeRule`].
pub fn check(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    tree: &Tree,
    rules: Rules,
) -> Result<TreeShape, Broken> {
    let checker = Checker { network, group, tree, cables: cables(network) };
    checker.forms()?;
    checker.root()?;
    checker.links()?;
    checker.locals()?;
    let shape = checker.walk()?;
    checker.members()?;
    checker.leaves()?;
    if rules == Rules::Optimal {
        optimal::check(network, group, tree, shape.height)?;
    }
    Ok(shape)
}

fn cables(network: &SwitchNetwork) -> HashMap<End, FarEnd> {
    let mut cables = HashMap::new();
    for link in network.links() {
        cables.insert(link.a, FarEnd::Switch(link.b));
        cables.insert(link.b, FarEnd::Switch(link.a));
    }
    for (node, end) in (0..).zip(network.nodes()) {
        cables.insert(*end, FarEnd::Node(NodeId(node)));
    }
    cables
}

fn broken(rule: TreeRule, place: TreeElement, what: String) -> Result<(), Broken> {
    Err(Broken { rule, place, what })
}

struct Checker<'a> {
    network: &'a SwitchNetwork,
    group: &'a BarrierGroup,
    tree: &'a Tree,
    cables: HashMap<End, FarEnd>,
}

impl Checker<'_> {
    /// Checks the rules that concern one register each. It checks each rule for all registers before the next
    /// rule, so that it reports the first broken rule.
    fn forms(&self) -> Result<(), Broken> {
        let (tree, group) = (self.tree, self.group);
        if tree.group != group.id() {
            let what = format!("the registers are for group {}, not {}", tree.group.0, group.id().0);
            return broken(TreeRule::GroupMatches, TreeElement::Group, what);
        }
        let switches = self.network.switch_count();
        for switch in tree.registers.keys() {
            if switch.0 as usize >= switches {
                let what = format!("there is no switch {}, there are {switches} (counted from 0)", switch.0);
                return broken(TreeRule::SwitchExists, TreeElement::Register(*switch), what);
            }
        }
        for (switch, register) in &tree.registers {
            let has = self.network.ports(*switch);
            for (place, port) in places(*switch, register) {
                if port.0 >= has {
                    let what = format!(
                        "port {} of switch {}, which has {} (counted from 0)",
                        port.0,
                        switch.0,
                        counted(has, "port")
                    );
                    return broken(TreeRule::PortExists, place, what);
                }
            }
        }
        for (switch, register) in &tree.registers {
            let child: fn(SwitchId, usize) -> TreeElement = TreeElement::Child;
            for (ports, place) in [(&register.children, child), (&register.locals, TreeElement::Local)] {
                if let Some(at) = ports.windows(2).position(|pair| pair[0] >= pair[1]) {
                    let what = format!("port {} comes after port {}", ports[at + 1].0, ports[at].0);
                    return broken(TreeRule::Ascending, place(*switch, at + 1), what);
                }
            }
        }
        for (switch, register) in &tree.registers {
            let mut seen = BTreeSet::new();
            for (place, port) in places(*switch, register) {
                if !seen.insert(port) {
                    let what = format!("port {} of switch {} has two meanings", port.0, switch.0);
                    return broken(TreeRule::PortOnce, place, what);
                }
            }
        }
        Ok(())
    }

    fn root(&self) -> Result<(), Broken> {
        let Tree { root_switch, root_node, registers, .. } = self.tree;
        let Some(register) = registers.get(root_switch) else {
            let what = format!("the root switch {} has no register", root_switch.0);
            return broken(TreeRule::RootHasRegister, TreeElement::RootSwitch, what);
        };
        let wrong = |what| broken(TreeRule::RootNodeAtRootPort, TreeElement::RootNode, what);
        match (root_node, register.parent) {
            (Some(node), _) if !self.group.contains(*node) => wrong(format!("node {} is no member", node.0))?,
            (Some(node), parent) => {
                let end = self.network.nodes()[node.0 as usize];
                if Some(end.port) != parent || end.switch != *root_switch {
                    wrong(format!(
                        "node {} is at port {} of switch {}, but the register of root switch {} says {}",
                        node.0,
                        end.port.0,
                        end.switch.0,
                        root_switch.0,
                        parent.map_or("none".to_owned(), |port| format!("port {}", port.0)),
                    ))?;
                }
            }
            (None, Some(port)) => wrong(format!("there is no root node, but a port {} to it", port.0))?,
            (None, None) => {}
        }
        for (switch, register) in registers {
            if switch != root_switch && register.parent.is_none() {
                let what =
                    format!("switch {} has no parent, and switch {} is the root", switch.0, root_switch.0);
                return broken(TreeRule::OneRoot, TreeElement::Register(*switch), what);
            }
        }
        Ok(())
    }

    /// Checks that both ends of every link that the tree uses refer to each other.
    fn links(&self) -> Result<(), Broken> {
        for (switch, register) in &self.tree.registers {
            let Some(port) = register.parent.filter(|_| *switch != self.tree.root_switch) else { continue };
            let wrong = |what| broken(TreeRule::ParentLinked, TreeElement::Parent(*switch), what);
            match self.far(*switch, port) {
                Ok((far, above)) if above.children.contains(&far.port) => {}
                Ok((far, _)) => wrong(format!(
                    "port {} of switch {} leads to switch {}, which does not have port {} as a child",
                    port.0, switch.0, far.switch.0, far.port.0
                ))?,
                Err(what) => wrong(what)?,
            }
        }
        for (switch, register) in &self.tree.registers {
            for (at, port) in register.children.iter().enumerate() {
                let wrong = |what| broken(TreeRule::ChildLinked, TreeElement::Child(*switch, at), what);
                match self.far(*switch, *port) {
                    Ok((far, below))
                        if below.parent == Some(far.port) && far.switch != self.tree.root_switch => {}
                    Ok((far, _)) => wrong(format!(
                        "port {} of switch {} leads to switch {}, which does not have port {} as its parent",
                        port.0, switch.0, far.switch.0, far.port.0
                    ))?,
                    Err(what) => wrong(what)?,
                }
            }
        }
        Ok(())
    }

    /// Returns the other end of the cable at a port, and the register of the switch there.
    fn far(&self, switch: SwitchId, port: Port) -> Result<(End, &Register), String> {
        match self.cables.get(&End { switch, port }) {
            None => Err(format!("nothing is plugged into port {} of switch {}", port.0, switch.0)),
            Some(FarEnd::Node(node)) => Err(format!(
                "port {} of switch {} leads to node {}, not to a switch",
                port.0, switch.0, node.0
            )),
            Some(FarEnd::Switch(far)) => match self.tree.registers.get(&far.switch) {
                Some(register) => Ok((*far, register)),
                None => Err(format!(
                    "port {} of switch {} leads to switch {}, which has no register",
                    port.0, switch.0, far.switch.0
                )),
            },
        }
    }

    fn locals(&self) -> Result<(), Broken> {
        let all = || {
            self.tree.registers.iter().flat_map(|(switch, register)| {
                register.locals.iter().enumerate().map(|(at, port)| (*switch, at, *port))
            })
        };
        for (switch, at, port) in all() {
            if !matches!(self.cables.get(&End { switch, port }), Some(FarEnd::Node(_))) {
                let what = format!("no node is at port {} of switch {}", port.0, switch.0);
                return broken(TreeRule::LocalIsNode, TreeElement::Local(switch, at), what);
            }
        }
        for (switch, at, port) in all() {
            if let Some(FarEnd::Node(node)) = self.cables.get(&End { switch, port })
                && !self.group.contains(*node)
            {
                let what = format!("node {} at port {} of switch {} is no member", node.0, port.0, switch.0);
                return broken(TreeRule::LocalIsMember, TreeElement::Local(switch, at), what);
            }
        }
        Ok(())
    }

    /// Walks down from the root. Both ends of every link are known to refer to each other, so a register that
    /// the walk does not visit is in a cycle or in a second tree.
    fn walk(&self) -> Result<TreeShape, Broken> {
        let mut met = BTreeSet::from([self.tree.root_switch]);
        let mut level = vec![self.tree.root_switch];
        let mut shape = TreeShape { height: 0, edges: 0, leaves: 0 };
        loop {
            let mut next = Vec::new();
            for switch in &level {
                let children = &self.tree.registers[switch].children;
                shape.leaves += u32::from(children.is_empty());
                for port in children {
                    if let Ok((far, _)) = self.far(*switch, *port) {
                        shape.edges += 1;
                        if met.insert(far.switch) {
                            next.push(far.switch);
                        }
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            shape.height += 1;
            level = next;
        }
        if let Some(lost) = self.tree.registers.keys().find(|switch| !met.contains(switch)) {
            let what =
                format!("switch {} does not hang below root switch {}", lost.0, self.tree.root_switch.0);
            broken(TreeRule::Acyclic, TreeElement::Register(*lost), what)?;
        }
        Ok(shape)
    }

    fn members(&self) -> Result<(), Broken> {
        for node in self.group.members() {
            let end = self.network.nodes()[node.0 as usize];
            let register = self.tree.registers.get(&end.switch);
            let local = register.is_some_and(|register| register.locals.contains(&end.port));
            if !local && self.tree.root_node != Some(*node) {
                let what =
                    format!("member {} at port {} of switch {} is missing", node.0, end.port.0, end.switch.0);
                let place = register.map_or(TreeElement::Whole, |_| TreeElement::Register(end.switch));
                return broken(TreeRule::EveryMember, place, what);
            }
        }
        Ok(())
    }

    fn leaves(&self) -> Result<(), Broken> {
        for (switch, register) in &self.tree.registers {
            let has_member = !register.locals.is_empty()
                || *switch == self.tree.root_switch && self.tree.root_node.is_some();
            if register.children.is_empty() && !has_member {
                let what = format!("switch {} has neither members nor children", switch.0);
                return broken(TreeRule::NoIdleLeaf, TreeElement::Register(*switch), what);
            }
        }
        Ok(())
    }
}

fn places(switch: SwitchId, register: &Register) -> impl Iterator<Item = (TreeElement, Port)> {
    let parent = register.parent.map(|port| (TreeElement::Parent(switch), port));
    let children =
        register.children.iter().enumerate().map(move |(at, port)| (TreeElement::Child(switch, at), *port));
    let locals =
        register.locals.iter().enumerate().map(move |(at, port)| (TreeElement::Local(switch, at), *port));
    parent.into_iter().chain(children).chain(locals)
}

#[cfg(test)]
mod tests;
