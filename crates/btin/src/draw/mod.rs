//! Draws a network and a barrier tree in it as an SVG picture, for `--svg FILE`.
//!
//! ```text
//!   [ 3 root ]--4----0--[ 1 ]--2----7--[ 4 ] o o        a box for each switch; its depth is its column
//!        |  \--1----2--[ 0 ] o o o         |            o: a member; filled: the root node
//!        .............[ 2 ]................             thin: cables that the tree does not use
//! ```
//! Up to [`MAX_BOXES`] switches have a box each, with their registers. With more switches the boxes would
//! hide each other, and each depth becomes a bar. The layout depends on the tree alone, without randomness:
//! the same tree gives the same picture.
//!
//! Cost: linear in switches and links. When not to use it: to see a network without a tree.

mod boxes;
mod levels;

use crate::{BarrierGroup, NetworkFile, NodeId, SwitchId, Tree};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use unisono_text::counted;

/// A tree in a network with more switches is drawn as one bar for each depth.
pub const MAX_BOXES: usize = 120;

const STYLE: &str = "\
svg{font:12px system-ui,sans-serif;--page:#fff;--ink:#1b1f24;--soft:#6b7280;--line:#c8cdd4;--tree:#1d6fa5;--member:#c2571a;--fill:#f3f6f9}\
@media(prefers-color-scheme:dark){svg{--page:#14171b;--ink:#e6e9ed;--soft:#9aa3ae;--line:#3a424c;--tree:#6db3e2;--member:#f0975a;--fill:#1f252c}}\
.page{fill:var(--page)}text{fill:var(--ink)}.soft{fill:var(--soft);font-size:10px}.head{font-size:15px;font-weight:600}\
.other{fill:none;stroke:var(--line);stroke-width:1}.edge{fill:none;stroke:var(--tree);stroke-width:2}\
.box{fill:var(--fill);stroke:var(--tree);stroke-width:1.5}.pass{stroke-dasharray:4 3}.out{fill:var(--page);stroke:var(--line)}\
.root{stroke-width:3.5}.member{fill:none;stroke:var(--member);stroke-width:1.8}.rootnode{fill:var(--member);stroke:var(--member)}\
.bar{fill:var(--tree)}.barpass{fill:var(--line)}.barmember{fill:var(--member)}";

/// Draws a group's tree in its network, below a heading and the lines of `notes`.
pub fn svg(topology: &NetworkFile, group: &BarrierGroup, tree: &Tree, notes: &[String]) -> String {
    let shape = DrawnTree::new(topology, group, tree);
    if topology.network.switch_count() > MAX_BOXES {
        levels::draw(&shape, notes)
    } else {
        boxes::draw(&shape, notes)
    }
}

/// The tree in the form that both pictures need.
struct DrawnTree<'a> {
    topology: &'a NetworkFile,
    tree: &'a Tree,
    /// The tree's switches in depth-first order, children by port, each with its depth.
    walk: Vec<(SwitchId, usize)>,
    children: BTreeMap<SwitchId, Vec<SwitchId>>,
    members: BTreeMap<SwitchId, Vec<NodeId>>,
}

impl<'a> DrawnTree<'a> {
    fn new(topology: &'a NetworkFile, group: &BarrierGroup, tree: &'a Tree) -> Self {
        let network = &topology.network;
        let mut children: BTreeMap<SwitchId, Vec<SwitchId>> = BTreeMap::new();
        for (switch, register) in &tree.registers {
            let below = register.children.iter().filter_map(|port| network.neighbour_at(*switch, *port));
            children.insert(*switch, below.map(|next| next.switch).collect());
        }
        let mut members: BTreeMap<SwitchId, Vec<NodeId>> = BTreeMap::new();
        for switch in network.switches() {
            let here = network.locals(switch).iter().map(|(_, node)| *node);
            let here: Vec<NodeId> = here.filter(|node| group.contains(*node)).collect();
            if !here.is_empty() {
                members.insert(switch, here);
            }
        }
        let mut walk = Vec::new();
        let mut stack = vec![(tree.root_switch, 0)];
        while let Some((switch, depth)) = stack.pop() {
            walk.push((switch, depth));
            if walk.len() > tree.registers.len() {
                break; // the registers form a cycle; draw no switch twice
            }
            let below = children.get(&switch).map(Vec::as_slice).unwrap_or_default();
            stack.extend(below.iter().rev().map(|child| (*child, depth + 1)));
        }
        Self { topology, tree, walk, children, members }
    }

    fn members(&self, switch: SwitchId) -> &[NodeId] {
        self.members.get(&switch).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the name of a switch for a small box: its label if it has one.
    fn short(&self, switch: SwitchId) -> String {
        let label = self.topology.switch_labels.get(switch.0 as usize).filter(|label| !label.is_empty());
        label.map_or_else(|| self.topology.switch_name(switch), str::to_owned)
    }

    fn heading(&self) -> String {
        let members: usize = self.members.values().map(Vec::len).sum();
        let height = self.walk.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
        format!(
            "Barrier tree of {}: root switch {}, height {height}, {} in {}",
            counted(members, "member"),
            self.topology.switch_shown(self.tree.root_switch),
            counted(self.tree.registers.len(), "register"),
            counted(self.topology.network.switch_count(), "switch"),
        )
    }
}

struct TreeCanvas {
    body: String,
    width: f64,
    height: f64,
}

impl TreeCanvas {
    /// Draws heading and notes. Returns the canvas and the vertical position below them.
    fn new(shape: &DrawnTree<'_>, notes: &[String]) -> (Self, f64) {
        let mut canvas = Self { body: String::new(), width: 520.0, height: 0.0 };
        let heading = shape.heading();
        canvas.text("head", 16.0, 26.0, &heading);
        canvas.width = canvas.width.max(heading.len() as f64 * 8.2 + 32.0);
        let mut y = 46.0;
        for note in notes {
            canvas.text("", 16.0, y, note);
            canvas.width = canvas.width.max(note.len() as f64 * 6.6 + 32.0);
            y += 17.0;
        }
        (canvas, y + 8.0)
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let _ =
            write!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", SvgText(text));
        self.reach(x, y + 6.0);
    }

    fn path(&mut self, class: &str, path: &str) {
        let _ = write!(self.body, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    fn rect(&mut self, class: &str, (x, y, width, height): (f64, f64, f64, f64), title: &str) {
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\">\
             <title>{}</title></rect>",
            SvgText(title)
        );
        self.reach(x + width, y + height);
    }

    fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{}</title></circle>",
            SvgText(title)
        );
        self.reach(x + radius, y + radius);
    }

    fn reach(&mut self, x: f64, y: f64) {
        self.width = self.width.max(x + 16.0);
        self.height = self.height.max(y + 12.0);
    }

    fn finish(self, shape: &DrawnTree<'_>) -> String {
        let Self { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\"><title>{}</title><style>{STYLE}</style>\
             <rect class=\"page\" width=\"100%\" height=\"100%\"/>{body}</svg>\n",
            SvgText(&shape.heading())
        )
    }
}

/// Text escaped for SVG; names come from untrusted files.
struct SvgText<'a>(&'a str);

impl fmt::Display for SvgText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                c if c.is_control() => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{NetworkOptions, generate};
    use crate::{PlanOptions, plan};

    fn picture(options: NetworkOptions) -> (NetworkFile, Tree, String) {
        let topology = generate(&options).expect("there is such a network");
        let group = &topology.groups[0];
        let tree = plan(&topology.network, group, &PlanOptions::default()).expect("connected").tree;
        let svg = svg(&topology, group, &tree, &["a < b".to_owned()]);
        (topology, tree, svg)
    }

    #[test]
    fn each_switch_has_a_box_each_member_a_circle_each_tree_link_a_line() {
        let (topology, tree, svg) = picture(NetworkOptions::default());
        assert_eq!(svg.matches("<rect class=\"box").count(), tree.registers.len());
        let outside = topology.network.switch_count() - tree.registers.len();
        assert_eq!(svg.matches("<rect class=\"out").count(), outside);
        let circles = svg.matches("class=\"member\"").count() + svg.matches("class=\"rootnode\"").count();
        assert_eq!(circles, 64);
        assert_eq!(svg.matches("class=\"rootnode\"").count(), 1);
        assert_eq!(svg.matches("class=\"edge\"").count(), tree.registers.len() - 1);
        let other = topology.network.links().len() - (tree.registers.len() - 1);
        assert_eq!(svg.matches("class=\"other\"").count(), other);
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
        for name in
            ["root switch", "passes on, no members", "not in the tree", "link of the tree", "other link"]
        {
            assert_eq!(
                svg.matches(&format!(">{name}</text>")).count(),
                1,
                "the legend says what a {name} looks like"
            );
        }
    }

    #[test]
    fn the_same_network_is_the_same_picture_and_a_large_one_is_a_bar_a_depth() {
        assert_eq!(picture(NetworkOptions::default()).2, picture(NetworkOptions::default()).2);
        let options =
            NetworkOptions { switches: 300, nodes: 1024, members: 1024, ..NetworkOptions::default() };
        let (_, tree, svg) = picture(options);
        assert!(svg.len() < 20_000, "{} bytes for {} registers", svg.len(), tree.registers.len());
        assert!(svg.contains("depth 0") && svg.contains("depth 5"));
    }
}
