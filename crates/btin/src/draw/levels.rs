//! Draws a large tree as one bar for each depth: switches, switches with members, and members.

use super::{DrawnTree, TreeCanvas};
use unisono_text::counted;

const ROW: f64 = 40.0;
const LEFT: f64 = 90.0;
const MAX_WIDTH: f64 = 520.0;

#[derive(Clone, Copy, Default)]
struct DepthLevel {
    switches: usize,
    member_switches: usize,
    members: usize,
    children: usize,
}

pub(super) fn draw(shape: &DrawnTree<'_>, notes: &[String]) -> String {
    let (mut canvas, top) = TreeCanvas::new(shape, notes);
    let mut levels: Vec<DepthLevel> = Vec::new();
    for (switch, depth) in &shape.walk {
        if levels.len() <= *depth {
            levels.resize(depth + 1, DepthLevel::default());
        }
        let level = &mut levels[*depth];
        let members = shape.members(*switch).len();
        level.switches += 1;
        level.member_switches += usize::from(members > 0);
        level.members += members;
        level.children += shape.children.get(switch).map_or(0, Vec::len);
    }
    let max_switches = levels.iter().map(|level| level.switches).max().unwrap_or(1) as f64;
    for (depth, level) in levels.iter().enumerate() {
        let y = top + depth as f64 * ROW;
        let of = |switches: usize| MAX_WIDTH * switches as f64 / max_switches;
        canvas.text("", 16.0, y + 15.0, &format!("depth {depth}"));
        let with = of(level.member_switches);
        let title = format!("{} with members", counted(level.member_switches, "switch"));
        canvas.rect("bar", (LEFT, y, with, 20.0), &title);
        let without = level.switches - level.member_switches;
        canvas.rect(
            "barpass",
            (LEFT + with, y, of(without), 20.0),
            &format!("{} without", counted(without, "switch")),
        );
        let up =
            if depth == 0 { "root".to_owned() } else { format!("{} up", counted(level.switches, "link")) };
        canvas.text(
            "soft",
            LEFT + of(level.switches) + 8.0,
            y + 14.0,
            &format!(
                "{}, {} with members ({}); {up}, {} down",
                counted(level.switches, "switch"),
                level.member_switches,
                counted(level.members, "member"),
                level.children
            ),
        );
        canvas.reach(LEFT + of(level.switches) + 400.0, y + 20.0);
    }
    let outside = shape.topology.network.switch_count() - shape.walk.len();
    let y = top + levels.len() as f64 * ROW;
    canvas.text("", 16.0, y + 15.0, &format!("not in the tree: {}", counted(outside, "switch")));
    canvas.text("", 16.0, y + 38.0, "Legend");
    canvas.rect("bar", (LEFT, y + 27.0, 30.0, 14.0), "switches with members");
    canvas.text("soft", LEFT + 38.0, y + 38.0, "switches with members");
    canvas.rect("barpass", (LEFT + 190.0, y + 27.0, 30.0, 14.0), "switches that pass on");
    canvas.text("soft", LEFT + 228.0, y + 38.0, "switches that pass on, no members");
    canvas.finish(shape)
}
